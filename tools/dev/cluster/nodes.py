"""Hosts for the demonstration: each has a network, mounts, processes, a host name and shared memory of its own.

All of them see their own files at one path, where the others' are not to be seen. A program is started in a node by
`nsenter`; its number outside is that of nsenter's child.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from tools.dev.cluster.bridge import Bridge
from tools.dev.cluster.enclosure import NEW, first_child

NETWORK = "10.93.5"  # seen by the nodes alone
SECONDS, POLL_SECONDS = 180.0, 0.05
LOG_BYTES = 4000
OF_A_SHELL = ("HOME", "JAVA_HOME", "LANG", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "PATH", "XDG_CACHE_HOME")
TEMPORARY = "/dev/shm/tmp"  # of the node, and short: it is part of sockets' names
NATIVE = {"GRPC_DNS_RESOLVER": "native"}  # gRPC's own asks name servers for what /etc/hosts says, and waits for them
IN_FOLDER = ["sh", "-c", 'cd "$0" && exec "$@"']
# $1: its files; $2: where every node sees its own; $3: its name. Names are those of /etc/hosts; the name server is at a
# loopback where nobody listens: there is no waiting for it. A process without a parent is this shell's, which
# ignores what ends.
SET_UP = """
set -e
mount --bind "$1" "$2"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs /dev/shm
mkdir /dev/shm/tmp
mount --bind "$2/hosts" /etc/hosts
if [ -e /etc/resolv.conf ]; then mount --bind "$2/resolv.conf" /etc/resolv.conf; fi
hostname "$3"
trap "" CHLD
echo
exec sleep infinity
"""


class NodeFailed(RuntimeError):
    """Raised where something in a node did not come about; it says what, and the end of its log."""


class Program:
    """A program that runs in a node."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path) -> None:
        self.name, self.process, self.log = name, process, log

    def send(self, number: int) -> None:
        """Send it a signal, if it runs."""
        while self.process.poll() is None:
            child = first_child(self.process.pid)
            if child is not None:
                os.kill(child, number)
                return
            time.sleep(POLL_SECONDS)  # nsenter is on its way in

    def cpu_seconds(self) -> float:
        """Return what it has used until now, without its children."""
        child = first_child(self.process.pid)
        times = psutil.Process(child).cpu_times() if child is not None else None
        return float(times.user + times.system) if times is not None else 0.0

    def end(self, number: int = signal.SIGTERM) -> int:
        """End the program by a signal; return its exit code. Raises NodeFailed where it does not end."""
        self.send(number)
        try:
            return self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise self.failed(f"did not end within {SECONDS:.0f} s") from None

    def await_line(self, text: str, count: int = 1) -> str:
        """The first line of its log with that text, once there are so many. Raises NodeFailed."""

        def seen() -> str:
            lines = [line for line in self.log.read_text("utf-8", "replace").splitlines() if text in line]
            return lines[0] if len(lines) >= count else ""

        return self.await_that(seen, f"{text!r} in its log")

    def await_that(self, condition: Callable[[], str], what: str) -> str:
        """Return what `condition` says first that is not empty. Raises NodeFailed at the deadline, or when it ends."""
        deadline = time.monotonic() + SECONDS
        while not (said := condition()):
            if self.process.poll() is not None:
                raise self.failed(f"ended with {self.process.returncode} before {what}")
            if time.monotonic() > deadline:
                raise self.failed(f"not within {SECONDS:.0f} s: {what}")
            time.sleep(POLL_SECONDS)
        return said

    def failed(self, what: str) -> NodeFailed:
        """An error that says this of it."""
        return NodeFailed(f"{self.name}: {what}; its log ends with\n{self.tail()}")

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text("utf-8", "replace")[-LOG_BYTES:]


class Node:
    """A host. `files` are its own, as they are seen from outside; inside they lie at `here`."""

    def __init__(self, name: str, address: str, files: Path, here: Path) -> None:
        self.name, self.address, self.files, self.here = name, address, files, here
        self._holder = subprocess.Popen(
            ["unshare", *NEW, "sh", "-c", SET_UP, "sh", str(files), str(here), name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        if not self._holder.stdout.read(1):
            raise NodeFailed(f"{name}: no namespaces, or no mounts in them; what went wrong is said above")
        first = first_child(self._holder.pid)
        assert first is not None
        self.pid = first

    def start(
        self,
        name: str,
        command: Sequence[object],
        environment: Mapping[str, str] | None = None,
        *,
        stdout: int | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> Program:
        """A program in it. What it says goes to a log of that name, standard output too unless it is asked for."""
        kept = {key: os.environ[key] for key in OF_A_SHELL if key in os.environ}
        own = {**kept, **NATIVE, "TMPDIR": TEMPORARY, "SPARK_LOCAL_IP": self.address, **(environment or {})}
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--net", "--pid", "--uts", "--ipc"]
        log = self.files / f"{name}.log"
        with log.open("ab") as to:
            process = subprocess.Popen(
                [*enter, *IN_FOLDER, str(self.here), *map(str, command)],
                env=own,
                stdin=stdin,
                stdout=stdout or to,
                stderr=to,
                text=True,
            )
        return Program(f"{self.name}, {name}", process, log)

    def run(self, name: str, command: Sequence[object], **more: Mapping[str, str]) -> str:
        """A program in it, to its end; its standard output. Raises NodeFailed unless it ends with 0."""
        program = self.start(name, command, more.get("environment"), stdout=subprocess.PIPE)
        try:
            said, _nothing = program.process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise program.failed(f"did not end within {SECONDS:.0f} s") from None
        if program.process.returncode != 0:
            raise program.failed(f"ended with {program.process.returncode}")
        return str(said)


def make_nodes(place: Path, count: int) -> list[Node]:
    """Make that many hosts, node0 the first, on a network of their own; `place` is where each sees its own files.

    For the first process of a PID namespace: the nodes end with it.
    """
    names = [f"node{number}" for number in range(count)]
    addresses = [f"{NETWORK}.{10 + number}" for number in range(count)]
    table = "127.0.0.1 localhost\n" + "".join(
        f"{address} {name}\n" for name, address in zip(names, addresses, strict=True)
    )
    bridge = Bridge(os.getpid(), NETWORK)
    nodes = []
    for name, address in zip(names, addresses, strict=True):
        files = place / name
        files.mkdir()
        (files / "hosts").write_text(table)
        (files / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        nodes.append(Node(name, address, files, place))
        bridge.plug(nodes[-1].pid, address)
    return nodes
