"""Two hosts with a router between them, as network namespaces: routes that swallow packets, a link with a bandwidth.

    master 10.77.1.2 ── router ── 10.77.2.2 slave

The router drops in silence, one way or both, as a broken switch does: neither host's own link goes down, no packet is
refused. Needs root and iproute2.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

MASTER, SLAVE = "10.77.1.2", "10.77.2.2"
_numbers = itertools.count()


def missing() -> str | None:
    """Why there are no namespaces here; None when there are."""
    for program in ("ip", "tc"):
        if not shutil.which(program):
            return f"no {program} on the PATH"
    name = f"slip-{os.getpid()}-try"
    with _one_at_a_time():
        tried = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True, text=True)
    if tried.returncode:
        return f"no network namespace can be made here: {tried.stderr.strip()}"
    _run("ip", "netns", "del", name)
    return None


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """The first `ip netns add` of a machine mounts a folder, which another one at once would trip over."""
    with open(Path(tempfile.gettempdir()) / f"slipstream-netns-{os.geteuid()}", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


class Network:
    """The namespaces; gone when the context ends."""

    def __init__(self) -> None:
        prefix = f"slip-{os.getpid()}-{next(_numbers)}"
        self.master, self.router, self.slave = (f"{prefix}-{part}" for part in ("m", "r", "s"))

    def inside(self, host: str) -> list[str]:
        """What runs a command on that host."""
        return ["ip", "netns", "exec", self.master if host == MASTER else self.slave]

    def cut(self, *towards: str) -> None:
        """Swallow what goes towards those hosts."""
        for host in towards:
            _run("ip", "-n", self.router, "route", "add", "blackhole", f"{host}/32")

    def heal(self) -> None:
        """Everything goes through again."""
        for host in (MASTER, SLAVE):
            subprocess.run(
                ["ip", "-n", self.router, "route", "del", "blackhole", f"{host}/32"], check=False, capture_output=True
            )

    def limit(self, rate: str) -> None:
        """The bandwidth of the way to the slave, as tc writes it: a token bucket."""
        shape = ["root", "tbf", "rate", rate, "burst", "16kb", "latency", "400ms"]
        _run("tc", "-n", self.router, "qdisc", "replace", "dev", "to-slave", *shape)

    def unlimit(self) -> None:
        """As fast as it goes."""
        _run("tc", "-n", self.router, "qdisc", "del", "dev", "to-slave", "root")

    def __enter__(self) -> Network:
        try:
            for name in (self.master, self.router, self.slave):
                with _one_at_a_time():
                    _run("ip", "netns", "add", name)
            for link, host, address in (("to-master", self.master, MASTER), ("to-slave", self.slave, SLAVE)):
                gateway = address[:-1] + "1"
                pair = ["type", "veth", "peer", "name", "eth0", "netns", host]
                _run("ip", "-n", self.router, "link", "add", link, *pair)
                _run("ip", "-n", self.router, "address", "add", f"{gateway}/24", "dev", link)
                _run("ip", "-n", self.router, "link", "set", link, "up")
                _run("ip", "-n", host, "address", "add", f"{address}/24", "dev", "eth0")
                for own in ("lo", "eth0"):
                    _run("ip", "-n", host, "link", "set", own, "up")
                _run("ip", "-n", host, "route", "add", "default", "via", gateway)
            _run("ip", "netns", "exec", self.router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Remove what is there."""
        for name in (self.master, self.router, self.slave):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()
