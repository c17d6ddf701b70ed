"""A slave's questions to its master in virtual time, and what becomes of the answers; 5.x's timer wheel among them."""

from __future__ import annotations

import pytest

from engine.protocol.broker.requests import BrokerRequests, ShownFacts
from engine.protocol.broker.slave_synchronize import (
    CHECKPOINT_MS,
    FIRST_MS,
    PERIOD_MS,
    RETRY_MS,
    Refused,
    SlaveSynchronize,
    is_address,
)
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.tables.defaults import Identity
from engine.protocol.tables.metadata import Metadata
from engine.protocol.tables.timer_state import FILE_BYTES, TimerCheckpoint
from store.compat import LINES
from store.errors import StoreError
from store.names import REQUEST_MODES, TIMER_CHECKPOINT, TIMER_METRICS
from store.tables.steps import at_once
from store.tables.tables import DataVersion

MASTER = "10.0.0.1:10911"
FACTS = ShownFacts(dict, dict, dict)


def codes_at(asking: SlaveSynchronize, now_ms: int, master: str | None = MASTER) -> list[tuple[int, str]]:
    return [(question.request.code, question.address) for question in asking.due(master, now_ms)]


def test_a_4_9_slave_asks_for_four_tables_the_topics_at_the_port_two_below() -> None:
    asking = SlaveSynchronize("4.9", 0, has_timers=True)
    assert codes_at(asking, FIRST_MS - 1) == codes_at(asking, FIRST_MS, None) == []
    first = [(21, "10.0.0.1:10909"), (43, MASTER), (45, MASTER), (201, MASTER)]
    assert codes_at(asking, FIRST_MS) == first
    assert codes_at(asking, FIRST_MS + PERIOD_MS["4.9"] - 1) == []
    assert codes_at(asking, FIRST_MS + PERIOD_MS["4.9"]) == first


def test_what_was_not_answered_is_asked_again_soon_and_alone() -> None:
    asking = SlaveSynchronize("5", 0)
    codes_at(asking, FIRST_MS)
    asking.failed(21, FIRST_MS + 10)
    assert codes_at(asking, FIRST_MS + 9 + RETRY_MS) == []
    assert codes_at(asking, FIRST_MS + 10 + RETRY_MS) == [(21, "10.0.0.1:10909")]
    assert codes_at(asking, FIRST_MS + 20 + 2 * RETRY_MS) == []
    asking.failed(21, FIRST_MS + PERIOD_MS["5"] - 1)
    assert [code for code, _at in codes_at(asking, FIRST_MS + PERIOD_MS["5"])] == [21, 43, 45, 201, 402]
    assert codes_at(asking, FIRST_MS + PERIOD_MS["5"] + RETRY_MS) == []


def test_a_refusal_says_so_and_changes_nothing() -> None:
    slave = Metadata(Identity(LINES["5"], "c", "a"), {}, 0)
    with pytest.raises(Refused, match="request 402 is refused with code 3: not here"):
        at_once(SlaveSynchronize.take(slave, 402, RemotingCommand(3, flag=1, remark="not here")))
    assert not slave.changed


@pytest.mark.parametrize("text", [None, "", "host", "host:", ":1", "host:2", "host:65536", "host:x", "host:-5", "h:²"])
def test_what_no_name_server_may_call_an_address(text: str | None) -> None:
    assert not is_address(text)
    assert is_address("host:10911")
    assert is_address("[::1]:3")


def test_a_5_x_slave_asks_for_modes_and_timers_too_and_for_the_wheels_place_more_often() -> None:
    asking = SlaveSynchronize("5", 0, has_timers=True)
    assert [code for code, _at in codes_at(asking, FIRST_MS)] == [21, 43, 45, 201, 402, 61, 60]
    assert codes_at(asking, FIRST_MS + CHECKPOINT_MS) == [(60, "10.0.0.1:10909")]
    without = SlaveSynchronize("5", 0, has_timers=False)
    assert [code for code, _at in codes_at(without, FIRST_MS)] == [21, 43, 45, 201, 402]


def test_a_5_x_slave_has_its_masters_tables_afterwards() -> None:
    identity = Identity(LINES["5"], "c", "a")
    files = {
        TIMER_METRICS: {
            "dataVersion": {"counter": 4, "timestamp": 7, "stateVersion": 0},
            "timingCount": {"t": {"count": 3, "timeStamp": 9}},
        },
        REQUEST_MODES: {"messageRequestModeMap": {"t": {"g": {"mode": "POP"}}}},
    }
    master, slave = Metadata(identity, files, 5), Metadata(identity, {}, 9)
    master.timer_checkpoint = TimerCheckpoint(11, 12, 13, 14, DataVersion(2, 3, 1))
    requests = BrokerRequests("5", master, FACTS, is_slave=False)
    for question in SlaveSynchronize("5", 0, has_timers=True).due(MASTER, FIRST_MS):
        answer = requests.answer(question.request, 1, 0)
        assert answer is not None and answer.code == 0
        at_once(SlaveSynchronize.take(slave, question.request.code, answer))
        assert not at_once(SlaveSynchronize.take(slave, question.request.code, answer)), (
            "the same again changes nothing"
        )
    assert slave.value(TIMER_METRICS) == files[TIMER_METRICS]
    assert slave.value(REQUEST_MODES) == files[REQUEST_MODES]
    assert slave.timer_checkpoint == TimerCheckpoint(11, 0, 0, 14, DataVersion(2, 3, 1)), "its own log is its own"
    assert {TIMER_METRICS, REQUEST_MODES, TIMER_CHECKPOINT} <= slave.changed


def test_a_broker_without_timers_says_so() -> None:
    metadata = Metadata(Identity(LINES["5"], "c", "a"), {}, 0)
    requests = BrokerRequests("5", metadata, FACTS, is_slave=False, has_timers=False)
    answers = [requests.answer(RemotingCommand(code), 1, 0) for code in (60, 61)]
    assert [(answer.code, answer.remark) for answer in answers if answer is not None] == [
        (1, "The checkpoint is null"),
        (1, "The timer message store is null"),
    ]


@pytest.mark.parametrize("code", [21, 43, 45, 201, 402, 61])
@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"no json", b'{"timingCount":1,"messageRequestModeMap":2,"offsetTable":3}',
        b'{"topicConfigTable":{"t":{"perm":"six"}}}',
    ],
)  # fmt: skip
def test_a_nonsensical_answer_changes_nothing(code: int, body: bytes) -> None:
    slave = Metadata(Identity(LINES["5"], "c", "a"), {}, 0)
    before = {name: slave.value(name) for name in slave.versions}
    try:
        changed = at_once(SlaveSynchronize.take(slave, code, RemotingCommand(0, flag=1, body=body)))
    except StoreError:
        changed = False
    assert changed or {name: slave.value(name) for name in slave.versions} == before
    assert not at_once(SlaveSynchronize.take(slave, 60, RemotingCommand(0, flag=1, body=b"short")))


def test_the_checkpoint_is_the_page_that_rocketmq_maps() -> None:
    checkpoint = TimerCheckpoint(1, 2, 3, 4, DataVersion(7, 6, 5))
    assert len(checkpoint.file()) == FILE_BYTES
    assert TimerCheckpoint.decode(checkpoint.file()) == TimerCheckpoint.decode(checkpoint.encode()) == checkpoint
    assert checkpoint.encode() == b"".join(number.to_bytes(8) for number in range(1, 8))
