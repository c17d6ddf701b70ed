"""Loops, polls, threads, asyncio, forks and signals of a consumer, at a Slipstream broker."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from engine.clients.cluster import Place
from engine.clients.consuming import member
from engine.clients.consuming.consumer import Consumer
from engine.clients.consuming.received import ReceivedMessage
from engine.clients.consuming.requests import Subscription
from engine.clients.loop_thread import ClientClosed, ForeignClient
from engine.clients.names import ClientError
from engine.protocol.clients.lock_bodies import request_body
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.sockets.client import PeerRefused, RemotingClient
from ipc.clock import wall_ms
from store.message.topics import DEAD_PREFIX
from tests.harness.conditions import SECONDS, await_that
from tests.harness.consumers import FIRST, SIZES, Broker, send
from tests.harness.served_names import Serving
from tools.common.local_broker import LocalBroker


def taken(broker: Broker, topic: str, count: int, **options: Any) -> list[str]:
    """The bodies that a new member of the group gets first."""
    bodies: list[str] = []
    with broker.consumer(topic, topic, **FIRST, **options) as consumer:
        for message in consumer:
            bodies.append(message.text)
            if len(bodies) == count:
                message.ack()
                return bodies
    raise AssertionError("the loop ended by itself")


def test_a_loop_acknowledges_what_it_comes_back_from(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one", "two", "three"], tags="a", keys=["k", "l"], properties={"x": "y"})
    with broker.consumer(topic, topic, **FIRST) as consumer:
        for message in consumer:
            assert (message.topic, message.tags, message.keys) == (topic, "a", ["k", "l"])
            assert (message.properties["x"], message.queue_id, message.broker) == ("y", 0, "b")
            assert message.born.tzinfo is UTC and message.stored >= message.born.replace(microsecond=0)
            if message.text == "two":
                break  # which leaves this one open
    assert taken(broker, topic, 2) == ["two", "three"]


def test_stop_ends_a_loop_after_the_message_that_it_is_at(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one", "two", "three"])
    bodies = []
    with broker.consumer(topic, topic, **FIRST) as consumer:
        for message in consumer:
            bodies.append(message.text)
            consumer.stop()
    assert bodies == ["one"]
    assert taken(broker, topic, 2) == ["two", "three"]


def test_a_loop_that_is_left_gives_what_it_did_not_use_to_the_next_one(broker: Broker, topic: str) -> None:
    send(broker, topic, [str(number) for number in range(10)])
    with broker.consumer(topic, topic, **FIRST) as consumer:
        bodies = []
        for _ in range(5):
            for message in consumer:
                bodies.append(message.text)
                message.ack()
                if len(bodies) % 2 == 0:
                    break
    assert bodies == [str(number) for number in range(10)]


def test_a_poll_acknowledges_what_the_poll_before_it_returned(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one", "two", "three"])
    with broker.consumer(topic, topic, **FIRST) as consumer:
        assert [message.text for message in consumer.poll(1)] == ["one"]
        assert [message.text for message in consumer.poll(1)] == ["two"]
        [place] = [place for place in consumer.assignment() if place.topic == topic and place.queue_id == 0]
        assert consumer.position(place) == 1
    assert taken(broker, topic, 2) == ["two", "three"]


def test_without_acknowledges_only_ack_counts(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one", "two", "three"])
    with broker.consumer(topic, topic, acknowledges=False, **FIRST) as consumer:
        messages: list[ReceivedMessage] = []
        while len(messages) < 3:
            messages += consumer.poll()
        messages[0].ack()
        messages[0].ack()  # twice is once
        messages[2].ack()
        assert consumer.poll(1, 0.0) == []
    assert taken(broker, topic, 2) == ["two", "three"], "a gap holds the offset: each message at least once"


def test_a_message_that_is_given_back_comes_again_and_ends_in_the_dead_letters(broker: Broker, topic: str) -> None:
    send(broker, topic, ["bad", "good"])
    deliveries, good = [], []
    with broker.consumer(topic, topic, max_times=2, **FIRST) as consumer:
        for message in consumer:
            assert message.topic == topic, "not that of the retries"
            if message.text == "good":
                good.append(message)
            else:
                deliveries.append(message.reconsume_times)
                message.retry(1)
            if len(deliveries) == 3 and good:
                break
    assert deliveries == [0, 1, 2] and len(good) == 1
    with broker.consumer(f"{topic}-dead", DEAD_PREFIX + topic, **FIRST) as consumer:
        [dead] = consumer.poll(timeout=SECONDS)
        assert dead.text == "bad"


def test_in_order_a_failure_stops_its_queue_and_no_other(broker: Broker, topic: str) -> None:
    send(broker, topic, ["a1", "a2"], 0)
    send(broker, topic, ["b1", "b2"], 1)
    seen, failed = [], False
    with broker.consumer(topic, topic, ordered=True, **FIRST) as consumer:
        for message in consumer:
            if message.text == "a1" and not failed:
                failed = True
                message.retry()
                continue
            seen.append(message.text)
            if len(seen) == 4:
                break
    assert [one for one in seen if one[0] == "a"] == ["a1", "a2"]
    assert [one for one in seen if one[0] == "b"] == ["b1", "b2"]


def _lock(broker: Broker, code: RequestCode, client_id: str, group: str, place: Place) -> None:
    with RemotingClient(broker.address, timeout=120.0) as client:
        client.ask(code, body=request_body(group, client_id, [place], only_this_broker=False))


def test_in_order_nothing_comes_while_the_lock_may_be_anothers(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, topic, ["0", "1", "2"])
    monkeypatch.setattr(member, "LOCK_AGAIN_SECONDS", 1e6)
    monkeypatch.setattr(member, "LOCK_SECONDS", 0.0)
    with broker.consumer(topic, topic, ordered=True, **FIRST) as consumer:
        [place] = [one for one in queues_of(consumer, topic) if one.queue_id == 0]
        assert consumer.poll(timeout=0.1) == [], "no renewal came in time"
        monkeypatch.setattr(member, "LOCK_SECONDS", 1e6)
        consumer._thread.run(consumer._member._keep_locks())
        assert [message.text for message in consumer.poll(timeout=SECONDS)] == ["0"]
        fields = {"consumerGroup": topic, "topic": topic, "queueId": "0", "commitOffset": "2"}
        with RemotingClient(broker.address, timeout=120.0) as client:  # another member had the queue meanwhile
            client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        consumer._member.shelf.queues[place].locked_until = 0.0
        consumer._thread.run(consumer._member._keep_locks())
        assert [message.text for message in consumer.poll(timeout=SECONDS)] == ["2"]


def test_in_order_a_queue_that_another_member_locked_is_given_up(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, topic, ["0"])
    monkeypatch.setattr(member, "LOCK_AGAIN_SECONDS", 1e6)
    with broker.consumer(topic, topic, ordered=True, **FIRST) as consumer:
        [place] = [one for one in queues_of(consumer, topic) if one.queue_id == 0]
        _lock(broker, RequestCode.UNLOCK_BATCH_MQ, consumer.client_id, topic, place)
        _lock(broker, RequestCode.LOCK_BATCH_MQ, "another", topic, place)
        consumer._thread.run(consumer._member._keep_locks())
        assert place not in consumer.assignment() and consumer.poll(timeout=0.1) == []
        _lock(broker, RequestCode.UNLOCK_BATCH_MQ, "another", topic, place)
        consumer._thread.run(consumer._member._rebalance())
        assert [message.text for message in consumer.poll(timeout=SECONDS)] == ["0"]


def test_two_members_in_order_never_have_a_queue_together(broker: Broker, topic: str) -> None:
    for queue in range(4):
        send(broker, topic, [f"{queue}"], queue)
    options = {"ordered": True, **FIRST}
    with broker.consumer(topic, topic, **options) as one:
        await_that(lambda: len(queues_of(one, topic)) == 4, "the first one has all")
        with broker.consumer(topic, topic, **options) as two:
            await_that(lambda: len(queues_of(two, topic)) == 2, "each has a half", SECONDS)
            assert not set(queues_of(one, topic)) & set(queues_of(two, topic))
        await_that(lambda: len(queues_of(one, topic)) == 4, "the other one left", SECONDS)


def queues_of(consumer: Consumer, topic: str) -> list[Place]:
    return [place for place in consumer.assignment() if place.topic == topic]


def test_tags_choose_and_the_rest_counts_as_consumed(broker: Broker, topic: str) -> None:
    for number in range(6):
        send(broker, topic, [str(number)], tags="abc"[number % 3])
    with broker.consumer(topic, {topic: "a || c"}, **FIRST) as consumer:
        bodies: list[str] = []
        while len(bodies) < 4:
            bodies += [message.text for message in consumer.poll()]
        consumer.poll(1, 0.0)
        await_that(lambda: set(consumer.lag().values()) == {0}, "all is consumed")
    assert bodies == ["0", "2", "3", "5"]


def test_a_reset_by_an_administrator_is_no_loss(broker: Broker, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    send(broker, topic, ["0"])
    with broker.consumer(topic, topic, **FIRST) as consumer:
        everything = [str(place.queue_id) for place in queues_of(consumer, topic)]
        for queue_id in range(1, len(everything)):  # 4.9 resets a group that has an offset in each queue
            send(broker, topic, [str(queue_id)], queue_id)
        received: list[str] = []
        while len(received) < len(everything):
            received += [message.text for message in consumer.poll(timeout=SECONDS)]
        consumer.poll(1, 0.0)
        consumer.commit()
        with RemotingClient(broker.address, timeout=120.0) as client:
            wanted = {"topic": topic, "group": topic, "timestamp": "0", "isForce": "true"}
            client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, wanted)
        while len(received) < 2 * len(everything):
            received += [message.text for message in consumer.poll(timeout=SECONDS)]
        assert sorted(received) == sorted(2 * everything)
        assert not any(queue.lost for queue in consumer._member.shelf.queues.values())
    assert "deleted" not in caplog.text and "ends at" not in caplog.text


def test_a_broker_that_refuses_a_member_keeps_no_other_one_from_its_heartbeats(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send(broker, topic, ["0"])
    with broker.consumer(topic, topic, **FIRST) as consumer:
        cluster, beat, refused = consumer._cluster, consumer._member._heartbeat, []
        [well] = cluster.every_broker()

        class Refusing:
            async def need(self, code: int, **_asked: object) -> RemotingCommand:
                refused.append(code)
                raise PeerRefused("elsewhere:1", code, RemotingCommand(ResponseCode.NO_PERMISSION))

        heard: list[int] = []
        need = well.need

        async def noted(code: int, **asked: Any) -> RemotingCommand:
            heard.append(code)
            return await need(code, **asked)

        monkeypatch.setattr(well, "need", noted)
        monkeypatch.setattr(cluster, "every_broker", lambda: iter([Refusing(), well]))
        consumer._thread.run(beat())
        assert RequestCode.HEART_BEAT in refused and RequestCode.HEART_BEAT in heard
        assert "elsewhere:1" in caplog.text
        monkeypatch.setattr(cluster, "every_broker", lambda: iter([Refusing()]))
        with pytest.raises(PeerRefused):
            consumer._thread.run(beat())
        monkeypatch.undo()


def _seek_and_read(
    consumer: Consumer, place: Place, to: int | str | datetime, rest: list[str]
) -> list[ReceivedMessage]:
    consumer.seek(place, to)
    received: list[ReceivedMessage] = []
    while len(received) < len(rest):
        received += consumer.poll(timeout=SECONDS)
    assert [message.text for message in received] == rest, to
    return received


def test_positions_are_looked_at_and_changed(broker: Broker, topic: str) -> None:
    send(broker, topic, ["0", "1"])
    before = wall_ms()
    await_that(lambda: wall_ms() > before + 1, "the clock goes on")
    send(broker, topic, ["2"])
    with broker.consumer(topic, topic, **FIRST) as consumer:
        [place] = [one for one in queues_of(consumer, topic) if one.queue_id == 0]
        assert consumer.committed(place) is None
        _seek_and_read(consumer, place, 1, ["1", "2"])
        last = _seek_and_read(consumer, place, "first", ["0", "1", "2"])[-1]
        _seek_and_read(consumer, place, last.stored, ["2"])  # 4.9 takes the nearest, so between two would be a guess
        consumer.seek(place, "last")
        assert consumer.poll(1, 0.0) == []
        consumer.pause(place)
        send(broker, topic, ["3"])
        await_that(lambda: consumer.lag()[place] == 1 or not consumer.poll(1, 0.05), "it does not come")
        assert consumer.position(place) == 3
        consumer.resume(place)
        assert [message.text for message in consumer.poll(timeout=SECONDS)] == ["3"]
        consumer.poll(1, 0.0)
        consumer.commit()
        assert consumer.committed(place) == 4
        with pytest.raises(ClientError, match="is not assigned"):
            consumer.seek(Place(topic, "b", 99), 0)


def test_a_member_commits_no_less_than_the_one_before_it(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "HANDOVER_SECONDS", 3600.0)
    send(broker, topic, [str(number) for number in range(8)])
    with broker.consumer(topic, topic, **FIRST) as consumer:
        [place] = [one for one in queues_of(consumer, topic) if one.queue_id == 0]
        with RemotingClient(broker.address, 120.0) as before:  # that gave the queue up a moment later
            fields = {"consumerGroup": topic, "topic": topic, "queueId": "0", "commitOffset": "5"}
            before.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        for count in (3, 3):
            assert sum(len(consumer.poll(1)) for _ in range(count)) == count
            consumer.commit()
            assert consumer.committed(place) == 5
        assert len(consumer.poll(1)) == 1
        consumer.commit()
        assert consumer.committed(place) == 6
        consumer.seek(place, 2)
        consumer.commit()
        assert consumer.committed(place) == 2, "who seeks means it"


def test_an_error_that_nobody_expects_is_raised_from_the_next_poll(broker: Broker, topic: str) -> None:
    async def fall() -> None:
        raise NotImplementedError("a bug")

    send(broker, topic, ["one"])
    with broker.consumer(topic, topic, **FIRST) as consumer:
        consumer._member._rebalance = fall  # type: ignore[method-assign]
        consumer._thread.loop.call_soon_threadsafe(consumer._member._changed.set)
        with pytest.raises(NotImplementedError, match="a bug"):
            while consumer.poll(1, SECONDS):
                pass


def test_a_group_that_began_at_the_last_message_goes_on_there_though_it_consumed_nothing(
    broker: Broker, topic: str
) -> None:
    send(broker, topic, ["old"])
    with broker.consumer(topic, topic, consume_from="last") as consumer:
        assert consumer.poll(1, 0.0) == []
    send(broker, topic, ["new"])
    with broker.consumer(topic, topic, consume_from="last") as consumer:
        assert [message.text for message in consumer.poll(timeout=SECONDS)] == ["new"]


def test_two_threads_close_a_consumer_at_once(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one"])
    consumer = broker.consumer(topic, topic, **FIRST).start()
    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(lambda _: consumer.close(), range(4))] == [None] * 4


def test_asyncio_programs_wait_without_blocking_their_loop(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one", "two"])

    async def program() -> list[str]:
        bodies: list[str] = []
        async with broker.consumer(topic, topic, **FIRST) as consumer:
            async for message in consumer:
                bodies.append(message.text)
                if len(bodies) == 2:
                    message.ack()
                    break
            waiting = asyncio.create_task(consumer.poll_awaited())
            await asyncio.to_thread(send, broker, topic, ["three"])  # which needs the loop while that one waits
            return bodies + [message.text for message in await waiting]

    assert asyncio.run(program()) == ["one", "two", "three"]


def test_threads_share_a_consumer_and_get_each_message_once(broker: Broker, topic: str) -> None:
    for queue in range(4):
        send(broker, topic, [f"{queue}-{number}" for number in range(25)], queue)
    seen: list[str] = []
    with broker.consumer(topic, topic, **FIRST) as consumer:

        def handle(message: ReceivedMessage) -> None:
            seen.append(message.text)
            if len(seen) == 100:
                consumer.stop()

        consumer.run(handle, workers=4)
    assert len(seen) == len(set(seen)) == 100
    with broker.consumer(topic, topic, **FIRST) as consumer:
        await_that(lambda: consumer.is_at_end, "all is committed")
        assert consumer.poll(1, 0.0) == []


def test_a_handler_that_fails_gets_its_message_again(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one"])
    tries: list[int] = []
    with broker.consumer(topic, topic, **FIRST) as consumer:

        def handle(message: ReceivedMessage) -> None:
            tries.append(message.reconsume_times)
            if len(tries) == 1:
                raise ValueError("not today")
            consumer.stop()

        consumer.run(handle)
    assert tries == [0, 1]


def test_a_message_that_is_given_back_before_its_loop_is_left_comes_from_the_retry_topic_alone(
    broker: Broker, topic: str
) -> None:
    send(broker, topic, ["one"])
    times: list[int] = []
    with broker.consumer(topic, topic, **FIRST) as consumer:
        while len(times) < 2:
            for message in consumer:
                times.append(message.reconsume_times)
                message.retry(1)
                break
    assert times == [0, 1]


PROGRAM = """
import sys
from engine.clients.consuming.consumer import Consumer

