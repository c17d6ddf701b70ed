"""What the transactions role asks the clients role: answered once, by what was asked, whoever died meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.remoting.links import exchange
from engine.remoting.links.exchange import Bells, Json, Kind, Message, Pipe
from engine.services.transactions import ClientsLink

FRONTS = 1


@pytest.fixture
def bells(region_dir: Path) -> Iterator[Bells]:
    exchange.create(region_dir, FRONTS)
    bells = Bells.make(FRONTS)
    yield bells
    bells.close()


def asked(pipe: Pipe) -> list[Message]:
    """The questions that have come to the clients role."""
    return [message for message in pipe.receive() if message.kind is Kind.QUESTION]


def test_an_answer_to_a_process_before_is_not_taken_for_ones_own(region_dir: Path, bells: Bells) -> None:
    clients, answers = Pipe(region_dir, FRONTS, is_front=False, bells=bells), list[Json]()
    dead = ClientsLink(region_dir, FRONTS, bells, answers.append)
    assert dead.ask("find_producer", {"group": "a"}, answers.append)
    (of_dead,) = asked(clients)
    dead.close()
    link = ClientsLink(region_dir, FRONTS, bells, answers.append)
    assert link.ask("find_producer", {"group": "b"}, answers.append)
    (own,) = asked(clients)
    clients.send(Kind.ANSWER, of_dead.number, {"channel": "of a"})
    clients.send(Kind.ANSWER, own.number, {"channel": "of b"})
    link.receive()
    assert answers == [{"channel": "of b"}]
    clients.close()
    link.close()


def test_what_a_clients_role_that_died_has_not_answered_is_asked_again(region_dir: Path, bells: Bells) -> None:
    clients, answers = Pipe(region_dir, FRONTS, is_front=False, bells=bells), list[Json]()
    link = ClientsLink(region_dir, FRONTS, bells, answers.append)
    assert link.ask("transaction_offsets", {}, answers.append)
    (lost,) = asked(clients)
    clients.send(Kind.HELLO)
    link.receive()
    (again,) = asked(clients)
    assert again == lost
    clients.send(Kind.ANSWER, again.number, {"half": 7})
    clients.send(Kind.ANSWER, again.number, {"half": 8})
    link.receive()
    assert answers == [{"half": 7}]
    clients.close()
    link.close()
