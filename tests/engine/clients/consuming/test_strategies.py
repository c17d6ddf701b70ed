"""Strategies that allocate queues: RocketMQ's own shares, every queue allocated once, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from engine.clients.cluster import Place
from engine.clients.consuming.strategies import share_by_circle, share_of, strategy_of
from engine.clients.names import ClientError
from tests.harness.strategy_cases import cases, recorded

PLACES = [Place("t", "b", number) for number in range(5)]


def test_every_share_is_the_one_that_rocketmq_recorded() -> None:
    shares = list(recorded())
    assert [case for case, _ in shares] == list(cases())
    assert [case for case, shares_of_java in shares if case.shares() != shares_of_java] == []


@pytest.mark.parametrize(("queues", "members"), [(8, 3), (3, 8), (4, 4), (0, 2)])
@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE"])
def test_members_share_all_queues_equally(name: str, queues: int, members: int) -> None:
    places, names = [Place("t", "b", number) for number in range(queues)], [f"m{number}" for number in range(members)]
    shares = [strategy_of(name)(places, names, own) for own in names]
    assert sorted(place for share in shares for place in share) == places
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_member_that_leaves_moves_only_its_own_queues_on_the_ring() -> None:
    places, strategy = [Place("t", "b", number) for number in range(64)], strategy_of("CONSISTENT_HASH")
    for own in ("a", "b"):
        assert set(strategy(places, ["a", "b", "c"], own)) <= set(strategy(places, ["a", "b"], own))


@pytest.mark.parametrize("order", [PLACES, PLACES[::-1]])
def test_the_order_in_which_queues_and_members_are_named_does_not_matter(order: list[Place]) -> None:
    assert share_of(order, ["b", "a"], "a") == PLACES[:3]
    assert share_by_circle(order, ["b", "a"], "a") == PLACES[::2]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AVG", {}), ("AVG_BY_CIRCLE", {}), ("CONSISTENT_HASH", {}), ("MACHINE_ROOM", {"rooms": ["b"]}),
        ("MACHINE_ROOM_NEARBY", {"inner": share_of, "room_of_queue": str, "room_of_member": str}),
    ],
)  # fmt: skip
def test_a_program_outside_the_group_gets_no_queue(name: str, options: dict[str, Any]) -> None:
    assert strategy_of(name, **options)(PLACES, ["a", "b"], "stranger") == []


def test_a_configured_queue_of_another_topic_is_not_allocated() -> None:
    strategy = strategy_of("CONFIG", queues=[Place("t", "b", 3), Place("other", "b", 0)])
    assert strategy(PLACES, ["a"], "a") == [Place("t", "b", 3)]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("AVERAGE", {}, "strategy 'AVERAGE' is unknown; the strategies are AVG, AVG_BY_CIRCLE, CONFIG"),
        ("AVG", {"rooms": ["east"]}, "strategy AVG: .*unexpected keyword argument 'rooms'"),
        ("CONFIG", {}, "strategy CONFIG: .*missing 1 required positional argument: 'queues'"),
        ("CONSISTENT_HASH", {"virtual_nodes": -1}, "virtual_nodes is -1; it must be at least 0"),
        ("MACHINE_ROOM", {"rooms": "east"}, "rooms is the text 'east'; it must be a collection of names"),
    ],
)
def test_an_unknown_strategy_and_wrong_options_are_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ClientError, match=words):
        strategy_of(name, **options)


def test_a_member_without_a_room_is_refused() -> None:
    strategy = strategy_of(
        "MACHINE_ROOM_NEARBY", inner=share_of, room_of_queue=lambda place: "east", room_of_member=lambda member: ""
    )
    with pytest.raises(ClientError, match="'a' has no machine room"):
        strategy(PLACES, ["a"], "a")
