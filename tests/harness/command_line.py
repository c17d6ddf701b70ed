"""One command line of `slipstream`, run in this process as the console script runs it."""

from __future__ import annotations

from typing import NamedTuple

from click.testing import CliRunner

from tools.cli import run_command


class Ran(NamedTuple):
    """What it ended with, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """All that a terminal would show, errors last."""
        return self.stdout + self.stderr


def run(*arguments: object, lines: str = "") -> Ran:
    """Its exit code and output; bugs are raised. `lines` are its standard input."""
    with CliRunner().isolation(lines) as (out, err, _both):
        code = run_command([str(argument) for argument in arguments])
        return Ran(code, out.getvalue().decode(), err.getvalue().decode())
