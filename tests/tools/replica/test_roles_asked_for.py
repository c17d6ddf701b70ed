"""`slipstream promote` and `demote` of a store without a broker: what is noted for its next start, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.notes import epochs
from tools import cli


@pytest.mark.parametrize("command", ["promote", "demote"])
@pytest.mark.parametrize(
    "master", ["nonsense", "127.0.0.1", ":10912", "127.0.0.1:", "a:0", "a:65536", "a:+1", "a:" + "1" * 5000]
)
def test_a_master_that_nobody_can_connect_to_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, master: str
) -> None:
    (tmp_path / "commitlog").mkdir()
    before = epochs.read(tmp_path)
    assert cli.run_command([command, str(tmp_path), "--master", master]) == 2
    assert "is not HOST:PORT with a port from 1 to 65535; see `slipstream" in capfd.readouterr().err
    assert epochs.read(tmp_path) == before


@pytest.mark.parametrize("master", ["127.0.0.1:10912", "[::1]:65535", "host.example:1"])
def test_a_master_is_noted_for_the_next_start(tmp_path: Path, master: str) -> None:
    (tmp_path / "commitlog").mkdir()
    before = epochs.read(tmp_path)
    assert cli.run_command(["demote", str(tmp_path), "--master", master]) == 0
    assert epochs.read(tmp_path) == before.demoted(master)
