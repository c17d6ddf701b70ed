"""A wall clock that can be set for some processes alone: a small library under LD_PRELOAD that shifts what they read.

The monotonic clock stays as it is, as it does when somebody sets a machine's time.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

SOURCE = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *shift;

__attribute__((constructor)) static void find(void) {
    const char *path = getenv("SHIFT_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *there = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
    if (there != MAP_FAILED) shift = there;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME && shift) now->tv_sec += *shift;
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


class ShiftedClock:
    """A wall clock of its own for the processes that run under `command` or with `environment`."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            if os.environ.get("CI"):
                pytest.fail("a C compiler is needed, to set the clock of one process")
            pytest.skip("no C compiler to make the clock with")
        source, self._library, self._file = (directory / name for name in ("clock.c", "clock.so", "shift"))
        source.write_text(SOURCE)
        self.set(0)
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(source)], check=True)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a process needs to have this clock."""
        return {"LD_PRELOAD": str(self._library), "SHIFT_FILE": str(self._file)}

    @property
    def command(self) -> list[str]:
        """What runs another command with this clock."""
        return ["env", *(f"{name}={value}" for name, value in self.environment.items())]

    def set(self, seconds: int) -> None:
        """So much ahead of the machine's clock, or behind it."""
        with open(self._file, "r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))
