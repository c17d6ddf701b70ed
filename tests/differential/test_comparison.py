"""The comparison itself: a store is equal to its copy, and every byte of it that is not masked counts."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.differential import comparison
from tests.differential.comparison import Comparison
from tests.differential.operations import operations, topics
from tests.store import golden

KINDS = ("commitlog", "consumequeue", "index")
INDEX_SLOTS = 200


@pytest.fixture(scope="module", params=golden.STORES, ids="-".join)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    version, name = request.param
    return golden.unpack(version, name, tmp_path_factory.mktemp("store"))


def test_a_store_is_equal_to_its_copy(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "copy")
    found = Comparison(store, tmp_path / "copy", {}).run()
    assert not found.mismatches
    assert found.records > 100 and found.entries > 100
    assert found.masked.bytes_of["record.storeTimestamp"] == 8 * found.records
    assert sum(found.masked.bytes_of.values()) < found.masked.compared // 4


@pytest.mark.parametrize("kind", KINDS)
def test_any_byte_that_is_not_masked_is_seen(store: Path, tmp_path: Path, kind: str) -> None:
    rng = random.Random(kind)
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    files = [path for path in sorted((copy / kind).rglob("*")) if path.is_file() and any(path.read_bytes())]
    seen = 0
    for _ in range(12):
        path = rng.choice(files)
        sound = path.read_bytes()
        used = len(sound.rstrip(b"\0"))
        broken = bytearray(sound)
        broken[rng.randrange(used)] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        seen += bool(Comparison(store, copy, {}).run().mismatches)
        path.write_bytes(sound)
    assert seen >= 8, "but for flips inside of masked fields"


def test_a_derived_field_is_compared_with_what_it_follows_from(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    path = sorted((copy / "index").iterdir())[0]
    content = bytearray(path.read_bytes())
    time_diff = 40 + 4 * INDEX_SLOTS + 20 * 3 + 12
    content[time_diff + 3] += 5
    path.write_bytes(content)
    (told,) = Comparison(store, copy, {}).run().mismatches
    assert "our timeDiff" in told


def test_a_mismatch_names_operation_field_and_both_values(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    path = sorted((copy / "commitlog").iterdir())[0]
    content = bytearray(path.read_bytes())
    content[19] ^= 0xFF  # the first record's flag
    path.write_bytes(content)
    told = Comparison(store, copy, {0: "operation 7 (plain)"}).run().mismatches
    assert told[-1].startswith("log at 0, operation 7 (plain): flag\n  RocketMQ  ")
    assert comparison.MISMATCHES_MAX > 1


def test_the_list_is_the_same_for_the_same_seed() -> None:
    first = list(operations(3, 500, five=True, features=True))
    assert first == list(operations(3, 500, five=True, features=True))
    assert first != list(operations(4, 500, five=True, features=True))
    assert {len(topic.name) for topic in topics(five=True, features=True)} >= {1, 127}
    assert len({operation.what for operation in first}) > 12