store, broker, topic = sys.argv[1:]
consumer = Consumer(store or None, topic, topic, broker=broker or None, consume_from="first", timeout=120.0)
def handle(message):
    print(message.text, flush=True)
consumer.run(handle, workers=2)
print("ended", flush=True)
"""


def test_sigterm_ends_a_program_after_the_message_that_it_is_at(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one"])
    where = [str(broker.store), ""] if broker.is_local else ["", broker.address]
    command = [sys.executable, "-c", PROGRAM, *where, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "one\n"
        program.send_signal(signal.SIGTERM)
        assert program.stdout.read() == "ended\n"
    assert program.returncode == 0
    send(broker, topic, ["two"])
    assert taken(broker, topic, 1) == ["two"], "what was handled is committed"


LEFT_OPEN = """
import asyncio, os, signal, sys, threading
from engine.clients.consuming.consumer import Consumer
from engine.clients.sending.producer import RemoteProducer

state, store, broker, topic = sys.argv[1:]
consumer = Consumer(store or None, topic, topic, broker=broker or None, consume_from="first", timeout=120.0)
match state:
    case "new":
        pass
    case "started":
        consumer.start()
    case "polled":
        print(consumer.poll(1)[0].text)
    case "thread polls":
        print(consumer.poll(1)[0].text)
        threading.Thread(target=consumer.poll, daemon=True).start()
    case "loop":
        for message in consumer:
            print(message.text)
            break
    case "raises":
        for message in consumer:
            print(message.text)
            raise SystemExit(3)
    case "coroutine":
        async def wait():
            await consumer.poll_awaited(1)
            print("one")
            waiting = asyncio.create_task(consumer.poll_awaited())
            await asyncio.sleep(0)
        asyncio.run(wait())
    case "interrupted":
        print(consumer.poll(1)[0].text)
        threading.Timer(0.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        consumer.poll()
    case "producer":
        producer = RemoteProducer(broker=consumer._cluster._broker, group="p")
        producer.send(topic, "two")
        unanswered = [producer.send_async(topic, str(number)) for number in range(100)]
"""
EXITS = {
    "new": 0, "started": 0, "polled": 0, "thread polls": 0, "loop": 0, "raises": 3, "coroutine": 0,
    "interrupted": -signal.SIGINT, "producer": 0,
}  # fmt: skip


def test_programs_end_with_a_client_left_open(broker: Broker, topic: str) -> None:
    where = [str(broker.store), ""] if broker.is_local else ["", broker.address]
    programs = {}
    for state in EXITS:
        group = f"{topic}-{state.replace(' ', '-')}"
        send(broker, group, ["one"])
        command = [sys.executable, "-c", LEFT_OPEN, state, *where, group]
        programs[group, state] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for (group, state), program in programs.items():
        said, errors = program.communicate()
        assert program.returncode == EXITS[state], (state, errors)
        assert said == ("" if state in ("new", "started", "producer") else "one\n"), state
        assert errors == "" if state != "interrupted" else "KeyboardInterrupt" in errors, (state, errors)
        assert taken(broker, group, 1) == ["one"], "what was not acknowledged comes again"


def test_a_forked_child_and_a_pickle_are_refused(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one"])
    with broker.consumer(topic, topic, **FIRST) as consumer:
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(consumer)
        pid = os.fork()
        if not pid:
            try:
                consumer.poll(1, 0.0)
            except ForeignClient:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert [message.text for message in consumer.poll()] == ["one"], "its parent's goes on"
    with pytest.raises(ClientClosed):
        consumer.poll()
    consumer.close()


def test_a_child_closes_its_parents_consumer_though_another_thread_held_its_lock(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one"])
    is_held, is_forked = threading.Event(), threading.Event()
    with broker.consumer(topic, topic, **FIRST) as consumer:

        def hold() -> None:
            with consumer._member.shelf.changed:
                is_held.set()
                is_forked.wait()

        holding = threading.Thread(target=hold)
        holding.start()
        is_held.wait()
        pid = os.fork()
        if not pid:
            consumer.close()
            os._exit(0)
        is_forked.set()
        holding.join()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert [message.text for message in consumer.poll()] == ["one"], "its parent's goes on"


def test_a_consumer_that_is_dropped_ends_its_thread(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one"])
    consumer = broker.consumer(topic, topic, **FIRST).start()
    name = f"consumer of {topic}"
    assert [thread.name for thread in threading.enumerate() if thread.name == name]
    del consumer
    gc.collect()
    await_that(lambda: not [one for one in threading.enumerate() if one.name == name], "its thread has ended")


def test_wrong_arguments_are_refused_by_name(broker: Broker, tmp_path: Path) -> None:
    for arguments, options, words in (
        (("127.0.0.1:1", "a b", "t"), {}, "not a valid group name"),
        (("127.0.0.1:1", "g", []), {}, "no topic given"),
        (("", "g", "t"), {}, "no broker given"),
        (("127.0.0.1:1", "g", "t"), {"colour": "red"}, "colour: no options of a consumer"),
        (("127.0.0.1:1", "g", "t"), {"consume_from": "middle"}, "'first', 'last' or a datetime"),
        (("127.0.0.1:1", "g", "t"), {"prefetch": 0}, "at least 1"),
        (("127.0.0.1:1", "g", "t"), {"strategy": "BEST"}, "BEST"),
    ):
        with pytest.raises(ClientError, match=words):
            Consumer(*arguments, **options)  # type: ignore[arg-type]
    with pytest.raises(ClientError, match="does not exist"):
        broker.consumer("g", "nowhere", **FIRST).start()


def test_a_condition_in_sql_is_refused_where_the_broker_does_not_filter(broker: Broker, topic: str) -> None:
    send(broker, topic, ["one"])
    wanted = {topic: Subscription("a > 1", "SQL92")}
    with broker.consumer(topic, wanted, **FIRST) as consumer, pytest.raises(PeerRefused, match="SQL92"):
        consumer.poll()


def test_members_that_broadcast_get_all_messages_and_go_on_where_they_were(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    send(broker, topic, ["one", "two"])
    for instance in ("a", "b"):
        options = {"broadcasts": True, "instance": instance, **FIRST}
        with broker.consumer(topic, topic, **options) as consumer:
            [first] = consumer.poll(1)
            with pytest.raises(ClientError, match="no retries"):
                first.retry()
            assert first.text == "one"
            consumer.poll(1, 0.0)
        with broker.consumer(topic, topic, **options) as consumer:
            assert [message.text for message in consumer.poll()] == ["two"], "the file has its offsets"
    assert len([*tmp_path.rglob("offsets.json")]) == 2
    with pytest.raises(ClientError, match="exclude each other"):
        broker.consumer(topic, topic, broadcasts=True, ordered=True)


def test_a_broker_that_does_not_answer_holds_up_no_other(tmp_path: Path, topic: str) -> None:
    names = Serving()
    try:
        at = {"namesrvAddr": f"127.0.0.1:{names.port}"}
        sizes = {**SIZES, "brokerName": "a"}, {**SIZES, "brokerName": "b"}
        with (
            LocalBroker(tmp_path / "a", **sizes[0], **at) as silent,
            LocalBroker(tmp_path / "b", **sizes[1], **at) as other,
        ):
            for broker in (silent, other):
                send(broker, topic, [broker.store.parent.name])
            await_that(lambda: len(brokers_of(names.port, topic)) == 2, "both are registered for the topic")
            fronts = [pid for role, word in silent.counters().pids.items() if "front" in role and (pid := word.read())]
            for pid in fronts:
                os.kill(pid, signal.SIGSTOP)
            try:
                options = {"consume_from": "first", "timeout": 1.0}
                with Consumer(f"127.0.0.1:{names.port}", topic, topic, **options) as consumer:
                    assert [message.text for message in consumer.poll()] == ["b"]
                    for pid in fronts:
                        os.kill(pid, signal.SIGCONT)
                    assert [message.text for message in consumer.poll(timeout=SECONDS)] == ["a"], "it is asked again"
            finally:
                for pid in fronts:
                    os.kill(pid, signal.SIGCONT)
    finally:
        names.stop()


def brokers_of(port: int, topic: str) -> set[str]:
    with RemotingClient(f"127.0.0.1:{port}", 120.0) as asking, suppress(PeerRefused):
        answer = asking.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
        return {one["brokerName"] for one in json.loads(bytes(answer.body))["brokerDatas"]}
    return set()
