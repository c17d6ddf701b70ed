"""RocketMQ's own figures, from the program that starts and loads it: `measure.py send|catchup`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, Self

TIMEOUT_SECONDS = 300.0
NO_LOG = '<configuration><root level="OFF"/></configuration>'


def _run(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(folder / "measure.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-1000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def sync_send(folder: Path) -> tuple[float, float]:
    """Microseconds (p50, p99) of a synchronous send of 1 KB to a SYNC_MASTER 4.9 with one slave."""
    report = _run(
        folder,
        "send",
        "--version",
        "4.9",
        "--role",
        "SYNC_MASTER",
        "--slaves",
        "1",
        "--threads",
        "1",
        "--sizes",
        "1024",
    )[0]
    return float(report["us_p50"]), float(report["us_p99"])


class CaughtUp(NamedTuple):
    """The cost of an empty 4.9 slave's catching up with its master."""

    mib_per_s: float
    mib: float
    master_cpu_s: float
    slave_cpu_s: float


def catch_up(folder: Path) -> CaughtUp:
    """A slave that starts beside a master with about a gibibyte in one segment."""
    report = _run(folder, "catchup", "--version", "4.9", "--gib", "1.0")[0]
    return CaughtUp(*(float(report[field]) for field in CaughtUp._fields))


class _RealProcess:
    """One of RocketMQ's processes, through the program that runs them; a context manager."""

    def __init__(self, folder: Path, kind: str, version: str, home: Path, port: int, *arguments: str) -> None:
        self.port, self.pid, self._kind = port, 0, kind
        command = [sys.executable, str(folder / "peer.py"), kind, "--version", version, "--home", str(home)]
        home.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen([*command, "--port", str(port), *arguments], stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.stop()
            raise RuntimeError(f"RocketMQ's {self._kind} did not start; see its error above")
        self.pid = int(json.loads(line)["pid"])
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Terminate the process, and wait for it."""
        self._process.terminate()
        self._process.wait(TIMEOUT_SECONDS)


class RealBroker(_RealProcess):
    """A RocketMQ broker of its own, without a name server unless namesrvAddr is among its `keys`. `version`: 4.9 or 5.

    `role` and `number` (its brokerId) are of a pair.
    """

    def __init__(
        self,
        folder: Path,
        version: str,
        home: Path,
        port: int,
        *,
        role: str = "ASYNC_MASTER",
        number: int = 0,
        **keys: object,
    ) -> None:
        sets = [word for name, value in keys.items() for word in ("--set", f"{name}={value}")]
        of_pair = ("--role", role, "--id", str(number))
        super().__init__(folder, "broker", version, home, port, "--default-sizes", "--heap", "1g", *of_pair, *sets)


class RealNameServer(_RealProcess):
    """A RocketMQ name server: a 5.x slave finds its master through it alone."""

    def __init__(self, folder: Path, version: str, home: Path, port: int) -> None:
        super().__init__(folder, "namesrv", version, home, port)


def java_program(folder: Path, version: str, home: Path, source: Path, *arguments: object) -> list[str]:
    """Return the command of a Java program in one file, compiled in `home` with that version's jars."""
    fetch = [sys.executable, str(folder / "peer.py"), "fetch", "--version", version]
    done = subprocess.run(fetch, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True)
    classes = f"{home}:{done.stdout.strip()}/*"
    if not (home / f"{source.stem}.class").exists():
        (home / "rmq.logback-test.xml").write_text(NO_LOG)
        command = ["javac", "-proc:none", "-d", str(home), "-cp", classes, str(source)]
        subprocess.run(command, timeout=TIMEOUT_SECONDS, check=True)
    return ["java", f"-Duser.home={home}", "-cp", classes, source.stem, *map(str, arguments)]
