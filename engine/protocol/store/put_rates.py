"""Rates and RocketMQ's runtime figures from samples and counts: pure, the clock is passed in.

Implements: StoreStatsService.getRuntimeInfo, CallSnapshot.getTPS (spec: remoting, GET_BROKER_RUNTIME_INFO)
RocketMQ's rates are those of the samples (10 s, 60 s and 600 s), empty until there are enough of them; its distribution
and its percentiles are those of the last whole minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SAMPLE_MS, SAMPLES = 1000, 601  # RocketMQ's: one a second, ten minutes of them
MINUTE_MS = 60_000
WINDOWS_S = (1, 10, 60)
ROCKETMQ_WINDOWS_S = (10, 60, 600)
DISTRIBUTION_NAMES = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]", "[1~2s]", "[2~3s]",
    "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip


class Sample(NamedTuple):
    """The counts of what was put up to a moment, since the broker's start."""

    time_ms: int
    messages: int
    bytes: int


class Rate(NamedTuple):
    """Per second, over `seconds`: what was asked for, or less when the samples do not reach so far back."""

    messages: float
    bytes: float
    seconds: float


class Totals(NamedTuple):
    """The counts that RocketMQ's runtime figures are made of; times in milliseconds."""

    messages: int
    bytes: int
    failed: int
    entire_time_max_ms: int
    minute_distribution: Sequence[int]
    minute_p99_ms: float
    minute_p999_ms: float


def is_due(samples: Sequence[Sample], now_ms: int, every_ms: int = SAMPLE_MS) -> bool:
    """Whether it is time for another sample."""
    return not samples or now_ms - samples[-1].time_ms >= every_ms


def rate(samples: Sequence[Sample], now: Sample, window_s: int) -> Rate:
    """Return the rate over `window_s` seconds up to `now`: since the newest sample at least so old, else the oldest."""
    since = now
    for sample in reversed(samples):
        if sample.time_ms >= now.time_ms:
            continue  # taken after `now`
        since = sample
        if now.time_ms - sample.time_ms >= window_s * 1000:
            break
    elapsed_ms = now.time_ms - since.time_ms
    if elapsed_ms <= 0:
        return Rate(0.0, 0.0, 0.0)
    per_second = 1000 / elapsed_ms
    return Rate((now.messages - since.messages) * per_second, (now.bytes - since.bytes) * per_second, elapsed_ms / 1000)


def put_tps(samples: Sequence[Sample], window_s: int) -> str:
    """Return RocketMQ's text of the rate from the sample `window_s` before the last one; empty without such samples."""
    if len(samples) <= window_s:
        return ""
    begin, end = samples[-1 - window_s], samples[-1]
    if end.time_ms == begin.time_ms:
        return ""
    return str((end.messages - begin.messages) / (end.time_ms - begin.time_ms) * 1000)


def distribution_text(counts: Sequence[int]) -> str:
    """RocketMQ's text of a distribution, with its space at the end."""
    return "".join(f"{name}:{count} " for name, count in zip(DISTRIBUTION_NAMES, counts, strict=True))


def runtime_text(elapsed_ms: int) -> str:
    """Return how long the store runs, in RocketMQ's words."""
    seconds = elapsed_ms // 1000
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    return f"[ {days} days, {hours % 24} hours, {minutes % 60} minutes, {seconds % 60} seconds ]"


def runtime_info(
    totals: Totals, samples: Sequence[Sample], boot_ms: int, running_ms: int, dispatch_behind_bytes: int
) -> dict[str, str]:
    """RocketMQ's names and texts, as far as they are about puts and dispatch."""
    times = totals.messages or 1  # RocketMQ's, so that it may divide
    return {
        "bootTimestamp": str(boot_ms),
        "runtime": runtime_text(running_ms),
        "putMessageEntireTimeMax": str(totals.entire_time_max_ms),
        "putMessageTimesTotal": str(times),
        "putMessageFailedTimes": str(totals.failed),
        "putMessageSizeTotal": str(totals.bytes),
        "putMessageDistributeTime": distribution_text(totals.minute_distribution),
        "putMessageAverageSize": str(totals.bytes / times),
        "putTps": " ".join(put_tps(samples, window_s) for window_s in ROCKETMQ_WINDOWS_S),
        "putLatency99": f"{totals.minute_p99_ms:.2f}",
        "putLatency999": f"{totals.minute_p999_ms:.2f}",
        "dispatchBehindBytes": str(dispatch_behind_bytes),
    }
