"""Says how far the log is held by the replicas asked for, and how many slaves are in step.

Implements: GroupTransferService (spec: ha-protocol, 6 put path and acks); its decisions:
            engine/protocol/ha/group_transfer.py
Follows:    held_offset of every connection (what counts), slave_ack_offset (how far behind it is) and
            max_physical_offset, through one bell, `ack_bell`
Publishes:  confirm_offset, confirm_offset.N, in_sync_slaves
It holds no requests: producers wait on `confirm_offset` themselves (on that of their number of replicas with
enableAutoInSyncReplicas), so a kill of this process loses nothing but time. Where puts ask for one slave, the sender
that believes an acknowledgement raises `confirm_offset`, and rings here only for a slave that was not in step: this
process is then no part of a put. Where they ask for more, or each for its own number, each acknowledgement rings here.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum

import numpy as np

from engine.protocol.ha.group_transfer import (
    Claim,
    SlaveAck,
    confirm_offset,
    identities,
    in_sync_slaves,
    slave_identity,
)
from engine.protocol.ha.policy import put_policy
from engine.settings import replication
from engine.settings.config import BrokerConfig
from engine.shared_memory import address_cursors, addresses
from engine.shared_memory.cursors import BrokerCounters, HaSlotState, IdentityState
from ipc import waiting
from ipc.arrays import Words
from ipc.compiled.atomics import Followed, await_change, load_acquire, monotonic_ms, raise_to
from ipc.compiled.kernels import kernel

LOOK_MS = 1000  # a slave that stands still falls behind without a ring


class GroupCounter(IntEnum):
    """`places`: the index of max_physical_offset, then a SlotPlace for each slot."""

    LOG_END = 0
    SLOTS = 1


class SlotPlace(IntEnum):
    """Columns of `places`: indexes of a slot's words."""

    STATE = 0
    ACK = 1
    PEER = 2
    HELD = 3
    IDENTITY = 4
    IDENTITY_STATE = 5


SLOT_PLACES = len(SlotPlace)


@kernel
def follow_single_slave(
    words: Words, places: Words, bell: int, confirm: int, confirmed: int, fallbehind_bytes_max: int, timeout_ms: int
) -> int:
    """The most common case in compiled code, because each ring here takes the CPU from a put: one slave, one needed.

    Publishes what `confirm_offset` of the protocol says of a single slave in step, where its sender has not yet, ring
    after ring; returns what is confirmed as soon as anything else is the case, or the time is over.
    """
    until_ms = monotonic_ms() + timeout_ms
    while True:
        seen = load_acquire(words, bell)
        slave = 0
        for at in range(GroupCounter.SLOTS, places.size, SLOT_PLACES):
            if load_acquire(words, places[at + SlotPlace.STATE]) == HaSlotState.TRANSFER:
                if slave:
                    return confirmed
                slave = at
        if not slave:
            return confirmed
        acked = load_acquire(words, places[slave + SlotPlace.ACK])
        end = load_acquire(words, places[GroupCounter.LOG_END])
        if end - acked >= fallbehind_bytes_max:
            return confirmed
        held = load_acquire(words, places[slave + SlotPlace.HELD])
        if min(held, end) > confirmed:
            confirmed = min(held, end)
            raise_to(words, confirm, confirmed)
        began_ms = monotonic_ms()
        wait_ms = min(until_ms - began_ms, LOOK_MS)
        if wait_ms <= 0:
            return confirmed
        if await_change(words, bell, seen, wait_ms * waiting.NS_PER_MS) == seen and monotonic_ms() < began_ms + wait_ms:
            return confirmed  # a signal came


