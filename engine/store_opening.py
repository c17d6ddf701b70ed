"""What a store needs before its log is recovered: its group let in, what was interrupted finished."""

from __future__ import annotations

import logging
import os

from engine.errors import StartRefused
from engine.settings.config import BrokerConfig
from store.files.access import GROUP_UMASK, group_id
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles, named_files
from store.notes import divergence
from store.recovery import lost_log
from store.repair import interrupted

log = logging.getLogger("slipstream")


def give_to_group(config: BrokerConfig, directory: StoreDirectory) -> None:
    """Let the group of readers in, if there is one: to what is there, and by setgid to what comes."""
    name = config.store_group
    if not name:
        return
    os.umask(GROUP_UMASK)  # ours may be narrower; the group is to read what is made from now on
    try:
        directory.give_to_group(group_id(name))
    except KeyError:
        raise StartRefused(f"storeGroup={name}", "no such group", "give a group that `getent group` lists") from None
    except PermissionError as error:
        why = f"{error.filename} cannot be given to this group ({error.strerror})"
        raise StartRefused(f"storeGroup={name}", why, "give a group that the broker's user belongs to") from None


def finish_interrupted(config: BrokerConfig, directory: StoreDirectory) -> None:
    """A rewind, a cut or a repair of the log that was begun and not ended. Raises StartRefused where nothing can be
    written, and LogMissing: nothing is changed."""
    for path in (directory.commitlog, *directory.queue_directories(), directory.index, directory.config):
        if path.is_dir() and os.statvfs(path).f_flag & os.ST_RDONLY:
            why = "its file system is mounted read-only"
            raise StartRefused(str(path), why, "mount it writable (`findmnt -T` names it), then start again")
    lost_log.require(directory, [base for base, size in named_files(directory.commitlog) if size])
    files = SegmentFiles(directory.commitlog, config.mapped_file_size_commit_log_bytes)
    for done in interrupted.finish(directory, files).texts():
        log.warning("%s", done)


def tell_divergence(directory: StoreDirectory) -> None:
    """Log that the store's log differs from its master's, if a note says so."""
    if (parted := divergence.read(directory.root)) is not None:
        log.warning("%s; see `slipstream ha status`", parted.text())
