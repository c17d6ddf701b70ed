"""Namespaces around all that the demonstration starts: what ends them ends all of it, and nothing of it is left.

The command that a user types stays outside. Inside it begins again as the first process of a PID namespace, with
mounts, network, host name and shared memory of its own, and a folder in memory. When one ends, the rest ends:
the kernel ends what is in a PID namespace with its first process, and devices, cables and mounts with them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from ipc.descriptors import await_readable

PROGRAMS = ("ip", "mount", "nsenter", "setpriv", "unshare")
INSIDE = "SLIPSTREAM_ENCLOSED"  # the folder in memory, where this is the process inside
NEW = ["--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
AS_ROOT = ["--user", "--map-root-user"]  # who is not root is root in a user namespace
TRIAL = (
    "mount -t tmpfs tmpfs /dev/shm && ip link add bridge0 type bridge && ip link add a0 type veth peer name b0"
    " && hostname trial && unshare --mount --net --pid --fork --mount-proc true"
)
MEMORY = 'mount -t tmpfs -o mode=755,nosuid,nodev tmpfs "$0" && exec "$@"'
ENDED_SECONDS = 60.0
INTERRUPTED = 130
FAILED = 1


class NoNamespaces(Exception):
    """Raised where this user, or this machine, can make no namespaces.

    Next: run it as root on Linux with util-linux and iproute2, or as a user who may make user namespaces.
    """

    code = "NO_NAMESPACES"


def way_in() -> list[str]:
    """Return what begins a command in new namespaces. Raises NoNamespaces."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        what = f"no {', '.join(missing)} on the PATH"
        raise NoNamespaces(f"{what}; install util-linux and iproute2 (`apt-get install util-linux iproute2`)")
    said = ""
    for more in ([], AS_ROOT) if os.geteuid() == 0 else (AS_ROOT,):
        tried = subprocess.run(
            ["unshare", *more, *NEW, "sh", "-c", TRIAL],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if tried.returncode == 0:
            return ["unshare", *more, *NEW]
        said = (tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"])[-1]
    needs = "root with CAP_SYS_ADMIN and CAP_NET_ADMIN, or a user who may make user namespaces"
    raise NoNamespaces(f"no namespaces with mounts, a bridge and cables can be made here ({said}); it takes {needs}")


def memory() -> Path | None:
    """The folder in memory, for the process inside; None outside."""
    place = os.environ.get(INSIDE)
    return None if place is None else Path(place)


def enclosed(module: str, arguments: Sequence[str]) -> int:
    """Run a module in the namespaces, to its end; return its exit code. Raises NoNamespaces.

    Ctrl-C and SIGTERM end all that is in there. When this returns, nothing of it runs and its folder is gone.
    """
    entry = way_in()
    with _interruptions() as asked, tempfile.TemporaryDirectory(prefix="slipstream-cluster-") as place:
        command = [*entry, "sh", "-c", MEMORY, place, sys.executable, "-m", module, *arguments]
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            env={**os.environ, INSIDE: place},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while process.poll() is None and not asked.wait(0.1):
                pass
        finally:
            _end(process)
    return INTERRUPTED if asked.is_set() else FAILED if process.returncode < 0 else process.returncode


@contextlib.contextmanager
def _interruptions() -> Iterator[threading.Event]:
    """Set by the first SIGINT or SIGTERM; nothing is raised, so that what has begun to end ends."""
    asked = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the first process in there, and wait until the kernel has ended all others."""
    first = first_child(process.pid)
    held = None
    if first is not None:
        with contextlib.suppress(ProcessLookupError):
            held = os.pidfd_open(first)
    process.kill()  # its child is killed with it
    process.wait()
    if held is not None:
        await_readable(held, timeout_ms=ENDED_SECONDS * 1000)  # readable when it has gone, which is after all others
        os.close(held)


def first_child(pid: int) -> int | None:
    """A process's first child; None without one."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(children[0]) if children else None