class GroupTransfer:
    """The process that turns acknowledgements into `confirm_offset`."""

    name = "group_transfer"

    def __init__(
        self,
        counters: BrokerCounters,
        in_sync_replicas: int,
        fallbehind_bytes_max: int,
        *,
        for_each_count: bool = False,
    ) -> None:
        self._counters = counters
        self._in_sync_replicas = in_sync_replicas
        self._for_each_count = for_each_count  # puts differ in how many replicas they need
        self._fallbehind_bytes_max = fallbehind_bytes_max
        self._bell_seen = 0
        self._in_sync = -1
        self._confirmed = counters.confirm_offset.read()
        slots = [
            [
                cursor.index
                for cursor in (  # as SlotPlace
                    words.state, words.slave_ack_offset, words.peer, words.held_offset, words.identity,
                    words.identity_state,
                )
            ]
            for words in counters.ha
        ]  # fmt: skip
        self._places = np.array([counters.max_physical_offset.index, *(place for slot in slots for place in slot)])
        # A bell counts only while somebody is registered. We are, for life: a ring between our look at the
        # acknowledgements and our sleep would be lost otherwise. One that a kill left costs a system call a ring.
        bell = counters.ack_bell
        bell.words[bell.index + Followed.WAITERS] += 1

    def do_work(self, _now_ms: int) -> int:
        """Compare all acknowledgements. Always 0: what comes after that rings, and `idle` does not sleep then."""
        counters = self._counters
        self._bell_seen = counters.ack_bell.read()
        end, *slots = counters.region.words[self._places].tolist()  # one look at all
        states = slots[SlotPlace.STATE :: SLOT_PLACES]
        connected = [slot * SLOT_PLACES for slot, state in enumerate(states) if state == HaSlotState.TRANSFER]
        names = identities([self._claim(at // SLOT_PLACES, slots[at : at + SLOT_PLACES]) for at in connected])
        held = [SlaveAck(name, slots[at + SlotPlace.HELD]) for name, at in zip(names, connected, strict=True)]
        acks = [SlaveAck(name, slots[at + SlotPlace.ACK]) for name, at in zip(names, connected, strict=True)]
        # What was confirmed once was held by that many: it stays confirmed when they go.
        confirmed = confirm_offset(held, self._in_sync_replicas, end)
        if confirmed > self._confirmed:
            self._confirmed = confirmed
            waiting.raise_to(counters.confirm_offset, confirmed)  # senders raise it, too
        if self._for_each_count:
            self._confirm_each(held, end)
        in_sync = in_sync_slaves(acks, end, self._fallbehind_bytes_max)
        if in_sync != self._in_sync:
            self._in_sync = in_sync
            waiting.publish(counters.in_sync_slaves, in_sync)
        return 0

    def _confirm_each(self, held: list[SlaveAck], end: int) -> None:
        for count, cursor in self._counters.confirm_offsets.items():
            if count > 1 and (confirmed := confirm_offset(held, count, end)) > cursor.read():
                waiting.publish(cursor, confirmed)

    def _claim(self, slot: int, words: list[int]) -> Claim:
        peer, is_proved = words[SlotPlace.PEER], words[SlotPlace.IDENTITY_STATE] == IdentityState.SIGNED
        packed = address_cursors.read(self._counters.ha[slot].peer_address) if peer & addresses.IPV6 else (peer,)
        return Claim(slave_identity(*packed), words[SlotPlace.IDENTITY], is_proved)

    def idle(self, timeout_ms: int) -> None:
        """Sleep until a sender or the flusher rings."""
        counters = self._counters
        if self._in_sync != 1 or self._in_sync_replicas != 2 or self._for_each_count:
            timeout_ms = min(timeout_ms, LOOK_MS) if self._in_sync else timeout_ms
            waiting.await_change(counters.ack_bell, self._bell_seen, timeout_ms)
            return
        bell, confirm, words = counters.ack_bell.index, counters.confirm_offset.index, counters.region.words
        self._confirmed = int(
            follow_single_slave(
                words, self._places, bell, confirm, self._confirmed, self._fallbehind_bytes_max, timeout_ms
            )
        )

    def close(self) -> None:
        """Unregister at the bell."""
        bell = self._counters.ack_bell
        bell.words[bell.index + Followed.WAITERS] -= 1


def open_role(config: BrokerConfig, counters: BrokerCounters) -> GroupTransfer:
    """The group transfer of this broker; on an ASYNC_MASTER it confirms what is in the log."""
    policy = put_policy(replication.of_config(config))
    return GroupTransfer(
        counters, policy.replicas_least, config.ha_slave_fallbehind_max_bytes, for_each_count=policy.replicas_min > 0
    )
