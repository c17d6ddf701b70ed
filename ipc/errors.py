"""What can go wrong with shared memory.

IpcError
├── RegionMissing    the file is not there: no broker made it, or the broker has gone
├── RegionDenied     this process's user may not read it, or not write it
├── RegionMismatch   the file is there and is something else (magic, kind, size)
│   └── OtherVersion    another version of us made it, with another layout
├── RegionNoSpace    the file system of the regions cannot hold it
├── CountersFull     no slot is left for another counter
├── CounterMissing   no counter has this label
├── RingFull         the consumer did not make room before the deadline
├── CompilerOff      the environment says that nothing is to be compiled
└── CompileUnknown   the environment asks for code for a processor that nobody knows
"""

from __future__ import annotations

from pathlib import Path


class IpcError(Exception):
    """Base class of errors of shared memory; `code` is stable, the text is for people.

    Next: `slipstream status STORE`; the error names the file of shared memory.
    """

    code = "IPC"


class RegionMissing(IpcError):
    """Raised when a region's file does not exist.

    Next: `slipstream status STORE`; start its broker if none runs.
    """

    code = "REGION_MISSING"

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: no such region; is the broker of this store running? see `slipstream status STORE`")
        self.path = path


class RegionDenied(IpcError, PermissionError):
    """Raised when a region may not be opened.

    Next: run the command as the user that the error names, or set `storeGroup` in the broker's file and restart the
    broker.
    """

    code = "ACCESS_DENIED"

    def __init__(self, path: Path, owner_uid: int, *, writable: bool) -> None:
        whose = f"the shared memory of a broker that runs as user {owner_uid}"
        mend = f"only that user may put messages; run this as user {owner_uid}"
        if not writable:
            mend = "set storeGroup in the broker's file to a group of this user, then restart the broker"
        super().__init__(f"{path}: {whose} may not be {'written' if writable else 'read'} by this user; {mend}")
        self.path = path


class RegionMismatch(IpcError):
    """Raised when a file is not the expected region.

    Next: restart the broker with the version of the command: `slipstream --version`.
    """

    code = "REGION_MISMATCH"

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}; it was made by another version of Slipstream: restart its broker")
        self.path = path


class OtherVersion(RegionMismatch):
    """Raised when a broker of another version runs, whose shared memory this version does not read.

    Next: restart the broker with the installed package, or run the command of the version that the error names.
    """

    code = "OTHER_VERSION"

    def __init__(self, path: Path, broker: str, here: str, reason: str) -> None:
        IpcError.__init__(
            self,
            f"{path}: its broker runs version {broker or 'unknown (an earlier one)'}, this is version {here}: {reason};"
            " restart the broker with the installed package, or use the command of the broker's version",
        )
        self.path = path


class RegionNoSpace(IpcError):
    """Raised when the blocks of a region cannot be reserved.

    Next: `df -h /dev/shm`; enlarge it, or set `regionPath`.
    """

    code = "REGION_NO_SPACE"

    def __init__(self, path: Path, needed_bytes: int, free_bytes: int) -> None:
        super().__init__(
            f"{path}: {needed_bytes} bytes are needed and {free_bytes} are free on this file system; "
            "enlarge it, or set regionPath to another directory"
        )
        self.path = path


class CountersFull(IpcError):
    """Raised when a counters region has no free slot.

    Next: restart the broker; a new region has room for all counters.
    """

    code = "COUNTERS_FULL"

    def __init__(self, path: Path, capacity: int) -> None:
        super().__init__(f"{path}: all {capacity} counters are taken; make the region with a larger capacity")


class CounterMissing(IpcError):
    """Raised when a label is not in a counters region.

    Next: `slipstream counters STORE` lists the counters.
    """

    code = "COUNTER_MISSING"

    def __init__(self, path: Path, label: str) -> None:
        super().__init__(f"{path}: no counter is labelled {label!r}; `slipstream counters STORE` lists all labels")


class RingFull(IpcError):
    """Raised when a ring had no room for a record before the caller's deadline.

    Next: `slipstream status STORE`; allow more time (`timeout`), or raise `ringSizeInBytes`.
    """

    code = "RING_FULL"

    def __init__(self, path: Path, needed_bytes: int, waited_ms: int) -> None:
        super().__init__(
            f"{path}: no room for {needed_bytes} bytes after {waited_ms} ms; nothing was sent. "
            "The writer is slower than this producer, or stopped: see `slipstream status STORE`"
        )


class CompilerOff(IpcError):
    """Raised when NUMBA_DISABLE_JIT is set: only compiled code may read and write shared memory.

    Next: unset NUMBA_DISABLE_JIT.
    """

    code = "COMPILER_OFF"

    def __init__(self) -> None:
        super().__init__(
            "NUMBA_DISABLE_JIT is set: Slipstream reads and writes shared memory only with compiled code; unset it"
        )


class CompilerMissing(IpcError):
    """Raised where compiled code is needed, the package carries none for this machine, and numba is not installed.

    Next: install the wheel for this machine, or `pip install numba`.
    """

    code = "COMPILER_MISSING"

    def __init__(self, why_not: str) -> None:
        carries = f"takes no compiled code that it carries ({why_not})" if why_not else "carries no compiled code"
        what = f"this package {carries}, and numba, which would compile, is not installed"
        super().__init__(f"{what}; install the wheel for this machine, or run `pip install numba`")


class CompileUnknown(IpcError):
    """Raised when SLIPSTREAM_COMPILE has a value that it cannot have.

    Next: set one of those that the error names, or unset it.
    """

    code = "COMPILE_UNKNOWN"

    def __init__(self, value: str, known: tuple[str, ...]) -> None:
        super().__init__(f"SLIPSTREAM_COMPILE={value}: not known; it can be {' or '.join(known)}, or unset")
