"""Messages through shared memory: any sizes, in order, once; ends that were killed anywhere leave nothing half."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from ipc import byte_ring
from ipc.byte_ring import PIECE_BYTES, RingReader, RingWriter
from tests.harness.children import exit_code_of

RING_BYTES = 1 << 20


@pytest.fixture
def path(region_dir: Path) -> Path:
    byte_ring.create(region_dir / "ring", RING_BYTES)
    return region_dir / "ring"


def some_message(chance: random.Random) -> bytes:
    size = chance.choice((0, 1, 7, 8, 9, chance.randrange(5000), PIECE_BYTES, PIECE_BYTES + 1, 3 * RING_BYTES))
    return chance.randbytes(size)


@pytest.mark.parametrize("seed", range(5))
def test_messages_of_any_size_arrive_in_order(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    writer, reader = RingWriter(path), RingReader(path)
    sent, arrived = [some_message(chance) for _ in range(60)], []
    for message in sent:
        writer.put(message)
        for _ in range(chance.randrange(4)):
            arrived += reader.messages(chance.randrange(3))
            writer.flush()
    while len(arrived) < len(sent):
        arrived += reader.messages(64)
        writer.flush()
    assert arrived == sent and writer.kept_bytes == 0 and not reader.has_message


def test_what_finds_no_room_is_kept_and_counted(path: Path) -> None:
    writer, reader = RingWriter(path), RingReader(path)
    for number in range(10):
        writer.put(bytes([number]) * (RING_BYTES // 4))
    assert writer.kept_bytes >= 6 * RING_BYTES // 4 and not writer.flush()
    arrived = []
    while len(arrived) < 10:
        arrived += [message[0] for message in reader.messages(1)]
        writer.flush()
    assert arrived == list(range(10)) and writer.flush() and writer.kept_bytes == 0


def test_a_message_counts_as_handled_when_the_next_is_asked_for(path: Path) -> None:
    writer, reader = RingWriter(path), RingReader(path)
    writer.put(b"first")
    writer.put(b"second")
    messages = reader.messages(2)
    assert next(messages) == b"first", "and then its reader dies"
    assert list(RingReader(path).messages(2)) == [b"first", b"second"], "so its successor has it again"


def test_a_long_message_is_dropped_when_its_writer_dies(path: Path) -> None:
    writer, reader = RingWriter(path), RingReader(path)
    writer.put(bytes(3 * RING_BYTES))  # more than the ring holds: the writer dies with the rest
    assert list(reader.messages(1)) == []
    RingWriter(path).put(b"of another writer")
    assert list(reader.messages(1)) == [b"of another writer"]


def test_a_long_message_is_dropped_when_its_reader_dies(path: Path) -> None:
    writer, reader = RingWriter(path), RingReader(path)
    writer.put(bytes(3 * RING_BYTES))
    writer.put(b"behind it")
    assert list(reader.messages(1)) == [], "it has the beginning, and dies"
    arrived, successor = [], RingReader(path)
    while not arrived:
        writer.flush()
        arrived += successor.messages(1)
    assert arrived == [b"behind it"]


def test_between_two_processes(path: Path) -> None:
    count = 20_000
    child = os.fork()
    if child == 0:
        writer = RingWriter(path)
        for number in range(count):
            writer.put(number.to_bytes(8, "little") * (number % 50 + 1))
            while not writer.flush():
                os.sched_yield()
        os._exit(0)
    reader, expected = RingReader(path), 0
    while expected < count:
        for message in reader.messages(64):
            assert message == expected.to_bytes(8, "little") * (expected % 50 + 1)
            expected += 1
    assert exit_code_of(child) == 0
