"""What the doctor says: one row for each check, with a reason code and what to type next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """The weight of a row for its reader."""

    OK = "ok"
    OPEN = "open"  # works, and leaves something to strangers
    UNKNOWN = "unknown"  # was not checked, and why
    WRONG = "wrong"


class Code(StrEnum):
    """Reasons beside those of replication (`engine.protocol.ha.wire.ReasonCode`)."""

    OPEN = "OPEN"
    CERTIFICATE = "CERTIFICATE"
    CLOCK = "CLOCK"
    PERMISSIONS = "PERMISSIONS"
    NOT_CHECKED = "NOT_CHECKED"


MEANINGS = {  # and what to do
    Code.OPEN: ("it works, but any host may use it", "set the allow list or the key that the row names"),
    Code.CERTIFICATE: ("a certificate has expired, will soon, or does not match", "replace it as the row says"),
    Code.CLOCK: ("the clocks of two hosts differ", "chronyc tracking"),
    Code.PERMISSIONS: ("files of the store have wrong owners or permissions", "ls -l STORE"),
    Code.NOT_CHECKED: ("it could not be checked; the row says why", "slipstream doctor STORE, on the broker's host"),
}


@dataclass(frozen=True)
class Row:
    """Result of one check."""

    check: str
    level: Level
    reason: str
    what: str
    next: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain values for json.dumps."""
        return asdict(self)


def ok(check: str, what: str) -> Row:
    """Return a row that reports no problem."""
    return Row(check, Level.OK, "OK", what)


def wrong(check: str, reason: str, what: str, next_step: str) -> Row:
    """Something is to be done."""
    return Row(check, Level.WRONG, str(reason), what, next_step)


def left_open(check: str, what: str, next_step: str) -> Row:
    """Return a row about something that works, but that strangers may use."""
    return Row(check, Level.OPEN, Code.OPEN.value, what, next_step)


def unknown(check: str, what: str, next_step: str = "") -> Row:
    """Return the row for what could not be looked at, and why."""
    return Row(check, Level.UNKNOWN, Code.NOT_CHECKED.value, what, next_step)


def is_well(rows: Iterable[Row], *, strict: bool) -> bool:
    """Whether nothing is wrong; with `strict` also nothing left open."""
    bad = (Level.WRONG, Level.OPEN) if strict else (Level.WRONG,)
    return not any(row.level in bad for row in rows)
