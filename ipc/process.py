"""Who a process is: its pid and the moment it began, which together are never used twice.

Both count in one PID namespace (and one time namespace) only: a container has its own. `namespace` tells them apart.
"""

from __future__ import annotations

import os

_role = ""


def take_role(name: str) -> None:
    """Name the role of this process from now on, as `own_role` returns it."""
    global _role
    _role = name


def own_role() -> str:
    """Return what this process does; empty where nobody said."""
    return _role


def start_time(pid: int) -> int | None:
    """Clock ticks between boot and the start of `pid` (field 22 of /proc/PID/stat); None: no such process.

    A zombie counts as gone: it runs nothing and owns nothing.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def is_alive(pid: int, started: int) -> bool:
    """Whether the very process that had `pid` and began at `started` still runs."""
    return start_time(pid) == started


def is_hidden(pid: int) -> bool:
    """Whether a process has that pid and may not be looked at (/proc mounted with hidepid, another user's process)."""
    if start_time(pid) is not None:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def boot_id() -> str:
    """A text that is another one each time the machine (or its container's host) starts."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def namespace() -> str:
    """A text that is the same for processes that see each other's pids and start times; empty where nothing tells."""
    inodes = []
    for kind in ("pid", "time"):
        try:
            inodes.append(str(os.stat(f"/proc/self/ns/{kind}").st_ino))
        except OSError:  # no time namespaces before Linux 5.6
            inodes.append("")
    return "-".join(inodes) if inodes[0] else ""


def hold_standard_descriptors() -> None:
    """Have descriptors 0 to 2 open: whatever is opened next never gets their numbers.

    Where a caller closed them (`<&-`), a region or a socket would become standard input or output: what is printed
    would be written into it, and what is read would be read out of it.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, fd)  # also makes it one that children inherit
            if opened != fd:
                os.close(opened)
