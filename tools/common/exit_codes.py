"""What a command's exit code says, and which verdict on a broker gives which."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of all commands."""

    WELL = 0
    FOUND = 1  # a check failed, or something was found
    USAGE = 2  # wrong usage or configuration
    NO_BROKER = 3
    STORE = 4  # input, output or the store failed
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.WELL: "it is done, and nothing is wrong",
    ExitCode.FOUND: "a check failed, or something was found",
    ExitCode.USAGE: "wrong usage or configuration",
    ExitCode.NO_BROKER: "no broker serves: none runs, it is starting, or it has ended",
    ExitCode.STORE: "input, output or the store failed",
    ExitCode.INTERRUPTED: "Ctrl-C",
}
WELL_OR_NOT = "Exit codes: 0 nothing is wrong; 1 something is wrong; 3 no broker serves"
EPILOG = f"{WELL_OR_NOT}. With --ready, 1 means: not serving; with --alive, 1 means: needs a restart or a new disk."


def of_verdict(verdict: str, question: str = "well") -> ExitCode:
    """Return the exit code for a verdict (a name of `finding.Verdict`); `question`: well, ready or alive."""
    from engine.monitoring.finding import WORST, Verdict  # not loaded to tell what a command is called

    return ExitCode.FOUND if Verdict[verdict] > WORST[question] else ExitCode.WELL
