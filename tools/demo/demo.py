"""`slipstream run`: real input, replicated to a slave, queried there by Spark, both logs compared byte for byte.

Ends with 0 only if every message was acknowledged by both, Spark found all of them on the slave, and the two commit
logs are the same bytes.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from engine.monitoring.status import snapshot
from spark_bridge import java_home
from store.reading.comparison import compare
from store.reading.log_reader import open_log
from tools.common.local_broker import LocalBroker
from tools.common.progress import working
from tools.common.watch import plain_console
from tools.demo.producers import Producers, Report
from tools.show import status as status_view

SEGMENT_BYTES = 64 << 20
CATCH_UP_SECONDS = 180.0
POLL_SECONDS = 0.02
BUSIEST = 8
LOG_LINES = 15
PROCESS_SCHEMA = "pid bigint, name string, cpu_percent double, cpu_seconds double, rss_bytes bigint"


class Checks:
    """The facts that must be true; each is printed once it is known."""

    def __init__(self, console: Console) -> None:
        self._console, self.all_true = console, True

    def add(self, ok: bool, text: str) -> None:
        """Print the outcome of one check."""
        self.all_true &= ok
        self._console.print(f"{'ok  ' if ok else 'FAIL'} {text}", style="green" if ok else "bold red", highlight=False)


class Interruption:
    """Ctrl-C and SIGTERM: raised where the signal arrives, and again at the next look, as some places swallow it.

    Only the first counts: what it ends, ends in order.
    """

    def __init__(self) -> None:
        self.asked = False

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt at the first signal only."""
        if not self.asked:
            self.asked = True
            raise KeyboardInterrupt

    def look(self) -> None:
        """Raise KeyboardInterrupt if there was a signal."""
        if self.asked:
            raise KeyboardInterrupt


def start_pair(stack: ExitStack, directory: Path, look: Callable[[], None]) -> tuple[LocalBroker, LocalBroker]:
    """A SYNC_MASTER and its slave, connected. Raises RuntimeError when one does not come up."""
    common: dict[str, Any] = {"mappedFileSizeCommitLog": SEGMENT_BYTES, "inSyncReplicas": 2, "slaveTimeout": 60_000}
    master = stack.enter_context(LocalBroker(directory / "master", brokerRole="SYNC_MASTER", **common))
    slave = stack.enter_context(
        LocalBroker(directory / "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address, **common)
    )
    _await(lambda: cursors(master)["in_sync_slaves"] >= 1, "the slave to connect", look)
    return master, slave


def cursors(broker: LocalBroker) -> dict[str, int]:
    """Return a broker's cursors at this moment."""
    return snapshot(broker.store, cpu_sample_seconds=0.0).cursors


def _await(condition: Callable[[], bool], what: str, look: Callable[[], None]) -> None:
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while not condition():
        look()
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {CATCH_UP_SECONDS:.0f} s for {what}")
        time.sleep(POLL_SECONDS)


def tell_sent(
    console: Console, checks: Checks, reports: list[Report], seconds: float
) -> tuple[Counter[str], Counter[str]]:
    """Print what the producers did; messages and bytes by topic."""
    messages, sizes, statuses = Counter[str](), Counter[str](), Counter[str]()
    for report in reports:
        messages += report.messages
        sizes += report.body_bytes
        statuses += report.statuses
        if report.error:
            checks.add(False, f"producer ({report.name}): {report.error}")
    total, total_bytes = messages.total(), sizes.total()
    text = ", ".join(f"{count:,} {status}" for status, count in statuses.items())
    checks.add(statuses["PUT_OK"] == total > 0, f"{len(reports)} producers: every message on both brokers: {text}")
    rates = f"{total / seconds:,.0f} messages/s, {total_bytes / seconds / 1e6:,.2f} MB/s"
    console.print(f"     {rates}, for {seconds:.1f} s", highlight=False)
    latencies = sorted(latency for report in reports for latency in report.latencies_us)
    if len(latencies) > 1:
        cuts = statistics.quantiles(latencies, n=100)
        text = f"p50 {cuts[49]:,.0f} us, p99 {cuts[98]:,.0f} us, of {len(latencies):,}"
        console.print(f"     one sync-replicated send: {text}", highlight=False)
    empty = sum(report.empty_lines for report in reports)
    if empty:
        console.print(f"     {empty:,} empty lines were left out: RocketMQ has no empty messages")
    return messages, sizes


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Write what Spark's JVM and Python workers say to a file; show its end only when the work fails."""
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except Exception:
        os.write(kept, log.read_bytes()[-4000:])
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def query(console: Console, checks: Checks, store: Path, messages: Counter[str], sizes: Counter[str]) -> None:
    """Two questions to the slave's files, and whether the first answer is what was sent."""
    java_home.ensure()
    from pyspark.sql import functions as f

    from spark_bridge.driver import read, session

    with working("Spark reads the slave's files"):
        spark = session("slipstream run")
        try:
            began = time.monotonic()
            by_topic = read(spark, store, columns=["topic", "bodyLength"]).groupBy("topic")
            rows = by_topic.agg(f.count("*").alias("n"), f.sum("bodyLength").alias("size")).orderBy("topic").collect()
            process = f.from_json(f.col("body").cast("string"), PROCESS_SCHEMA).alias("p")
            bodies = read(spark, store, columns=["topic", "body"], topics=["host-process"])
            sampled = bodies.select(process).select("p.*")
            busiest = sampled.groupBy("pid", "name").agg(
                f.max("cpu_seconds").alias("cpu"), f.max("rss_bytes").alias("rss"), f.count("*").alias("n")
            )
            top = busiest.orderBy(f.desc("cpu")).limit(BUSIEST).collect()
            seconds = time.monotonic() - began
        finally:
            spark.stop()
    topics = _table("Spark on the slave's files: topics", "topic", "messages", "bytes")
    for row in rows:
        topics.add_row(row.topic, f"{row.n:,}", f"{row['size']:,}")
    busy = _table("Spark on the slave's files: busiest processes", "pid", "process", "CPU seconds", "MB", "samples")
    for row in top:
        busy.add_row(str(row.pid), row.name, f"{row.cpu:,.1f}", f"{row.rss / 1e6:,.1f}", f"{row.n:,}")
    console.print(topics, busy)
    same = {row.topic: (row.n, row["size"]) for row in rows} == {t: (messages[t], sizes[t]) for t in messages}
    checks.add(same, f"Spark counts what was sent, topic by topic ({seconds:.1f} s for both tables)")


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("topic", "process") else "right")
    return table


