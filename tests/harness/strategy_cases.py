"""Cases of allocating queues to members, and the shares that RocketMQ's strategies gave in them.

`RECORDED` holds one line for each case, as RocketMQ 4.9.7 and 5.3.3 both answered it. To record them again, run
`python -m tests.interop.client_rules`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.clients.cluster import Place
from engine.clients.consuming.strategies import Strategy, strategy_of

RECORDED = Path(__file__).parent.parent / "engine" / "clients" / "consuming" / "shares.jsonl"
LAYOUTS = (
    "t:broker-a:1", "t:broker-a:4", "t:broker-a:12", "t:broker-b:3,t:broker-a:3", "t:broker-b:8,t:broker-a:8,t:c:1",
    "%RETRY%g:broker-a:1", "t:east@b1:4,t:west@b2:4,t:north@b3:3", "t:east@b1:5,t:west@b2:1,t:@c:2,t:a@b@:2,t:east@:1",
)  # fmt: skip
MEMBERS = (
    "a", "b,a", "10.0.0.1@7,10.0.0.2@9,10.0.0.10@8", "east-1,east-2,west-1", "m3,m1,m2,m10,m20", "a,a,b",
    ",".join(f"192.168.7.{number}@4711#{number * 977}" for number in range(13)),
)  # fmt: skip
STRATEGIES = (
    ("AVG", ""), ("AVG_BY_CIRCLE", ""), ("CONSISTENT_HASH", "10"), ("CONSISTENT_HASH", "1"), ("CONSISTENT_HASH", "0"),
    ("MACHINE_ROOM", "east,north"), ("MACHINE_ROOM", "a,,west"), ("CONFIG", "1"), ("CONFIG", "3"),
    ("MACHINE_ROOM_NEARBY", "AVG"), ("MACHINE_ROOM_NEARBY", "CONSISTENT_HASH"),
)  # fmt: skip


class Case(NamedTuple):
    """A strategy with its option, the queues as TOPIC:BROKER:NUMBER, and the members."""

    strategy: str
    option: str
    queues: str
    members: str

    @property
    def places(self) -> list[Place]:
        """The queues, sorted."""
        parts = [part.split(":") for part in self.queues.split(",")]
        return sorted(Place(topic, broker, number) for topic, broker, count in parts for number in range(int(count)))

    def shares(self) -> list[list[int]]:
        """Each member's queues by their indexes, as this project's strategy allocates them."""
        strategy, places, members = self._strategy(), self.places, self.members.split(",")
        return [[places.index(place) for place in strategy(places, members, own)] for own in sorted(members)]

    def _strategy(self) -> Strategy:
        if self.strategy == "CONSISTENT_HASH":
            return strategy_of(self.strategy, virtual_nodes=int(self.option))
        if self.strategy == "MACHINE_ROOM":
            return strategy_of(self.strategy, rooms=self.option.split(","))
        if self.strategy == "CONFIG":
            return strategy_of(self.strategy, queues=self.places[:: int(self.option)])
        if self.strategy == "MACHINE_ROOM_NEARBY":
            inner = strategy_of(self.option)
            return strategy_of(self.strategy, inner=inner, room_of_queue=_broker_room, room_of_member=_member_room)
        return strategy_of(self.strategy)


def _broker_room(place: Place) -> str:
    return place.broker.partition("@")[0]


def _member_room(member: str) -> str:
    return member.partition("-")[0]


def cases() -> Iterator[Case]:
    """Yield every strategy with every layout and all members; a nearby room needs brokers that have a room."""
    for strategy, option in STRATEGIES:
        for queues in LAYOUTS:
            if strategy == "MACHINE_ROOM_NEARBY" and ":@" in queues:
                continue
            yield from (Case(strategy, option, queues, members) for members in MEMBERS)


def recorded() -> Iterator[tuple[Case, list[list[int]]]]:
    """Yield each recorded case, and the shares that Java's strategy gave."""
    for line in RECORDED.read_text().splitlines():
        *case, shares = json.loads(line)
        yield Case(*case), shares
