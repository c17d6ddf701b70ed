"""A broker's region directory: made under a name that nobody can guess or take before, found again, removed.

The name says which store it is of (a hash of the root's device and inode), then the broker's token; `owner` in it says
both in full. A directory is removed only if it is in `regionPath` under such a name, says the same root and token
inside, and holds nothing but what brokers and producers put there. No path that a file names is followed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from engine.errors import StartRefused
from engine.settings import cpus, replication, tls_file
from engine.settings.config import BrokerConfig
from engine.settings.tls_mode import TlsMode
from engine.shared_memory import addresses
from engine.shared_memory.region_directory import rival_note, role_request
from ipc.module_names import version_here
from ipc.process import boot_id, start_time
from ipc.region import is_region
from store.files import access
from store.files import pointer as pointer_file
from store.files.file_io import CREATING_SUFFIX, DIRECTORY_MODE
from store.files.place import Place

log = logging.getLogger("slipstream")

NAME_DIGITS = 12
COUNTS_NAME = "counted.json"  # what the clients role has counted


def create(config: BrokerConfig) -> Path:
    """A new region directory for this store. Raises StartRefused where none can be made."""
    place, token = Place.of(config.store_path_root_dir), pointer_file.new_token()
    directory = Path(config.region_path) / f"{_prefix(place)}{token}"
    try:
        directory.mkdir(mode=DIRECTORY_MODE)
        if config.store_group:
            access.give([directory], access.group_id(config.store_group))
        pointer_file.claim(directory, config.store_path_root_dir, token)
    except OSError as error:
        raise StartRefused(
            str(directory),
            f"the directory for shared memory cannot be created ({error.strerror})",
            "set regionPath to a directory in memory that this user may write, for example /dev/shm",
        ) from error
    return directory


def remove_leftovers(config: BrokerConfig, spared: Path | None = None, files: Collection[str] | None = None) -> None:
    """Remove the regions that a killed broker of this store left; what is at `spared` stays, or these files of it.

    The caller owns the store.
    """
    place = Place.of(config.store_path_root_dir)
    for directory in _named(config.region_path, place):
        if directory == spared and files is None:
            continue  # ours: roles make files in it at this moment
        reason = _why_not_ours(directory, place)
        if reason:
            log.warning("%s: looks like shared memory of this store, but was not removed: %s", directory, reason)
        elif directory == spared:
            for path in directory.iterdir():
                if files is not None and path.name not in files:
                    remove(path) if path.is_dir() else path.unlink(missing_ok=True)
        else:
            remove(directory)


def remove(directory: Path) -> None:
    """Remove a broker's region directory with all that is in it; errors are ignored."""
    shutil.rmtree(directory, ignore_errors=True)


def _prefix(place: Place) -> str:
    digest = hashlib.sha256(f"{place.device}:{place.inode}".encode()).hexdigest()
    return f"slipstream-{digest[:NAME_DIGITS]}-"


def _named(region_path: Path, place: Place) -> Iterator[Path]:
    """Yield what is named like this store's region directories."""
    prefix = _prefix(place)
    try:
        names = [entry.name for entry in os.scandir(region_path) if entry.name.startswith(prefix)]
    except OSError:
        return
    yield from (Path(region_path) / name for name in sorted(names))


def _why_not_ours(directory: Path, place: Place) -> str:
    """Return why a directory must not be removed; empty when a broker of this store made it."""
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    if status.st_uid != os.geteuid():
        return f"it belongs to user {status.st_uid}"
    owner = pointer_file.read_owner(directory)
    if owner is None or not owner[1].is_same(place) or not directory.name.endswith(f"-{owner[0]}"):
        return "it has no file `owner` that names this store"
    strange = next((path for path in sorted(directory.iterdir()) if not _may_be_ours(path)), None)
    return f"it contains {strange.name}, which no broker creates" if strange is not None else ""


def _may_be_ours(path: Path) -> bool:
    """Whether this is a region, finished or not, or what else brokers and sinks put beside regions."""
    notes = (
        pointer_file.OWNER_NAME, role_request.NAME, role_request.REFUSAL, role_request.LOCK, role_request.CLAIM,
        rival_note.NAME, COUNTS_NAME,
    )  # fmt: skip
    try:
        kind = path.lstat().st_mode
        if stat.S_ISDIR(kind):
            return path.name == pointer_file.SINKS_NAME
        return stat.S_ISREG(kind) and (path.name.removesuffix(CREATING_SUFFIX) in notes or is_region(path))
    except FileNotFoundError:
        return True  # its maker gave it its name meanwhile, or died a moment ago


def pointer(config: BrokerConfig, directory: Path, ha_listen_port: int) -> dict[str, Any]:
    """Return what the pointer file says; settings under RocketMQ's keys where it has one."""
    return {
        "pid": os.getpid(),
        "start_time": start_time(os.getpid()),
        "boot_id": boot_id(),
        "token": directory.name.rpartition("-")[2],
        "region_directory": str(directory),
        "version": version_here(),
        "settings": {
            **replication.for_views(config),
            "brokerId": config.broker_id,
            "namesrvAddr": ";".join(config.name_servers),
            "storeHost": f"{_bracketed(config.broker_ip1)}:{config.listen_port}",
            "haListenPort": ha_listen_port,
            "haSecretFile": str(config.ha_secret_file or ""),
            "tlsTestFile": _tls_test_file(config),
            "mappedFileSizeConsumeQueue": config.mapped_file_size_consume_queue_bytes,
            "maxHashSlotNum": config.max_hash_slot_num,
            "maxIndexNum": config.max_index_num,
            "messageIndexEnable": config.message_index_enable,
            "maxMessageSize": config.max_message_bytes,
            "defaultTopicQueueNums": config.default_topic_queue_nums,
            "ringSizeInBytes": config.ring_bytes,
            "maxProducers": config.producers_max,
            "syncCpu": cpus.sync_cpu(config.affinity),
            "regionId": config.region_id,
            "traceOn": config.trace_on,
            "enableLmq": config.enable_lmq,
            "enableMultiDispatch": config.enable_multi_dispatch,
            "enabledAppendPropCRC": config.enabled_append_prop_crc,
            "timerWheelEnable": config.timer_wheel_enable,
            "transactionOpMsgMaxSize": config.transaction_op_msg_max_bytes,
            "autoCreateTopicEnable": config.auto_create_topic_enable,
            "messageDelayLevel": config.message_delay_level,
            "haMasterAddress": addresses.host_and_port(*config.ha_master_address) if config.ha_master_address else "",
            "transactionOpBatchInterval": config.transaction_op_batch_interval_ms,
        },
    }


def _tls_test_file(config: BrokerConfig) -> str:
    """The tls.properties by which the broker shows a certificate of its own making; empty without."""
    is_off = config.tls_server_mode is TlsMode.DISABLED or not tls_file.made_by_itself(config.tls_config_file)
    return "" if is_off else str(config.tls_config_file)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
