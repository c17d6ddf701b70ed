"""A replica of the log in a node: its broker, and the Flight server beside it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from ipc.module_names import IMPORTED_FROM, named
from tools.dev.cluster.nodes import Node, Program

BROKER_NAME = "orders"
PORT, HA_PORT, FLIGHT_PORT = 10911, 10912, 8815
COMMON: dict[str, object] = {
    "brokerName": BROKER_NAME, "listenPort": PORT, "haListenPort": HA_PORT, "metricsPromExporterPort": 0,
    "mappedFileSizeCommitLog": 32 << 20, "inSyncReplicas": 2, "slaveTimeout": 60_000, "cleanResourceInterval": 1000,
    "destroyMapedFileIntervalForcibly": 600_000,  # for so long at most a reader keeps what is expired
    "diskSpaceWarningLevelRatio": 100,
}  # fmt: skip
EXPIRED_AT_ONCE = {"fileReservedTime": 0, "deleteWhen": ";".join(f"{hour:02}" for hour in range(24))}
HELD = "expired, but"  # of the housekeeper's line about a file that a reader still needs


class Replica:
    """A broker and its Flight server, both running once this is made. Raises NodeFailed."""

    def __init__(self, node: Node, token: str, master: Node | None = None) -> None:
        role: dict[str, object] = {"brokerRole": "SYNC_MASTER"}
        if master is not None:
            role = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": f"{master.address}:{HA_PORT}"}
        self.node = node
        self._keys = {
            **COMMON,
            **role,
            "brokerIP1": node.address,
            "brokerIP2": node.address,
            "storePathRootDir": store_at(node.here),
        }
        self._write({})
        (node.files / "token").write_text(token)
        self.broker = slipstream(node, "broker", "broker", "-c", node.here / "broker.properties")
        self.broker.await_line("ready:")
        self.flight = slipstream(
            node,
            "flight",
            "flight",
            store_at(node.here),
            "--host",
            node.name,
            "--port",
            FLIGHT_PORT,
            "--token-file",
            node.here / "token",
            "--expose",
            "--writable",
        )
        self.flight.await_line("ready:")

    @property
    def location(self) -> str:
        """Return the address at which the replica's messages are served."""
        return f"grpc://{self.node.name}:{FLIGHT_PORT}"

    def _write(self, more: Mapping[str, object]) -> None:
        lines = "".join(f"{key}={value}\n" for key, value in {**self._keys, **more}.items())
        (self.node.files / "broker.properties").write_text(lines)

    def let_all_expire(self) -> None:
        """Have retention delete every whole segment that nobody reads, from now on."""
        self._write(EXPIRED_AT_ONCE)
        self.broker.send(signal.SIGHUP)

    def kill(self) -> None:
        """kill -9 of both; a broker's processes end with their supervisor."""
        for program in (self.broker, self.flight):
            program.end(signal.SIGKILL)

    def stop(self) -> tuple[int, int]:
        """Stop Flight server and broker in order; return their exit codes."""
        return self.flight.end(), self.broker.end()


AS_HERE = {"PYTHONPATH": str(IMPORTED_FROM), "PYTHONUNBUFFERED": "1"}


def slipstream(node: Node, name: str, *words: object) -> Program:
    """Start a Slipstream command in a node."""
    return node.start(name, [sys.executable, "-m", named("tools.cli"), *words], AS_HERE)


def store_at(here: Path) -> Path:
    """Return the path of a replica's store in its node."""
    return here / "store"
