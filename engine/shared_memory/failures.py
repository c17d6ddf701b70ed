"""Why roles fail: the first line of each role's last error, in shared memory, and which roles that keeps from work.

Region "failures": 512 bytes for each role, in the order of `PLACES`: length of the text (8), text.
A role writes its own as it fails; its parent, for one that was killed, once it is dead.
How often a role died lately, and whether it was given up, are the supervisor's counters `deaths.ROLE`, `stuck.ROLE` and
`given_up.ROLE`; of a sender only its deaths are counted, by the ha_listener.
"""

from __future__ import annotations

import errno
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from engine.shared_memory.cursors import ROLES, SENDERS, BrokerCounters
from ipc.region import WORD_BYTES, Region

REGION_KIND, LAYOUT, FAILURES_FILE = "failures", 2, "failures"
PLACES = (*ROLES, *SENDERS)
SLOT_BYTES = 512
TEXT_BYTES = SLOT_BYTES - WORD_BYTES
FILES_GONE = -2  # in the place of an errno: the log's files or directories were deleted, moved or replaced
LOOPING_DEATHS = 3  # within a minute, or at the same place: then it is a problem and not an accident
STUCK_MAX = 10  # deaths by the same bytes, after which a role is not started again
PASSING = frozenset(  # the world's trouble, not the bytes': tried again for as long as it lasts
    {
        errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EADDRINUSE,
        errno.EADDRNOTAVAIL, errno.EINTR, errno.ENOBUFS,
    }
)  # fmt: skip


class Failing(NamedTuple):
    """A role that does not do its work: it dies again and again, or was given up."""

    role: str
    deaths: int
    is_given_up: bool
    error: str


def first_line(error: BaseException) -> str:
    """An error as one line: our code, or its class, and the first line of what it says."""
    code = getattr(error, "code", None)
    name = code if isinstance(code, str) else "IO" if isinstance(error, OSError) else type(error).__name__
    text = str(error)
    if name == "IO" and isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    said = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"{name}: {said}" if said else name


def is_passing(error: BaseException) -> bool:
    """Whether the same work may succeed later, with nothing changed but the machine around it."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in PASSING)


def needs_no_traceback(error: BaseException) -> bool:
    """Whether its one line says all: ours and the system's do, the others are bugs and need their traceback."""
    return isinstance(error, OSError) or isinstance(getattr(error, "code", None), str)


def exit_text(status: int) -> str:
    """Say how a process ended that could not say it itself; `status` is waitpid's."""
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.WEXITSTATUS(status)}"


class Failures:
    """The last error of each role, in the shared region."""

    def __init__(self, region: Region) -> None:
        self._region = region

    @classmethod
    def create(cls, directory: Path) -> Failures:
        """Create the region of a broker that starts. Only the supervisor calls it."""
        size = SLOT_BYTES * len(PLACES)
        return cls(Region.create(directory / FAILURES_FILE, size, kind=REGION_KIND, layout=LAYOUT))

    @classmethod
    def attach(cls, directory: Path) -> Failures:
        """Attach to a running broker's region, to read. Raises RegionMissing, RegionMismatch."""
        return cls(Region.attach(directory / FAILURES_FILE, kind=REGION_KIND, layout=LAYOUT))

    def note(self, role: str, text: str) -> None:
        """Note a role's text; a text that is too long is cut."""
        at = PLACES.index(role) * SLOT_BYTES
        data = text.encode("utf-8", "replace")[:TEXT_BYTES]
        if self._stands(at, data):
            return
        self._region.words[at // WORD_BYTES] = 0
        self._region.bytes[at + WORD_BYTES : at + WORD_BYTES + len(data)] = bytearray(data)
        self._region.words[at // WORD_BYTES] = len(data)

    def _stands(self, at: int, data: bytes) -> bool:
        is_as_long = int(self._region.words[at // WORD_BYTES]) == len(data)
        return is_as_long and self._region.bytes[at + WORD_BYTES : at + WORD_BYTES + len(data)].tobytes() == data

    def text_of(self, role: str) -> str:
        """The role's last error; empty when it had none."""
        at = PLACES.index(role) * SLOT_BYTES
        length = min(max(int(self._region.words[at // WORD_BYTES]), 0), TEXT_BYTES)
        text = self._region.bytes[at + WORD_BYTES : at + WORD_BYTES + length].tobytes().decode("utf-8", "replace")
        return "".join(letter if letter.isprintable() else " " for letter in text)

    def close(self) -> None:
        """Unmap the region; nothing can be noted or read afterwards."""
        self._region.close()


def failing(counters: BrokerCounters, directory: Path) -> list[Failing]:
    """The roles that do not do their work, on the broker with these regions. Raises RegionMissing."""
    rows = []
    with closing(Failures.attach(directory)) as failures:
        for role in ROLES:
            deaths, is_given_up = counters.deaths[role].read(), counters.given_up[role].read() != 0
            if is_given_up or deaths >= LOOPING_DEATHS or counters.stuck[role].read() >= LOOPING_DEATHS:
                rows.append(Failing(role, deaths, is_given_up, failures.text_of(role)))
        for sender in SENDERS:
            if (deaths := counters.deaths[sender].read()) >= LOOPING_DEATHS:
                rows.append(Failing(sender, deaths, False, failures.text_of(sender)))
    return rows


def is_unreadable(counters: BrokerCounters) -> bool:
    """Whether the dispatcher dies at one place of the log again and again, or was given up for it."""
    return counters.given_up["dispatcher"].read() != 0 or counters.stuck["dispatcher"].read() >= LOOPING_DEATHS


def errno_text(number: int) -> str:
    """Return the reason why the disk refused something."""
    if number == FILES_GONE:
        return "the log's files were deleted, moved or replaced while the broker ran"
    return os.strerror(number) if number > 0 else "unknown error"
