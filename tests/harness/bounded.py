"""Runs a function in a process of its own, with bounds on its memory and its time: bad input may exceed neither.

The process is forked from one that has no threads: a child of a test's worker has the locks that threads of gRPC, Arrow
or Spark held at the fork (see `forks`).
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

MEMORY_BYTES = 1 << 30  # on top of what the process has mapped when it begins
SECONDS = 240  # kernels may have to be compiled first, on a busy machine
CRASHED = 70
CAPABILITY_VERSION = 0x20080522
FORKS = get_context("forkserver")
# What children run, so that none of them imports it.
FORKS.set_forkserver_preload(
    "spark_bridge.columnar.rounds store.manifest.manifest tests.harness.dying tests.store.verify.readers"
    " tools.log.show tools.log.verify pandas".split()
)


class Ended(NamedTuple):
    """How it ended: its exit code (negative: by that signal), and what it wrote."""

    code: int
    output: str


def run_bounded(
    action: Callable[[], int], *, memory_bytes: int = MEMORY_BYTES, seconds: float = SECONDS, as_anybody: bool = False
) -> Ended:
    """Run `action`, which must be one that pickle takes; an exception ends it with CRASHED and a traceback.

    `as_anybody`: also root may then read only what permissions let him read.
    """
    with tempfile.NamedTemporaryFile() as output:
        process = FORKS.Process(target=_child, args=(action, output.name, memory_bytes, as_anybody))
        process.start()
        process.join(seconds)
        is_over = process.exitcode is not None
        if not is_over:
            process.kill()
            process.join()
        code = process.exitcode
        process.close()
        text = Path(output.name).read_text(errors="replace")
    assert code is not None
    if not is_over:
        text += f"\nended by the test after {seconds} s"
    return Ended(code, text)


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


def _child(action: Callable[[], int], output: str, memory_bytes: int, as_anybody: bool) -> None:
    try:
        to = os.open(output, os.O_WRONLY)
        os.dup2(to, 1)
        os.dup2(to, 2)
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
    os._exit(code)
