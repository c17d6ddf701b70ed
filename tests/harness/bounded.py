"""Runs a function in a process of its own, with bounds on its memory and its time: bad input may exceed neither."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import NamedTuple

from ipc.descriptors import await_readable

MEMORY_BYTES = 1 << 30  # on top of what the test's own process has mapped
SECONDS = 240  # kernels may have to be compiled first, on a busy machine
CRASHED = 70
CAPABILITY_VERSION = 0x20080522


class Ended(NamedTuple):
    """How it ended: its exit code (negative: by that signal), and what it wrote."""

    code: int
    output: str


def run_bounded(
    action: Callable[[], int], *, memory_bytes: int = MEMORY_BYTES, seconds: float = SECONDS, as_anybody: bool = False
) -> Ended:
    """Fork, run, and tell how it ended; an exception ends it with CRASHED and a traceback.

    `as_anybody`: also root may then read only what permissions let him read.
    """
    with tempfile.TemporaryFile() as output:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(_child(action, output.fileno(), memory_bytes, as_anybody))
            finally:
                os._exit(CRASHED)  # whatever happened: a second test session must not go on here
        pidfd = os.pidfd_open(pid)
        try:
            is_over = await_readable(pidfd, timeout_ms=seconds * 1000)
            if not is_over:
                os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
        finally:
            os.close(pidfd)
        output.seek(0)
        text = output.read().decode(errors="replace")
    if not is_over:
        text += f"\nended by the test after {seconds} s"
    return Ended(os.waitstatus_to_exitcode(status), text)


def obey_permissions() -> None:
    """Give up what lets root read everything (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = struct.pack("=Ii", CAPABILITY_VERSION, 0), ctypes.create_string_buffer(24)
    if libc.capget(header, data) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    words = list(struct.unpack("=6I", data.raw))
    kept = [word & ~0b110 if index < 3 else word for index, word in enumerate(words)]
    if libc.capset(header, struct.pack("=6I", *kept)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _child(action: Callable[[], int], output: int, memory_bytes: int, as_anybody: bool) -> int:
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        with open("/proc/self/statm") as statm:
            mapped = int(statm.read().split()[0]) * resource.getpagesize()
        if as_anybody:
            obey_permissions()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + memory_bytes,) * 2)
        code = action()
    except BaseException:
        traceback.print_exc()
        code = CRASHED
    sys.stdout.flush()
    sys.stderr.flush()
    return code
