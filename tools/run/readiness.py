"""Tells who started a server that it serves: the line `ready:` for its caller, sd_notify for a service manager.

A closed output does not stop the server. A service manager hears that the server is ready, and that it still turns.
Nothing is said where $NOTIFY_SOCKET names no socket. A manager that does not listen holds nobody up.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

import click

NS_PER_US = 1000
BEATS = 3  # in the time after which the manager would end us


def announce(line: str) -> None:
    """Print a line to standard output; do nothing where its terminal or reader has gone."""
    try:
        click.echo(line)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # what is left of the line is not tried again at the exit
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


class ServiceManager:
    """Notifies the service manager of this process. `environment` is what the manager gave it."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name
        watched = environment.get("WATCHDOG_USEC", "")
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._every_ns = int(watched) * NS_PER_US // BEATS if watched.isdecimal() and is_ours else 0
        self._beat_ns = 0

    def ready(self, status: str) -> None:
        """Report that the broker serves; `status` is the line that `systemctl status` shows."""
        self._say(f"READY=1\nSTATUS={' '.join(status.split())}")

    def reloading(self) -> None:
        """Report that the file is read again; `ready` follows. The time says which reading, for Type=notify-reload."""
        self._say(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // NS_PER_US}")

    def beat(self) -> None:
        """Feed the watchdog; call it in every turn."""
        now_ns = time.monotonic_ns()
        if self._every_ns and now_ns - self._beat_ns >= self._every_ns:
            self._beat_ns = now_ns
            self._say("WATCHDOG=1")

    def _say(self, lines: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as to:
            to.sendto(lines.encode(), self._address)
