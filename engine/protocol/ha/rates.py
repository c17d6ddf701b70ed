"""How fast replicas move, and when one will have caught up: from samples, one a second; the clock is passed in.

Implements: FlowMonitor's transferredByteInSecond, from outside; more than RocketMQ tells (spec: ha-protocol, 10)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WINDOW_MS = 3000
IN_FLIGHT_SECONDS = 1.0  # a lag that is acknowledged within this time is what is on its way, not a lag that must shrink


class SlotSample(NamedTuple):
    """A slave's connection at a moment; `connected_at_ms` tells one connection of a slot from the next."""

    connected_at_ms: int
    slave_ack_offset: int
    transferred_bytes: int


class HaSample(NamedTuple):
    """Replication at a moment: of a master its slots, of a slave what it received since its broker's start."""

    time_ms: int
    max_physical_offset: int
    received_bytes: int
    slots: tuple[SlotSample, ...]


class ReplicaRate(NamedTuple):
    """The bytes a second given to a slave's socket, acknowledged by it, and added to the log meanwhile."""

    sent: float
    acknowledged: float
    growth: float


def _earlier(samples: Sequence[HaSample], now: HaSample, slot: int | None, window_ms: int) -> HaSample | None:
    """The newest sample that is `window_ms` older than `now`, else the oldest: all of the same connection."""
    earlier = None
    for sample in reversed(samples):
        if sample.time_ms >= now.time_ms:
            continue  # taken after `now`, or the clock was set back
        if slot is not None:
            of_slot = sample.slots[slot]
            if of_slot.connected_at_ms != now.slots[slot].connected_at_ms or of_slot.slave_ack_offset < 0:
                break
        earlier = sample
        if now.time_ms - sample.time_ms >= window_ms:
            break
    return earlier


def replica_rate(
    samples: Sequence[HaSample], now: HaSample, slot: int, window_ms: int = WINDOW_MS
) -> ReplicaRate | None:
    """Return the rate of the connection in `slot` over the last `window_ms`; None while it has no earlier sample."""
    earlier = _earlier(samples, now, slot, window_ms)
    if earlier is None:
        return None
    per_second = 1000 / (now.time_ms - earlier.time_ms)
    before, after = earlier.slots[slot], now.slots[slot]
    return ReplicaRate(
        (after.transferred_bytes - before.transferred_bytes) * per_second,
        (after.slave_ack_offset - before.slave_ack_offset) * per_second,
        (now.max_physical_offset - earlier.max_physical_offset) * per_second,
    )


def received_rate(samples: Sequence[HaSample], now: HaSample, window_ms: int = WINDOW_MS) -> float | None:
    """Return the bytes a second that a slave received; None while there is no earlier sample."""
    earlier = _earlier(samples, now, None, window_ms)
    if earlier is None:
        return None
    return (now.received_bytes - earlier.received_bytes) * 1000 / (now.time_ms - earlier.time_ms)


def catch_up_seconds(lag_bytes: int, rate: ReplicaRate | None) -> float | None:
    """Return how long it takes until nothing is missing at these rates; None: for ever, or nothing is known yet."""
    if lag_bytes <= 0:
        return 0.0
    if rate is None or rate.acknowledged <= 0:
        return None
    if lag_bytes <= rate.acknowledged * IN_FLIGHT_SECONDS:
        return lag_bytes / rate.acknowledged
    gain = rate.acknowledged - rate.growth
    return lag_bytes / gain if gain > 0 else None
