"""A node's store: room on its disk, who may read its files, since when it has its history."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from engine.monitoring.problems import of_the_disk
from engine.protocol.ha.wire import ReasonCode
from engine.settings import tls_file
from engine.settings.config import ConfigError
from engine.shared_memory.cursors import BrokerCounters
from store.files.segment_files import SegmentFiles
from store.names import CONFIG
from store.reading.history import History, held
from tools.common.moments import time_text
from tools.doctor.node import Node, counters_of
from tools.doctor.rows import Code, Row, left_open, ok, unknown, wrong

FILES_MAX = 1000  # looked at in one directory
GIB = 1 << 30
DISK_FULL_RATIO = 0.85


def rows(node: Node) -> list[Row]:
    """Check room, files and history of a node."""
    if node.running is None:
        return [_room_there(node), _history_there(node), unknown("files", "its files are on another host", "ask there")]
    with closing(counters_of(node.running)) as counters:
        return [*_room(node, counters), _files(node, counters), _history(node, counters)]


def _room(node: Node, counters: BrokerCounters) -> list[Row]:
    """Return the row on free space; none where something is wrong with it, which `group.own_rows` says."""
    usage = shutil.disk_usage(node.store or "/")
    what = f"{usage.free / GIB:.1f} GiB free of {usage.total / GIB:.1f}, used to {counters.disk_used_percent.read()} %"
    return [] if any(of_the_disk(counters)) else [ok("disk", what)]


def _room_there(node: Node) -> Row:
    ratio = node.runtime.get("commitLogDiskRatio", "")
    try:
        used = float(ratio)
    except ValueError:
        return unknown("disk", "it does not report its disk usage", "run this on its own host")
    if used > DISK_FULL_RATIO:
        next_step = f"`slipstream admin updateBrokerConfig -b {node.address} -k fileReservedTime -v HOURS` on its host"
        return wrong("disk", ReasonCode.DISK, f"used to {used:.0%}", next_step)
    return ok("disk", f"used to {used:.0%}")


def _files(node: Node, counters: BrokerCounters) -> Row:
    """Whether others than its user and group may read or write what it keeps."""
    for secret in _secrets(node):
        with suppress(OSError):
            if secret.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
                what = f"every user of this host may read {secret}, which contains a secret"
                return wrong("files", Code.PERMISSIONS, what, f"`chmod o-rwx {secret}`, and replace it")
    writable, readable = [], []
    for path in _looked_at(node, counters):
        try:
            mode = path.stat().st_mode
        except OSError:
            continue
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            writable.append(path)
        elif mode & (stat.S_IROTH | stat.S_IXOTH if path.is_dir() else stat.S_IROTH):
            readable.append(path)
    if writable:
        what = f"every user of this host may write {writable[0]}" + _more(writable)
        return wrong("files", Code.PERMISSIONS, what, f"`chmod -R o-rwx {node.store}`")
    if readable:
        what = f"every user of this host may read {readable[0]}" + _more(readable)
        return left_open("files", what, f"`chmod -R o-rwx {node.store}`")
    return ok("files", "only its user and group may read the store and the shared memory")


def _more(paths: list[Path]) -> str:
    return f" and {len(paths) - 1} more" if len(paths) > 1 else ""


def _looked_at(node: Node, counters: BrokerCounters) -> Iterator[Path]:
    """Yield the paths that a look into the root shows: a directory that nobody enters guards all below it."""
    root, log = Path(node.store or "/"), Path(node.setting("storePathCommitLog"))
    closed = not root.stat().st_mode & (stat.S_IXOTH | stat.S_IROTH | stat.S_IWOTH)
    yield root
    below = [] if closed else [root, root / CONFIG]
    for directory in [*below, *([] if closed and log.is_relative_to(root) else [log])]:
        if directory.is_dir():
            yield directory
            yield from sorted(directory.iterdir())[:FILES_MAX]
    yield counters.directory
    if counters.directory.stat().st_mode & stat.S_IXOTH:
        yield from sorted(counters.directory.iterdir())[:FILES_MAX]


def _secrets(node: Node) -> Iterator[Path]:
    """The secret of the HA port, and private keys of certificates."""
    if secret := node.setting("haSecretFile"):
        yield Path(secret)
    for name in ("tls.config.file", "haTlsConfigFile"):
        if path := node.setting(name):
            with suppress(ConfigError):
                said = tls_file.load(Path(path))
                yield from (own.key for own in (said.server_own, said.client_own) if own is not None)


def _history(node: Node, counters: BrokerCounters) -> Row:
    files = SegmentFiles(Path(node.setting("storePathCommitLog")), int(node.setting("mappedFileSizeCommitLog")))
    return ok("history", _since(held(files, counters.min_physical_offset.read(), counters.max_physical_offset.read())))


def _history_there(node: Node) -> Row:
    history = history_of(node.runtime)
    if history is None:
        return unknown("history", "it does not report where its log begins")
    return ok("history", _since(history))


def history_of(runtime: dict[str, str]) -> History | None:
    """Return what a broker's figures say, RocketMQ's, too."""
    begins, earliest = runtime.get("commitLogMinOffset", ""), runtime.get("earliestMessageTimeStamp", "")
    if not begins.isdecimal():
        return None
    return History(int(begins), int(earliest) if earliest.isdecimal() and int(earliest) else None)


def _since(history: History) -> str:
    when = f", stored {time_text(history.from_ms)}" if history.from_ms is not None else ", no message yet"
    below = "" if history.from_offset == 0 else "; earlier messages have expired or were never copied"
    return f"from offset {history.from_offset:,}{when}{below}"
