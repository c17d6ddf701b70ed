"""To which queue a message is sent, when a send is tried again, and what an answer means."""

from __future__ import annotations

import pytest

from engine.clients.cluster import Place
from engine.clients.sending.latency import LatencyTable
from engine.clients.sending.publishing import (
    ANY_QUEUE,
    STATUSES,
    TRIED_AGAIN,
    Attempts,
    RemoteSendResult,
    Turns,
    batch_result,
    outcome_of,
    queue_number,
)
from engine.errors import EngineError, MessageIllegal
from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import RemotingCommand

PLACES = [Place("t", broker, queue_id) for broker in ("a", "b", "c") for queue_id in range(2)]
QUIET = LatencyTable(enabled=False)
OUTCOME = RemoteSendResult(PutMessageStatus.PUT_OK, "ID", "7F00000100002A9F00000000000004D2", "t", "a", 1, 7, None)


def test_queues_take_turns() -> None:
    turns = Turns(PLACES, 4)
    assert [turns.next((), QUIET, 0) for _ in range(7)] == [*PLACES[4:], *PLACES[:5]]


def test_a_try_goes_to_another_broker_than_those_that_failed() -> None:
    turns = Turns(PLACES, 0)
    assert turns.next({"a"}, QUIET, 0) == Place("t", "b", 0)
    assert turns.next({"a", "b"}, QUIET, 0) == Place("t", "c", 0)
    assert turns.next({"a", "b", "c"}, QUIET, 0) == Place("t", "c", 1), "any broker if all of them failed"


def test_a_slow_broker_is_avoided_for_a_while() -> None:
    table = LatencyTable(enabled=True)
    table.note("a", 1000, now_ms=0)
    assert {Turns(PLACES, first).next((), table, 59_999).broker for first in range(6)} == {"b", "c"}
    assert Turns(PLACES, 0).next((), table, 60_000).broker == "a"


def test_the_broker_that_is_available_first_is_taken_if_all_are_avoided() -> None:
    table = LatencyTable(enabled=True)
    for broker, latency_ms in (("a", 3000), ("b", 600), ("c", 1000)):
        table.note(broker, latency_ms, now_ms=0)
    assert Turns(PLACES, 0).next((), table, 1) == Place("t", "b", 0)
    assert Turns(PLACES, 0).next({"b"}, table, 1) == Place("t", "c", 0), "a failed try matters more"


def test_a_queue_id_names_that_queue_on_every_broker() -> None:
    turns = Turns(PLACES, 0)
    assert [turns.next((), QUIET, 0, 1) for _ in range(4)] == [Place("t", b, 1) for b in "abca"]
    with pytest.raises(MessageIllegal, match="queue id 2"):
        turns.next((), QUIET, 0, 2)
    assert Turns([Place("t", "a", ANY_QUEUE)], 0).next((), QUIET, 0, 3) == Place("t", "a", 3)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", 0), ("a", 1), ("customer-7", 2), ("é消😀", 2), ("zz-polygenelubricants", 5), (5, 5), (-5, 5),
        (-(1 << 31), 2), (1 << 31, 2), (1 << 32 | 1, 0), (-1 << 40, 4), (-3_000_000_000, 5),
    ],
)  # fmt: skip
def test_a_key_has_the_queue_that_javas_hash_code_gives(key: str | int, expected: int) -> None:
    """SelectMessageQueueByHash of 4.9.7 and of 5.3.3 returned these for six queues."""
    assert queue_number(key, 6) == expected
    assert Turns(PLACES, 3).of_key(key) == PLACES[expected]


def test_a_key_keeps_its_queue_when_its_first_message_makes_the_topic() -> None:
    unmade, made = Turns([Place("t", "a", ANY_QUEUE)], 0), Turns([Place("t", "a", number) for number in range(4)], 0)
    for key in ("a", "b", "c", "d"):
        assert unmade.of_key(key) == made.of_key(key)


@pytest.mark.parametrize("code", TRIED_AGAIN)
def test_a_refusal_that_another_broker_may_not_repeat_is_tried_again(code: int) -> None:
    attempts = Attempts(3, retries_unstored=False)
    for broker in ("a", "b"):
        attempts.refused(broker, code, EngineError(broker))
        assert not attempts.is_over
    attempts.refused("c", code, EngineError("c"))
    assert attempts.is_over and attempts.avoided == {"a", "b", "c"}
    with pytest.raises(EngineError, match="c"):
        attempts.result()


@pytest.mark.parametrize("code", [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 215])
def test_another_refusal_is_final(code: int) -> None:
    attempts = Attempts(3, retries_unstored=False)
    attempts.refused("a", code, EngineError("a"))
    assert attempts.is_over


def test_an_error_says_whether_any_try_may_be_stored() -> None:
    for first, second, expected in ((True, False, True), (False, False, False), (False, True, True)):
        attempts = Attempts(2, retries_unstored=False)
        attempts.unanswered("a", EngineError("a"), may_be_appended=first)
        attempts.unanswered("b", EngineError("b"), may_be_appended=second)
        with pytest.raises(EngineError) as raised:
            attempts.result()
        assert (attempts.is_over, raised.value.may_be_appended) == (True, expected)


def test_a_stored_message_is_sent_again_only_if_that_is_set() -> None:
    late = OUTCOME._replace(status=PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
    plain, again = Attempts(2, retries_unstored=False), Attempts(2, retries_unstored=True)
    for attempts in (plain, again):
        attempts.stored(late)
    assert plain.is_over and not again.is_over
    again.unanswered("b", EngineError("b"), may_be_appended=True)
    assert again.is_over and again.result() == late, "the message is stored, whatever the second try says"
    last = Attempts(2, retries_unstored=True)
    last.stored(late)
    last.stored(OUTCOME)
    assert last.is_over and last.result() == OUTCOME


def answer(code: int, **fields: str) -> RemotingCommand:
    return RemotingCommand(code, ext_fields=fields)


@pytest.mark.parametrize(("code", "status"), STATUSES.items())
def test_an_answer_names_the_place_of_a_stored_message(code: int, status: PutMessageStatus) -> None:
    fields = {"msgId": OUTCOME.offset_message_id, "queueId": "1", "queueOffset": "7"}
    assert outcome_of(answer(code, **fields), "ID", PLACES[0]) == OUTCOME._replace(status=status)
    with_id = outcome_of(answer(code, **fields, transactionId="TX"), "ID", PLACES[0])
    assert with_id is not None and (with_id.transaction_id, with_id.physical_offset) == ("TX", 1234)


def test_an_answer_of_a_broker_is_not_trusted() -> None:
    assert outcome_of(answer(ResponseCode.SYSTEM_BUSY), "ID", PLACES[0]) is None
    bare = outcome_of(answer(ResponseCode.SUCCESS, queueId="x", queueOffset="9" * 5000), "ID", PLACES[0])
    assert bare is not None and (bare.queue_id, bare.queue_offset, bare.physical_offset) == (-1, -1, -1)


def test_the_messages_of_a_batch_have_consecutive_offsets() -> None:
    result = batch_result(OUTCOME._replace(offset_message_id="A,B"), ["1", "2"])
    assert (result.count, list(result.queue_offsets)) == (2, [7, 8])
    assert (result.message_ids, result.offset_message_ids) == (("1", "2"), ("A", "B"))
