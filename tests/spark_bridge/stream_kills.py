"""Kills what runs a streaming query, again and again, while messages keep coming; then counts the rows.

    python -m tests.spark_bridge.stream_kills [--kills 50] [--drivers 10] [--seed 1] [--ledger docs/streaming-kills.md]

The driver (its JVM, its Python, its whole process group), the executors, their Python workers and the source's process
on the driver get SIGKILL, half of the time while a batch is under way. A driver that died is started again on its
checkpoint; a query that failed is started again by its driver. In the end every acknowledged message must be in
Spark's files once, and nothing else.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click
import psutil
import pyarrow.parquet as pq

from engine.producer import Producer
from spark_bridge import java_home
from tools.common.local_broker import LocalBroker

DRIVER_JVM, DRIVER_PYTHON, DRIVER_ALL = "the driver's JVM", "the driver's Python", "the driver with all it started"
EXECUTOR, WORKER, SOURCE = "an executor", "an executor's Python worker", "the source's process on the driver"
DRIVERS = (DRIVER_JVM, DRIVER_ALL, DRIVER_PYTHON)
OTHERS = (WORKER, EXECUTOR, WORKER, SOURCE, WORKER)
IN_COMMAND = {
    DRIVER_JVM: "org.apache.spark.deploy.SparkSubmit",
    EXECUTOR: "CoarseGrainedExecutorBackend",
    WORKER: "pyspark.daemon pyspark.worker",  # the one that forks, and those that work
    SOURCE: "python_streaming_source_runner",
}
MASTER = "local-cluster[1,2,512]"
DRAIN_MASTER = "local[2]"  # of the driver that reads the rest: nothing of it is killed
TOPICS = ("orders", "payments", "returns")
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "maxMessageSize": 1 << 16}
BATCH, PAUSE_S = 30, 0.2  # messages put at a time, and the pause between
DEADLINE_S, IN_FLIGHT_S = 900.0, 5.0
Place = tuple[str, int, int]


@dataclass
class Kill:
    """One kill, and how long it took until a batch was committed again."""

    kind: str
    in_flight: bool
    committed: int
    seconds: float = 0.0


@dataclass
class Load:
    """Appends to the store from a thread of its own, until it is stopped; what was acknowledged."""

    store: Path
    sent: list[Place] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """While messages keep coming."""
        stopping = threading.Event()
        thread = threading.Thread(target=self._put, args=(stopping,))
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()

    def _put(self, stopping: threading.Event) -> None:
        with Producer(self.store, timeout=60.0) as producer:
            while not stopping.wait(PAUSE_S):
                for number in range(BATCH):
                    topic = TOPICS[number % len(TOPICS)]
                    answer = producer.send(topic, b"%d " % len(self.sent) * (1 + number % 40))
                    if answer.status.name != "PUT_OK":
                        self.failures.append(answer.status.name)
                    self.sent.append((topic, answer.queue_id, answer.queue_offset))


class Query:
    """The driver program in a process group of its own, started again as often as need be."""

    def __init__(self, store: Path, work: Path, master: str = MASTER) -> None:
        self.store, self.work, self.master = store, work, master
        self.starts = 0
        self.log = work / "driver.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, mode: str) -> None:
        """Start it on its checkpoint."""
        master = self.master if mode == "live" else DRAIN_MASTER
        command = [sys.executable, "-m", "tests.spark_bridge.stream_driver", master, str(self.store)]
        command += [str(self.work), mode, *(["maxOffsetsPerTrigger=5000"] if mode == "live" else [])]
        self.starts += 1
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def numbers(self, kind: str) -> set[int]:
        """The batches that are written down: planned (offsets) or committed (commits)."""
        directory = self.work / "checkpoint" / kind
        return {int(path.name) for path in directory.glob("*") if path.name.isdecimal()}

    @property
    def committed(self) -> int:
        """The last batch committed; -1 before the first."""
        return max(self.numbers("commits"), default=-1)

    @property
    def in_flight(self) -> bool:
        """Whether a batch is planned and not committed."""
        return max(self.numbers("offsets"), default=-1) > self.committed

    def processes(self) -> list[psutil.Process]:
        """All that belongs to the driver that runs now."""
        assert self.process is not None
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.process.pid:
                    found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found

    def victims(self, kind: str) -> list[psutil.Process]:
        """The processes that a kill of this kind may hit."""
        assert self.process is not None
        if kind == DRIVER_PYTHON:
            return [psutil.Process(self.process.pid)]
        if kind == DRIVER_ALL:
            return self.processes()
        return [process for process in self.processes() if IN_COMMAND[kind] in _command(process)]

    def end(self) -> None:
        """Nothing of it is left: a second driver on one checkpoint would be refused by Spark."""
        for process in self.processes():
            _kill(process)
        deadline = time.monotonic() + DEADLINE_S
        while any(map(_lives, self.processes())) and time.monotonic() < deadline:
            self.rest()
        if self.process is not None:
            self.process.wait()

    def rest(self) -> None:
        """A moment of waiting for a condition."""
        threading.Event().wait(0.02)

    def await_commit(self, beyond: int) -> float:
        """Until a batch behind `beyond` is committed; a driver that ended is started again. The seconds."""
        began = time.monotonic()
        while self.committed <= beyond:
            assert self.process is not None
            if self.process.poll() is not None:
                self.end()
                self.start("live")
            if time.monotonic() - began > DEADLINE_S:
                raise TimeoutError(f"no batch behind {beyond}:\n{self.log.read_text()[-3000:]}")
            self.rest()
        return time.monotonic() - began


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _kill(process: psutil.Process) -> None:
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return


def kill_once(query: Query, kind: str, chance: random.Random) -> Kill:
    """Kill one of that kind, at a moment of chance, and wait until the query goes on."""
    query.await_commit(query.committed + chance.randrange(2))
    wants_in_flight, deadline = chance.random() < 0.5, time.monotonic() + DEADLINE_S
    while not (victims := query.victims(kind)):  # an executor is on its way, or a worker ended for want of tasks
        if time.monotonic() > deadline:
            raise RuntimeError(f"there is no process to kill: {kind}")
        query.rest()
    deadline = time.monotonic() + IN_FLIGHT_S
    while wants_in_flight and not query.in_flight and time.monotonic() < deadline:
        query.rest()
    told = Kill(kind, query.in_flight, query.committed)
    for process in victims if kind == DRIVER_ALL else [chance.choice(victims)]:
        _kill(process)
    if kind in DRIVERS:
        assert query.process is not None
        deadline = time.monotonic() + 30.0
        while query.process.poll() is None and time.monotonic() < deadline:
            query.rest()
        query.end()
    told.seconds = query.await_commit(told.committed + 1)
    return told


def rows_in_files(directory: Path) -> list[Place]:
    """The rows of the files that Spark's sink log names."""
    numbers = {path.name: path for path in (directory / "_spark_metadata").glob("[0-9]*")}
    compact = max((int(name.partition(".")[0]) for name in numbers if name.endswith(".compact")), default=-1)
    rows: list[Place] = []
    for name, path in numbers.items():
        number = int(name.partition(".")[0])
        if number < compact or (number == compact and not name.endswith(".compact")):
            continue
        for line in path.read_text().splitlines()[1:]:
            file = directory / Path(json.loads(line)["path"]).name
            table = pq.read_table(file, columns=["topic", "queueId", "queueOffset"])
            rows += zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True)
    return rows


