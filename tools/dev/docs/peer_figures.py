"""README's table of figures beside the peers, from what `make bench` kept in docs/benchmarks.json.

`ROWS` chooses the ratios. Slipstream's figure, the peer's and their ratio are of one run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tools.dev.bench import ledger
from tools.dev.docs.benchmarks import KEPT
from tools.dev.docs.tables import table

HEAD = ("work", "Slipstream", "peer", "Slipstream is")
PEERS = {"rocketmq 5": "RocketMQ 5.3.3", "rocketmq 4.9": "RocketMQ 4.9.7", "chronicle": "Chronicle Queue",
         "parquet": "Parquet files", "kafka": "Spark's Kafka source", "sendfile limit": "bare `sendfile`"}  # fmt: skip


class Row(NamedTuple):
    """One line: the words for the reader, and which ratio of which work it shows, in which unit."""

    words: str
    work: str
    ratio: str
    peer: str
    unit: str
    scale: float = 1.0
    inverse: bool = False  # the ledger has runs a second: show the seconds of a run


SENDS, CONSUMERS, SPARK = "front-sends", "front-consume", "spark"
ROWS = (
    Row(
        "one client sends 128 B, waits for the answer, sends again",
        SENDS,
        "sends, 5, ASYNC_FLUSH: 1 x 1, 128 B: messages/s",
        "rocketmq 5",
        "/s",
    ),
    Row(
        "16 clients send 1 KiB, `SYNC_FLUSH`",
        SENDS,
        "sends, 5, SYNC_FLUSH: 16 x 1, 1024 B: messages/s",
        "rocketmq 5",
        "/s",
    ),
    Row(
        "64 clients send 1 KiB, 4 in flight each; one slave",
        SENDS,
        "sends, 5, SYNC_MASTER: 64 x 4, 1024 B: messages/s",
        "rocketmq 5",
        "/s",
    ),
    Row("a consumer reads a backlog of 4 GiB", CONSUMERS, "consumers, 5: backlog, messages/s", "rocketmq 5", "/s"),
    Row(
        "time from a send to the consumer's listener, p99",
        CONSUMERS,
        "consumers, 5: send to listener, p99",
        "rocketmq 5",
        " µs",
    ),
    Row("an empty slave fetches the log", "catch-up", "catch-up, frames of 32 KiB", "rocketmq 4.9", " MiB/s"),
    Row(
        "the same, against `sendfile` alone",
        "catch-up",
        "catch-up, frames of 32 KiB",
        "sendfile limit",
        " MiB/s",
    ),
    Row(
        "a local producer appends 128 B, in batches",
        "append",
        "append 128 B, 1 producer(s)",
        "chronicle",
        " million/s",
        1e-6,
    ),
    Row("Spark counts all messages", SPARK, "spark count", "kafka", " s", inverse=True),
    Row(
        "Spark sums the body lengths of one topic",
        SPARK,
        "spark topic-sum-of-length(body)",
        "parquet",
        " s",
        inverse=True,
    ),
    Row(
        "Spark reads five columns, one of them the body",
        SPARK,
        "spark five-columns-with-body",
        "parquet",
        " s",
        inverse=True,
    ),
)


def part() -> str:
    """The table and the line below it."""
    works = {one["work"]: one for one in ledger.read(KEPT)}
    used = [works[name] for name in dict.fromkeys(row.work for row in ROWS)]
    dates, cpus = sorted({one["at"] for one in used}), {one["machine"]["cpus"] for one in used}
    where = f"virtual machine with {' or '.join(map(str, sorted(cpus)))} CPUs, on\n{' and '.join(dates)}"
    return table(HEAD, [_cells(row, works[row.work]["ratios"]) for row in ROWS]) + (
        f"\nThe two figures of a row come from one run of `make bench`. All runs used a {where}.\n"
        "Spark's Kafka source reads through a broker and TCP; Slipstream's source reads mapped files.\n"
    )


def _cells(row: Row, ratios: list[dict[str, Any]]) -> tuple[str, str, str, str]:
    of = next(of for of in ratios if of["work"] == row.ratio and of["against"] == row.peer)
    ours, theirs = (1 / of[side] if row.inverse else of[side] * row.scale for side in ("ours", "theirs"))
    better = of["value"] if of["more_is_better"] else 1 / of["value"]
    side = _times(better) if better >= 1 else f"slower: {better:.2f} of the peer's speed"
    return row.words, f"{_number(ours)}{row.unit}", f"{_number(theirs)}{row.unit}, {PEERS[row.peer]}", side


def _times(better: float) -> str:
    return "as fast" if better < 1.05 else f"{better:.1f} times as fast"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
