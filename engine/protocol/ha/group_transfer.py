"""How far enough slaves hold the log.

Implements: GroupTransferService, DefaultHAService.isSlaveOK and inSyncReplicasNums
spec: ha-protocol, 6 put path and acks, 7 status mapping

RocketMQ hands requests to one thread, which answers one after the other. Here each waiter compares its own end offset
and its own deadlines with the published cursors, so nobody waits in line, and no kill loses a request. Who publishes
`confirm_offset`: the group_transfer process by what is said here; where one slave is enough, also that slave's sender.
`push2_slave_max_offset` is no state: it is computed from the connections of this moment, one per distinct slave.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

LOOPBACK_NETWORK, IPV6_LOOPBACK = 127, (0, 1)


class SlaveAck(NamedTuple):
    """The acknowledgement of one connection; `identity` is equal for two connections of the same slave."""

    identity: Hashable
    slave_ack_offset: int


def slave_identity(peer: int, high: int = 0, low: int = 0) -> tuple[int, ...]:
    """Return a slave's identity from its address, in words of `addresses`: RocketMQ's slaves send no name.

    Two connections from one address may be an old half-open one and its successor, and count once. On loopback several
    slaves share the address, but a dead process's connection closes at once: there the port tells them apart.
    """
    if high or low:  # IPv6
        return (high, low, peer) if (high, low) == IPV6_LOOPBACK else (high, low)
    address = peer >> 16
    return (peer,) if address >> 24 == LOOPBACK_NETWORK else (address,)


class Claim(NamedTuple):
    """A slave's claim to be somebody: its address, and a name that it says (0: none) or has proved."""

    address: tuple[int, ...]
    name: int = 0
    is_proved: bool = False


def identities(claims: Sequence[Claim]) -> list[Hashable]:
    """Return the identity of each slave: equal for two connections that may be one replica.

    A name that is proved tells replicas apart, on one host, too. One that is only said makes one replica of two
    addresses, never two of one address; so does an address where anybody has it who proved nothing.
    """
    unproved = {claim.address for claim in claims if not claim.is_proved}
    same: dict[Hashable, Hashable] = {}

    def root(one: Hashable) -> Hashable:
        while one in same:
            one = same[one]
        return one

    names: list[list[Hashable]] = []
    for claim in claims:
        of_claim: list[Hashable] = [] if not claim.name else [claim.name]
        if not claim.is_proved or claim.address in unproved:
            of_claim.append(claim.address)
        names.append(of_claim)
        for other in of_claim[1:]:
            if root(of_claim[0]) != root(other):
                same[root(of_claim[0])] = root(other)
    return [root(of_claim[0]) for of_claim in names]


def _best_acks(acks: Iterable[SlaveAck]) -> list[int]:
    """The highest acknowledgement of every distinct slave, highest first."""
    best: dict[Hashable, int] = {}
    for identity, offset in acks:
        best[identity] = max(offset, best.get(identity, -1))
    return sorted(best.values(), reverse=True)


def confirm_offset(acks: Iterable[SlaveAck], in_sync_replicas: int, max_physical_offset: int) -> int:
    """The end of what the master and `in_sync_replicas - 1` distinct slaves hold; 0 when there are too few slaves."""
    slaves_needed = in_sync_replicas - 1
    if slaves_needed <= 0:
        return max_physical_offset
    best = _best_acks(acks)
    if len(best) < slaves_needed:
        return 0
    return min(best[slaves_needed - 1], max_physical_offset)


def push2_slave_max_offset(acks: Iterable[SlaveAck]) -> int:
    """The farthest acknowledgement of any slave connected now; 0 without one."""
    return max((ack.slave_ack_offset for ack in acks), default=0)


def in_sync_slaves(acks: Iterable[SlaveAck], max_physical_offset: int, fallbehind_bytes_max: int) -> int:
    """Return how many distinct slaves are connected and less than `fallbehind_bytes_max` behind."""
    return sum(max_physical_offset - offset < fallbehind_bytes_max for offset in _best_acks(acks))