@dataclass
class Outcome:
    """What was killed, what was sent, what was read."""

    kills: list[Kill]
    sent: list[Place]
    read: list[Place]
    starts: int
    segments: int
    batches: int

    @property
    def missing(self) -> int:
        """Acknowledged messages that are not among the rows."""
        return len(set(self.sent) - set(self.read))

    @property
    def repeated(self) -> int:
        """Rows beyond the first of one message, and rows that nobody sent."""
        return sum(count - 1 for count in Counter(self.read).values()) + len(set(self.read) - set(self.sent))


def run(directory: Path, kinds: list[str], seed: int, master: str = MASTER, tell: bool = False) -> Outcome:
    """Kill in that order, then read the rest and count."""
    chance = random.Random(seed)
    with LocalBroker(directory / "master", brokerRole="ASYNC_MASTER", brokerId=0, **SIZES) as broker:
        load = Load(broker.store)
        query = Query(broker.store, directory / "query", master)
        query.work.mkdir()
        kills = []
        try:
            with load.running():
                query.start("live")
                for kind in kinds:
                    kills.append(kill_once(query, kind, chance))
                    if tell:
                        print(f"{len(kills):3} {kills[-1]} sent {len(load.sent)}", flush=True)
            query.end()
            query.start("drain")
            assert query.process is not None
            if query.process.wait(DEADLINE_S) != 0:
                raise RuntimeError(f"the last driver failed:\n{query.log.read_text()[-3000:]}")
        finally:
            query.end()
        segments = len(list((broker.store / "commitlog").glob("[0-9]*")))
    if load.failures:
        raise RuntimeError(f"puts failed: {Counter(load.failures)}")
    read = rows_in_files(query.work / "rows")
    return Outcome(kills, load.sent, read, query.starts, segments, query.committed + 1)


