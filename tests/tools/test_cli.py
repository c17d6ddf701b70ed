"""The command line as a user meets it: help, wrong usage, errors in one line, exit codes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from engine.errors import BrokerGone, MessageIllegal, SendTimeout
from engine.settings.config import ConfigError
from ipc.errors import RegionMissing
from store.errors import NoBroker, StoreError
from tests.harness.printed import command_of, leaves
from tools import cli
from tools.common.given_path import GivenPath
from tools.common.lazy_group import LazyGroup


def test_help_names_every_command_without_importing_one() -> None:
    script = (
        "import sys; from tools.cli import run_command; code = run_command(['--help']); "
        "loaded = {'numpy', 'numba', 'rich', 'pyspark'} & set(sys.modules); assert not loaded, loaded; sys.exit(code)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert all(f"\n  {name} " in ran.stdout for name in cli.COMMANDS)
    assert "Exit codes: 0 all well" in ran.stdout


HEAVY = (  # what nothing needs that only reads a command line
    "asyncio concurrent.futures ctypes http logging lz4 multiprocessing numba numpy psutil pyarrow pyspark rich "
    "secrets ssl starlette subprocess textual urllib.request uvicorn uvloop xml engine.shared_memory "
    "engine.remoting engine.settings"
)
EVERY_HELP = """
import sys
from tools.cli import run_command

heavy, paths = set(sys.argv[1].split()), sys.argv[2:]
for path in (each.split() for each in paths):
    assert run_command([*path, "--help"]) == 0, path
    assert run_command([*path, "--no-such-option"]) == 2, path
    assert run_command([*path[:-1], path[-1] + "x"]) == 2, path
    assert not heavy & set(sys.modules), (path, heavy & set(sys.modules))
