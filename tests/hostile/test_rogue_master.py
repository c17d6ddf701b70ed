"""A receiver whose master says the truth, then anything: no foreign byte in the log, no file outside the store."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.hello import REPEATED
from engine.protocol.ha.opening import ALL_THERE_IS
from engine.protocol.ha.wire import FRAME_HEADER, LOG_OFFSET_MAX, REPORT, REPORT_BYTES
from store.message.record import BLANK_BYTES, BLANK_MAGIC, MAGIC_V1, MAGIC_V2, blank
from store.notes import divergence
from tests.engine.replication.test_receiver import SEGMENT, SEGMENTS, Bench, frames, opened
from tests.harness.sockets import exactly
from tests.simulation.logs import HEAD, SIZES, Put, record_of

LIES, PATIENCE_MS = 150, 20_000
TOPICS = b"../../x/../../../etc/passwd\0"


def history(dice: random.Random) -> bytes:
    """Records to fill some segments with."""
    truth = b""
    while len(truth) < (SEGMENTS - 1) * SEGMENT:
        put, room = Put(record_of(dice), 0, 0), SEGMENT - len(truth) % SEGMENT
        if len(put.record) + BLANK_BYTES > room:
            truth += blank(room).ljust(room, b"\0")
        truth += put.stored_at(len(truth), 0)
    return truth


def boundaries(truth: bytes) -> list[int]:
    """Where records begin."""
    at, begins = 0, [0]
    while at < len(truth):
        at += HEAD.unpack_from(truth, at)[0]
        begins.append(at)
    return begins


def lie(dice: random.Random, at: int, *, is_boundary: bool) -> bytes:
    """What no master of this log says that has sent it up to `at`."""
    room, noise = SEGMENT - at % SEGMENT, dice.randbytes(dice.randint(1, 5000))
    wrong = dice.choice([at + 1, at + SEGMENT, -1, -SEGMENT, LOG_OFFSET_MAX + SEGMENT, dice.getrandbits(63), at - 1])
    sizes = [room + 1, -1, -(1 << 31), (1 << 31) - 1, SEGMENT + room]
    kinds = [
        FRAME_HEADER.pack(wrong, 0),
        FRAME_HEADER.pack(wrong, len(noise)) + noise,
        FRAME_HEADER.pack(at, dice.choice(sizes)) + noise,
        b"\xff" * 12 + noise,
        FRAME_HEADER.pack(at + 7, len(TOPICS)) + TOPICS,
    ]
    if is_boundary and room >= max(SIZES) + BLANK_BYTES:
        misfits = [(room - BLANK_BYTES + 1, MAGIC_V2), (3 * SEGMENT, MAGIC_V1), ((1 << 31) - 1, MAGIC_V2)]
        blanks = [(room - 1, BLANK_MAGIC), (room + 1, BLANK_MAGIC), (0, BLANK_MAGIC), (-1, BLANK_MAGIC)]
        body = HEAD.pack(*dice.choice(misfits + blanks)) + noise[: room - HEAD.size]
        kinds += [FRAME_HEADER.pack(at, len(body)) + body] * 4
    return dice.choice(kinds)


def say(bench: Bench, said: bytes, dice: random.Random) -> None:
    """In pieces, to a slave that may have hung up."""
    while said:
        cut = dice.choice((1, 5, 12, 13, 20, 1000, len(said)))
        try:
            bench.master.sendall(said[:cut])
        except OSError:
            return
        said = said[cut:]
        bench.step()


def come_again(bench: Bench) -> int:
    """The slave's next connection, after an operator has removed its note that the logs differ; where it asks from."""
    bench.master.close()
    divergence.path_of(bench.node.config.store_path_root_dir).unlink(missing_ok=True)
    bench.now_ms += PATIENCE_MS
    bench.until(lambda: bench.receiver.client.state is HaClientState.TRANSFER)
    bench.master, _ = bench.listening.accept()
    bench.master.settimeout(20)
    bench.step()
    return int(REPORT.unpack(exactly(bench.master, REPEATED * REPORT_BYTES)[:REPORT_BYTES])[0])


def files_below(directory: Path) -> set[Path]:
    return {path.relative_to(directory) for path in directory.rglob("*")}


@pytest.mark.parametrize("seed", range(2))
def test_only_what_continues_the_log_is_taken_from_a_rogue_master(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    truth = history(dice)
    begins = boundaries(truth)
    with opened(tmp_path / "slave") as bench:
        before, asked = files_below(tmp_path), 0
        for number in range(1, LIES + 1):
            at = min(dice.choice(begins) if dice.random() < 0.7 else dice.randrange(len(truth)), number * 400)
            at = max(at, asked)
            stream = frames(truth[asked:at], asked, lambda: dice.choice((1, 100, 3000)))
            say(bench, stream + lie(dice, at, is_boundary=at in begins), dice)
            bench.until(lambda: bench.receiver.client.state is HaClientState.READY or not bench.step())
            if bench.receiver.client.state is not HaClientState.READY:
                bench.master.close()
                bench.until(lambda: bench.receiver.client.state is HaClientState.READY)
            assert bench.node.log() == truth[: bench.end]
            assert not any(bench.behind_the_end()[HEAD.size - 1 :]), "zeros, but for a head that came in part"
            asked = come_again(bench)
            asked = 0 if asked <= ALL_THERE_IS else asked
        assert bench.end > SEGMENT, "most of it was the truth"
        assert files_below(tmp_path) == before, "the store's files, and no other"
