"""A request that a running broker change its role: a file beside its regions, which its supervisor looks for.

Only the broker's own user may write there. The file is removed with the regions: a request that was not begun is lost.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ipc.clock import monotonic_ms
from store.notes import summed_json
from store.notes.summed_json import Damaged

NAME, REFUSAL = "role-request", "role-refused"
LOCK = "role-lock"  # a command that changes the role holds it
CLAIM = "role-claim"  # a slave is about to take its master's place; it answers so when the master asks
ROLE_SIGNAL = signal.SIGUSR1  # says to the supervisor that a role is asked for


class RoleRequest(NamedTuple):
    """The role that is requested: master, or slave of the master at that HA address ("": as the name servers say)."""

    to_master: bool
    master: str = ""
    tables_from: str = ""  # where the old master answers: it is asked for consumers' offsets once more
    epoch: int = 0  # of the promotion, at least; of the master that takes this one's place; 0 when nobody said it
    broker: str = ""  # ... and who that is
    is_proved: bool = False  # a newer master has proved itself: nobody said that this broker is to be a slave


def write(directory: Path, request: RoleRequest) -> None:
    """Ask for it. Raises OSError."""
    (directory / REFUSAL).unlink(missing_ok=True)
    summed_json.write(directory / NAME, request._asdict())


def read(directory: Path) -> RoleRequest | None:
    """Return the request; None without a valid one."""
    try:
        fields = summed_json.read(directory / NAME)
        kinds = {name: type(value) for name, value in RoleRequest(to_master=True)._asdict().items()}
        if fields is None or {name: type(value) for name, value in fields.items()} != kinds:
            return None
        return RoleRequest(**fields)
    except (Damaged, OSError):
        return None


def refuse(directory: Path, why: str) -> None:
    """Take the request back, and say why to who waits for it. Raises OSError."""
    summed_json.write(directory / REFUSAL, {"why": why})
    (directory / NAME).unlink(missing_ok=True)


def refusal(directory: Path) -> str:
    """Return why the last request was refused; "" without a refusal."""
    try:
        return str((summed_json.read(directory / REFUSAL) or {}).get("why", ""))
    except (Damaged, OSError):
        return ""


def is_there(directory: Path) -> bool:
    """Whether there is one: a look that costs little."""
    return os.access(f"{directory}/{NAME}", os.F_OK)


@contextmanager
def claiming(directory: Path, epoch: int, seconds: float) -> Iterator[None]:
    """Have a slave's broker say meanwhile, for so long at most, that it is about to begin that epoch: its master steps
    down for no other. Raises OSError."""
    summed_json.write(directory / CLAIM, {"epoch": epoch, "until_ms": monotonic_ms() + int(seconds * 1000)})
    try:
        yield
    finally:
        (directory / CLAIM).unlink(missing_ok=True)


def claimed(directory: Path) -> int:
    """The epoch that this slave is about to begin; 0 without one."""
    try:
        fields = summed_json.read(directory / CLAIM) or {}
    except (Damaged, OSError):
        return 0
    epoch, until_ms = fields.get("epoch"), fields.get("until_ms")
    return epoch if type(epoch) is int and type(until_ms) is int and monotonic_ms() < until_ms else 0
