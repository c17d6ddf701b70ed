"""Unmodified Apache RocketMQ beside a test: its jars, its name server and broker as processes, its Java client.

Its jars come from `jars`. All addresses used are of loopback, all files in a directory of the test's own.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tests.interop import jars
from tests.interop.remoting import GET_ROUTE, UPDATE_BROKER_CONFIG, Client
from tools.common.local_broker import end, free_port

VERSION = "4.9.7"
JAVA_PROGRAMS = tuple(sorted(Path(__file__).with_name("java").glob("*.java")))
VERSIONS = ("4.9.7", "5.3.3")
# A broker that is slow because other tests run beside it refuses no send.
PATIENCE = {"brokerFastFailureEnable": "false", "osPageCacheBusyTimeOutMills": 600_000}
START_SECONDS = 300.0
STOP_SECONDS = 180.0
ANSWER_SECONDS = 180.0
JVM = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # most of a short life is compiling: half the CPU seconds of a start
    "-Dtls.server.mode=disabled",  # nobody here speaks TLS; its two key pairs are half of a broker's start
    "-Dfile.encoding=UTF-8",
    # On a disk that others fill it deletes from 85 % on, and refuses from 90 %; 5.x can be told nothing higher.
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
]
SILENT = ["-Xlog:disable", "-Xlog:all=error:stderr"]  # nothing about archives on standard output
LOGBACK = """<configuration><appender name="F" class="{package}.core.FileAppender"><file>{log}</file>
<encoder><pattern>%d{{HH:mm:ss.SSS}} %p %t %m%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="F"/></root></configuration>
"""


def missing(version: str = VERSION) -> str | None:
    """Why RocketMQ cannot be run here; None when it can. Fetches the jars the first time."""
    return jars.of_broker(version).missing()


def is_five(version: str) -> bool:
    """Whether that is a version of the 5.x line."""
    return version.startswith("5")


class JavaProcess:
    """A JVM with a directory of its own; a context manager that kills it by its own process id.

    Its orderly end takes RocketMQ's broker ten seconds of waiting: who wants to see that calls `stop`.
    """

    main_class, heap, ready = "", "256m", b"boot success"

    def __init__(self, home: Path, version: str) -> None:
        self.home, self.version = home, version
        self.output = home / "output"
        self.properties: list[str] = []  # of the system, as in -Dname=value
        self._process: subprocess.Popen[bytes] | None = None
        (home / "conf").mkdir(parents=True, exist_ok=True)
        programs = ("broker", "namesrv", "tools")
        for name in ("logback.xml", *(f"logback_{program}.xml" for program in programs), "rmq.logback-test.xml"):
            package = "org.apache.rocketmq.logging.ch.qos.logback" if name.startswith("rmq") else "ch.qos.logback"
            (home / "conf" / name).write_text(LOGBACK.format(package=package, log=home / "log"))

    def configure(self, **settings: Any) -> None:
        """Write what `-c` reads."""
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.home / "conf" / "java.conf").write_text(text)

    def command(self) -> list[str]:
        """What is run: heap, class path, main class."""
        memory = [f"-Xms{self.heap}", f"-Xmx{self.heap}", "-XX:MaxDirectMemorySize=512m"]
        command = ["java", *memory, *JVM, *self.archived(), *self.properties]
        class_path = f"{self.class_path()}:{self.home}/conf"
        return [*command, f"-Duser.home={self.home}", "-cp", class_path, self.main_class]

    def class_path(self) -> str:
        """Where RocketMQ's classes and the program are. An archive holds classes of the first jars only."""
        kept = jars.of_broker(self.version)
        return ":".join(map(str, [*kept.files, kept.compiled(JAVA_PROGRAMS)]))

    def archived(self) -> list[str]:
        """Java's options for the archive of classes, if there is one."""
        archive = jars.of_broker(self.version).archive
        return [*SILENT, f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []

    def spawn(self, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
        """Start it, its standard error in `output`."""
        environment = {**os.environ, "ROCKETMQ_HOME": str(self.home), "HOME": str(self.home)}
        environment.pop("NAMESRV_ADDR", None)
        with self.output.open("wb") as out:
            self._process = subprocess.Popen(
                [*self.command(), *arguments],
                env=environment,
                stderr=out,
                **{"stdout": out, "stdin": subprocess.DEVNULL, "cwd": self.home, **streams},
            )
        return self._process

    def __enter__(self) -> Self:
        self.spawn("-c", str(self.home / "conf" / "java.conf"), stdin=subprocess.PIPE)
        deadline = time.monotonic() + START_SECONDS
        while self.ready not in self.output.read_bytes():
            if time.monotonic() > deadline or self.ended_within(0.05):
                self.stop()
                raise RuntimeError(f"RocketMQ {self.version} did not start: {self.output.read_text()[-2000:]}")
        return self

    def ended_within(self, seconds: float) -> bool:
        """Wait for an end that should not come."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def begin_to_stop(self) -> None:
        """Ask for the ordinary shutdown that `stop` waits for."""
        assert self._process is not None
        self._process.terminate()

    def stop(self) -> None:
        """An ordinary shutdown, which flushes; SIGKILL past the deadline."""
        if self._process is not None:
            end(self._process, STOP_SECONDS)
            self._hang_up()

    def kill(self) -> None:
        """SIGKILL, to this process only."""
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        self._hang_up()

    def freeze(self) -> None:
        """SIGSTOP, to this process only."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def _type(self, line: str) -> None:
        """A line for the program's input."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def _hang_up(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.kill()


class Addressed(Protocol):
    """A name server, theirs or ours, and the version to speak with it."""

    address: str
    version: str


class NameServer(JavaProcess):
    """A name server; `address` is what `namesrvAddr` and clients take."""

    main_class, heap = "org.apache.rocketmq.namesrv.NamesrvStartup", "128m"

    def __init__(self, home: Path, version: str = VERSION) -> None:
        super().__init__(home, version)
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.configure(listenPort=port, **({"bindAddress": "127.0.0.1"} if is_five(version) else {}))

    def stop(self) -> None:
        """It keeps nothing: no need to wait for its orderly end."""
        self.kill()


class RocketMQBroker(JavaProcess):
    """A broker, without a name server unless `namesrvAddr` is given. Its store is `store`, or below its own `home`."""

    main_class = "Broker"

    def __init__(self, home: Path, version: str = VERSION, *, store: Path | None = None, **settings: Any) -> None:
        super().__init__(home, version)
        self.port = int(settings.get("listenPort", 0)) or free_port()
        self.ha_port = self.port + 1
        self.store = store or home / "store"
        self.commit_log = self.store / "commitlog"
        common = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "listenPort": self.port,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "storePathRootDir": self.store,
            "storePathCommitLog": self.commit_log,
            "diskMaxUsedSpaceRatio": 95,
            "mappedFileSizeConsumeQueue": 20_000,
            "maxHashSlotNum": 1000,
            "maxIndexNum": 4000,
            **PATIENCE,
        }
        # The first writes 37 MB each time; for the length of the second 5.x spins at its start.
        spared = {"timerFlushIntervalMs": 60_000, "transactionMetricFlushInterval": 500}
        five = {"bindAddress": "127.0.0.1", "timerWheelEnable": "false", **spared} if is_five(version) else {}
        self._name_server = settings.get("namesrvAddr")
        self.configure(**{**common, **five, **settings})

    def __enter__(self) -> Self:
        for directory in (self.commit_log, self.store / "consumequeue", self.store / "index"):
            for file in directory.rglob("[0-9]*"):  # an end may leave an empty one, with which no real broker starts
                if file.is_file() and not file.stat().st_size:
                    file.unlink()
        super().__enter__()
        if self._name_server:
            self._announce(str(self._name_server))
        return self

    def _announce(self, name_server: str) -> None:
        """See that the name server knows the broker's topics: 5.x would tell it after 10 seconds only."""
        deadline = time.monotonic() + START_SECONDS
        with Client(self.port) as broker, Client(int(name_server.partition(":")[2])) as names:
            while names.request(GET_ROUTE, {"topic": "broker-a"})["code"] != 0:
                broker.request(UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")  # registers all topics in both lines
                if time.monotonic() > deadline or self.ended_within(0.1):
                    self.stop()
                    raise RuntimeError(f"RocketMQ {self.version} did not register: {self.output.read_text()[-2000:]}")

    def synchronize(self) -> None:
        """Have a slave ask for its master's tables now."""
        self._type("")

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


class RealClient(JavaProcess):
    """RocketMQ's own client, one JVM for many commands; java/Talk.java says which there are."""

    main_class, heap = "Talk", "192m"
    answer_seconds = ANSWER_SECONDS

    def __init__(self, home: Path, name_server: Addressed) -> None:
        super().__init__(home, name_server.version)
        self._name_server = name_server.address
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader: threading.Thread | None = None

    def arguments(self) -> list[str]:
        """What the program is told at its start."""
        return [self._name_server]

    def __enter__(self) -> Self:
        process = self.spawn(*self.arguments(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()
        return self

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.heard(line.decode())
        self._lines.put(None)

    def heard(self, line: str) -> None:
        """A line came, in a thread of its own."""
        self._lines.put(line)

    def tell(self, command: str, **options: Any) -> None:
        """Begin a command."""
        self._type(" ".join([command, *(f"{key}={value}" for key, value in options.items())]))

    def answer(self) -> dict[str, Any]:
        """Its next line."""
        line = self._lines.get(timeout=self.answer_seconds)
        if line is None:
            raise RuntimeError(f"the client ended: {self.output.read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def rest(self) -> tuple[list[dict[str, Any]], str | None]:
        """All lines up to the command's end, and the error with which it failed."""
        lines = []
        while True:
            line = self.answer()
            if "done" in line or "failed" in line:
                return lines, line.get("error")
            lines.append(line)

    def ask(self, command: str, **options: Any) -> list[dict[str, Any]]:
        """A whole command, which has to succeed."""
        self.tell(command, **options)
        lines, error = self.rest()
        if error is not None:
            raise RuntimeError(f"{command} {options}: {error}")
        return lines

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """The end of its input ends it."""
        process = self._process
        if process is None or process.stdin is None:
            return
        self._hang_up()
        if not self.ended_within(STOP_SECONDS):
            self.kill()
        if self._reader is not None:
            self._reader.join()
        if process.stdout is not None:
            process.stdout.close()


class MqAdmin(RealClient):
    """RocketMQ's own mqadmin, one JVM for many commands (java/Admin.java)."""

    main_class, heap = "Admin", "96m"
    _done = "=== done"

    def said(self, command: str, *arguments: str, names: str | None = None) -> str:
        """What it prints; `names` is another cluster's name server."""
        self._type(" ".join([command, *arguments, "-n", names or self._name_server]))
        lines: list[str] = []
        while (line := self._lines.get(timeout=ANSWER_SECONDS)) is not None and line.strip() != self._done:
            lines.append(line)
        return "".join(lines)
