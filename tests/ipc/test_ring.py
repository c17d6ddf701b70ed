"""Who may claim a ring: one that has control lines, and nobody else; what is refused leaves nothing locked behind."""

from __future__ import annotations

import fcntl
import gc
import os
from pathlib import Path

import pytest

from ipc import ring
from ipc.ring import ControlWord, RingsUnknown

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
