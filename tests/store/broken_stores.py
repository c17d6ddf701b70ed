"""Stores broken in one way each: what somebody's hand, disk or other program may leave behind."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from store.files.directory import StoreDirectory
from tests.harness.children import exit_code_of

SEGMENT_BYTES, QUEUE_FILE_BYTES = 256 * 1024, 4000
HUGE = 1 << 42
BREAKS: dict[str, Callable[[Path], None]] = {}


def _break(function: Callable[[Path], None]) -> Callable[[Path], None]:
    BREAKS[function.__name__] = function
    return function


def segments(root: Path) -> list[Path]:
    """The files of the log, in order."""
    return sorted(path for path in (root / "commitlog").iterdir() if path.name.isdigit())


def a_queue(root: Path) -> Path:
    """The first file of the queue that is longest."""
    files = [path for path in (root / "consumequeue").rglob("0*") if path.is_file()]
    return max(files, key=lambda path: (path.read_bytes().rstrip(b"\0").__len__(), str(path)))


def write_at(path: Path, position: int, data: bytes) -> None:
    """Overwrite bytes in place."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def second_record(segment: Path) -> int:
    """Where the second record of a segment begins."""
    return int.from_bytes(segment.read_bytes()[:4], "big")


@_break
def short_segment(root: Path) -> None:
    """One in the middle lost its second half."""
    os.truncate(segments(root)[1], SEGMENT_BYTES // 2)


@_break
def short_last_segment(root: Path) -> None:
    """The last one, as a copy that was interrupted."""
    os.truncate(segments(root)[-1], 1000)


@_break
def long_segment(root: Path) -> None:
    """One with bytes at its end that nobody needs."""
    os.truncate(segments(root)[0], SEGMENT_BYTES + 4096)


@_break
def hole_in_the_middle(root: Path) -> None:
    """A page of zeros among the records."""
    write_at(segments(root)[0], SEGMENT_BYTES // 2, bytes(4096))


@_break
def missing_segment(root: Path) -> None:
    """One between two others is gone."""
    segments(root)[1].unlink()


@_break
def wrong_first_offset(root: Path) -> None:
    """Every file is named one byte too late."""
    for path in reversed(segments(root)):
        path.rename(path.with_name(f"{int(path.name) + 1:020d}"))


@_break
def renamed_segments(root: Path) -> None:
    """Every file is named as if it came one segment later."""
    for path in reversed(segments(root)):
        path.rename(path.with_name(f"{int(path.name) + SEGMENT_BYTES:020d}"))


@_break
def foreign_files(root: Path) -> None:
    """Notes, a directory and a name of other digits lie in the log's directory and beside the queues."""
    (root / "commitlog" / "notes.txt").write_text("not a segment")
    (root / "commitlog" / "00000000000000000001.bak").write_bytes(b"x" * 100)
    (root / "commitlog" / ("\u0660" * 20)).write_bytes(b"arabic digits")
    (root / "consumequeue" / "notes.txt").write_text("not a topic")
    (root / "consumequeue" / "topic").mkdir()
    (root / "consumequeue" / "topic" / "notes.txt").write_text("not a queue")
    (root / "consumequeue" / "topic" / "eleven").mkdir()


@_break
def a_directory_as_a_segment(root: Path) -> None:
    """A directory has the name of the next segment."""
    (root / "commitlog" / f"{len(segments(root)) * SEGMENT_BYTES:020d}").mkdir()


@_break
def a_pipe_as_a_segment(root: Path) -> None:
    """A named pipe has the name of the next segment; opening it would wait for ever."""
    os.mkfifo(root / "commitlog" / f"{len(segments(root)) * SEGMENT_BYTES:020d}")


@_break
def foreign_kind_of_file(root: Path) -> None:
    """The last segment holds text."""
    text = (b"Lorem ipsum dolor sit amet. " * SEGMENT_BYTES)[:SEGMENT_BYTES]
    segments(root)[-1].write_bytes(text)


@_break
def two_stores_mixed(root: Path) -> None:
    """A segment is another one's copy."""
    first, second = segments(root)[:2]
    shutil.copyfile(first, second)


@_break
def other_segment_size(root: Path) -> None:
    """All segments cut in two."""
    for path in segments(root):
        content, base = path.read_bytes(), int(path.name)
        half = SEGMENT_BYTES // 2
        path.write_bytes(content[:half])
        (path.parent / f"{base + half:020d}").write_bytes(content[half:])


@_break
def other_queue_file_size(root: Path) -> None:
    """One queue's file is longer than the others."""
    os.truncate(a_queue(root), QUEUE_FILE_BYTES * 2)


@_break
def short_queue_file(root: Path) -> None:
    """One queue's file ends inside an entry."""
    os.truncate(a_queue(root), 30)


@_break
def newer_record_version(root: Path) -> None:
    """A record of a magic that comes after those of today."""
    write_at(segments(root)[0], 4, struct.pack(">I", 0xDAA320AF))


@_break
def newer_checkpoint(root: Path) -> None:
    """A checkpoint with more behind what is known."""
    with (root / "checkpoint").open("ab") as file:
        file.write(b"\x01" * 4096)


@_break
def short_checkpoint(root: Path) -> None:
    """A checkpoint cut off."""
    os.truncate(root / "checkpoint", 10)


@_break
def garbage_checkpoint(root: Path) -> None:
    """A checkpoint of nothing but ones."""
    (root / "checkpoint").write_bytes(b"\xff" * 4096)


@_break
def huge_checkpoint(root: Path) -> None:
    """A sparse checkpoint that no memory holds."""
    os.truncate(root / "checkpoint", HUGE)


@_break
def checkpoint_as_a_directory(root: Path) -> None:
    """A directory in the checkpoint's place."""
    (root / "checkpoint").unlink()
    (root / "checkpoint").mkdir()


@_break
def abort_as_a_directory(root: Path) -> None:
    """A directory with something in it, in the abort marker's place."""
    (root / "abort").mkdir()
    (root / "abort" / "x").write_text("x")


@_break
def lock_as_a_directory(root: Path) -> None:
    """A directory in the lock's place."""
    (root / "lock").unlink(missing_ok=True)
    (root / "lock").mkdir()


@_break
def segment_symlink_loop(root: Path) -> None:
    """The last segment is a link to itself."""
    last = segments(root)[-1]
    last.unlink()
    last.symlink_to(last.name)


@_break
def queue_symlink_loop(root: Path) -> None:
    """A topic's directory is a link to itself, and a queue one to its topic."""
    (root / "consumequeue" / "loop").symlink_to("loop")
    (root / "consumequeue" / "up").mkdir()
    (root / "consumequeue" / "up" / "0").symlink_to("..")


@_break
def garbage_config(root: Path) -> None:
    """Nothing in config/ is JSON."""
    for path in (root / "config").iterdir():
        path.write_bytes(b"{\x00\xff not json" + bytes(range(128, 192)))


@_break
def config_of_other_types(root: Path) -> None:
    """JSON, but nothing of what should be there."""
    for name in ("topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json"):
        (root / "config" / name).write_text('[{"topicConfigTable": 7, "offsetTable": [null]}]')


@_break
def deep_config(root: Path) -> None:
    """JSON that is nested deeper than any stack."""
    (root / "config" / "topics.json").write_text("[" * 200_000 + "]" * 200_000)


@_break
def huge_config(root: Path) -> None:
    """A sparse topics.json that no memory holds."""
    os.truncate(root / "config" / "topics.json", HUGE)


@_break
def index_of_wrong_size(root: Path) -> None:
    """An index file cut off, one that is no index, one that is huge, and names that are no times."""
    (root / "index").mkdir(exist_ok=True)
    for path in (root / "index").iterdir():
        os.truncate(path, 1000)
    (root / "index" / "20200101000000000").write_bytes(b"")
    (root / "index" / "20200101000000001").write_bytes(b"\xff" * 5000)
    with (root / "index" / "20200101000000002").open("wb") as file:
        file.truncate(HUGE)
    (root / "index" / "notes.txt").write_text("no index")


@_break
def cyclic_index(root: Path) -> None:
    """Every entry of the index files names itself as the one before it, and every slot the first entry."""
    for path in (root / "index").iterdir():
        content = bytearray(path.read_bytes())
        entries = len(content) - 20 * 1000
        for number in range(1, 1000):
            struct.pack_into(">i", content, entries + number * 20 + 16, number)
        path.write_bytes(content)


@_break
def wild_index(root: Path) -> None:
    """The index files' counts and slots are as large as they can be."""
    for path in (root / "index").iterdir():
        write_at(path, 32, b"\x7f\xff\xff\xff" * 202)


@_break
def foreign_queue_names(root: Path) -> None:
    """Queue directories under names that are no queue ids, and a topic that is no text."""
    base = root / "consumequeue"
    for name in ("-1", "99999999999999999999999999", "0x10", "\u0661", " 1"):
        shutil.copytree(a_queue(root).parent, base / "foreign" / name)
    os.makedirs(os.fsencode(base) + b"/\xff\xfe/0")


@_break
def wild_queue_entries(root: Path) -> None:
    """A queue's entries name places that no log has."""
    write_at(a_queue(root), 20, struct.pack(">qiq", 2**62, 2**31 - 1, 0))
    write_at(a_queue(root), 40, struct.pack(">qiq", -5, -1, 0))


@_break
def enormous_record(root: Path) -> None:
    """A record says that it is as long as can be."""
    write_at(segments(root)[0], second_record(segments(root)[0]), struct.pack(">i", 2**31 - 1))


@_break
def enormous_body(root: Path) -> None:
    """A record says that its body is as long as can be."""
    first = segments(root)[0]
    write_at(first, second_record(first) + 84, struct.pack(">i", 2**31 - 1))


@_break
def negative_sizes(root: Path) -> None:
    """A record of less than no bytes."""
    first = segments(root)[0]
    write_at(first, second_record(first), struct.pack(">i", -100))


@_break
def huge_segment(root: Path) -> None:
    """A sparse segment that no memory holds, alone in the log."""
    for path in segments(root)[1:]:
        path.unlink()
    os.truncate(segments(root)[0], HUGE)


@_break
def huge_segment_name(root: Path) -> None:
    """A segment named after an offset that does not fit into 64 bits."""
    shutil.copyfile(segments(root)[0], root / "commitlog" / ("9" * 20))


@_break
def huge_queue_file(root: Path) -> None:
    """A sparse queue file that no memory holds."""
    os.truncate(a_queue(root), HUGE)


@_break
def garbage_pointer(root: Path) -> None:
    """The pointer to a running broker is something else."""
    (root / "slipstream.run").write_bytes(b"\x00garbage")


@_break
def pointer_of_other_types(root: Path) -> None:
    """The pointer's settings are no settings."""
    (root / "slipstream.run").write_text('{"settings": 5, "pid": [], "region_directory": 7}')


@_break
def no_log(root: Path) -> None:
    """There is no commit log."""
    shutil.rmtree(root / "commitlog")


@_break
def log_as_a_file(root: Path) -> None:
    """A file in the place of the log's directory."""
    shutil.rmtree(root / "commitlog")
    (root / "commitlog").write_bytes(b"a file")


@_break
def root_as_a_file(root: Path) -> None:
    """A file in the store's place."""
    shutil.rmtree(root)
    root.write_bytes(b"a file")


@_break
def queues_as_a_file(root: Path) -> None:
    """A file in the place of the queues' directory."""
    shutil.rmtree(root / "consumequeue")
    (root / "consumequeue").write_bytes(b"a file")


@contextmanager
def locked(root: Path) -> Iterator[int]:
    """Another process holds the store's lock: its pid."""
    wait, end = os.pipe()
    has_it, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end)
        directory = StoreDirectory(root)
        directory.lock()
        os.write(tell, b"!")
        os.read(wait, 1)  # until the test has closed the other end
        os._exit(0)
    os.close(wait)
    os.close(tell)
    try:
        assert os.read(has_it, 1) == b"!"
        yield pid
    finally:
        os.close(end)
        os.close(has_it)
        exit_code_of(pid)
