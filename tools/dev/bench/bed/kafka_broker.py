"""One Kafka broker (KRaft) for a comparison, started from a folder of its jars, ended by its own process id.

Kafka drops messages whose timestamps are older than its retention: it is switched off, or a load silently shrinks.
"""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from pathlib import Path
from types import TracebackType

from tools.common.local_broker import end, free_port
from tools.dev.bench.bed.listening import LOOPBACK, await_listening

START_TIMEOUT_S, STOP_TIMEOUT_S = 60.0, 20.0
HEAP = "-Xmx768m"


class BrokerDidNotStart(Exception):
    """Kafka ended, or did not listen in time."""

    code = "KAFKA_DID_NOT_START"

    def __init__(self, log: Path) -> None:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
        super().__init__(f"Kafka did not start, see {log}:\n{tail}")


class KafkaBroker:
    """A context manager; `address` is what a client connects to."""

    def __init__(self, jars: Path, directory: Path) -> None:
        self._jars, self._directory = jars, directory
        self._port, self._controller_port = free_port(), free_port()
        self.address = f"{LOOPBACK}:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KafkaBroker:
        self._directory.mkdir(parents=True)
        properties = self._directory / "server.properties"
        properties.write_text("\n".join(f"{key}={value}" for key, value in self._settings().items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
        subprocess.run(self._java(*tool), check=True, stdout=subprocess.DEVNULL, timeout=START_TIMEOUT_S)
        log = self._directory / "log.txt"
        with log.open("wb") as output:
            command = self._java("kafka.Kafka", str(properties))
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            if not await_listening(self._process, self._port, START_TIMEOUT_S):
                raise BrokerDidNotStart(log)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            end(process, STOP_TIMEOUT_S)

    def _settings(self) -> dict[str, str]:
        own, controller = f"PLAINTEXT://{self.address}", f"CONTROLLER://{LOOPBACK}:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{LOOPBACK}:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{own},{controller}",
            "advertised.listeners": own,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self._directory / "data"),
            "num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "log.retention.ms": "-1",
            "log.retention.bytes": "-1",
        }

    def _java(self, *arguments: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = str(Path(home) / "bin" / "java") if home else "java"
        return [java, HEAP, "-cp", f"{self._jars}/*", *arguments]
