"""A broker's process that was forked ends, is told and is given what one that was started is."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness.forked import ForkedProcess
from tools.common.exit_codes import ExitCode
from tools.common.local_broker import LocalBroker

SECONDS = 120
SMALL = {"mappedFileSizeCommitLog": 1 << 20}


def test_a_forked_broker_reports_its_exit_code_or_its_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # left by a test that ran the command in this process
    with LocalBroker(tmp_path / "b", **SMALL) as broker:
        assert isinstance(broker.process, ForkedProcess)
        with pytest.raises(subprocess.TimeoutExpired):
            broker.process.wait(0)
        twice = LocalBroker(tmp_path / "b", **SMALL)
        assert twice.process.wait(SECONDS) == ExitCode.STORE and "STORE_LOCKED" in twice.log.read_text()
        broker.process.kill()
        assert broker.process.wait(SECONDS) == broker.process.poll() == -signal.SIGKILL
        broker.process.terminate()  # as with any process that has ended, nobody gets the signal


def test_another_environment_is_given_by_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalBroker(tmp_path / "a", **SMALL) as broker:  # what forks was started with the worker's own environment
        assert isinstance(broker.process, ForkedProcess)
    monkeypatch.setenv("SLIPSTREAM_TEST", "x")
    with LocalBroker(tmp_path / "b", **SMALL) as broker:
        assert isinstance(broker.process, subprocess.Popen)
