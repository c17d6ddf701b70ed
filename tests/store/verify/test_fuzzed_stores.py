"""Any byte of any file may be wrong: seeded damage to golden stores, read by every reader: none crashes, hangs, grows.

`SLIPSTREAM_FUZZ_ROUNDS` and `SLIPSTREAM_FUZZ_SEED` make longer and other runs of it.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import pytest

from tests.harness.bounded import run_bounded
from tests.store import golden
from tests.store.verify.readers import ADDRESSES_OF_DEFAULT_INDEX_FILES, READ_ONLY_FIRST, READERS

ROUNDS = int(os.environ.get("SLIPSTREAM_FUZZ_ROUNDS", "4"))
SEED = int(os.environ.get("SLIPSTREAM_FUZZ_SEED", "4"))
SECONDS_AT_FIRST, SECONDS_A_ROUND = 240, 30  # kernels may have to be compiled first
KINDS = ("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "checkpoint", "config")
CASES = [(version, name, kind) for version, name in golden.STORES for kind in KINDS]
INTERESTING = (
    b"\x00" * 8,
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xda\xa3\x20\xa7",
    b"\xcb\xd4\x31\x94",
)


def damage(rng: random.Random, content: bytes) -> bytes:
    """One kind of damage: flipped bits, other words, a hole, bytes missing, doubled or moved, another length."""
    data = bytearray(content)
    used = max(1, len(content.rstrip(b"\0")))
    at, length = rng.randrange(used), rng.choice((1, 4, 8, 20, 100, 4096))
    match rng.randrange(8):
        case 0:
            for _ in range(rng.choice((1, 3, 50))):
                if data:
                    data[rng.randrange(min(used, len(data)))] ^= 1 << rng.randrange(8)
        case 1:
            data[at : at + 8] = rng.choice(INTERESTING)
        case 2:
            data[at : at + length] = bytes(length)
        case 3:
            data[at : at + length] = rng.randbytes(length)
        case 4:
            del data[at : at + length]
        case 5:
            data[at:at] = rng.randbytes(length)
        case 6:
            del data[rng.randrange(len(data) + 1) :]
        case 7:
            source = rng.randrange(used)
            data[at : at + length] = data[source : source + length]
    if rng.random() < 0.7:  # mostly of its right length, so that the damage is reached
        data = data[: len(content)] + bytes(max(0, len(content) - len(data)))
    return bytes(data)


def fuzz(sound: Path, work: Path, kind: str, seed: int, rounds: int) -> int:
    """Damage copies and read them; any exception of ours is fine, no other is."""
    rng = random.Random(seed)
    told = sys.stderr
    for number in range(rounds):
        root = work / f"{number}" / "store"
        shutil.copytree(sound, root)
        files = [root / kind] if (root / kind).is_file() else sorted(p for p in (root / kind).rglob("*") if p.is_file())
        for path in rng.sample(files, min(len(files), rng.choice((1, 1, 2, 5)))):
            path.write_bytes(damage(rng, path.read_bytes()))
        for reader in READ_ONLY_FIRST:
            told.write(f"round {number} of seed {seed}: {reader}\n")
            told.flush()
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
                code = READERS[reader](root)
            assert code in (0, 1, 2, 4), f"{reader} ends with {code}"
        shutil.rmtree(root.parent)
    return 0


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_readers_of_damaged_files_tell_or_go_on(tmp_path: Path, case: tuple[str, str, str]) -> None:
    version, name, kind = case
    sound = golden.unpack(version, name, tmp_path)
    if not (sound / kind).exists():
        pytest.skip("the store has no such file")
    action = partial(fuzz, sound, tmp_path / "work", kind, SEED, ROUNDS)
    ended = run_bounded(
        action, memory_bytes=ADDRESSES_OF_DEFAULT_INDEX_FILES, seconds=SECONDS_AT_FIRST + SECONDS_A_ROUND * ROUNDS
    )
    assert ended.code == 0, ended.output[-4000:]
