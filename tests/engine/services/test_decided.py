"""Transactions that their producers end twice, or whose end a death overtakes, at a running broker: once, or never."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.sending.end_transaction import ENDED, Decision
from engine.services.decided_halves import CommitsInLog
from engine.settings.config import from_mapping
from engine.shared_memory.cursors import BrokerCounters, Serving
from ipc import waiting
from store.files.pointer import COUNTERS_FILE
from store.message.record import Message
from store.message.topics import HALF_TOPIC, OP_TOPIC
from store.reading import extent
from tests.harness.audit import messages_of
from tests.harness.conditions import await_that
from tests.harness.deciding import Deciding, Place
from tests.harness.front_client import FrontClient
from tests.harness.killing import kill_broker
from tools.common.local_broker import LocalBroker

QUICK = {
    "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20,
    "maxMessageSize": 65536, "transactionTimeOut": 300, "transactionCheckInterval": 300,
    "transactionOpBatchInterval": 50,
    "transactionCheckMax": 1_000_000,  # on a slow machine it is asked about for long
}  # fmt: skip
NEVER_MS = 3_600_000
BOTH = pytest.mark.parametrize("compat", ["4.9", "5"])
SECONDS = 90.0


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    FrontClient.close_all()


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory)


def all_of(broker: LocalBroker, topic: str) -> list[Message]:
    end = counters_of(broker).max_physical_offset.read()
    return [message for message in messages_of(broker.store, end) if message.topic == topic]


def named_by_ops(broker: LocalBroker) -> set[int]:
    """Half messages that op messages say are done with."""
    bodies = b",".join(bytes(op.body) for op in all_of(broker, OP_TOPIC))
    return {int(text) for text in bodies.split(b",") if text}


@BOTH
def test_both_copies_of_a_half_message_are_ended_and_its_message_is_written_once(tmp_path: Path, compat: str) -> None:
    with LocalBroker(tmp_path / "b", **QUICK, compat=compat) as broker:
        producer = Deciding(broker.port)
        sent = producer.half("t")
        again = producer.asked()
        assert producer.end(sent, Decision.COMMIT).code == ResponseCode.SUCCESS
        assert producer.end(again, Decision.COMMIT, is_asked=True).code == ResponseCode.SUCCESS
        refused = producer.end(again, Decision.ROLLBACK, is_asked=True)
        assert (refused.code, refused.remark) == (ResponseCode.ILLEGAL_OPERATION, ENDED)
        dropped = producer.half("u", "other")
        assert producer.end(dropped, Decision.ROLLBACK).code == ResponseCode.SUCCESS
        assert producer.end(dropped, Decision.COMMIT).code == ResponseCode.ILLEGAL_OPERATION
        same = producer.half("t")  # the same message in another transaction
        assert producer.end(same, Decision.COMMIT).code == ResponseCode.SUCCESS
        halves = {at.queue_offset for at in (sent, again, dropped, same)}
        await_that(lambda: halves <= named_by_ops(broker), "op messages", SECONDS)
        words = counters_of(broker).transactions
        await_that(lambda: words.half_offset.read() == len(all_of(broker, HALF_TOPIC)), "all are passed", SECONDS)
        written = [message.prepared_transaction_offset for message in all_of(broker, "t")]
        assert written == [sent.physical_offset, same.physical_offset]
        assert all_of(broker, "u") == []


def test_what_a_dead_front_was_about_to_write_of_ended_transactions_the_next_one_writes(tmp_path: Path) -> None:
    settings = {**QUICK, "compat": "5", "transactionCheckInterval": NEVER_MS, "transactionOpBatchInterval": 8000}
    with LocalBroker(tmp_path / "b", **settings) as broker:
        producer, counters = Deciding(broker.port), counters_of(broker)
        sent, dropped = producer.half("t"), producer.half("t", "other")
        producer.end(sent, Decision.COMMIT)
        producer.end(dropped, Decision.ROLLBACK)
        pid = counters.pids["front.0"].read()
        os.kill(pid, signal.SIGKILL)
        await_that(lambda: counters.pids["front.0"].read() not in (0, pid), "another front", SECONDS)
        await_that(lambda: len(named_by_ops(broker)) == 2, "op messages", SECONDS)
        producer = await_that(lambda: connected(broker.port), "it listens", SECONDS)
        await_that(lambda: counters.fronts[0].serving.read() == Serving.ALL, "it was told of topics", SECONDS)
        assert producer.end(sent, Decision.COMMIT).code == ResponseCode.SUCCESS
        assert len(all_of(broker, "t")) == 1


def connected(port: int) -> Deciding | None:
    try:
        return Deciding(port)
    except (ConnectionError, AssertionError):
        return None


def test_a_committed_half_message_is_not_asked_about_after_a_crash(tmp_path: Path) -> None:
    settings = {**QUICK, "compat": "5", "transactionCheckInterval": NEVER_MS, "transactionOpBatchInterval": NEVER_MS}
    with LocalBroker(tmp_path / "b", **settings) as broker:
        producer = Deciding(broker.port)
        producer.end(producer.half("t"), Decision.COMMIT)
        producer.half("t", "undecided")
        kill_broker(broker)
    with LocalBroker(tmp_path / "b", **{**settings, "transactionCheckInterval": 300}) as broker:
        words = counters_of(broker).transactions
        await_that(lambda: words.put_back.read() >= 1, "one is asked about", SECONDS)
        put_back = all_of(broker, HALF_TOPIC)[2:]
        assert {message.properties["UNIQ_KEY"] for message in put_back} == {"undecided"}
        assert (len(all_of(broker, "t")), all_of(broker, OP_TOPIC)) == (1, [])


def test_an_end_that_comes_again_after_a_crash_writes_nothing_more(tmp_path: Path) -> None:
    settings = {**QUICK, "compat": "5", "transactionCheckInterval": NEVER_MS, "transactionOpBatchInterval": NEVER_MS}
    with LocalBroker(tmp_path / "b", **settings) as broker:
        producer = Deciding(broker.port)
        sent, undecided = producer.half("t"), producer.half("t", "undecided")
        assert producer.end(sent, Decision.COMMIT).code == ResponseCode.SUCCESS
        kill_broker(broker)
    with LocalBroker(tmp_path / "b", **{**settings, "transactionOpBatchInterval": 50}) as broker:
        again = await_that(lambda: connected(broker.port), "it listens", SECONDS)

        def is_ended(at: Place) -> bool:  # nobody knows before the index is there
            return again.end(at, Decision.COMMIT, is_asked=True).code == ResponseCode.SUCCESS

        for at in (sent, undecided, sent):
            await_that(partial(is_ended, at), "it is ended", SECONDS)
        assert again.end(sent, Decision.ROLLBACK).code == ResponseCode.ILLEGAL_OPERATION
        written = [message.prepared_transaction_offset for message in all_of(broker, "t")]
        assert written == [sent.physical_offset, undecided.physical_offset]
        await_that(lambda: named_by_ops(broker) == {sent.queue_offset, undecided.queue_offset}, "op messages", SECONDS)


def test_nobody_knows_what_was_committed_before_the_index_is_built(tmp_path: Path) -> None:
    counters = BrokerCounters.create(tmp_path / COUNTERS_FILE)
    config = from_mapping({"storePathRootDir": tmp_path / "store"})
    waiting.publish(counters.recovered_offset, 100)
    log = CommitsInLog(config, counters)
    for dispatched, is_known in ((0, False), (99, False), (100, True), (101, True)):
        waiting.publish(counters.reput_from_offset, dispatched)
        assert log.is_known is is_known
