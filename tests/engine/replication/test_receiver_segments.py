"""A master whose segments have another length: what does not fit ours is not taken, however frames cut it."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.wire import CODES, FRAME_HEADER, CloseReason, ReasonCode
from store.message.record import BLANK_BYTES, blank
from store.recovery.log_end import bytes_missing
from tests.engine.replication.test_receiver import SEGMENT, Bench, frames, opened
from tests.harness.logs import SmallLog


def log_of(directory: Path, segment_bytes: int, to: int, body: int = 300) -> SmallLog:
    log = SmallLog(directory, segment_bytes)
    while log.end < to:
        log.append(body=b"x" * body)
    return log


def bytes_of(log: SmallLog) -> bytes:
    return b"".join(log.read(base, log.segment_bytes) for base in log.files.base_offsets())[: log.end]


def send_all(bench: Bench, stream: bytes, rng: random.Random) -> None:
    """All of it in pieces, as far as the receiver stays."""
    try:
        while stream and bench.receiver.client.state is HaClientState.TRANSFER:
            cut = rng.choice([1, 3, 7, 20, 400, 5000])
            bench.master.sendall(stream[:cut])
            stream = stream[cut:]
            bench.step()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the receiver hung up: what the test waits for


@pytest.mark.parametrize("masters", [SEGMENT // 2, SEGMENT - 4, SEGMENT * 2, SEGMENT + 4096])
@pytest.mark.parametrize("seed", range(3))
def test_the_connection_ends_before_a_byte_of_what_does_not_fit(tmp_path: Path, masters: int, seed: int) -> None:
    rng = random.Random(seed)
    log = log_of(tmp_path / "master", masters, 3 * SEGMENT)
    data = bytes_of(log)
    heads = [record.offset for record in log.records]
    blanks = [base + masters - _blank_bytes(log, base) for base in log.files.base_offsets()[:-1]]
    starts = sorted([*heads, *blanks])
    ends = [*starts[1:], log.end]
    sound = next(start for start, end in zip(starts, ends, strict=True) if not _fits(start, end, start in blanks))
    small = frames(data, 0, lambda: rng.choice([1, 2, 5, 7, 11, 300, 900]))
    with opened(tmp_path / "slave") as bench:
        send_all(bench, small, rng)
        bench.until(lambda: bench.receiver.client.reason is CloseReason.SEGMENT_SIZE)
        assert bench.end == sound, (masters, seed)
        assert bench.receiver.client.end == sound
        assert bench.node.log() == data[:sound]
        received = b""
        with suppress(ConnectionResetError):  # it hung up with bytes of ours unread
            while piece := bench.master.recv(1 << 16):
                received += piece
        reports = [int.from_bytes(received[at : at + 8], "big") for at in range(0, len(received), 8)]
        assert max(reports) <= sound, "nothing of it was acknowledged"
    assert CODES[CloseReason.SEGMENT_SIZE] is ReasonCode.SEGMENT_SIZE


def _fits(start: int, end: int, is_blank: bool) -> bool:
    segment_end = start - start % SEGMENT + SEGMENT
    return end == segment_end if is_blank else end <= segment_end - BLANK_BYTES


def _blank_bytes(log: SmallLog, base: int) -> int:
    last = max(record.end for record in log.records if record.offset < base + log.segment_bytes)
    return base + log.segment_bytes - last


@pytest.mark.parametrize("seed", range(3))
def test_equal_segments_pass_however_they_are_cut(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    log = log_of(tmp_path / "master", SEGMENT, 3 * SEGMENT, body=rng.choice([1, 300, 2000]))
    data = bytes_of(log)
    with opened(tmp_path / "slave") as bench:
        send_all(bench, frames(data, 0, lambda: rng.choice([1, 4, 7, 8, 9, 300, 5000])), rng)
        bench.until(lambda: bench.end == len(data))
        assert bench.node.log() == data


def test_a_receiver_that_is_started_again_goes_on_within_a_record(tmp_path: Path) -> None:
    log = log_of(tmp_path / "slave" / "store", SEGMENT, SEGMENT // 2)
    inside = log.records[-1].offset + 50
    for record_known in (0, log.records[3].offset, log.records[-1].offset):
        assert bytes_missing(log.files, record_known, inside) == log.end - inside
        assert bytes_missing(log.files, record_known, log.end) == 0
    assert bytes_missing(log.files, 5, inside) is None
    log.write(log.end, blank(SEGMENT - log.end))
    assert bytes_missing(log.files, 0, log.end + 8) == SEGMENT - log.end - 8


def test_a_head_in_part_is_not_published_and_comes_again(tmp_path: Path) -> None:
    log = log_of(tmp_path / "master", SEGMENT, 2000)
    data = bytes_of(log)
    cut = log.records[2].offset + 5
    with opened(tmp_path / "slave") as bench:
        bench.master.sendall(FRAME_HEADER.pack(0, cut) + data[:cut])
        bench.until(lambda: bench.end == cut - 5)
        bench.master.close()
        bench.until(lambda: bench.receiver.client.state is HaClientState.READY)
        bench.now_ms += 60_000
        bench.until(lambda: bench.receiver.client.state is HaClientState.TRANSFER)
        bench.accept()
        assert bench.reports()[0] == cut - 5
        bench.master.sendall(frames(data[cut - 5 :], cut - 5, lambda: 100))
        bench.until(lambda: bench.end == len(data))
        assert bench.node.log() == data
