"""A broker on this machine, for a demonstration, a test or a measurement: a `slipstream broker` process on loopback."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol

from engine.monitoring.client_status import are_serving
from engine.shared_memory.cursors import FRONTS, BrokerCounters
from ipc.errors import IpcError
from ipc.module_names import named
from store.errors import BrokerOutOfReach
from store.reading import extent

READY_SECONDS = 180.0  # kernels are compiled anew after a change of sources, on a busy machine slowly
STOP_SECONDS = 180.0
POLL_SECONDS = 0.02
PORTS = range(12_000, 32_000, 4)  # the first of each four, below those that Linux gives to clients
GIVEN_MAX = 128
_random = random.Random()
_given: deque[socket.socket] = deque()  # as many of these as a process is about to use, and no file is left of them


def free_port() -> int:
    """A port that nobody has, with the next one and the two below: nobody else is given one of them while we live.

    None that the kernel gives to clients: so it is still free when a slow process comes to it, or a killed one again.
    """
    for first in _random.sample(PORTS, len(PORTS)):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0slipstream-ports-{first}")  # a name in the kernel, which goes with the process
            _try_to_bind(first)
        except OSError:
            claim.close()
            continue
        _given.append(claim)
        if len(_given) > GIVEN_MAX:
            _given.popleft().close()
        return first + 2
    raise RuntimeError(f"no four consecutive free ports from {PORTS[0]} to {PORTS[-1]}")


def _try_to_bind(first: int) -> None:
    """Raise OSError where one of the four ports is in use."""
    with ExitStack() as held:
        for port in range(first, first + 4):  # where RocketMQ's slaves ask for topics; nobody; clients; slaves
            probe = held.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as brokers do: TIME_WAIT is no user
            probe.bind(("", port))


class Process(Protocol):
    """What is used of a broker's process; a subprocess.Popen is one."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """The exit code, or minus the signal that ended it, once it was waited for."""

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it has ended."""

    def terminate(self) -> None:
        """Send it SIGTERM, unless it has ended."""

    def kill(self) -> None:
        """Send it SIGKILL, unless it has ended."""


def start(command: Sequence[str], log: IO[bytes]) -> Process:
    """Start a process that writes to `log` and reads nothing."""
    return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def end(process: Process, seconds: float) -> None:
    """SIGTERM, and SIGKILL when it has not ended after `seconds`; nothing when it has ended already."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class LocalBroker:
    """A running broker; a context manager that stops it in order.

    `inside` is a command that runs another one elsewhere: `ip netns exec NAME`; `only` the roles to start, if not all.
    """

    start = staticmethod(start)  # the tests have a quicker one

    def __init__(
        self, directory: Path, *, cpus: str = "", inside: Sequence[str] = (), only: Sequence[str] = (), **keys: object
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.store = directory / "store"
        self.port, self._only = free_port(), only
        settings = {
            "brokerName": directory.name,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "storePathRootDir": self.store,
            "metricsPromExporterPort": 0,
            "diskSpaceWarningLevelRatio": 100,  # whose disk it is decides: a guest on a machine uses what there is
            "diskSpaceCleanForciblyRatio": 100,
            **keys,
        }
        properties = directory / "broker.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        chosen = [word for role in only for word in ("--only", role)]
        command = [*inside, sys.executable, "-m", named("tools.cli"), "broker", "-c", str(properties), *chosen]
        self.log = directory / "broker.log"
        with self.log.open("ab") as log:
            self.process = self.start([*(["taskset", "-c", cpus] if cpus else []), *command], log)

    def __enter__(self) -> LocalBroker:
        try:
            self._await_ready()
        except BaseException:  # also an interrupt: `__exit__` is not called for a context that was never entered
            self.stop()
            raise
        return self

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the broker did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(POLL_SECONDS)

    def _is_ready(self) -> bool:
        """Whether it runs and serves clients. On a busy machine it may run before: it does not wait for ever."""
        if (broker := extent.running(self.store)) is None:
            return False
        if self._only:
            return True
        try:
            counters = BrokerCounters.attach(broker.region_directory)
        except (BrokerOutOfReach, IpcError):  # in a container of its own, say
            return True
        deaths = (counters.deaths[name].read() for name in (*FRONTS, "clients"))
        is_ready = are_serving(counters) or any(deaths)  # who dies may never serve: that is for a test to see
        counters.region.close()
        return is_ready

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    def counters(self) -> BrokerCounters:
        """Return the running broker's counters, also to wait for their changes. Raises NoBroker."""
        return BrokerCounters.attach(extent.require_running(self.store).region_directory, writable=True)

    @property
    def ha_address(self) -> str:
        """Return the address at which slaves connect."""
        return f"127.0.0.1:{self.port + 1}"

    def stop(self) -> None:
        """SIGTERM, and SIGKILL past the deadline."""
        end(self.process, STOP_SECONDS)
