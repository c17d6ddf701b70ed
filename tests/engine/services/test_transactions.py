"""Half messages that nobody ends, on a running broker: put back, counted, given up; over deaths and a restart."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from engine.producer.producer import Producer
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.sockets.client import RemotingClient
from engine.shared_memory.cursors import BrokerCounters
from store.message.record import Message
from store.message.topics import CHECK_MAX_TOPIC, HALF_TOPIC, OP_TOPIC
from store.reading import extent
from store.tables import json_files
from store.tables.tables import consumer_offsets
from tests.engine.producer.test_producer import Stopped
from tests.harness.audit import messages_of
from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker

SMALL = {
    "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20,
    "maxMessageSize": 65536, "transactionTimeOut": 500, "transactionCheckInterval": 300, "transactionCheckMax": 2,
    "transactionOpBatchInterval": 50,
}  # fmt: skip
BOTH = pytest.mark.parametrize("compat", ["4.9", "5"])
TIMEOUT, SECONDS = 60.0, 90.0
GROUP = "CID_RMQ_SYS_TRANS"


def counters_of(store: Path) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(store).region_directory, writable=True)


def all_of(store: Path, topic: str) -> list[Message]:
    end = counters_of(store).max_physical_offset.read()
    return [message for message in messages_of(store, end) if message.topic == topic]


def ended_of(store: Path) -> set[int]:
    """The offsets of the half messages that were ended, as whoever reads the queues sees them."""
    counters = counters_of(store)
    end = counters.max_physical_offset.read()
    if counters.reput_from_offset.read() < end:
        return set()
    ops = [message for message in messages_of(store, end) if message.topic == OP_TOPIC]
    return {int(text) for text in b",".join(bytes(op.body) for op in ops).split(b",") if text}


@BOTH
def test_an_undecided_half_message_is_put_back_and_then_given_up(tmp_path: Path, compat: str) -> None:
    with LocalBroker(tmp_path / "b", **SMALL, compat=compat) as broker:
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            with Stopped(
                counters_of(broker.store), "transactions"
            ):  # none of those that are ended is asked about before
                kept = producer.send_half("t", b"kept", group="g", queue_id=1, tags="a")
                producer.send_half("t", b"open", group="g", queue_id=2)
                dropped = producer.send_half("t", b"dropped", group="g")
                producer.end_transaction(kept, commit=True)
                producer.end_transaction(dropped, commit=False)
                await_that(lambda: ended_of(broker.store) == {0, 2}, "their ends are to be read", SECONDS)
            await_that(lambda: all_of(broker.store, CHECK_MAX_TOPIC), "a half message is given up", SECONDS)
        (given_up,) = all_of(broker.store, CHECK_MAX_TOPIC)
        assert (bytes(given_up.body), given_up.properties["TRANSACTION_CHECK_TIMES"]) == (b"open", "2")
        assert (given_up.properties["REAL_TOPIC"], given_up.properties["REAL_QID"]) == ("t", "2")
        halves = all_of(broker.store, HALF_TOPIC)
        assert [bytes(half.body) for half in halves] == [b"kept", b"open", b"dropped", b"open", b"open"]
        assert [half.properties.get("TRANSACTION_CHECK_TIMES") for half in halves] == [None, None, None, "1", "2"]
        assert [bytes(message.body) for message in all_of(broker.store, "t")] == [b"kept"]
        words, ops = counters_of(broker.store).transactions, len(all_of(broker.store, OP_TOPIC))
        await_that(lambda: (words.half_offset.read(), words.op_offset.read()) == (5, ops), "offsets", SECONDS)
        assert (words.put_back.read(), words.given_up.read()) == (2, 1)


def test_deaths_put_nothing_back_twice(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", **{**SMALL, "transactionCheckMax": 3}) as broker:
        counters = counters_of(broker.store)
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            with Stopped(counters, "transactions"):  # as above
                for number in range(60):
                    half = producer.send_half("t", b"%d" % number, group="g")
                    if number % 3 == 0:
                        producer.end_transaction(half, commit=True)
                await_that(lambda: ended_of(broker.store) == set(range(0, 60, 3)), "ends are to be read", SECONDS)
            for _ in range(8):
                seen = counters.transactions.put_back.read()
                await_that(
                    lambda seen=seen: (
                        counters.transactions.put_back.read() > seen  # type: ignore[misc]
                        or len(all_of(broker.store, CHECK_MAX_TOPIC)) == 40
                    ),
                    "it works",
                    SECONDS,
                )
                pid = await_that(counters.pids["transactions"].read, "it runs", SECONDS)
                os.kill(pid, signal.SIGKILL)
                await_that(lambda pid=pid: counters.pids["transactions"].read() not in (0, pid), "again", SECONDS)  # type: ignore[misc]
            await_that(lambda: len(all_of(broker.store, CHECK_MAX_TOPIC)) >= 40, "all are given up", SECONDS)
        opened = {number for number in range(60) if number % 3}
        given_up = Counter(int(bytes(message.body)) for message in all_of(broker.store, CHECK_MAX_TOPIC))
        assert given_up == dict.fromkeys(opened, 1)
        halves = Counter(int(bytes(message.body)) for message in all_of(broker.store, HALF_TOPIC))
        assert halves == {number: 4 if number in opened else 1 for number in range(60)}


@BOTH
def test_an_administrator_restarts_the_checks_of_a_half_message(tmp_path: Path, compat: str) -> None:
    settings = {**SMALL, "compat": compat, "transactionCheckInterval": 3_600_000}
    with LocalBroker(tmp_path / "b", **settings) as broker:
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            half = producer.send_half("t", b"open", group="g")
        with closing(RemotingClient(f"127.0.0.1:{broker.port}", timeout=TIMEOUT)) as client:
            answers = [
                client.invoke(RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, 1, ext_fields={"msgId": said}))
                for said in (half.message_id, half.message_id[:-2] + "01", "nonsense")
            ]
        assert [answer.code for answer in answers] == [0, 1, 1]
        assert answers[2].remark == "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
        first, again = all_of(broker.store, HALF_TOPIC)
        assert again.properties == {**first.properties, "TRANSACTION_CHECK_TIMES": "0"}


@BOTH
def test_transactions_go_on_after_a_restart_where_they_were(tmp_path: Path, compat: str) -> None:
    settings = {**SMALL, "compat": compat}
    with LocalBroker(tmp_path / "b", **settings) as broker:
        with Producer(broker.store, timeout=TIMEOUT) as producer:
            producer.send_half("t", b"open", group="g")
            await_that(lambda: all_of(broker.store, CHECK_MAX_TOPIC), "given up", SECONDS)
        words = counters_of(broker.store).transactions
        await_that(lambda: words.half_offset.read() == 3, "offsets", SECONDS)
    path = tmp_path / "b" / "store" / "config" / "consumerOffset.json"
    assert consumer_offsets(json_files.read(path))[HALF_TOPIC, GROUP] == {0: 3}
    with LocalBroker(tmp_path / "b", **settings) as broker:
        words = counters_of(broker.store).transactions
        await_that(lambda: words.rounds.read() > 1, "rounds", SECONDS)
        assert words.half_offset.read() == 3
        assert len(all_of(broker.store, HALF_TOPIC)) == 3
