"""What processes count beside the counters: by name and labels, sent as differences, added up, exported.

Implements: BrokerMetricsManager's and RemotingMetricsManager's counters and histograms, with their bounds
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from engine.monitoring.series import COUNTER, GAUGE, Histogram, Sample, Series
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand

REMOTING = "remoting"  # the only protocol
KIB, MIB = 1024, 1 << 20
NS_PER_MS = 1_000_000
REQUESTS = {int(code): code.name.lower() for code in RequestCode}  # as RemotingHelper has them
ANSWERS = {int(code): code.name.lower() for code in ResponseCode}
ROWS_MAX = 20_000  # of names and labels; what comes beyond them is counted nowhere
Key = tuple[str, ...]  # what, labels
Row = list[int]  # a number; of a histogram how many are in each bucket, and what all come to


class What(NamedTuple):
    """A figure: the metric's name, what it is, its labels; a histogram's bounds."""

    kind: str
    metric: str
    says: str
    labels: tuple[str, ...]
    bounds: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Return the number of words in a row: one, or the buckets of a histogram with their sum."""
        return len(self.bounds) + 2 if self.bounds else 1


SENT, RPC, DEAD, HALF, COMMITTED, ROLLED_BACK, FINISHED = "sent rpc dead half committed rolled_back finished".split()
TOPICS_MADE, GROUPS_MADE = "topics made", "groups made"
MAKING_MS = (10, 100, 1000, 3000, 5000)
IN_SECONDS = (5, 60, 600, 3600, 12 * 3600, 24 * 3600)
SIZES = (KIB, 4 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB)
KEPT = {
    SENT: What(COUNTER, "rocketmq_message_size", "Incoming messages size", ("topic", "message_type"), SIZES),
    RPC: What(
        COUNTER,
        "rocketmq_rpc_latency_milliseconds",
        "Rpc latency",
        ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
        (1, 3, 5, 7, 10, 100, 1000, 2000, 3000),
    ),
    DEAD: What(
        COUNTER,
        "rocketmq_send_to_dlq_messages",
        "Consumer send to DLQ messages",
        ("consumer_group", "topic", "is_system"),
    ),
    HALF: What(GAUGE, "rocketmq_half_messages", "Half messages of all topics, since the broker's start", ("topic",)),
    COMMITTED: What(COUNTER, "rocketmq_commit_messages", "Total number of commit messages", ("topic",)),
    ROLLED_BACK: What(COUNTER, "rocketmq_rollback_messages", "Total number of rollback messages", ("topic",)),
    FINISHED: What(
        COUNTER,
        "rocketmq_finish_message_latency_milliseconds",
        "Transaction finish latency, in seconds",
        ("topic",),
        IN_SECONDS,
    ),
    TOPICS_MADE: What(
        COUNTER,
        "rocketmq_topic_create_execution_time_milliseconds",
        "The distribution of create topic time",
        ("invocation_status", "is_system"),
        MAKING_MS,
    ),
    GROUPS_MADE: What(
        COUNTER,
        "rocketmq_consumer_group_create_execution_time_milliseconds",
        "The distribution of create subscription time",
        ("invocation_status",),
        MAKING_MS,
    ),
}


class Counts:
    """Counters and histograms of one process, by name and labels."""

    def __init__(self) -> None:
        self.rows: dict[Key, Row] = {}
        self.has_news = False  # something was counted since a reader last reset this

    def count(self, what: str, *labels: str, by: int = 1) -> None:
        """Add `by` to a counter."""
        if (row := self._row((what, *labels))) is not None:
            row[0] += by
            self.has_news = True

    def observe(self, what: str, value: int, *labels: str, by: int = 1) -> None:
        """Count `by` observations of a value in a histogram; a negative number takes them back."""
        row = self.rows.get(key := (what, *labels))
        if row is None and (row := self._row(key)) is None:
            return
        row[bisect_left(KEPT[what].bounds, value)] += by
        row[-1] += value * by
        self.has_news = True

    def answered(self, request: RemotingCommand, code: int, began_ns: int, *, was_held: bool = False) -> None:
        """A request has its answer; `began_ns` as of time.monotonic_ns."""
        took_ms = (time.monotonic_ns() - began_ns) // NS_PER_MS
        name, said = REQUESTS.get(request.code, str(request.code)), ANSWERS.get(code, str(code))
        result = "oneway" if request.is_oneway else "success"
        self.observe(RPC, took_ms, REMOTING, name, said, "true" if was_held else "false", result)

    def add(self, key: Sequence[str], more: Sequence[int]) -> None:
        """Add a row that another process counted; an unknown name or another width is ignored."""
        row = self._row(tuple(key)) if key and key[0] in KEPT else None
        if row is not None and len(row) == len(more):
            row[:] = [have + further for have, further in zip(row, more, strict=True)]
            self.has_news = True

    def _row(self, key: Key) -> Row | None:
        row = self.rows.get(key)
        if row is None and len(self.rows) < ROWS_MAX:
            row = self.rows[key] = [0] * KEPT[key[0]].width
        return row

    def take(self) -> list[tuple[Key, Row]]:
        """Return all counts, and begin anew."""
        rows, self.rows = self.rows, {}
        return list(rows.items())

    def of(self, what: str) -> Iterator[tuple[Key, Row]]:
        """The rows of one figure, by their labels."""
        return ((key[1:], row) for key, row in self.rows.items() if key[0] == what)

    def series(self, whats: Iterable[str]) -> Iterator[Series | Histogram]:
        """Yield the counters and histograms as metrics; a counter below 0 is shown as 0."""
        for what in whats:
            kept = KEPT[what]
            if kept.bounds:
                rows = [(labels, row[:-1], row[-1]) for labels, row in self.of(what)]
                yield Histogram(kept.metric, kept.says, kept.labels, kept.bounds, rows)
            else:
                samples: list[Sample] = [(labels, float(max(0, row[0]))) for labels, row in self.of(what)]
                yield Series(kept.kind, kept.metric, kept.says, kept.labels, samples)
