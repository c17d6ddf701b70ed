"""A disk that fails under a running broker: a real file system on a device that refuses writes once its room is up.

The device is a loop device over a sparse file in a small tmpfs: the file system on it believes that it has room, and
learns of the end only when the kernel writes back. Then fdatasync fails, and nothing may be acknowledged any more.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import MessagesRefused
from engine.monitoring.status import snapshot
from engine.producer.producer import Producer, PutMessageStatus
from engine.shared_memory.cursors import BrokerCounters
from store.files import file_io
from store.reading import extent
from tests.harness.audit import assert_queue_offsets_dense, messages_of
from tests.harness.conditions import await_that
from tools import cli
from tools.common.exit_codes import ExitCode
from tools.common.local_broker import LocalBroker

pytestmark = pytest.mark.crash

MIB, PAGE_BYTES = 1 << 20, 4096
BURST = 60
SLOW_DISK_MS = 60_000  # a disk that works is waited for, however busy the machine
SETTINGS = {
    "brokerRole": "ASYNC_MASTER", "flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": 4 * MIB,
    "mappedFileSizeConsumeQueue": 4000, "ringSizeInBytes": MIB, "maxMessageSize": 65536, "maxHashSlotNum": 1000,
    "maxIndexNum": 4000, "syncFlushTimeout": 20_000,
}  # fmt: skip
DEVICE_BYTES, ROOM_BYTES, MORE_ROOM_BYTES = 96 * MIB, 16 * MIB, 110 * MIB


class FailingDisk:
    """A mounted ext4 whose device has room for ROOM_BYTES of it, until it is given more."""

    def __init__(self, home: Path) -> None:
        self.room, self.path, self.device = home / "room", home / "disk", ""
        for directory in (self.room, self.path):
            directory.mkdir()

    def attach(self) -> str | None:
        """Why it cannot be had here; None when it is there."""
        if os.geteuid() != 0:
            return "mounting needs root"
        needed = [name for name in ("losetup", "mkfs.ext4", "mount") if shutil.which(name) is None]
        if needed or not Path("/dev/loop-control").exists():
            return f"this machine lacks {needed or 'loop devices'}"
        steps = [["mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "tmpfs", str(self.room)]]
        image = self.room / "image"
        steps += [["truncate", "-s", str(DEVICE_BYTES), str(image)]]
        # without a journal: a failing one would make the file system read-only, and only fdatasync is to fail
        steps += [["mkfs.ext4", "-q", "-O", "^has_journal", "-b", str(PAGE_BYTES), "-E", "nodiscard", str(image)]]
        for step in steps:
            if (done := subprocess.run(step, capture_output=True, text=True, check=False)).returncode:
                return f"{step[0]}: {done.stderr.strip()}"
        found = subprocess.run(["losetup", "-f", "--show", str(image)], capture_output=True, text=True, check=False)
        if found.returncode:
            return f"losetup: {found.stderr.strip()}"
        self.device = found.stdout.strip()
        # A page a request: the driver calls one that was written in part a success, and would lose bytes itself.
        limit = Path("/sys/block") / Path(self.device).name / "queue" / "max_sectors_kb"
        try:
            limit.write_text(str(PAGE_BYTES // 1024))
        except OSError as error:
            return f"{limit}: {error.strerror}"
        return self.mount()

    def mount(self) -> str | None:
        """Mount the device; why that is not possible."""
        done = subprocess.run(["mount", self.device, str(self.path)], capture_output=True, text=True, check=False)
        return done.stderr.strip() if done.returncode else None

    def give_room(self) -> None:
        """The device takes all writes from now on."""
        subprocess.run(["mount", "-o", f"remount,size={MORE_ROOM_BYTES}", str(self.room)], check=True)

    def rests(self) -> bool:
        """Whether nothing is on its way to the device."""
        return not any(map(int, (Path("/sys/block") / Path(self.device).name / "inflight").read_text().split()))

    def unmount(self) -> None:
        """Unmount, if mounted; nothing of it stays in memory."""
        if self.path.is_mount():
            subprocess.run(["umount", str(self.path)], check=True)

    def detach(self) -> None:
        """Give all of it back, also what a failed test left in use: a mount in the tests' folder would outlive them."""
        for path, device in ((self.path, self.device), (self.room, "")):
            if path.is_mount():
                subprocess.run(["umount", "--lazy", str(path)], check=True)
            if device:
                subprocess.run(["losetup", "-d", device], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FailingDisk]:
    failing = FailingDisk(tmp_path)
    try:
        if (reason := failing.attach()) is not None:
            pytest.skip(f"no failing device: {reason}")
        yield failing
    finally:
        failing.detach()


