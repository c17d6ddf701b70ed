"""A log in a file that many processes write: no line lost, none torn, none twice; files bounded in size and number."""

from __future__ import annotations

import errno
import json
import logging
import multiprocessing
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.net import log_file, log_lines
from engine.net.log_file import LogFile
from engine.net.log_lines import TRACE_LINES_MAX, ForJournal, JsonLine, OneLine, Threshold
from engine.settings.log_settings import LogSettings
from ipc.descriptors import await_readable
from tests.harness.conditions import SECONDS, await_that

WRITERS, LINES, LINE_BYTES, MAX_BYTES = 6, 400, 200, 4096
CONTEXT = multiprocessing.get_context("fork")


def record(text: str, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("slipstream.test", level, __file__, 1, text, None, None)


def line_of(writer: int, number: int) -> str:
    return f"{writer} {number} ".ljust(LINE_BYTES - 2, "x") + "."


def write(path: Path, writer: int, kept: int, own: bool) -> None:
    """What one process logs: to a file that it opened itself, or that its parent did before it forked."""
    handler = LogFile(path, MAX_BYTES, kept) if own else logging.getLogger().handlers[0]
    for number in range(LINES):
        handler.emit(record(line_of(writer, number)))


def files_of(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}*"))


def lines_in(files: list[Path]) -> list[str]:
    return [line for file in files for line in file.read_text().splitlines() if line]  # empty: beside a first line


@pytest.mark.parametrize("own", [True, False], ids=["each opened it", "forked with it"])
def test_many_processes_write_while_files_are_moved(tmp_path: Path, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "WAIT_SECONDS", 600.0)
    path = tmp_path / "log" / "broker.log"
    monkeypatch.setattr(logging.getLogger(), "handlers", [LogFile(path, MAX_BYTES, 1000)])
    writers = [CONTEXT.Process(target=write, args=(path, number, 1000, own)) for number in range(WRITERS)]
    for process in writers:
        process.start()
    for process in writers:
        process.join(SECONDS)
    assert [process.exitcode for process in writers] == [0] * WRITERS
    assert Counter(lines_in(files_of(path))) == Counter(
        line_of(writer, number) for writer in range(WRITERS) for number in range(LINES)
    )
    sizes = [file.stat().st_size for file in files_of(path)]
    assert max(sizes) <= 2 * MAX_BYTES + WRITERS * LINE_BYTES
    assert len(sizes) >= WRITERS * LINES * LINE_BYTES // (2 * MAX_BYTES + WRITERS * LINE_BYTES)


def test_files_are_bounded_in_number_and_the_newest_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    write(path, 1, 3, own=True)
    assert [file.name for file in files_of(path)] == ["a.log", "a.log.1", "a.log.2", "a.log.3"]
    assert all(file.stat().st_size <= MAX_BYTES for file in files_of(path))
    kept = lines_in([tmp_path / name for name in ("a.log.3", "a.log.2", "a.log.1", "a.log")])
    assert kept == [line_of(1, number) for number in range(LINES - len(kept), LINES)]
    write(path, 2, 1, own=True)
    assert [file.name for file in files_of(path)] == ["a.log", "a.log.1"], "fewer are kept now"
    write(path, 3, 0, own=True)
    assert lines_in(files_of(path))[-1] == line_of(3, LINES - 1)
    assert not (tmp_path / "a.log.1").exists()


def test_killed_writers_lose_no_others_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    killed = [CONTEXT.Process(target=write_for_ever, args=(path,)) for _ in range(3)]
    survivors = [CONTEXT.Process(target=write, args=(path, number, 10**6, True)) for number in range(2)]
    for process in (*killed, *survivors):
        process.start()
    await_that((tmp_path / "a.log.3").exists, "files are moved")
    for process in killed:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
    for process in (*killed, *survivors):
        process.join(SECONDS)
    assert [process.exitcode for process in survivors] == [0] * len(survivors)
    written = Counter(line for line in lines_in(files_of(path)) if not line.startswith("9 "))
    assert written == Counter(line_of(writer, number) for writer in range(2) for number in range(LINES))


def write_for_ever(path: Path) -> None:
    handler = LogFile(path, MAX_BYTES, 10**6)
    while True:
        handler.emit(record(line_of(9, 0)))


def test_what_another_program_moved_or_removed_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    handler = LogFile(path, MAX_BYTES, 2)
    handler.emit(record("one"))
    path.rename(tmp_path / "elsewhere")
    handler.emit(record("two"))
    assert ((tmp_path / "elsewhere").read_text(), path.read_text()) == ("one\n", "two\n")
    path.unlink()
    handler.emit(record("three"))
    assert path.read_text() == "three\n"


def test_a_pipe_and_a_device_are_not_moved() -> None:
    handler = LogFile(Path("/dev/null"), 1, 2)
    for _ in range(3):
        handler.emit(record("x"))
    assert Path("/dev/null").is_char_device()


def test_a_full_disk_is_said_once_and_what_is_lost_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, write_there, left = tmp_path / "a.log", os.write, [12]

    def until_it_is_full(fd: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = write_there(fd, data[: left[0]])
        left[0] -= taken
        return taken

    handler = LogFile(path, MAX_BYTES, 2)
    monkeypatch.setattr(os, "write", until_it_is_full)
    for text in ("fits", "does not fit", "nor this"):
        handler.emit(record(text))
    left[0] = 1000
    handler.emit(record("there is room"))
    handler.emit(record("and more"))
    lost = f"(before this 2 lines of process {os.getpid()} could not be written)"
    assert path.read_text().splitlines() == ["fits", "does no", lost, "there is room", "and more"]
    said = capsys.readouterr().err
    assert said == f"slipstream: the log {path} cannot be written: No space left on device; free some disk space\n"


def test_json_is_a_line_with_all_that_is_known() -> None:
    said = json.loads(JsonLine().format(record("a\nforged\x1b line")))
    assert said.pop("time").endswith("Z") and said.pop("process") == os.getpid()
    assert said == {"level": "info", "role": "", "logger": "slipstream.test", "message": "a\\nforged\\x1b line"}
    failed = record("failed", logging.ERROR)
    try:
        raise ValueError("a\nb")
    except ValueError:
        failed.exc_info = sys.exc_info()
    text = JsonLine().format(failed)
    assert "\n" not in text and json.loads(text)["traceback"].endswith("b")


def test_a_traceback_is_bounded_and_takes_no_order() -> None:
    def deeper(depth: int) -> None:
        if not depth:
            raise ValueError("\x1b[31m" + "x\n" * 10_000)
        deeper(depth - 1)

    failed = record("failed", logging.ERROR)
    try:
        deeper(150)
    except ValueError:
        failed.exc_info = sys.exc_info()
    lines = OneLine("%(message)s").format(failed).splitlines()
    assert len(lines) == TRACE_LINES_MAX + 2 and not any("\x1b" in line for line in lines)


def test_the_journal_gets_a_priority_for_each_line() -> None:
    failed = record("failed", logging.ERROR)
    try:
        raise ValueError
    except ValueError:
        failed.exc_info = sys.exc_info()
    formatter = ForJournal(OneLine("%(message)s"))
    assert all(line.startswith("<3>") for line in formatter.format(failed).splitlines())
    levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
    assert [formatter.format(record("x", level))[:3] for level in levels] == ["<7>", "<6>", "<4>", "<3>", "<2>"]


@pytest.fixture
def levels_kept() -> Iterator[None]:
    """`configure` is for a process of its own: what it sets of this one's is set back."""
    ours = logging.getLogger("slipstream")
    before = ours.level
    yield
    ours.setLevel(before)
    log_lines.THRESHOLD.set(logging.INFO)


@pytest.mark.usefixtures("levels_kept")
def test_only_a_journal_that_is_standard_error_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[logging.Handler] = []
    monkeypatch.setattr(logging, "basicConfig", lambda handlers, **_more: chosen.extend(handlers))
    state = os.fstat(2)
    for stream in (f"{state.st_dev}:{state.st_ino}", f"{state.st_dev}:1", ""):
        log_lines.configure(LogSettings(), {"JOURNAL_STREAM": stream})
    assert [isinstance(handler.formatter, ForJournal) for handler in chosen] == [True, False, False]
    journal = {"JOURNAL_STREAM": f"{state.st_dev}:{state.st_ino}"}
    log_lines.configure(LogSettings(log_file=tmp_path / "x" / "a.log"), journal)
    assert isinstance(chosen[-1], LogFile) and isinstance(chosen[-1].formatter, OneLine)


def test_the_threshold_follows_a_word() -> None:
    level = [logging.WARNING]
    threshold = Threshold()
    assert not threshold.filter(record("x", logging.DEBUG)) and threshold.filter(record("x"))
    threshold.set(logging.INFO, lambda: level[0])
    assert not threshold.filter(record("x"))
    level[0] = logging.DEBUG
    assert threshold.filter(record("x", logging.DEBUG))


def test_nothing_waits_for_who_moves_files(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    read, written = os.pipe()
    holder = CONTEXT.Process(target=hold, args=(tmp_path, written))
    holder.start()
    assert await_readable(read, timeout_ms=120_000)
    write(path, 1, 2, own=True)
    assert [file.name for file in files_of(path)] == ["a.log"], "somebody else is at it"
    holder.kill()
    holder.join()
    write(path, 1, 2, own=True)
    assert len(files_of(path)) == 3
    assert not re.search("cannot", path.read_text())


def hold(folder: Path, said: int) -> None:
    import fcntl

    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)
    os.write(said, b"x")
    signal.pause()
