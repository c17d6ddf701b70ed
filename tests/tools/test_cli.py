"""The command line as a user meets it: help, wrong usage, errors in one line, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from engine.config import ConfigError
from engine.errors import BrokerGone, MessageIllegal, SendTimeout
from ipc.errors import RegionMissing
from store.errors import NoBroker, StoreError
from tools import cli


def test_help_names_every_command_without_importing_one() -> None:
    script = (
        "import sys; from tools.cli import run_command; code = run_command(['--help']); "
        "loaded = {'numpy', 'numba', 'rich', 'pyspark'} & set(sys.modules); assert not loaded, loaded; sys.exit(code)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert all(f"\n  {name} " in ran.stdout for name in cli.COMMANDS)
    assert "Exit codes: 0 all well" in ran.stdout


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command([name, "--help"]) == 0
    assert "Usage: slipstream " + name in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["--version"]) == 0
    assert capsys.readouterr().out.startswith("slipstream 0.")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["--nonsense"],
        ["broker"],
        ["produce", "--topic", "t"],
        ["produce", "--store", "s"],
        ["produce", "--store", "s", "--topic", "t", "--batch", "0"],
        ["produce", "--store", "s", "--topic", "t", "no-such-file"],
        ["status"],
        ["counters"],
        ["run", "--seconds", "0"],
        ["run", "--input", "no-such-file"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(arguments) == 2
    assert "Error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["status", "--json"], ["counters"], ["counters", "--watch"], ["produce", "--topic", "t", "--store"]],
    ids=" ".join,
)
def test_no_broker_ends_with_3(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command([*arguments, str(tmp_path)]) == 3
    assert f"slipstream: NO_BROKER: {tmp_path}" in capsys.readouterr().err


def test_a_wrong_key_stops_the_broker_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broker.properties"
    path.write_text("storePathRootDir=/nowhere\nbrokerRoll=SLAVE\n")
    assert cli.run_command(["broker", "-c", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"slipstream: CONFIG: {path}:2: brokerRoll=SLAVE: unknown key; did you mean brokerRole?\n"
    )


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (ConfigError("f", 1, "w"), 2),
        (MessageIllegal("topic", "empty"), 2),
        (NoBroker("s"), 3),
        (RegionMissing(Path("r")), 3),
        (BrokerGone("s", 1), 3),
        (SendTimeout("s", 1), 4),
        (StoreError("s"), 4),
        (PermissionError(13, "Permission denied", "f"), 4),
    ],
    ids=lambda value: type(value).__name__,
)
def test_our_errors_are_one_line_and_a_code(
    error: Exception, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.report(error) == exit_code
    told = capsys.readouterr().err
    assert told.startswith("slipstream: ")
    assert told.count("\n") == 1


@pytest.mark.parametrize("bug", [AssertionError("bug"), ValueError("bug"), subprocess.CalledProcessError(1, "x")])
def test_bugs_are_not_hidden(bug: Exception) -> None:
    with pytest.raises(type(bug)):
        cli.report(bug)


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: interrupted)
    assert cli.run_command(["status"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    printing = "c.cli.main = lambda *a, **k: print('x' * 100_000)"
    script = f"import sys, tools.cli as c; {printing}; sys.exit(c.run_command([]))"
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as out:
        ran = subprocess.run(
            [sys.executable, "-u", "-c", script], stdout=out, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert (ran.returncode, ran.stderr) == (0, b"")
