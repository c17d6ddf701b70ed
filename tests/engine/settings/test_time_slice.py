"""Which roles ask for short slices, and that the kernel grants them; where it knows none, nothing changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.settings import cpus
from engine.settings.cpus import PROMPT_NS, attributes_of

APPLY = """
import sys
from engine.settings import cpus
cpus.SYS_SETATTR = int(sys.argv[2] or cpus.SYS_SETATTR)
cpus.ask_for_short_slices(sys.argv[1])
of = cpus.attributes_of(0)
print(of.sched_policy, of.sched_runtime)
"""
NO_SUCH_CALL = "1000000"


def scheduling() -> tuple[int, int]:
    """(policy, slice) of this process."""
    of = attributes_of(0)
    return of.sched_policy, of.sched_runtime


def _applied(role: str, call: str = "") -> tuple[int, ...]:
    """(policy, slice) of a process that asked as a role."""
    ran = subprocess.run(
        [sys.executable, "-c", APPLY, role, call],
        cwd=Path(cpus.__file__).parents[2],
        check=True,
        timeout=120,
        capture_output=True,
        text=True,
    )
    return tuple(map(int, ran.stdout.split()))


@pytest.mark.parametrize("role", ["writer", "front.0", "front.11", "ha_listener"])
def test_a_role_that_clients_wait_for_has_a_short_slice(role: str) -> None:
    policy, usual_ns = scheduling()
    assert _applied(role) == (policy, PROMPT_NS if usual_ns else 0)


@pytest.mark.parametrize("role", ["dispatcher", "housekeeper", "flusher", ""])
def test_the_others_have_the_kernels(role: str) -> None:
    assert _applied(role) == scheduling()


def test_a_refused_slice_is_accepted() -> None:
    assert _applied("writer", NO_SUCH_CALL) == scheduling()


def test_a_thread_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match=os.strerror(3)):
        attributes_of((1 << 31) - 1)
