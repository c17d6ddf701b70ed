"""A child that is stuck in os.fork() is ended, and another one forked."""

from __future__ import annotations

import os
import signal

import pytest

from tests.harness import forks
from tests.harness.children import exit_code_of


@pytest.mark.parametrize("stuck", [0, 1, 2])
def test_a_child_that_is_stuck_is_ended_and_another_one_forked(monkeypatch: pytest.MonkeyPatch, stuck: int) -> None:
    monkeypatch.setattr(forks, "STUCK_SECONDS", 0.2)
    pids = []

    def fork() -> int:
        pid = os.fork()
        if not pid and len(pids) < stuck:
            signal.pause()
        pids.append(pid)
        return pid

    pid = forks.running(fork)()
    if not pid:
        os._exit(7)
    assert exit_code_of(pid) == 7 and len(pids) == stuck + 1
    for ended in pids[:-1]:
        with pytest.raises(ProcessLookupError):
            os.kill(ended, 0)


def test_a_child_that_ends_at_once_is_none_that_is_stuck() -> None:
    pid = os.fork()
    if not pid:
        os._exit(3)
    assert exit_code_of(pid) == 3
