"""A broker on this machine, for a demonstration, a test or a measurement: a `slipstream broker` process on loopback."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from store.reading import extent

READY_SECONDS = 180.0  # kernels are compiled anew after a change of sources, on a busy machine slowly
STOP_SECONDS = 60.0
POLL_SECONDS = 0.02
PORTS = (12_000, 32_000)  # below those that Linux gives to clients
_ports = random.Random()


def free_port() -> int:
    """A port that nobody has, with the next one and the one two below.

    None that the kernel gives to clients: so it is still free when a slow process comes to it, or a killed one again.
    """
    for _ in range(1000):
        port = _ports.randrange(*PORTS)
        with ExitStack() as held:
            try:
                for each in (port - 2, port, port + 1):  # where RocketMQ's slaves ask for topics; clients; slaves
                    probe = held.enter_context(socket.socket())
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as brokers do: TIME_WAIT is no user
                    probe.bind(("", each))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no three free ports beside each other from {PORTS[0]} to {PORTS[1]}")


def end(process: subprocess.Popen[Any], seconds: float) -> None:
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

    def __init__(
        self, directory: Path, *, cpus: str = "", inside: Sequence[str] = (), only: Sequence[str] = (), **keys: object
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.store = directory / "store"
        self.port = free_port()
        settings = {
            "brokerName": directory.name, "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "listenPort": self.port,
            "haListenPort": self.port + 1, "storePathRootDir": self.store,
            "metricsPromExporterPort": 0,
            "diskSpaceWarningLevelRatio": 100,  # whose disk it is decides: a guest on a machine uses what there is
            **keys,
        }  # fmt: skip
        properties = directory / "broker.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        chosen = [word for role in only for word in ("--only", role)]
        command = [*inside, sys.executable, "-m", "tools.cli", "broker", "-c", str(properties), *chosen]
        self.log = directory / "broker.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*(["taskset", "-c", cpus] if cpus else []), *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def __enter__(self) -> LocalBroker:
        try:
            self._await_ready()
        except BaseException:  # also an interrupt: `__exit__` is not called for a context that was never entered
            self.stop()
            raise
        return self

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while extent.running(self.store) is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the broker did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(POLL_SECONDS)

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def ha_address(self) -> str:
        """Where a slave connects."""
        return f"127.0.0.1:{self.port + 1}"

    def stop(self) -> None:
        """SIGTERM, and SIGKILL past the deadline."""
        end(self.process, STOP_SECONDS)