def send_until_the_disk_fails(store: Path) -> dict[int, str]:
    """Everything that was acknowledged before, by its offset in the log."""
    counters = BrokerCounters.attach(extent.require_running(store).region_directory)
    acknowledged: dict[int, str] = {}
    with Producer(store, timeout=60.0) as producer:
        for number in range(200):
            body = f"{number}-".ljust(8000, "x")
            try:
                for _ in range(BURST):  # so that much is in memory only when the disk fails
                    producer.send("burst", body, queue_id=0, wait=False)
                result = producer.send("disk", body, queue_id=0)
            except MessagesRefused:
                break
            if result.status is PutMessageStatus.PUT_OK:
                acknowledged[result.physical_offset] = body
            elif counters.flush_errno.read():  # else it was only slow
                assert result.status is PutMessageStatus.FLUSH_DISK_TIMEOUT
                break
    assert counters.flush_errno.read() in (errno.EIO, errno.ENOSPC)
    return acknowledged


def lose_queues(disk: FailingDisk, queues: Path) -> None:
    """The kernel writes back what it holds of the queues, as it does by itself later: the disk takes none of it, and
    nobody has been told yet."""
    for path in [path for path in queues.rglob("*") if path.is_file()]:
        with path.open("rb") as file:
            file_io.start_writing(file.fileno(), 0, path.stat().st_size)
    await_that(disk.rests, "the disk has answered")


@pytest.mark.parametrize("loses_queues", [False, True])
def test_nothing_acknowledged_is_lost_and_nothing_is_acknowledged_after_a_failure(
    disk: FailingDisk, capsys: pytest.CaptureFixture[str], loses_queues: bool
) -> None:
    home = disk.path / "b"
    with LocalBroker(home, **SETTINGS) as broker:
        acknowledged = send_until_the_disk_fails(broker.store)
        assert len(acknowledged) > 10
        if loses_queues:
            lose_queues(disk, Path(broker.store) / "consumequeue")
        disk.give_room()  # before the kernel writes more than this back: the file system's own blocks, after 30 s
        with Producer(broker.store, timeout=60.0) as producer, pytest.raises(MessagesRefused):
            producer.send("disk", b"after")
        (problem,) = [text for text in snapshot(broker.store, cpu_sample_seconds=0.0).problems if "disk failed" in text]
        assert "restart" in problem
        assert cli.run_command(["status", str(broker.store)]) == ExitCode.FOUND
        assert re.search(r"DISK +flush failed", capsys.readouterr().out)
        assert json.loads(json.dumps(snapshot(broker.store, cpu_sample_seconds=0.0).to_json()))["problems"]
    with LocalBroker(home, **{**SETTINGS, "syncFlushTimeout": SLOW_DISK_MS}) as broker:
        with Producer(broker.store, timeout=SLOW_DISK_MS / 1000) as producer:
            for number in range(200):
                result = producer.send("disk", f"again {number}", queue_id=0)
                assert result.status is PutMessageStatus.PUT_OK
                acknowledged[result.physical_offset] = f"again {number}"
        await_that(lambda: not snapshot(broker.store, cpu_sample_seconds=0.0).problems, "nothing is wrong")
    disk.unmount()  # what only memory held is gone
    assert disk.mount() is None
    with LocalBroker(home, **SETTINGS) as broker:
        end = snapshot(broker.store, cpu_sample_seconds=0.0).cursors["max_physical_offset"]
        found = {message.physical_offset: message.body.decode() for message in messages_of(broker.store, end)}
        assert {offset: found.get(offset) for offset in acknowledged} == acknowledged
        assert_queue_offsets_dense(messages_of(broker.store, end))