def ledger(outcome: Outcome, seed: int) -> str:
    """The page of docs/."""
    lines = [
        "# Streams and kill -9",
        "",
        "Written by `make kills`. One query reads a running master into Parquet files, with Spark's own file sink and",
        f"a master `{MASTER}`. Meanwhile messages are put and segments of 1 MiB roll. SIGKILL hits the processes of the"
        " table.",
        "",
        f"{len(outcome.kills)} kills (seed {seed}), {outcome.starts} drivers, {outcome.batches} batches,"
        f" {outcome.segments} segments.",
        "",
        f"**{len(outcome.sent):,} messages acknowledged, {len(outcome.read):,} rows: {outcome.missing} missing,"
        f" {outcome.repeated} repeated.**",
        "",
        "| killed | times | while a batch was under way | next commit after, median | longest |",
        "|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys((*DRIVERS, *OTHERS)):
        own = [kill for kill in outcome.kills if kill.kind == kind]
        seconds = sorted(kill.seconds for kill in own) or [0.0]
        middle = seconds[len(seconds) // 2]
        under_way = sum(kill.in_flight for kill in own)
        lines.append(f"| {kind} | {len(own)} | {under_way} | {middle:.1f} s | {seconds[-1]:.1f} s |")
    return "\n".join(lines) + "\n"


def kinds_of(kills: int, drivers: int) -> list[str]:
    """What is killed, in order: so many drivers, evenly among the others."""
    at = {(number + 1) * kills // (drivers + 1): DRIVERS[number % len(DRIVERS)] for number in range(drivers)}
    return [at.get(number) or OTHERS[number % len(OTHERS)] for number in range(kills)]


@click.command()
@click.option("--kills", default=50, show_default=True, type=click.IntRange(min=1))
@click.option("--drivers", default=10, show_default=True, type=click.IntRange(min=0), help="So many of them drivers.")
@click.option("--seed", default=1, show_default=True)
@click.option("--ledger", "page", type=click.Path(path_type=Path))
def main(kills: int, drivers: int, seed: int, page: Path | None) -> None:
    """Kill, count, and write the ledger."""
    java_home.ensure()
    with tempfile.TemporaryDirectory(prefix="slipstream-kills-") as directory:
        outcome = run(Path(directory), kinds_of(kills, drivers), seed, tell=True)
    text = ledger(outcome, seed)
    print(text)
    if page is not None:
        page.write_text(text)
    if outcome.missing or outcome.repeated:
        raise click.ClickException("rows were lost or repeated")


if __name__ == "__main__":
    main()
