"""Who may claim a ring: one that has control lines, and nobody else; what is refused leaves nothing locked behind.

And how the writer waits for what comes into one.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import re
import threading
from pathlib import Path

import numba
import numpy as np
import pytest
from numba import types

from ipc import ring
from ipc.compiled.atomics import Followed, publish
from ipc.compiled.kernels import python_of
from ipc.ring import ControlWord, RingsUnknown
from tests.harness.conditions import await_that

DATA_BYTES = 1 << 16


@pytest.mark.parametrize("numbers", [None, (2,), (0, 2), range(64, 70)])
def test_a_ring_without_control_lines_is_refused_before_it_is_made(region_dir: Path, numbers: range | None) -> None:
    controls = ring.create_rings(region_dir, 2)
    if numbers is None:
        controls.close()
    with pytest.raises(RingsUnknown, match="no control lines"):
        ring.ClaimedRing(region_dir, controls, DATA_BYTES, numbers)
    gc.collect()  # one that was half made would write into what is not there now
    assert not list(region_dir.glob("ring-*")), "nothing was made for it"
    controls.close()


def test_a_ring_is_given_back_also_when_the_control_lines_were_closed_since(region_dir: Path) -> None:
    controls = ring.create_rings(region_dir, 2)
    words = controls.words
    claimed = ring.ClaimedRing(region_dir, controls, DATA_BYTES, (1,))
    assert words[ring.WORDS_PER_RING + ControlWord.OWNER_PID] == os.getpid()
    controls.close()
    claimed.close()
    assert words[ring.WORDS_PER_RING + ControlWord.OWNER_PID] == 0
    lock = os.open(ring.ring_path(region_dir, 1), os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock)


def test_a_new_owner_of_a_ring_does_not_count_as_waiting_near(region_dir: Path) -> None:
    controls = ring.create_rings(region_dir, 1)
    controls.words[ControlWord.NEAR] = 1  # of an owner that was killed
    with contextlib.closing(ring.ClaimedRing(region_dir, controls, DATA_BYTES)):
        assert not controls.words[ControlWord.NEAR]
    controls.close()


@pytest.mark.parametrize("look_s", [0, 600])
def test_while_the_writer_looks_nobody_has_to_ring(look_s: int) -> None:
    bell, controls = np.zeros(len(Followed), np.int64), np.zeros(ring.WORDS_PER_RING, np.int64)
    arguments = (bell, 0, controls, look_s * 10**9, 600 * 10**9)
    waiting = threading.Thread(target=ring.await_bell, args=arguments, daemon=True)
    waiting.start()
    if not look_s:
        await_that(lambda: bell[Followed.WAITERS] >= 1, "it goes to sleep")
    controls[ControlWord.TAIL] = 1
    if not look_s:
        publish(bell, 0, 1)
    waiting.join(60)
    assert not waiting.is_alive() and not bell[Followed.WAITERS]


def test_a_sleeper_is_counted_before_it_looks_for_the_last_time() -> None:
    """An atomic addition orders all on x86-64; Arm's `ldapr` may overtake one, and the bell be rung for nobody."""
    words = types.Array(types.int64, 1, "C")
    fresh = numba.njit(nogil=True)(python_of(ring.await_bell))
    fresh.compile((words, types.int64, words, types.int64, types.int64))
    (text,) = fresh.inspect_llvm().values()
    lines = [line.strip() for line in text.splitlines()]
    behind = [lines[at + 1] for at, line in enumerate(lines) if re.search(r"atomicrmw add .* i64 1 seq_cst", line)]
    assert behind and set(behind) == {"fence seq_cst"}
