"""A RemoteProducer at brokers that are played: what it asks, what it tries again, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from engine.clients.cluster import Place
from engine.clients.loop_thread import ClientClosed, ForeignClient
from engine.clients.names import ClientError
from engine.clients.sending.producer import ProducerSettings, RemoteProducer
from engine.clients.sending.publishing import RemoteSendResult
from engine.clients.sending.transactions import CheckThread
from engine.errors import EngineError, MessageIllegal
from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.sockets.client import PeerRefused, PeerUnreachable
from store.errors import StoreError
from store.message.properties import PRODUCER_GROUP, TRANSACTION_PREPARED, UNIQ_KEY, format, parse_text
from store.message.record import encode
from tests.harness.conditions import SECONDS, await_that
from tests.harness.played_broker import Answer, PlayedBroker, route, said, stored

Refusals = dict[str, int]  # by broker: the code with which it answers sends


class Played:
    """A name server and two brokers, a and b."""

    def __init__(self, stack: ExitStack) -> None:
        self.a, self.b = (stack.enter_context(PlayedBroker(self._broker(name))) for name in "ab")
        self.codes: Refusals = {}
        self.silent: set[str] = set()
        self.route: bytes | None = route(("a", self.a.address), ("b", self.b.address))
        self.names = stack.enter_context(PlayedBroker(self._name_server))

    def _broker(self, name: str) -> Answer:
        def answer(request: RemotingCommand) -> RemotingCommand | None:
            if request.code not in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
                return said(request)
            if name in self.silent:
                return None
            return stored(request, self.codes.get(name, ResponseCode.SUCCESS))

        return answer

    def _name_server(self, request: RemotingCommand) -> RemotingCommand:
        topic = (request.ext_fields or {})["topic"]
        if self.route is None or topic.startswith("unknown"):
            return said(request, ResponseCode.TOPIC_NOT_EXIST)
        return said(request, body=self.route)

    def producer(self, **options: Any) -> RemoteProducer:
        return RemoteProducer(self.names.address, **{"group": "g", "timeout": SECONDS, **options})


@pytest.fixture
def played() -> Iterator[Played]:
    with ExitStack() as stack:
        yield Played(stack)


def test_a_message_is_stored_and_its_place_returned(played: Played) -> None:
    with played.producer() as producer:
        result = producer.send("orders", "body", tags="t")
    assert result.status is PutMessageStatus.PUT_OK
    assert (result.topic, result.queue_offset, result.physical_offset) == ("orders", 7, 1234)
    (request,) = [*played.a.sends(), *played.b.sends()]
    properties = parse_text((request.ext_fields or {})["i"])
    assert (bytes(request.body), properties["TAGS"], properties[UNIQ_KEY]) == (b"body", "t", result.message_id)


def test_messages_take_all_queues_of_all_brokers_in_turn(played: Played) -> None:
    with played.producer() as producer:
        places = [(result.broker, result.queue_id) for result in (producer.send("orders", b"x") for _ in range(8))]
    assert sorted(places) == sorted([("a", 0), ("a", 1), ("b", 0), ("b", 1)] * 2)


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE])
def test_a_refused_message_is_stored_by_another_broker(played: Played, code: int) -> None:
    played.codes["a"] = code
    with played.producer() as producer:
        assert {producer.send("orders", b"x").broker for _ in range(4)} == {"b"}
    assert played.a.sends(), "it was asked first, sometimes"


def test_an_unreachable_broker_is_left_for_another(played: Played) -> None:
    played.route = route(("a", "127.0.0.1:1"), ("b", played.b.address))
    with played.producer() as producer:
        assert {producer.send("orders", b"x").broker for _ in range(4)} == {"b"}


def test_a_refusal_that_is_final_is_raised_with_its_code(played: Played) -> None:
    played.codes |= {"a": ResponseCode.MESSAGE_ILLEGAL, "b": ResponseCode.MESSAGE_ILLEGAL}
    with played.producer() as producer, pytest.raises(PeerRefused, match="code 13: as the test wants") as raised:
        producer.send("orders", b"x")
    assert not raised.value.may_be_appended
    assert len([*played.a.sends(), *played.b.sends()]) == 1


def test_the_number_of_tries_has_a_limit(played: Played) -> None:
    played.codes |= {"a": ResponseCode.SYSTEM_BUSY, "b": ResponseCode.SYSTEM_BUSY}
    for retries in (0, 2):
        before = len([*played.a.sends(), *played.b.sends()])
        with played.producer(settings=ProducerSettings(retries=retries)) as producer, pytest.raises(PeerRefused):
            producer.send("orders", b"x")
        assert len([*played.a.sends(), *played.b.sends()]) - before == 1 + retries


def test_one_deadline_covers_all_tries(played: Played) -> None:
    played.silent = {"a", "b"}
    with played.producer() as producer:
        assert producer.queues("orders")
        with pytest.raises(PeerUnreachable, match="no answer within 0") as raised:
            producer.send("orders", b"x", timeout=0.2)
    assert raised.value.may_be_appended
    assert len([*played.a.sends(), *played.b.sends()]) <= 1, "the first broker took all of the time"


def test_a_status_that_is_not_ok_is_returned_or_tried_again(played: Played) -> None:
    played.codes["a"] = ResponseCode.FLUSH_SLAVE_TIMEOUT
    with played.producer() as producer:
        statuses = {producer.send("orders", b"x").status for _ in range(4)}
    assert statuses == {PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_SLAVE_TIMEOUT}
    with played.producer(settings=ProducerSettings(retry_unstored=True)) as producer:
        assert {producer.send("orders", b"x").status for _ in range(4)} == {PutMessageStatus.PUT_OK}


def test_a_slow_broker_is_avoided_if_that_is_set(played: Played) -> None:
    played.codes["a"] = ResponseCode.SYSTEM_BUSY
    with played.producer(settings=ProducerSettings(avoid_slow_brokers=True)) as producer:
        for _ in range(8):
            assert producer.send("orders", b"x").broker == "b"
    assert len(played.a.sends()) <= 1, "a failure avoids it for minutes"


def test_messages_of_a_key_go_to_one_queue(played: Played) -> None:
    with played.producer() as producer:
        for key in ("customer-7", "customer-8", 9):
            assert len({producer.send("orders", b"x", shard_by=key)[4:6] for _ in range(3)}) == 1
        places = {producer.send("orders", b"x", shard_by=key)[4:6] for key in range(4)}
    assert len(places) == 4, "different keys go to different queues"


def test_a_message_of_a_key_is_not_sent_to_another_queue(played: Played) -> None:
    played.codes |= {"a": ResponseCode.SYSTEM_BUSY, "b": ResponseCode.SYSTEM_BUSY}
    with played.producer() as producer, pytest.raises(PeerRefused):
        producer.send("orders", b"x", shard_by="customer-7")
    assert len([*played.a.sends(), *played.b.sends()]) == 1


def test_a_queue_can_be_named(played: Played) -> None:
    with played.producer() as producer:
        queues = producer.queues("orders")
        assert queues == [Place("orders", broker, number) for broker in "ab" for number in range(2)]
        assert {producer.send("orders", b"x", queue_id=queues[3])[4:6] for _ in range(3)} == {("b", 1)}
        assert {producer.send("orders", b"x", queue_id=1)[4:6] for _ in range(4)} == {("a", 1), ("b", 1)}
        with pytest.raises(MessageIllegal, match="queue id 2"):
            producer.send("orders", b"x", queue_id=2)


def test_a_route_that_changed_is_followed_after_a_failure(played: Played) -> None:
    with played.producer() as producer:
        played.route = route(("a", played.a.address))
        assert producer.send("orders", b"x").broker == "a"
        played.codes["a"] = ResponseCode.NO_PERMISSION
        played.route = route(("b", played.b.address))
        assert producer.send("orders", b"x").broker == "b"


def test_a_route_that_the_name_server_lost_is_kept(played: Played) -> None:
    with played.producer() as producer:
        producer.send("orders", b"x")
        played.route, played.codes["a"] = None, ResponseCode.SYSTEM_BUSY
        assert {producer.send("orders", b"x").broker for _ in range(4)} == {"b"}


def test_a_topic_that_nobody_knows_is_made_where_the_template_is(played: Played) -> None:
    with played.producer() as producer:
        assert producer.send("unknown", b"x").topic == "unknown"
        played.route = None
        with pytest.raises(ClientError, match="no broker creates topics automatically"):
            producer.send("unknown-2", b"x")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"brokerDatas": [{}]}', b'{"queueDatas": [{"brokerName": "a", "perm": "x"}]}']
)
def test_a_malformed_route_is_an_error_of_one_line(played: Played, body: bytes) -> None:
    played.route = body
    with played.producer() as producer, pytest.raises((ClientError, StoreError)) as raised:
        producer.send("orders", b"x")
    assert "\n" not in str(raised.value)
    assert not [*played.a.sends(), *played.b.sends()]


def test_threads_share_a_producer(played: Played) -> None:
    with played.producer() as producer, ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda number: producer.send("orders", f"{number}"), range(200)))
    assert len({result.message_id for result in results}) == 200
    bodies = {bytes(one.body) for broker in (played.a, played.b) for one in broker.sends()}
    assert bodies == {b"%d" % number for number in range(200)}


def test_futures_have_results_and_errors(played: Played) -> None:
    with played.producer() as producer:
        futures = [producer.send_async("orders", f"{number}") for number in range(100)]
        assert {future.result(SECONDS).status for future in futures} == {PutMessageStatus.PUT_OK}
        played.codes |= {"a": ResponseCode.MESSAGE_ILLEGAL, "b": ResponseCode.MESSAGE_ILLEGAL}
        with pytest.raises(PeerRefused):
            producer.send_async("orders", b"x").result(SECONDS)
        with pytest.raises(MessageIllegal):
            producer.send_async("orders", b"")


def test_a_callback_of_a_future_must_not_call_the_client(played: Played) -> None:
    raised: Future[BaseException | None] = Future()

    def callback(_future: Future[RemoteSendResult]) -> None:
        try:
            producer.send("orders", b"x")
        except RuntimeError as error:
            raised.set_result(error)

    with played.producer() as producer:
        producer.send_async("orders", b"x").add_done_callback(callback)
        assert "must not wait for the client" in str(raised.result(SECONDS))


def test_the_number_of_unanswered_messages_has_a_limit(played: Played) -> None:
    played.silent = {"a", "b"}
    with played.producer(settings=ProducerSettings(pending_max=2)) as producer:
        futures = [producer.send_async("orders", b"x") for _ in range(2)]
        with pytest.raises(EngineError, match=r"2 messages .* are not answered yet"):
            producer.send_async("orders", b"x", timeout=0)
        assert [future.cancel() for future in futures] == [True, True]
        played.silent = set()
        assert producer.send_async("orders", b"x").result(SECONDS).queue_offset == 7


def test_a_coroutine_of_another_loop_can_send(played: Played) -> None:
    async def send(producer: RemoteProducer) -> list[RemoteSendResult]:
        return await asyncio.gather(*(producer.send_awaited("orders", f"{number}") for number in range(20)))

    with played.producer() as producer:
        assert len({result.message_id for result in asyncio.run(send(producer))}) == 20


def test_a_coroutine_waits_for_room(played: Played) -> None:
    async def send(producer: RemoteProducer) -> list[RemoteSendResult | BaseException]:
        first = asyncio.create_task(producer.send_awaited("orders", "first"))
        await asyncio.to_thread(await_that, lambda: [*played.a.sends(), *played.b.sends()], "the first arrives")
        cancelled, third = (asyncio.create_task(producer.send_awaited("orders", body)) for body in ("2", "3"))
        await asyncio.to_thread(lambda: None)  # both have begun to wait
        cancelled.cancel()
        played.silent = set()
        first.cancel()
        return await asyncio.gather(first, cancelled, third, return_exceptions=True)

    played.silent = {"a", "b"}
    with played.producer(settings=ProducerSettings(pending_max=1)) as producer:
        first, cancelled, third = asyncio.run(send(producer))
        assert isinstance(first, asyncio.CancelledError) and isinstance(cancelled, asyncio.CancelledError)
        assert isinstance(third, RemoteSendResult)
        producer.flush()
        assert producer.send("orders", b"x").queue_offset == 7, "the room of all of them was given back"


def test_nobody_answers_a_one_way_message(played: Played) -> None:
    with played.producer() as producer:
        assert producer.send_one_way("orders", b"x") is None  # type: ignore[func-returns-value]
        await_that(lambda: [*played.a.sends(), *played.b.sends()], "it arrives")
    (request,) = [*played.a.sends(), *played.b.sends()]
    assert request.is_oneway and bytes(request.body) == b"x"


def test_a_batch_is_one_request(played: Played) -> None:
    with played.producer() as producer:
        result = producer.send_batch("orders", [b"1", b"2", b"3"], tags="t")
    assert (result.count, list(result.queue_offsets), len(set(result.message_ids))) == (3, [7, 8, 9], 3)
    (request,) = [*played.a.sends(), *played.b.sends()]
    assert request.code == RequestCode.SEND_BATCH_MESSAGE


def test_brokers_hear_of_the_group_and_of_its_end(played: Played) -> None:
    with played.producer() as producer:
        producer.send("orders", b"x")
        for broker in (played.a, played.b):
            await_that(lambda: RequestCode.HEART_BEAT in [one.code for one in broker.asked], "a heartbeat")  # noqa: B023
    beat = next(one for one in played.a.asked if one.code == RequestCode.HEART_BEAT)
    shown = json.loads(bytes(beat.body))
    assert (shown["producerDataSet"], shown["consumerDataSet"]) == ([{"groupName": "g"}], [])
    for broker in (played.a, played.b):
        fields = broker.asked[-1].ext_fields or {}
        assert broker.asked[-1].code == RequestCode.UNREGISTER_CLIENT
        assert (fields["producerGroup"], fields["clientID"]) == ("g", shown["clientID"])


def test_heartbeats_and_looks_at_routes_are_repeated(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.clients.sending.sends.PERIOD_SECONDS", 0.01)
    played.route = route(("a", played.a.address))
    with played.producer() as producer:
        producer.send("orders", b"x")
        asked = played.a.asked
        await_that(lambda: [one.code for one in asked].count(RequestCode.HEART_BEAT) >= 3, "heartbeats are repeated")
        played.route = route(("b", played.b.address))
        await_that(lambda: {one.broker for one in producer.queues("orders")} == {"b"}, "the new route is known")
        assert producer.send("orders", b"x").broker == "b"


# transactions


def ends(*brokers: PlayedBroker) -> list[dict[str, str]]:
    """The ends of transactions that brokers heard of."""
    asked = [request for broker in brokers for request in list(broker.asked)]
    return [dict(one.ext_fields or {}) for one in asked if one.code == RequestCode.END_TRANSACTION]


@pytest.mark.parametrize(("decision", "expected"), [(True, "8"), (False, "12"), (None, "0")])
def test_local_work_decides_about_a_transaction(played: Played, decision: bool | None, expected: str) -> None:
    with played.producer(on_check=lambda _message: None) as producer:
        result = producer.send_in_transaction("orders", b"x", lambda half: decision if half.message_id else False)
        await_that(lambda: ends(played.a, played.b), "its end arrives")
    assert (result.decision, result.is_ended, result.half.status) == (decision, True, PutMessageStatus.PUT_OK)
    (fields,) = ends(played.a, played.b)
    assert (fields["commitOrRollback"], fields["commitLogOffset"]) == (expected, "1234")
    assert (fields["tranStateTableOffset"], fields["msgId"]) == ("7", result.half.message_id)
    (request,) = [*played.a.sends(), *played.b.sends()]
    properties = parse_text((request.ext_fields or {})["i"])
    assert (properties[TRANSACTION_PREPARED], properties[PRODUCER_GROUP]) == ("true", "g")


def test_an_error_of_local_work_leaves_the_transaction_open(played: Played) -> None:
    def work(_half: RemoteSendResult) -> bool:
        raise ArithmeticError("the account is empty")

    with played.producer(on_check=lambda _message: None) as producer:
        with pytest.raises(ArithmeticError):
            producer.send_in_transaction("orders", b"x", work)
        await_that(lambda: ends(played.a, played.b), "its end arrives")
    assert ends(played.a, played.b)[0]["commitOrRollback"] == "0"


def test_local_work_that_decides_nothing_is_an_error(played: Played) -> None:
    with played.producer(on_check=lambda _message: None) as producer:
        with pytest.raises(MessageIllegal, match="decision: it is True, False or None, not str"):
            producer.send_in_transaction("orders", b"x", lambda _half: "yes")  # type: ignore[arg-type, return-value]
        await_that(lambda: ends(played.a, played.b), "its end arrives")
    assert ends(played.a, played.b)[0]["commitOrRollback"] == "0"


def test_a_half_message_that_is_not_safe_is_rolled_back_without_local_work(played: Played) -> None:
    played.codes |= {"a": ResponseCode.FLUSH_SLAVE_TIMEOUT, "b": ResponseCode.FLUSH_SLAVE_TIMEOUT}
    with played.producer(on_check=lambda _message: None) as producer:
        result = producer.send_in_transaction("orders", b"x", lambda _half: pytest.fail("it was done"))
    assert (result.decision, ends(played.a, played.b)[0]["commitOrRollback"]) == (False, "12")


def test_a_transaction_needs_a_callback_that_brokers_can_ask(played: Played) -> None:
    with played.producer() as producer, pytest.raises(EngineError, match="a transaction needs on_check"):
        producer.send_in_transaction("orders", b"x", lambda _half: True)
    assert not [*played.a.sends(), *played.b.sends()]


def check(group: str, body: bytes | None = None) -> RemotingCommand:
    fields = {"tranStateTableOffset": "5", "commitLogOffset": "4096", "transactionId": "TX", "msgId": "x"}
    record = encode(topic="orders", body=b"half", properties=format({PRODUCER_GROUP: group, UNIQ_KEY: "ID"}))
    return RemotingCommand(
        RequestCode.CHECK_TRANSACTION_STATE, 1, 2, ext_fields=fields, body=record if body is None else body
    )


@pytest.mark.parametrize(
    ("decide", "expected"), [(lambda _m: True, "8"), (lambda _m: False, "12"), (lambda _m: None, "0"),
                             (lambda _m: 5, "0"), (lambda _m: 1 // 0, "0")],
)  # fmt: skip
def test_a_check_is_answered_with_what_the_callback_decides(
    played: Played, decide: Callable[[Any], Any], expected: str
) -> None:
    seen: list[tuple[bytes, str]] = []

    def on_check(message: Any) -> Any:
        seen.append((bytes(message.body), threading.current_thread().name))
        return decide(message)

    with played.producer(on_check=on_check) as producer:
        producer.send("orders", b"x", queue_id=Place("orders", "a", 0))
        played.a.push(check("another group"))
        played.a.push(check("g", b"nonsense"))
        played.a.push(check("g"))
        await_that(lambda: ends(played.a), "the answer arrives")
    assert seen == [(b"half", "on_check")]
    (fields,) = ends(played.a)
    assert (fields["commitOrRollback"], fields["fromTransactionCheck"]) == (expected, "true")
    assert (fields["tranStateTableOffset"], fields["commitLogOffset"], fields["transactionId"]) == ("5", "4096", "TX")


def test_the_number_of_checks_that_wait_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.clients.sending.transactions.CHECKS_MAX", 2)
    checks, go_on, begun = CheckThread(), threading.Event(), threading.Event()

    def waits() -> None:
        begun.set()
        go_on.wait(SECONDS)

    assert checks.submit(waits)
    assert begun.wait(SECONDS)
    assert [checks.submit(lambda: None) for _ in range(3)] == [True, True, False]
    go_on.set()
    checks.end()


# its end


def test_close_waits_for_what_is_under_way(played: Played) -> None:
    producer = played.producer()
    futures = [producer.send_async("orders", b"x") for _ in range(50)]
    producer.close()
    assert all(future.done() and future.result().queue_offset == 7 for future in futures)
    producer.close()
    for call in (lambda: producer.send("orders", b"x"), producer.flush, lambda: producer.queues("orders")):
        with pytest.raises(ClientClosed):
            call()


def test_close_cancels_what_has_no_answer_at_its_timeout(played: Played) -> None:
    played.silent = {"a", "b"}
    producer = played.producer()
    future = producer.send_async("orders", b"x")
    producer.close(timeout=0)
    with pytest.raises(CancelledError):
        future.result(SECONDS)


def test_flush_waits_for_answers(played: Played) -> None:
    with played.producer() as producer:
        futures = [producer.send_async("orders", b"x") for _ in range(20)]
        producer.flush()
        assert all(future.done() for future in futures)
        played.silent = {"a", "b"}
        future = producer.send_async("orders", b"x")
        with pytest.raises(EngineError, match="1 messages of group g have no answer yet"):
            producer.flush(timeout=0)
        future.cancel()


def test_a_dropped_producer_ends_its_loop(played: Played) -> None:
    producer = played.producer()
    producer.send("orders", b"x")
    thread, reference = producer._loop._thread, weakref.ref(producer)
    del producer
    gc.collect()
    assert reference() is None
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_a_child_is_refused_every_call(played: Played) -> None:
    with played.producer() as producer:
        producer.send("orders", b"x")
        child = os.fork()
        if not child:
            code = 1
            try:
                for call in (
                    lambda: producer.send("orders", b"x"), lambda: producer.send_async("orders", b"x"),
                    lambda: producer.send_one_way("orders", b"x"), lambda: producer.send_batch("orders", [b"x"]),
                    lambda: producer.send_half("orders", b"x"), lambda: producer.queues("orders"), producer.flush,
                ):  # fmt: skip
                    with pytest.raises(ForeignClient):
                        call()
                producer.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert producer.send("orders", b"x").queue_offset == 7, "the parent's goes on"


def test_it_cannot_be_pickled(played: Played) -> None:
    with played.producer() as producer, pytest.raises(ForeignClient):
        pickle.dumps(producer)


@pytest.mark.parametrize("timeout", [-1, "3", True, 1e10])
def test_a_wrong_timeout_is_refused(played: Played, timeout: Any) -> None:
    with pytest.raises(MessageIllegal, match="a number of seconds"):
        played.producer(timeout=timeout)
    with played.producer() as producer, pytest.raises(MessageIllegal, match="a number of seconds"):
        producer.send("orders", b"x", timeout=timeout)


def test_it_needs_servers_and_a_valid_group() -> None:
    with pytest.raises(ClientError, match="no broker given"):
        RemoteProducer(group="g")
    with pytest.raises(ClientError, match="not a valid group name"):
        RemoteProducer("127.0.0.1:9876", group="a group")
