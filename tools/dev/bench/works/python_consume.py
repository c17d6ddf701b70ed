"""Consumers for Python beside each other: a backlog, one message a millisecond from send to handler, a minute idle."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results, in_turn
from tools.dev.bench.bed.machine import rest_disk
from tools.dev.bench.bed.members.send import QUEUES, make_topic
from tools.dev.bench.bed.members.servers import Bed, Subject, at_hand
from tools.dev.bench.bed.programs import begin, program, programs, report_of

SIZES, MESSAGES, JAVA_WARM_SHARE = (1024, 128), 400_000, 4
PACED, PACED_WARM, INTERVAL_US, PACED_BYTES = 8_000, 3_000, 1000, 128
IDLE_SECONDS, IDLE_SETTLE_SECONDS = 60.0, 5.0
LOCAL, WIRE, ONE_BY_ONE, BATCHES = "slipstream, local", "slipstream", ", one by one", ", batches"
JAVA, CONFLUENT, KAFKA_PYTHON, REDIS = "Java's push consumer", "confluent-kafka", "kafka-python", "redis-py"
LOCAL_RATE_GOAL, BATCHES_RATE_GOAL, IDLE_GOAL_PERCENT = 250_000.0, 1e6, 0.1
LOCAL_P50_GOAL_US, LOCAL_P99_GOAL_US = 15.0, 60.0
WIRE_GOALS = {JAVA: (1.0, None), CONFLUENT: (1.0, 0.5), KAFKA_PYTHON: (2.0, None), REDIS: (1.0, None)}  # rate, CPU
_groups = count()  # a run begins at the beginning


class Read(NamedTuple):
    """A backlog's cost to the consuming process."""

    per_second: float
    cpu_us: float


class Passed(NamedTuple):
    """From a send to the handler."""

    p50_us: float
    p99_us: float


def measure(of: Asked, to: Results) -> None:
    """Ours on the store and at the broker, and each peer's that is at hand."""
    with at_hand(of, of.scratch / "python-consume") as bed:
        for size in SIZES:
            _compare_backlogs(of, bed, size, to)
        _compare_latencies(of, bed, to)
        _watch_idle(of, bed, to)


def new_group() -> str:
    """Return the name of a group that has no offsets."""
    return f"bench-{next(_groups)}"


def run(command: list[str], meanwhile: Callable[[], object] = lambda: None) -> dict[str, Any]:
    """Run a program to its end, and return its report. Raises RuntimeError."""
    with program(command) as process:
        begin(process)
        meanwhile()
        return report_of(process)


def fill(bed: Bed, topic: str, size: int, messages: int) -> None:
    """Send the same backlog to every server once."""
    for server in bed.stores:
        make_topic(*bed.servers[server], topic)
        run(bed.sender(server, topic, size=size, messages=messages))
    rest_disk()


def _compare_backlogs(of: Asked, bed: Bed, size: int, to: Results) -> None:
    topic, work = f"backlog-{size}", f"backlog of {size} B"
    fill(bed, topic, size, MESSAGES)

    def read(subject: Subject) -> Read:
        warm = MESSAGES // JAVA_WARM_SHARE if subject.kind == "java" else 0
        report = run(subject.command(of, topic, new_group(), queues=QUEUES, messages=MESSAGES, warm=warm))
        return Read(report["messages"] / report["seconds"], report["cpu_seconds"] / report["messages"] * 1e6)

    reads = {name: Read(*taken) for name, taken in in_turn(bed.subjects, of.repeat, read).items()}
    for name, one in reads.items():
        to.figure(work, name, one.per_second, "messages/s", note=f"{one.cpu_us:.2f} us CPU a message in the consumer")
    to.at_least(
        f"{work}: local, one by one", reads[LOCAL + ONE_BY_ONE].per_second, LOCAL_RATE_GOAL, "250,000 messages/s"
    )
    if LOCAL + BATCHES in reads:
        batches = reads[LOCAL + BATCHES].per_second
        to.at_least(f"{work}: local, batches", batches, BATCHES_RATE_GOAL, "1,000,000 messages/s")
    for peer, (rate, cpu) in WIRE_GOALS.items():
        if peer in reads:
            to.at_least(f"{work}: messages/s", reads[WIRE].per_second, reads[peer].per_second, peer, rate)
            to.at_most(f"{work}: CPU of the consumer", reads[WIRE].cpu_us, reads[peer].cpu_us, peer, cpu or 1.0)


def _compare_latencies(of: Asked, bed: Bed, to: Results) -> None:
    work, topics = "send to handler, 1,000 messages/s", map("latency-{}".format, count())
    paced = {"size": PACED_BYTES, "messages": PACED, "interval_us": INTERVAL_US}

    def passed(subject: Subject) -> Passed:
        topic = next(topics)
        make_topic(*bed.servers[subject.server], topic)
        asked = {"queues": QUEUES, "messages": PACED, "warm": PACED_WARM, "timed": 1}
        sent = partial(run, bed.sender(subject.server, topic, **paced))
        report = run(subject.command(of, topic, new_group(), **asked), sent)
        return Passed(report["p50_us"], report["p99_us"])

    # `consume` of confluent-kafka waits for a full batch: a handler that shall be called at once uses `poll`
    subjects = {name: one for name, one in bed.subjects.items() if name != CONFLUENT and not name.endswith(BATCHES)}
    latencies = {name: Passed(*taken) for name, taken in in_turn(subjects, of.repeat, passed).items()}
    for name, one in latencies.items():
        to.figure(work, name, one.p50_us, "us", one.p99_us)
    ours = latencies[LOCAL + ONE_BY_ONE]
    to.at_most(f"{work}: local p50", ours.p50_us, LOCAL_P50_GOAL_US, "15 us")
    to.at_most(f"{work}: local p99", ours.p99_us, LOCAL_P99_GOAL_US, "60 us")
    for peer in (JAVA, CONFLUENT + ONE_BY_ONE, KAFKA_PYTHON, REDIS):
        if peer in latencies:
            to.at_most(f"{work}: p50", latencies[WIRE].p50_us, latencies[peer].p50_us, peer)
            to.at_most(f"{work}: p99", latencies[WIRE].p99_us, latencies[peer].p99_us, peer)


def _watch_idle(of: Asked, bed: Bed, to: Results) -> None:
    """All at once: a member without messages leaves the CPUs to the others."""
    topic = "idle"
    for server in bed.stores:
        make_topic(*bed.servers[server], topic)
    watched = {name: one for name, one in bed.subjects.items() if not name.endswith((ONE_BY_ONE, BATCHES))}
    commands = [one.command(of, topic, new_group(), queues=QUEUES, seconds=IDLE_SECONDS) for one in watched.values()]
    with programs(commands) as processes:
        time.sleep(IDLE_SETTLE_SECONDS)
        for process in processes:
            begin(process)
        reports = dict(zip(watched, map(report_of, processes), strict=True))
    for name, report in reports.items():
        percent = report["cpu_seconds"] / report["seconds"] * 100
        to.figure("an idle member", name, percent, "% of a core")
        if name in (LOCAL, WIRE):
            to.at_most("an idle member", percent, IDLE_GOAL_PERCENT, "0.1 % of a core")
