"""Completion in real shells; a shell that is not on the machine is skipped."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ipc.descriptors import await_readable
from tests.harness.conditions import await_that
from tests.harness.dispatched import small_store
from tools import cli

SECONDS = 300
CHECKOUT = Path(cli.__file__).parents[1]
HEAVY = "numpy numba rich pyspark uvloop asyncio ctypes"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a store, and with the command on PATH."""
    log = small_store(tmp_path / "my store", 6)
    offsets = {"topic0@billing": {"0": 1}, "topic0@shipping": {"0": 1}, "%RETRY%billing@billing": {"0": 0}}
    log.directory.config.mkdir(exist_ok=True)
    (log.directory.config / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "slipstream"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{CHECKOUT}" exec "{sys.executable}" -m tools.cli "$@"\n')
    command.chmod(0o755)
    return tmp_path


def environment(place: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "HOME": str(place), **more}


def needs(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not on this machine")
    return path


CASES = {
    "stat": {"stats", "status"},
    "log c": {"cat"},
    "log rebuild ": {"queue", "index"},
    "log cat --si": {"--since"},
    "log cat 'my store' --topic topic": {"topic0", "topic1"},
    "groups 'my store' -g ": {"billing", "shipping"},
    "log cat nowhere --topic ": set(),
    "log find --as ": {"4.9", "5"},
}


def words_of(line: str) -> list[str]:
    """As bash has them: quoted as typed."""
    return [word.replace("my_store", "'my store'") for word in line.replace("'my store'", "my_store").split(" ")]


@pytest.mark.parametrize("line", CASES)
def test_bash(place: Path, line: str) -> None:
    script = (
        'eval "$(slipstream completion bash)"; complete -p slipstream >/dev/null || exit 9;'
        ' COMP_WORDS=(slipstream "$@"); COMP_CWORD=$#; _slipstream_completion slipstream;'
        " printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    ran = subprocess.run(
        [needs("bash"), "--norc", "-c", script, "bash", *words_of(line)],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert set(filter(None, ran.stdout.splitlines())) == CASES[line]


def test_fish(place: Path) -> None:
    """All in one shell: each line's answers between two marks."""
    lines = [*CASES, "log stat my"]
    script = 'slipstream completion fish | source; for line in $argv; complete -C "slipstream $line"; echo =; end'
    ran = subprocess.run(
        [needs("fish"), "--no-config", "-c", script, *lines],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    answers = [{row.split("\t")[0] for row in part.splitlines() if row} for part in ran.stdout.split("=\n")]
    assert dict(zip(CASES, answers, strict=False)) == CASES
    assert any("my" in name and "store" in name for name in answers[len(CASES)])


TERMINAL = {  # what makes a bare shell one that completes
    "bash": (["--norc", "--noprofile", "-i"], 'bind "set bell-style none"'),
    "zsh": (["-f", "-i"], "autoload -Uz compinit; compinit -D -u"),
}


@pytest.mark.parametrize("shell", TERMINAL)
def test_typed_at_a_terminal(place: Path, shell: str) -> None:
    path, (flags, setup) = needs(shell), TERMINAL[shell]
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.chdir(place)
            os.execve(path, [shell, *flags], environment(place, TERM="dumb", PS1="ready> "))
        finally:
            os._exit(127)
    seen = bytearray()

    def shows(text: str) -> bool:
        if await_readable(terminal, timeout_ms=100):
            try:
                seen.extend(os.read(terminal, 65536))
            except OSError:
                return False
        return text.encode() in seen

    try:
        os.write(terminal, f'{setup}; eval "$(slipstream completion {shell})"; echo re""gistered\n'.encode())
        await_that(lambda: shows("registered"), f"the script is taken: {seen!r}", SECONDS)
        os.write(terminal, b"slipstream log rebui\t")
        await_that(lambda: shows("log rebuild "), "a command is completed", SECONDS)
        os.write(terminal, b"\x15slipstream log stat m\t")
        await_that(lambda: shows("log stat my\\ store"), "a store's path is completed", SECONDS)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def asking(place: Path, line: str) -> dict[str, str]:
    """The environment in which bash's script asks."""
    count = str(len(words_of(line)))
    asked = {"_SLIPSTREAM_COMPLETE": "bash_complete", "COMP_WORDS": f"slipstream {line}", "COMP_CWORD": count}
    return environment(place, PYTHONPATH=str(CHECKOUT), **asked)


def test_nothing_heavy_is_loaded_to_complete(place: Path) -> None:
    script = (
        "import sys; from tools.cli import run_command; code = run_command([]); "
        "loaded = set(sys.argv[1].split()) & set(sys.modules); assert not loaded, loaded; sys.exit(code)"
    )
    for line in ("l", "log cat 'my store' --topic t", "groups 'my store' -g b"):
        ran = subprocess.run(
            [sys.executable, "-c", script, HEAVY],
            cwd=place,
            env=asking(place, line),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.startswith("plain,")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"offsetTable": 5}', b'{"offsetTable": {"a@\\u001b[2J": {}}}'])
def test_a_damaged_table_of_offsets_completes_nothing(place: Path, content: bytes) -> None:
    (place / "my store" / "config" / "consumerOffset.json").write_bytes(content)
    ran = subprocess.run(
        ["slipstream"],
        cwd=place,
        env=asking(place, "groups 'my store' -g "),
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"\n", b"")


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["completion", "tcsh"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