def compare_logs(checks: Checks, master: Path, slave: Path) -> None:
    """Byte by byte, the whole range of the two logs."""
    ours, theirs = open_log(master), open_log(slave)
    same_range = (ours.min_offset, ours.max_offset) == (theirs.min_offset, theirs.max_offset)
    checks.add(same_range, f"master's and slave's log end at {ours.max_offset:,} and {theirs.max_offset:,}")
    comparison = compare(ours, theirs)
    where = "" if comparison.differs_at is None else f"; they differ at offset {comparison.differs_at:,}"
    same = comparison.differs_at is None and comparison.common_bytes > 0
    checks.add(same, f"the two commit logs are the same, byte for byte: {comparison.common_bytes:,} bytes{where}")


def perform(
    console: Console, directory: Path, inputs: tuple[str, ...], seconds: float, keep: bool, look: Callable[[], None]
) -> bool:
    """The whole demonstration; whether everything was true. `look` raises KeyboardInterrupt once that is asked for."""
    checks = Checks(console)
    with ExitStack() as stack:
        began = time.monotonic()
        master, slave = start_pair(stack, directory, look)
        up = f"a SYNC_MASTER and its slave are up after {time.monotonic() - began:.1f} s"
        console.print(f"     {up}, in {directory}", highlight=False)
        began = time.monotonic()
        with Producers(str(master.store), inputs, seconds) as producers:
            reports = producers.reports(look)
        messages, sizes = tell_sent(console, checks, reports, time.monotonic() - began)
        end = cursors(master)["max_physical_offset"]
        _await(lambda: cursors(slave)["reput_from_offset"] >= end, "the slave to dispatch everything", look)
        with _stderr_to(directory / "spark.log"):
            query(console, checks, slave.store, messages, sizes)
        compare_logs(checks, master.store, slave.store)
        look()
        if keep:
            console.print(f"both go on until Ctrl-C; stores: {master.store} {slave.store}", highlight=False)
            try:
                status_view.watch_status([str(master.store), str(slave.store)])
            except KeyboardInterrupt:
                console.print("stopping")
    for broker in (master, slave):
        ended = broker.process.returncode
        checks.add(ended == 0, f"{broker.store.parent.name} stopped in order (exit code {ended})")
    return checks.all_true


def run(inputs: tuple[str, ...], directory: str | None, seconds: float, keep: bool) -> int:
    """The whole demonstration; 0 only if every check held."""
    if directory is not None and os.path.isdir(directory) and os.listdir(directory):
        raise click.UsageError(f"--dir {directory}: not empty; name a new directory")
    interruption = Interruption()
    previous = {n: signal.signal(n, interruption.on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
    root = Path(directory or tempfile.mkdtemp(prefix="slipstream-run-")).resolve()
    root.mkdir(parents=True, exist_ok=True)
    console = plain_console()
    try:
        all_true = perform(console, root, inputs, seconds, keep, interruption.look)
    except RuntimeError as failed:
        console.print(f"FAIL {failed}", style="bold red", highlight=False)
        for log in sorted(root.glob("*/broker.log")):
            console.print(f"the end of {log}:", *log.read_text().splitlines()[-LOG_LINES:], sep="\n  ", highlight=False)
        all_true = False
    finally:
        if directory is None:
            shutil.rmtree(root, ignore_errors=True)
        for number, handler in previous.items():
            signal.signal(number, handler)
    console.print("everything is true" if all_true else "NOT everything is true", style="bold")
    return 0 if all_true else 1
