"""Strategies that allocate a topic's queues to the members of a consumer group.

Implements: AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle, AllocateMessageQueueByMachineRoom,
AllocateMessageQueueByConfig, AllocateMessageQueueConsistentHash, AllocateMachineRoomNearby; ConsistentHashRouter
Each member computes its own share, so all members of a group must use the same strategy with the same options.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from engine.clients.cluster import Place
from engine.clients.names import ClientError

Strategy = Callable[[Sequence[Place], Sequence[str], str], list[Place]]  # all queues, all members, the own member
VIRTUAL_NODES = 10  # of each member on the ring
HASH_BYTES = 4
ROOM_MARK = "@"  # between a machine room and the rest of a broker's name


def strategy_of(name: str, **options: Any) -> Strategy:
    """Return a strategy by RocketMQ's name of it. Raises ClientError for an unknown name, and for wrong options.

    CONSISTENT_HASH takes `virtual_nodes`, MACHINE_ROOM `rooms`, CONFIG `queues`, and MACHINE_ROOM_NEARBY `inner`,
    `room_of_queue` and `room_of_member`. AVG and AVG_BY_CIRCLE take no options.
    """
    make = _STRATEGIES.get(name)
    if make is None:
        raise ClientError(f"strategy {name!r} is unknown; the strategies are {', '.join(sorted(_STRATEGIES))}")
    try:
        return make(**options)
    except TypeError as reason:
        raise ClientError(f"strategy {name}: {reason}") from None


def share_of(places: Sequence[Place], members: Sequence[str], own: str) -> list[Place]:
    """AVG: neighbours are allocated to one member, and the first members get one queue more than the others."""
    if own not in members:
        return []
    ordered, index = sorted(members), sorted(members).index(own)
    count, more = divmod(len(places), len(ordered))
    size = count + (index < more)
    start = index * count + min(index, more)
    return sorted(places)[start : start + size]


def share_by_circle(places: Sequence[Place], members: Sequence[str], own: str) -> list[Place]:
    """AVG_BY_CIRCLE: the queues are dealt to the members one by one."""
    if own not in members:
        return []
    return sorted(places)[sorted(members).index(own) :: len(members)]


def by_consistent_hash(virtual_nodes: int = VIRTUAL_NODES) -> Strategy:
    """CONSISTENT_HASH: a queue is allocated to the next member on a ring of hashes, where each has `virtual_nodes`."""
    if virtual_nodes < 0:
        raise ClientError(f"virtual_nodes is {virtual_nodes}; it must be at least 0")

    def share(places: Sequence[Place], members: Sequence[str], own: str) -> list[Place]:
        ring: dict[int, str] = {}
        for member, times in Counter(sorted(members)).items():
            ring |= {_hash_of(f"{member}-{number}"): member for number in range(virtual_nodes * times)}
        hashes = sorted(ring)
        if own not in members or not hashes:
            return []
        at = [(place, bisect_left(hashes, _hash_of(_java_text(place)))) for place in sorted(places)]
        return [place for place, index in at if ring[hashes[index % len(hashes)]] == own]

    return share


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """MACHINE_ROOM: only queues of brokers named ROOM@NAME of these rooms are allocated.

    Neighbours are allocated to one member, and the queues that remain to the first members.
    """
    if isinstance(rooms, str):
        raise ClientError(f"rooms is the text {rooms!r}; it must be a collection of names")

    def share(places: Sequence[Place], members: Sequence[str], own: str) -> list[Place]:
        if own not in members:
            return []
        near = [place for place in sorted(places) if _room_of(place.broker) in rooms]
        index, count = sorted(members).index(own), len(near) // len(members)
        rest = near[count * len(members) :]
        return near[index * count : (index + 1) * count] + rest[index : index + 1]

    return share


def by_config(queues: Sequence[Place]) -> Strategy:
    """CONFIG: this member takes the given queues of the topic, whatever the other members take."""

    def share(places: Sequence[Place], members: Sequence[str], own: str) -> list[Place]:
        topics = {place.topic for place in places}
        return [queue for queue in queues if queue.topic in topics]

    return share


def by_nearby_room(
    inner: Strategy, room_of_queue: Callable[[Place], str], room_of_member: Callable[[str], str]
) -> Strategy:
    """MACHINE_ROOM_NEARBY: `inner` allocates a room's queues to the members in it, else to all members.

    Its share raises ClientError for a queue or a member without a room.
    """

    def share(places: Sequence[Place], members: Sequence[str], own: str) -> list[Place]:
        if own not in members:
            return []
        queues: dict[str, list[Place]] = {}
        for place in sorted(places):
            queues.setdefault(_named(room_of_queue(place), place), []).append(place)
        groups: dict[str, list[str]] = {}
        for member in sorted(members):
            groups.setdefault(_named(room_of_member(member), member), []).append(member)
        here = room_of_member(own)
        shares = inner(queues.pop(here, []), groups[here], own)
        for room in sorted(queues.keys() - groups.keys()):
            shares = shares + inner(queues[room], members, own)
        return shares

    return share


_STRATEGIES: dict[str, Callable[..., Strategy]] = {
    "AVG": lambda: share_of,
    "AVG_BY_CIRCLE": lambda: share_by_circle,
    "CONSISTENT_HASH": by_consistent_hash,
    "MACHINE_ROOM": by_machine_room,
    "CONFIG": by_config,
    "MACHINE_ROOM_NEARBY": by_nearby_room,
}


def _named(room: str, of: Place | str) -> str:
    if not room:
        raise ClientError(f"{of!r} has no machine room")
    return room


def _room_of(broker: str) -> str | None:
    """The room in a broker's name; None if the name does not have two parts, as Java's split counts them."""
    parts = broker.split(ROOM_MARK)
    while parts and not parts[-1]:
        parts.pop()
    return parts[0] if len(parts) == 2 else None


def _hash_of(text: str) -> int:
    digest = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:HASH_BYTES], "big")


def _java_text(place: Place) -> str:
    return f"MessageQueue [topic={place.topic}, brokerName={place.broker}, queueId={place.queue_id}]"
