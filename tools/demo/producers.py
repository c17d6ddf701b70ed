"""The producer processes of the demonstration: each takes what it samples, or a file's lines, to the master.

Every message is sync-replicated: a status other than PUT_OK is counted and fails the run.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

import psutil

from engine.producer import Producer
from ipc.descriptors import closing_fd
from tools.run.produce import Lines

# What this machine is doing right now, as JSON messages: the input of the demonstration. Only psutil is asked.
PROCESS_FIELDS = ["pid", "ppid", "name", "username", "status", "cpu_percent", "memory_info", "num_threads", "cpu_times"]


def _message(fields: dict[str, Any]) -> bytes:
    return json.dumps({"timestamp_ms": time.time_ns() // 1_000_000, **fields}, separators=(",", ":")).encode()


def processes() -> list[bytes]:
    """The process table, a message for each process."""
    rows = []
    for process in psutil.process_iter(PROCESS_FIELDS):
        info = process.info
        memory, times = info.pop("memory_info"), info.pop("cpu_times")
        info["rss_bytes"] = memory.rss if memory else 0
        info["cpu_seconds"] = round(times.user + times.system, 2) if times else 0.0
        rows.append(_message(info))
    return rows


def cpu() -> list[bytes]:
    """The times of every CPU, in seconds since the start of the machine."""
    return [_message({"cpu": n, **times._asdict()}) for n, times in enumerate(psutil.cpu_times(percpu=True))]


def memory() -> list[bytes]:
    """Memory and swap, in bytes."""
    return [_message({"memory": psutil.virtual_memory()._asdict(), "swap": psutil.swap_memory()._asdict()})]


def disk() -> list[bytes]:
    """Return the counters of every disk."""
    return [_message({"disk": name, **io._asdict()}) for name, io in psutil.disk_io_counters(perdisk=True).items()]


def network() -> list[bytes]:
    """Return the counters of every network interface."""
    return [_message({"interface": name, **io._asdict()}) for name, io in psutil.net_io_counters(pernic=True).items()]


SAMPLERS: dict[str, Callable[[], list[bytes]]] = {
    "host-process": processes,
    "host-cpu": cpu,
    "host-memory": memory,
    "host-disk": disk,
    "host-network": network,
}


INPUT_TOPIC = "input"
INPUT_PROCESSES_MAX = 4
LINES_MAX = 1000
LINE_BYTES_MAX = 4 << 20  # maxMessageSize of the brokers that the demonstration starts
SEND_SECONDS = 60.0
LOOK_SECONDS = 0.2
BATCH_SECONDS = 60.0
PROCESS_PAUSE_SECONDS = 0.05  # the process table costs more to read than to replicate


@dataclass
class Report:
    """The report of one producer process. Latencies of single messages, in microseconds."""

    name: str
    messages: Counter[str] = field(default_factory=Counter)
    body_bytes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    latencies_us: list[float] = field(default_factory=list)
    empty_lines: int = 0
    error: str = ""

    def add(self, topic: str, status: str, bodies: Sequence[bytes]) -> None:
        """Count messages and what became of them."""
        self.messages[topic] += len(bodies)
        self.body_bytes[topic] += sum(map(len, bodies))
        self.statuses[status] += len(bodies)


def send_samples(producer: Producer, topics: Sequence[str], seconds: float, report: Report) -> None:
    """Sample in turn until the time is over; each message by itself, to see what one costs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for topic in topics:
            for body in SAMPLERS[topic]():
                began = time.perf_counter()
                result = producer.send(topic, body, timeout=SEND_SECONDS)
                report.latencies_us.append((time.perf_counter() - began) * 1e6)
                report.add(topic, result.status.name, [body])


def send_process_tables(producer: Producer, seconds: float, report: Report) -> None:
    """The process table again and again, a batch each."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        bodies = SAMPLERS["host-process"]()
        result = producer.send_batch("host-process", bodies, timeout=BATCH_SECONDS)
        assert result is not None
        report.add("host-process", result.status.name, bodies)
        time.sleep(PROCESS_PAUSE_SECONDS)


def send_files(producer: Producer, files: Sequence[str], report: Report) -> None:
    """Send every line that is not empty, with its file's name as the tag."""
    for name in files:
        with closing_fd(os.open(name, os.O_RDONLY)) as fd:
            for lines in Lines(fd, name, LINE_BYTES_MAX).batches(LINES_MAX):
                bodies = [line for line in lines if line]
                report.empty_lines += len(lines) - len(bodies)
                if bodies:
                    tag = os.path.basename(name)
                    result = producer.send_batch(INPUT_TOPIC, bodies, tags=tag, timeout=BATCH_SECONDS)
                    assert result is not None
                    report.add(INPUT_TOPIC, result.status.name, bodies)


class Producers:
    """The processes; a context manager that ends those which still run."""

    def __init__(self, store: str, files: Sequence[str], seconds: float) -> None:
        self._started: list[tuple[BaseProcess, Connection, str]] = []
        self._start(store, "process table", lambda p, r: send_process_tables(p, seconds, r))
        self._start(store, "CPU and memory", lambda p, r: send_samples(p, ("host-cpu", "host-memory"), seconds, r))
        self._start(store, "disk and network", lambda p, r: send_samples(p, ("host-disk", "host-network"), seconds, r))
        for number in range(min(len(files), INPUT_PROCESSES_MAX)):
            part = files[number::INPUT_PROCESSES_MAX]
            self._start(store, ", ".join(part), lambda p, r, part=part: send_files(p, part, r))  # type: ignore[misc]

    def _start(self, store: str, name: str, work: Callable[[Producer, Report], None]) -> None:
        context = multiprocessing.get_context("fork")  # numba is loaded once, here
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_main, args=(store, name, work, sending), daemon=True)
        process.start()
        sending.close()
        self._started.append((process, receiving, name))

    def reports(self, look: Callable[[], None]) -> list[Report]:
        """Return what each did, once it has ended; `look` is called while waiting, to raise what shall end that."""
        made = []
        for process, receiving, name in self._started:
            try:
                while not receiving.poll(LOOK_SECONDS):
                    look()
                made.append(receiving.recv())
            except EOFError:
                made.append(Report(name, error="ended without a report"))
            process.join()
        return made

    def __enter__(self) -> Producers:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for process, receiving, _name in self._started:
            if process.is_alive():
                process.kill()
            process.join()
            receiving.close()


def _main(store: str, name: str, work: Callable[[Producer, Report], None], sending: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # our parent ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    report = Report(name)
    try:
        with Producer(store) as producer:
            work(producer, report)
    except Exception as error:
        report.error = f"{getattr(error, 'code', type(error).__name__)}: {error}"
    sending.send(report)
