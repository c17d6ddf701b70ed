"""The delay service, beside a real RocketMQ broker's: many messages that come due together, and how late a lone one is.

All of a broker's processes count: it reads what was stored, writes it again and builds the queue of the topic.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from engine.clients.blocks import blocks_of
from engine.clients.connection import Connection
from engine.clients.consuming.requests import Pull, Subscription, pull_fields
from engine.clients.sending.messages import property_text, send_fields
from engine.protocol.remoting.codes import RequestCode
from ipc.clock import wall_ms
from store.message.properties import DELAY, WAIT
from store.message.walk_kernel import ALL_TAGS
from tools.common.local_broker import LocalBroker, free_port
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.cpu_time import cpu_seconds
from tools.dev.bench.bed.figures import Results, in_turn
from tools.dev.bench.bed.front_load import QUEUES, Sending, compiled, send
from tools.dev.bench.bed.rocketmq import RealBroker
from tools.dev.bench.works.front_sends import LINES

TOPIC, GROUP = "delayed", "bench_delays"
LONG, SHORT, SHORT_MS = "1h", "1s", 1000
MESSAGES, FIRST = 300_000, 50_000  # that come due together; of them not measured: a JVM compiles what it needs
FILLING = Sending(16, 4, 1024, level=1)
PATIENT: dict[str, Any] = {"waitTimeMillsInSendQueue": 60_000}  # else a busy machine refuses
TRICKLE, APART_SECONDS = 250, 0.023  # not a divisor of any round time
LOOK_SECONDS, DELIVERED_SECONDS, ANSWER_SECONDS = 0.005, 240.0, 30.0
RATE_GOAL, LATE_GOAL_MS = 50_000.0, 100.0

Started = LocalBroker | RealBroker
Starting = Callable[[Path, str], Started]  # with a folder and what messageDelayLevel says


class Burst(NamedTuple):
    """The cost of delivering messages that were due."""

    per_second: float
    cpu_us: float  # a message


def measure(of: Asked, to: Results) -> None:
    """Ours of each line, and RocketMQ's where it is at hand."""
    program = compiled(of.scratch)
    for compat in LINES:
        home = of.scratch / f"delays-{compat}"
        sides = _sides(compat, of.rocketmq)

        def burst(starting: Starting, home: Path = home) -> Burst:
            return _burst(program, starting, home / "burst")

        bursts = {side: Burst(*of) for side, of in in_turn(sides, of.repeat, burst).items()}
        late_ms = {side: asyncio.run(_late_ms(start, home / f"{side}-late")) for side, start in sides.items()}
        _report(compat, bursts, late_ms, to)


def _sides(compat: str, rocketmq: Path | None) -> dict[str, Starting]:
    sides: dict[str, Starting] = {
        "slipstream": lambda home, levels: LocalBroker(home, compat=compat, messageDelayLevel=levels, **PATIENT)
    }
    if rocketmq is not None:
        sides[LINES[compat].replace(" ", "-")] = lambda home, levels: RealBroker(
            rocketmq, compat, home, free_port(), messageDelayLevel=levels, **PATIENT
        )
    return sides


def _pid(broker: Started) -> int:
    return broker.process.pid if isinstance(broker, LocalBroker) else broker.pid


def _burst(program: Path, starting: Starting, home: Path) -> Burst:
    """Messages of a level that is long; the broker starts again with a short one, by which all of them are due."""
    with starting(home, LONG) as broker:
        send(program, broker.port, FILLING, TOPIC, 0, MESSAGES)
    with starting(home, SHORT) as broker:
        burst = asyncio.run(_watch(broker))
    shutil.rmtree(home)
    return burst


async def _watch(broker: Started) -> Burst:
    """Measure the burst from `FIRST` messages in the topic's queues until all are there."""
    connection = Connection(f"127.0.0.1:{broker.port}", ANSWER_SECONDS)
    try:
        first = await _reach(connection, FIRST)
        began, spent = time.monotonic(), cpu_seconds(_pid(broker))
        count = await _reach(connection, MESSAGES) - first
        seconds, spent = time.monotonic() - began, cpu_seconds(_pid(broker)) - spent
    finally:
        await connection.close()
    return Burst(count / seconds, spent / count * 1e6)


async def _reach(connection: Connection, wanted: int) -> int:
    """Wait until so many were delivered; how many there are then. Raises TimeoutError."""
    async with asyncio.timeout(DELIVERED_SECONDS):
        while (count := sum([await _end_of(connection, queue_id) for queue_id in range(QUEUES)])) < wanted:
            await asyncio.sleep(LOOK_SECONDS)
    return count


def _place(queue_id: int) -> dict[str, str]:
    return {"topic": TOPIC, "queueId": str(queue_id)}


async def _end_of(connection: Connection, queue_id: int) -> int:
    answer = await connection.need(RequestCode.GET_MAX_OFFSET, _place(queue_id))
    return int((answer.ext_fields or {})["offset"])


async def _late_ms(starting: Starting, home: Path) -> list[float]:
    """Return how long after their due time single messages were stored again, in ms, ascending."""
    with starting(home, SHORT) as broker:
        connection = Connection(f"127.0.0.1:{broker.port}", ANSWER_SECONDS)
        try:
            for _ in range(TRICKLE):
                fields = send_fields(GROUP, TOPIC, 0, property_text({DELAY: "1", WAIT: "true"}), wall_ms())
                await connection.need(RequestCode.SEND_MESSAGE_V2, fields, b"x" * FILLING.size)
                await asyncio.sleep(APART_SECONDS)
            await _reach(connection, TRICKLE)
            late = await _lateness(connection)
        finally:
            await connection.close()
    shutil.rmtree(home)
    return sorted(late)


async def _lateness(connection: Connection) -> list[float]:
    """A message is due so long after it was sent: its producer's clock is the broker's."""
    late: list[float] = []
    while len(late) < TRICKLE:
        queue = {**_place(0), "consumerGroup": GROUP}
        fields = pull_fields(queue, Pull(len(late), None, may_wait=False), Subscription(), version_ms=1)
        answer = await connection.need(RequestCode.PULL_MESSAGE, fields)
        for block in blocks_of(answer.body, ALL_TAGS, 0, ""):
            late += [one.store_timestamp_ms - one.born_timestamp_ms - SHORT_MS for one in block.take(len(block))]
    return late


def _report(compat: str, bursts: dict[str, Burst], late_ms: dict[str, list[float]], to: Results) -> None:
    due, lone = f"delays, {compat}: {MESSAGES:,} due together", f"delays, {compat}: one by one"
    for side, burst in bursts.items():
        late, p99 = median(late_ms[side]), late_ms[side][-1 - TRICKLE // 100]
        print(
            f"{due}: {side}: {burst.per_second:,.0f} messages/s, {burst.cpu_us:.1f} us CPU; "
            f"{late:.0f} ms late, p99 {p99:.0f} ms",
            file=sys.stderr,
        )
        to.figure(due, side, burst.per_second, "messages/s", note=f"{burst.cpu_us:.1f} us CPU a message")
        to.figure(lone, side, late, "ms late", p99)
    ours, late = bursts["slipstream"], median(late_ms["slipstream"])
    to.at_least(f"{due}: messages/s", ours.per_second, RATE_GOAL, "50,000 messages/s")
    to.at_most(f"{lone}: late", late, LATE_GOAL_MS, "100 ms")
    for against, theirs in list(bursts.items())[1:]:
        to.at_least(f"{due}: messages/s", ours.per_second, theirs.per_second, against)
        to.at_most(f"{due}: CPU", ours.cpu_us, theirs.cpu_us, against)
