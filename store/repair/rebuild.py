"""Builds consume queues or index files again from the log, beside the old ones, and puts them into their places.

Nothing of a queue is ever half there: the new one is on disk before it and the old one take each other's names. A kill
leaves a directory beside the store's own, which the next rebuild removes. Queues that the log no longer tells anything
of stay as they are: their last entry says which number comes next. The caller holds the store's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from store.files import checkpoint as checkpoint_file
from store.files import file_io
from store.files.checkpoint import Checkpoint
from store.files.directory import StoreDirectory
from store.files.own_files import make_tree_own
from store.files.segment_files import SegmentFiles, segment_bytes_of
from store.index.geometry import geometry_of
from store.index.index_file import DEFAULT_GEOMETRY, Geometry
from store.index.query import index_files
from store.index.service import IndexService
from store.message.delay import DELAYS_MS
from store.names import BATCH_QUEUES, QUEUE_EXTENSIONS
from store.queues.consume_queue import file_bytes_of, queue_directories
from store.queues.queue_set import Building, kinds_found
from store.queues.sync import queue_file_bytes
from store.reading.extent import require_idle
from store.reading.origin import DEFAULT_QUEUE_FILE_BYTES, line_of_store
from store.recovery.dispatch import Dispatcher
from store.recovery.index import recover_index
from store.recovery.recovery import recover_read_only

SUFFIX = ".rebuilding"
Progress = Callable[[int, int], None]


@dataclass
class Rebuilt:
    """Names of what was replaced and kept, and findings."""

    replaced: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


@contextmanager
def locked(directory: StoreDirectory) -> Iterator[None]:
    """Own the store meanwhile. Raises StoreLocked when a broker runs on it."""
    require_idle(directory)
    directory.lock()
    try:
        yield
    finally:
        directory.unlock()


def rebuild_queues(
    directory: StoreDirectory,
    on_progress: Progress,
    topic: str | None = None,
    queue_id: int | None = None,
    file_bytes: int | None = None,
    delays_ms: tuple[int, ...] = DELAYS_MS,
) -> Rebuilt:
    """Build the queues of that topic and queue id, or all, of every kind that there is; delays by these levels.

    Units of extensions that are there stay where they are. Raises BitRot, MissingSegment, OSError.
    """
    files, low, high = _whole_log(directory)
    make_tree_own(directory.root / QUEUE_EXTENSIONS)
    roots = directory.consumequeue, directory.root / BATCH_QUEUES
    building, batches = map(_fresh, roots)
    done = Rebuilt()
    kinds = kinds_found(directory.root, line_of_store(directory.root).queues)._replace(delays_ms=delays_ms)
    dispatcher = Dispatcher(
        files,
        building,
        file_bytes or queue_file_bytes(directory.consumequeue) or file_bytes_of(DEFAULT_QUEUE_FILE_BYTES),
        kinds=kinds,
        building=Building(batches),
    )
    with closing(dispatcher):
        offset = low
        while offset < high:
            reached = dispatcher.dispatch_batch(offset, high)
            if reached == offset:
                break
            offset = reached
            on_progress(offset - low, high - low)
    done.findings += dispatcher.findings
    file_io.sync_tree(directory.root / QUEUE_EXTENSIONS)  # new units are named by new entries
    for made, old in zip((building, batches), roots, strict=True):
        _put_in_place(made, old, topic, queue_id, done)
        file_io.remove_tree(made)
    forget_in_checkpoint(directory)
    return done


def _put_in_place(made: Path, root: Path, topic: str | None, queue_id: int | None, done: Rebuilt) -> None:
    """The queues made in one directory for those in the other, as far as they are asked for."""
    file_io.sync_tree(made)
    wanted = {
        (name, number): path
        for name, number, path in queue_directories(made)
        if topic in (None, name) and queue_id in (None, number)
    }
    for (name, number), path in wanted.items():
        _replace(path, root / name / str(number))
        done.replaced.append(f"{name}/{number}")
    for name, number, _path in queue_directories(root):
        if (name, number) not in wanted and topic in (None, name) and queue_id in (None, number):
            done.kept.append(f"{name}/{number}")


def rebuild_index(directory: StoreDirectory, on_progress: Progress, geometry: Geometry | None = None) -> Rebuilt:
    """Build the index; without files that tell it, of RocketMQ's default geometry. Raises as `rebuild_queues`."""
    files, low, high = _whole_log(directory)
    geometry = geometry or geometry_of(reversed(index_files(directory.index))) or DEFAULT_GEOMETRY
    building = _fresh(directory.index)
    on_progress(0, high - low)
    service = IndexService(building, geometry.slots, geometry.entries_max)
    findings = recover_index(service, files, (low, high), Checkpoint(), clean=False)
    file_io.make_directories(building)
    file_io.sync_tree(building)
    forget_in_checkpoint(directory)
    names = [path.name for path in index_files(building)]
    _replace(building, directory.index)
    file_io.remove_tree(building)
    on_progress(high - low, high - low)
    return Rebuilt(names, [], findings)


def _whole_log(directory: StoreDirectory) -> tuple[SegmentFiles, int, int]:
    """The log and its range; a damaged one is refused, because queues of half a log would hide the other half."""
    outcome = recover_read_only(directory)
    if outcome.rot is not None:
        raise outcome.rot
    files = SegmentFiles(directory.commitlog, segment_bytes_of(directory.commitlog))
    return files, outcome.min_physical_offset, outcome.max_physical_offset


def _fresh(directory: Path) -> Path:
    """An empty directory beside that one: on its file system, so that names can be exchanged."""
    building = directory.with_name(directory.name + SUFFIX)
    file_io.remove_tree(building)
    file_io.make_directories(building)
    return building


def _replace(new: Path, old: Path) -> None:
    """Give `new` the name of `old`, durably; what had the name is then at `new`."""
    if old.exists():
        file_io.exchange(new, old)
    else:
        file_io.make_directories(old.parent)
        file_io.rename(new, old)
        file_io.sync_directory(old.parent.parent)
    file_io.sync_directory(old.parent)
    file_io.sync_directory(new.parent)


def forget_in_checkpoint(directory: StoreDirectory) -> None:
    """The checkpoint knows how many entries there were and in which index file: the next start counts again."""
    checkpoint = checkpoint_file.read(directory.checkpoint)
    if checkpoint.flushed_offset is not None:
        checkpoint_file.write(directory.checkpoint, checkpoint.as_rocketmqs())