"""


def test_help_and_wrong_usage_of_every_command_load_nothing_heavy() -> None:
    paths = [*leaves()]
    groups = sorted({path.rpartition(" ")[0] for path in paths} - {""})
    ran = subprocess.run(
        [sys.executable, "-c", EVERY_HELP, HEAVY, *paths, *groups],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("Usage: slipstream") == len(paths) + len(groups)


SHORTS = {  # what is asked for: its short option and its names, the same at every command
    "-b": ("--broker", "--brokerAddr"), "-c": ("--config",), "-g": ("--group",), "-i": ("--interval",),
    "-n": ("--namesrvAddr",), "-o": ("--output",), "-t": ("--topic",),
}  # fmt: skip
OF_MQADMIN = {  # other meanings, which mqadmin gave them
    "admin": {"--clusterName", "--clusterModel", "--moreStats", "--list", "--key", "--value", "--updateAllBroker",
              "--readQueueNums", "--writeQueueNums", "--perm", "--unit", "--hasUnitSub", "--attributes"},
}  # fmt: skip


def test_a_short_option_means_the_same_at_every_command() -> None:
    for path in leaves():
        command = command_of(path.split())
        assert command is not None
        for option in (one for one in command.params if isinstance(one, click.Option)):
            long = {name for name in option.opts if name.startswith("--")}
            if long & OF_MQADMIN.get(path.split()[0], set()):
                continue
            short = {name for name in option.opts if not name.startswith("--")}
            assert short == {key for key, names in SHORTS.items() if long & set(names)}, (path, option.opts)


NOT_FOR_AN_ERROR = "numpy numba rich pyspark uvloop asyncio logging ctypes secrets multiprocessing concurrent.futures"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["status", "nowhere"], 2),
        (["counters", "nowhere"], 2),
        (["stats", "nowhere"], 2),
        (["ha", "status", "nowhere"], 2),
        (["produce", "--store", "nowhere", "--topic", "t"], 2),
        (["ha", "explain", "nowhere"], 2),
        (["doctor", "nowhere"], 2),
        (["broker", "-c", "nowhere"], 2),
        (["namesrv", "-c", "nowhere"], 2),
        *((["log", *command, "nowhere"], 2) for command in (
            ["cat"], ["stat"], ["manifest"], ["verify"], ["digest"], ["export", "--json", "file"], ["map"],
            ["find", "--key", "k"], ["rebuild", "queue"], ["rebuild", "index"], ["repair", "--from", "elsewhere"],
            ["diff", "elsewhere"],
        )),
    ],
    ids=str,
)  # fmt: skip
def test_a_missing_store_or_broker_is_reported_before_anything_heavy_is_loaded(
    arguments: list[str], code: int, tmp_path: Path
) -> None:
    script = (
        "import sys; from tools.cli import run_command; code = run_command(sys.argv[2:]); "
        "loaded = set(sys.argv[1].split()) & set(sys.modules); assert not loaded, loaded; sys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, NOT_FOR_AN_ERROR, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parent.parent)},
    )
    assert ran.returncode == code, ran.stderr
    assert "nowhere: " in ran.stderr or "elsewhere: " in ran.stderr


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
    told = capsys.readouterr().err
    assert told.startswith("slipstream: USAGE: ") and told.count("\n") == 1
    assert "; see `slipstream" in told and " --help`" in told


@pytest.mark.parametrize(("arguments", "meant"), [
    (["stauts"], "stats or status"), (["STATUS"], "status"), (["cat"], "log cat"), (["log", "catt"], "cat"),
    (["log", "rebuild", "indx", "x"], "index"), (["admin", "topiclist"], "topicList"), (["ha", "explian"], "explain"),
    (["status", "--jsn", "x"], "--json"), (["log", "cat", "--topc=a", "x"], "--topic"), (["--versoin"], "--version"),
    (["log", "verify", "--no-progess", "x"], "--no-progress or --progress"), (["nothing-alike-is-there"], None),
    (["log", "cat", "--zzz", "x"], None), (["x" * 100_000], None), (["\x1b[2Jstatus"], "status or stats"),
], ids=lambda value: str(value)[:40])  # fmt: skip
def test_what_may_have_been_meant(arguments: list[str], meant: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("slipstream: USAGE: No such ") and said.count("\n") == 1 and said[:-1].isprintable()
    assert len(said) < 300
    assert ("did you mean" in said) == (meant is not None)
    assert meant is None or f" (did you mean {meant}?); see `slipstream" in said


def test_what_may_have_been_meant_is_looked_for_without_loading_anything_heavy() -> None:
    script = (
        "import sys; from tools.cli import run_command; codes = [run_command([word]) for word in ('stauts', 'cat')]; "
        "loaded = set(sys.argv[1].split()) & set(sys.modules); assert not loaded, loaded; sys.exit(max(codes))"
    )
    command = [sys.executable, "-c", script, NOT_FOR_AN_ERROR]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 2, ran.stderr


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
        (SendTimeout("s", 1, may_be_appended=True), 4),
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

    monkeypatch.setattr(LazyGroup, "get_command", lambda *_: interrupted)
    assert cli.run_command(["status"]) == 130
    told = capsys.readouterr().err
    assert told.startswith("slipstream: INTERRUPTED: ") and told.count("\n") == 1


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    printing = "c._invoke = lambda _arguments: print('x' * 100_000)"
    script = f"import sys, tools.cli as c; {printing}; sys.exit(c.run_command([]))"
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as out:
        ran = subprocess.run(
            [sys.executable, "-u", "-c", script], stdout=out, stderr=subprocess.PIPE, timeout=300, check=False
        )
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_output_that_does_not_fit_is_an_error() -> None:
    printing = "c._invoke = lambda _arguments: print('x' * 100_000)"
    script = f"import sys, tools.cli as c; {printing}; sys.exit(c.run_command([]))"
    with open("/dev/full", "wb") as out:
        ran = subprocess.run([sys.executable, "-c", script], stdout=out, stderr=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stderr) == (4, b"slipstream: IO: No space left on device; free some disk space\n")


def test_a_connection_that_breaks_is_not_taken_for_our_reader(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr(cli, "_invoke", broken)
    with open(os.devnull, "w", encoding="utf-8") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert cli.run_command(["admin"]) == 4
    assert "slipstream: IO: Broken pipe" in capfd.readouterr().err


def test_the_demonstration_says_at_once_that_there_is_no_pyspark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ipc.extras.find_spec", lambda _name: None)
    assert cli.run_command(["run"]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("slipstream: EXTRA_MISSING: ") and told.err.count("\n") == 1 and not told.out


def test_head_of_a_long_answer_is_no_error(tmp_path: Path) -> None:
    """Through click and all, which has an end of its own for that."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as out:
        ran = subprocess.run(
            [sys.executable, "-m", "tools.cli", "--help"], stdout=out, stderr=subprocess.PIPE, timeout=300, check=False
        )
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.parametrize("arguments", [[], ["log"], ["ha"], ["admin"]], ids=" ".join)
def test_a_group_alone_tells_its_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(arguments) == 2
    told = capsys.readouterr().err
    heading = "Commands" if arguments else "Run a broker"
    assert told.startswith("Usage: slipstream") and f"\n{heading}:\n" in told


def test_no_command_calls_a_store_of_another_user_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Root may read everything: that somebody may not is said in the system's place."""
    monkeypatch.setattr(os, "access", lambda *_asked, **_how: False)
    for command in ("status", "log cat", "log verify", "groups", "ha explain", "web", "promote"):
        cli.run_command([*command.split(), str(tmp_path)])
        assert "not readable" not in capfd.readouterr().err, command
    commands = [command for name in leaves() if (command := command_of(name.split())) is not None]
    paths = [one.type for command in commands for one in command.params if isinstance(one.type, click.Path)]
    assert len(paths) > 20 and all(isinstance(path, GivenPath) for path in paths)
