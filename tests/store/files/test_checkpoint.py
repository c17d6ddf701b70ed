"""The checkpoint file: RocketMQ's bytes in front, ours behind, void when they do not belong together."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from store.files import checkpoint as checkpoint_file
from store.files.checkpoint import FILE_BYTES, Checkpoint, decode, encode

OURS = Checkpoint(1111, 2222, 3333, 44, 55, flushed_offset=123456789012, queues=7, entries=890)


def test_the_first_bytes_are_rocketmqs() -> None:
    content = encode(OURS)
    assert len(content) == FILE_BYTES == 4096
    assert [int.from_bytes(content[at : at + 8], "big") for at in range(0, 48, 8)] == [1111, 2222, 3333, 44, 55, 0]
    assert not content[40:4048].strip(b"\0")


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert checkpoint_file.read(path) == Checkpoint()
    for checkpoint in (OURS, OURS._replace(flushed_offset=0), Checkpoint(1, 2, 3)):
        checkpoint_file.write(path, checkpoint)
        assert checkpoint_file.read(path) == checkpoint


def test_our_part_is_void_when_a_bit_of_it_or_the_time_before_it_differs() -> None:
    content = encode(OURS)
    for at in (*range(8), *range(4048, 4096)):
        changed = bytearray(content)
        changed[at] ^= 1
        found = decode(bytes(changed))
        assert found.flushed_offset is None, at
        assert found.logics_msg_timestamp_ms == 2222
    assert decode(content[:-1]) == Checkpoint()


@pytest.mark.parametrize(
    "physic, logics, expected", [(10_000, 20_000, 7_000), (20_000, 10_000, 7_000), (2_999, 9_999, 0), (0, 0, 0)]
)
def test_min_timestamp_keeps_rocketmqs_margin(physic: int, logics: int, expected: int) -> None:
    assert Checkpoint(physic, logics).min_timestamp_ms == expected


@pytest.mark.parametrize("version", ["rocketmq-4.9.7", "rocketmq-5.3.3"])
def test_a_real_one_is_read_and_written_the_same(version: str, tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).parent.parent.parent / "golden" / version / "master-store.tar.xz") as archive:
        archive.extract("store/checkpoint", tmp_path, filter="data")
    content = (tmp_path / "store" / "checkpoint").read_bytes()
    found = decode(content)
    assert found.physic_msg_timestamp_ms == found.logics_msg_timestamp_ms > found.index_msg_timestamp_ms > 0
    assert found.flushed_offset is None
    assert encode(found) == content
