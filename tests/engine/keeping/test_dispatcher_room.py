"""A dispatcher that finds no room, at any call that makes or extends a file: it waits and says so, and all is once."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.keeping.dispatcher import RETRY_MS, Dispatcher
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.files import file_io
from store.index.service import IndexService
from store.names import CONSUME_QUEUES, QUEUE_EXTENSIONS
from store.queues.queue_set import Building, QueueKinds
from store.recovery import dispatch
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog, contents

CALLS = ("write_at", "reserve", "truncate", "rename", "give_name", "make_directories")
RECORDS, IN_VAIN, CALLS_MAX = 24, 3, 1000
KINDS = QueueKinds(ext_file_bytes=200)


class Disk:
    """Counts what makes or extends files; from the call `fails_at` on so many fail, the writes among them half done."""

    def __init__(self, patch: pytest.MonkeyPatch, fails_at: int, number: int = errno.ENOSPC) -> None:
        self.calls, self._fails_at, self._number = 0, fails_at, number
        for name in CALLS:
            patch.setattr(file_io, name, self._failing(name, getattr(file_io, name)))

    def _failing(self, name: str, call: Callable[..., None]) -> Callable[..., None]:
        def failing(*arguments: Any) -> None:
            if name == "write_at" and not any(bytes(arguments[1])):
                call(*arguments)  # zeros over what was half done: that has its blocks
                return
            self.calls += 1
            if self._fails_at <= self.calls - 1 < self._fails_at + IN_VAIN:
                if name == "write_at":
                    fd, data, position = arguments
                    call(fd, memoryview(data).cast("B")[: len(data) // 2], position)
                raise OSError(self._number, "no room")
            call(*arguments)

        return failing


def built(root: Path, log: SmallLog, rows: int = 0) -> dispatch.Dispatcher:
    index = IndexService(root / "index", 10, 7, iter(range(10**12, 2 * 10**12)).__next__)
    return dispatch.Dispatcher(
        log.files,
        root / CONSUME_QUEUES,
        QUEUE_FILE_BYTES,
        index=index,
        kinds=KINDS,
        building=Building(open_max=3, rows_max=rows),
    )


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    made = SmallLog(tmp_path / "store")
    for number in range(RECORDS):
        properties = {"KEYS": f"a{number} b{number}", "UNIQ_KEY": f"u{number}"}
        made.append(f"topic{number % 2}", queue_id=number % 3, properties=properties)
    return made


def as_built(root: Path, log: SmallLog) -> tuple[dict[str, bytes], dict[str, bytes], list[bytes]]:
    index = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    return contents(root / CONSUME_QUEUES), contents(root / QUEUE_EXTENSIONS), index


@pytest.mark.parametrize("rows", [5, RECORDS])
def test_wherever_room_ends_all_is_built_once(
    log: SmallLog, tmp_path: Path, rows: int, caplog: pytest.LogCaptureFixture
) -> None:
    whole = built(tmp_path / "whole", log)
    whole.dispatch(0, log.end)
    expected, fails_at, is_reached = as_built(tmp_path / "whole", log), 0, True
    while is_reached:
        root, counters = tmp_path / f"from{fails_at}", BrokerCounters.create(tmp_path / f"counters{fails_at}")
        dispatcher, now_ms, waits = Dispatcher(counters, built(root, log, rows)), 0, 0
        waiting.publish(counters.max_physical_offset, log.end)
        caplog.clear()
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, fails_at)
            while counters.reput_from_offset.read() < log.end:
                if dispatcher.do_work(now_ms) == 0:
                    assert counters.dispatch_errno.read() == errno.ENOSPC
                    calls = disk.calls
                    assert dispatcher.do_work(now_ms + RETRY_MS - 1) == 0 and disk.calls == calls, "not before its time"
                    now_ms, waits = now_ms + RETRY_MS, waits + 1
        dispatcher.close()
        assert counters.dispatch_errno.read() == 0
        said = [record.levelno for record in caplog.records]
        is_reached = disk.calls > fails_at
        assert said == ([logging.WARNING] * (waits > 0)), "once"
        assert waits == (IN_VAIN if is_reached else 0)
        assert as_built(root, log) == expected, fails_at
        fails_at += 1
        assert fails_at < CALLS_MAX
    assert fails_at > RECORDS // 2


def test_a_failing_disk_is_not_a_full_one(log: SmallLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = BrokerCounters.create(tmp_path / "counters")
    dispatcher = Dispatcher(counters, built(tmp_path / "failed", log))
    waiting.publish(counters.max_physical_offset, log.end)
    Disk(monkeypatch, 5, errno.EIO)
    with pytest.raises(OSError, match="no room") as raised:
        dispatcher.do_work(0)
    assert raised.value.errno == errno.EIO and counters.dispatch_errno.read() == 0
