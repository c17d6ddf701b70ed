"""A disk that is really full under the dispatcher: it waits, says why, and goes on with nothing lost or built twice."""

from __future__ import annotations

import errno
import itertools
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.remoting.codes import ResponseCode
from store.files.segment_files import SegmentFiles
from store.index.service import IndexService
from store.names import QUEUE_EXTENSIONS
from store.queues.queue_set import QueueKinds
from store.recovery.dispatch import Dispatcher
from tests.fuzz.attack import failures_in
from tests.harness.conditions import await_that
from tests.harness.front_client import FrontClient
from tests.harness.logs import contents
from tests.harness.small_disk import SmallDisk
from tests.hostile.test_front import SMALL, answer_to, connected, counters_of, send
from tools import cli
from tools.common.exit_codes import ExitCode
from tools.common.local_broker import LocalBroker

DISK_BYTES, SLOTS, ENTRIES_MAX, EXT_BYTES = 24 << 20, 500, 30, 4000
SETTINGS = {
    **SMALL,
    "maxHashSlotNum": SLOTS,
    "maxIndexNum": ENTRIES_MAX,
    "cleanFileForciblyEnable": "false",
    # it takes messages when it is full, too
    "diskMaxUsedSpaceRatio": 95,
    "diskSpaceWarningLevelRatio": 100,
}
EXTENSIONS = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": EXT_BYTES}
BEFORE, MEANWHILE, AFTER, QUEUES = 40, 60, 40, 4  # a file of the index is full after each few of them
CASES = pytest.mark.parametrize(("kind", "more"), [("ext4", {}), ("ext4", EXTENSIONS), ("tmpfs", {})])


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    FrontClient.close_all()


class Sender:
    """Who sends small messages with several keys; a new queue of its topic when it is told to."""

    def __init__(self, broker: LocalBroker) -> None:
        self._client, self._numbers = connected(broker), itertools.count()

    def is_taken(self, queue: int) -> bool:
        number = next(self._numbers)
        properties = f"KEYS\1a{number} b{number} c{number}\2UNIQ_KEY\1u{number}\2"
        answer = answer_to(self._client, send(b"%d" % number, d="8", e=str(queue), i=properties))
        return answer.code == ResponseCode.SUCCESS

    def sends(self, count: int, queues: range) -> None:
        for number in range(count):
            await_that(partial(self.is_taken, queues[number % len(queues)]), "a message is taken")


def built_anew(store: Path, into: Path, end: int, more: dict[str, Any]) -> list[bytes]:
    """Queues and index of that log by a dispatcher that always had room; the index's files."""
    files, index = SegmentFiles(store / "commitlog", 1 << 20), IndexService(into / "index", SLOTS, ENTRIES_MAX)
    kinds, queue_bytes = QueueKinds(ext_file_bytes=EXT_BYTES if more else 0), 20_000
    Dispatcher(files, into / "consumequeue", queue_bytes, index=index, kinds=kinds).dispatch(0, end)
    return [path.read_bytes() for path in index.files()]


@CASES
def test_the_dispatcher_waits_for_room_and_goes_on(
    tmp_path: Path, kind: str, more: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SETTINGS, **more}
    with SmallDisk(tmp_path / "disk", DISK_BYTES, kind) as disk, disk.broker(tmp_path, "4.9", settings) as broker:
        counters, sender = counters_of(broker), Sender(broker)
        sender.sends(BEFORE, range(QUEUES))
        await_that(
            lambda: counters.reput_from_offset.read() == counters.max_physical_offset.read(), "all is dispatched"
        )

        def is_out_of_room() -> bool:
            disk.fill()  # files that are replaced give back what others take
            sender.sends(1, range(QUEUES))
            return counters.dispatch_errno.read() == errno.ENOSPC

        await_that(is_out_of_room, "the dispatcher finds no room", pause=0.2)
        sender.sends(MEANWHILE, range(QUEUES))  # acknowledged as ever: their segment is there
        beats = counters.heartbeats["dispatcher"].read()
        await_that(lambda: counters.heartbeats["dispatcher"].read() > beats, "it looks again")

        def is_told() -> bool:
            """It is, or somebody gave room back just now."""
            code = cli.run_command(["status", str(broker.store)])
            said = re.search(r"DISK +queues and index wait for disk space", capsys.readouterr().out)
            assert said is None or code == ExitCode.FOUND
            return said is not None or not counters.dispatch_errno.read()

        await_that(is_told, "status says what it waits for")
        disk.free()
        sender.sends(AFTER, range(QUEUES + 1))
        end = counters.max_physical_offset.read()
        await_that(lambda: counters.reput_from_offset.read() == end, "all is dispatched")
        await_that(lambda: counters.dispatch_errno.read() == 0, "it says so")
        assert counters.restarts["dispatcher"].read() == 0
        assert failures_in(broker.log) == ()
        assert "the broker retries each second" in broker.log.read_text()
        broker.stop()
        store = Path(broker.store)
        assert built_anew(store, tmp_path / "anew", end, more) == [
            path.read_bytes() for path in sorted((store / "index").iterdir())
        ]
        for name in ("consumequeue", *([QUEUE_EXTENSIONS] if more else [])):
            assert contents(store / name) == contents(tmp_path / "anew" / name)
