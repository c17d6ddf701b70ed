"""An unmodified Apache RocketMQ 4.9.7 broker beside a test: its jars, its process, and just enough of a client to send.

The jars are resolved once by Maven into $ROCKETMQ_PEER_CACHE, else $XDG_CACHE_HOME/rocketmq-peer, else
~/.cache/rocketmq-peer. All addresses used are of loopback, all files in a directory of the test's own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

VERSION = "4.9.7"
START_SECONDS = 60.0
STOP_SECONDS = 40.0
SEND_MESSAGE = 10
JVM = [
    "-Xms256m",
    "-Xmx256m",
    "-XX:MaxDirectMemorySize=512m",
    "-XX:+UseSerialGC",
    "-Dfile.encoding=UTF-8",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
]
LOGBACK = """<configuration><appender name="F" class="ch.qos.logback.core.FileAppender"><file>{log}</file>
<encoder><pattern>%d{{HH:mm:ss.SSS}} %p %t %m%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="F"/></root></configuration>
"""


def _cache() -> Path:
    base = os.environ.get("ROCKETMQ_PEER_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketmq-peer"


def missing() -> str | None:
    """Why RocketMQ cannot be run here; None when it can. Fetches the jars the first time."""
    if not shutil.which("java"):
        return "no java on the PATH"
    jars = _cache() / f"lib-{VERSION}"
    if (jars / ".complete").exists():
        return None
    if not shutil.which("mvn"):
        return f"RocketMQ {VERSION} is not in {_cache()}, and there is no mvn to fetch it"
    return _fetch(jars)


def _fetch(jars: Path) -> str | None:
    jars.parent.mkdir(parents=True, exist_ok=True)
    arriving = Path(tempfile.mkdtemp(prefix=f"{jars.name}.", dir=jars.parent))
    command = ["mvn", "-q", "-B", "-f", str(Path(__file__).with_name("pom.xml")), f"-Drocketmq.version={VERSION}"]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={arriving}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
        if done.returncode:
            return f"mvn could not resolve RocketMQ {VERSION}: {done.stdout[-300:]}"
        (arriving / ".complete").touch()
        with contextlib.suppress(OSError):
            arriving.rename(jars)  # where another test was faster, its copy serves
    except subprocess.TimeoutExpired:
        return f"mvn did not resolve RocketMQ {VERSION} within ten minutes"
    finally:
        shutil.rmtree(arriving, ignore_errors=True)
    return None


def free_port() -> int:
    """A port so that it, the one after it (HA) and the one two before it ("fast" remoting) were free a moment ago."""
    for _ in range(100):
        with contextlib.ExitStack() as held:
            first = held.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                for neighbour in (port - 2, port + 1):
                    held.enter_context(socket.socket()).bind(("", neighbour))
            except (OSError, OverflowError):
                continue
            return port
    raise RuntimeError("no free ports beside each other")


class RocketMQBroker:
    """A broker without a name server; a context manager that ends it by its own process id."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.home = home
        self.port = free_port()
        self.ha_port = self.port + 1
        self.commit_log = home / "store" / "commitlog"
        (home / "conf").mkdir(parents=True)
        for name in ("logback.xml", "logback_broker.xml"):
            (home / "conf" / name).write_text(LOGBACK.format(log=home / "broker.log"))
        common = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "listenPort": self.port,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "storePathRootDir": home / "store",
            "storePathCommitLog": self.commit_log,
            "diskMaxUsedSpaceRatio": 95,
            "mappedFileSizeConsumeQueue": 20_000,
            "maxHashSlotNum": 1000,
            "maxIndexNum": 4000,
        }
        text = "".join(f"{key}={value}\n" for key, value in {**common, **settings}.items())
        (home / "conf" / "broker.conf").write_text(text)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RocketMQBroker:
        environment = {**os.environ, "ROCKETMQ_HOME": str(self.home), "HOME": str(self.home)}
        environment.pop("NAMESRV_ADDR", None)
        command = ["java", *JVM, f"-Duser.home={self.home}", "-cp", f"{self.home}/conf:{_cache()}/lib-{VERSION}/*"]
        command += ["org.apache.rocketmq.broker.BrokerStartup", "-c", str(self.home / "conf" / "broker.conf")]
        output = self.home / "output"
        with output.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment, cwd=self.home
            )
        deadline = time.monotonic() + START_SECONDS
        while b"boot success" not in output.read_bytes():
            if time.monotonic() > deadline or self.ended_within(0.05):
                self.stop()
                raise RuntimeError(f"RocketMQ {VERSION} did not start: {output.read_text()[-2000:]}")
        return self

    def ended_within(self, seconds: float) -> bool:
        """Wait for an end that should not come."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """An ordinary shutdown, which flushes; SIGKILL past the deadline."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.stop()

    def log_bytes(self, start: int, end: int, segment_bytes: int) -> bytes:
        """The commit log's bytes, from its files."""
        found = b""
        while start < end:
            base = start - start % segment_bytes
            with (self.commit_log / f"{base:020d}").open("rb") as file:
                file.seek(start - base)
                found += file.read(min(end, base + segment_bytes) - start)
            start = base + segment_bytes
        return found


class Client:
    """Sends messages as a RocketMQ client does, JSON headers, one after the other."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._opaque = itertools.count(1)

    def send(self, topic: str, queue_id: int, body: bytes, properties: str = "") -> int:
        """The physical offset of the message in the broker's log."""
        fields = {
            "producerGroup": "interop", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": queue_id, "sysFlag": 0, "bornTimestamp": time.time_ns() // 1_000_000, "flag": 0,
            "properties": properties, "reconsumeTimes": 0, "unitMode": False, "batch": False,
        }  # fmt: skip
        request = {
            "code": SEND_MESSAGE, "language": "PYTHON", "version": 409, "opaque": next(self._opaque), "flag": 0,
            "extFields": {key: str(value).lower() if value is False else str(value) for key, value in fields.items()},
        }  # fmt: skip
        header = json.dumps(request).encode()
        self._socket.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        answer = self._answer()
        if answer["code"] != 0:
            raise RuntimeError(f"send: code {answer['code']}: {answer.get('remark')}")
        return int(answer["extFields"]["msgId"][16:], 16)

    def _answer(self) -> dict[str, Any]:
        (length,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(length)
        header_length = int.from_bytes(frame[1:4], "big")
        answer: dict[str, Any] = json.loads(frame[4 : 4 + header_length])
        return answer

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise RuntimeError("the broker hung up")
            data += part
        return data

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()
