"""A producer and other processes: a forked child, a pickled copy, one that was dropped, one that was closed."""

from __future__ import annotations

import copy
import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineError, ForeignProducer, ProducerClosed
from engine.producer.producer import Producer, PutMessageStatus, SendRequest, SendResult
from engine.shared_memory.cursors import BrokerCounters
from ipc import ring
from ipc.descriptors import await_readable
from store.reading import extent
from tests.engine.producer.test_producer import DEADLINE_SECONDS, Stopped
from tests.harness.audit import messages_of
from tools.common.local_broker import LocalBroker

PRODUCERS_MAX = 4
SMALL = {
    "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20,
    "maxProducers": PRODUCERS_MAX, "maxMessageSize": 65536,
    "messageDelayLevel": "1h 2h", "transactionCheckInterval": 3_600_000,  # only the tests put
}  # fmt: skip

CHILDREN_MAX, CHILD_SECONDS = 10, 5  # of a fork that the interpreter knows nothing of
PENDING_SECONDS = 3600  # longer than all children together may keep silent


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("broker"), **SMALL, compat="5") as running:
        yield running


def counters_of(store: Path) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(store).region_directory, writable=True)


def in_child(work: Callable[[], object], fork: Callable[[], int] = os.fork) -> str:
    """What `work` comes to in a forked child: "returned", or its error's code and text.

    A child of a fork that the interpreter knows nothing of may wait for ever to hand its lock to a thread that it does
    not have, wherever it is: such a child is ended, and another one asked.
    """
    seconds = DEADLINE_SECONDS if fork is os.fork else CHILD_SECONDS
    for _ in range(CHILDREN_MAX):
        read_end, write_end = os.pipe()
        pid = fork()
        if pid == 0:
            said = "returned"
            try:
                work()
            except BaseException as error:  # this process ends here, whatever it is
                said = f"{getattr(error, 'code', type(error).__name__)}: {error}"
            os.write(write_end, said.encode())
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as answer:
            if not await_readable(answer, timeout_ms=seconds * 1000):
                os.kill(pid, signal.SIGKILL)
            said = answer.read().decode()
        os.waitpid(pid, 0)
        if said:
            return said
    raise AssertionError(f"{CHILDREN_MAX} children did not answer within {seconds} s each")


class Calls:
    """Everything that can be asked of a producer, each by its name."""

    def __init__(self, producer: Producer, half: SendResult, pending: Future[SendResult]) -> None:
        self.by_name: dict[str, Callable[[], object]] = {
            "send": lambda: producer.send("t", b"x"),
            "send to a queue known": lambda: producer.send("t", b"x", queue_id=0),
            "send without waiting": lambda: producer.send("t", b"x", wait=False),
            "send by the broker's rules": lambda: producer.send("t", b"x", delay_level=2),
            "send to a new topic": lambda: producer.send("new-here", b"x"),
            "send_async": lambda: producer.send_async("t", b"x"),
            "send_half": lambda: producer.send_half("t", b"x", group="g"),
            "send_batch": lambda: producer.send_batch("t", [b"x"] * 3),
            "send_batch without waiting": lambda: producer.send_batch("t", [b"x"] * 3, wait=False),
            "put_message": lambda: producer.put_message(SendRequest(topic="t", body=b"x")),
            "end_transaction": lambda: producer.end_transaction(half, commit=True),
            "send_back": lambda: producer.send_back(half.physical_offset, group="g"),
            "write_ops": producer.write_ops,
            "flush": producer.flush,
            "future.result": lambda: pending.result(DEADLINE_SECONDS),
            "future.exception": lambda: pending.exception(DEADLINE_SECONDS),
            "future.add_done_callback": lambda: pending.add_done_callback(lambda _future: None),
        }


FUTURES = {"future.result", "future.exception", "future.add_done_callback"}


def fork_of_c() -> int:
    """A fork that the interpreter knows nothing of."""
    return int(ctypes.PyDLL(None).fork())


@pytest.mark.parametrize("fork", [os.fork, fork_of_c])
def test_every_call_in_a_forked_child_is_an_error_and_the_parent_goes_on(
    broker: LocalBroker, fork: Callable[[], int]
) -> None:
    counters = counters_of(broker.store)
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        half = producer.send_half("t", b"half", group="g")
        assert producer.send("t", b"before", queue_id=0).status is PutMessageStatus.PUT_OK
        with Stopped(counters, "writer"):
            pending = producer.send_async("t", b"pending", queue_id=0, timeout=PENDING_SECONDS)
            calls, before = Calls(producer, half, pending).by_name, counters.put_messages.read()
            for name, call in calls.items():
                said = in_child(call, fork)
                assert said.startswith("FOREIGN_PRODUCER: "), (name, said)
                assert f"process {os.getpid()}" in said, name
                assert "\n" not in said, name
        assert pending.result(DEADLINE_SECONDS).status is PutMessageStatus.PUT_OK
        assert counters.put_messages.read() == before + 1, "nothing came from a child"
        assert producer.send("t", b"after").status is PutMessageStatus.PUT_OK
    bodies = [bytes(message.body) for message in messages_of(broker.store, counters.max_physical_offset.read())]
    assert bodies[-2:] == [b"pending", b"after"]


def test_a_child_forked_while_other_threads_send_fails_at_once(broker: LocalBroker) -> None:
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        stop, sent = threading.Event(), 0

        def send() -> None:
            nonlocal sent
            while not stop.is_set():
                producer.send("t", b"x", queue_id=0)
                sent += 1

        sending = threading.Thread(target=send)
        sending.start()
        try:
            for _ in range(20):
                assert in_child(lambda: producer.send("t", b"x")).startswith("FOREIGN_PRODUCER")
                assert in_child(producer.close) == "returned"
        finally:
            stop.set()
            sending.join(DEADLINE_SECONDS)
        assert producer.send("t", b"x").status is PutMessageStatus.PUT_OK


def test_a_child_sends_with_a_producer_of_its_own_and_so_does_its_child(broker: LocalBroker) -> None:
    def send_one() -> None:
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as own:
            own.send("family", b"x", queue_id=0)

    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        producer.send("family", b"x", queue_id=0)

        def send_and_fork() -> None:
            with Producer(broker.store, timeout=DEADLINE_SECONDS) as own:
                own.send("family", b"x", queue_id=0)
                assert in_child(lambda: own.send("family", b"x")).startswith("FOREIGN_PRODUCER")
                assert in_child(send_one) == "returned"
                own.send("family", b"x", queue_id=0)

        assert in_child(send_and_fork) == "returned"
        assert producer.send("family", b"x", queue_id=0).queue_offset == 4


def test_a_child_that_closes_or_ends_leaves_the_parents_ring(broker: LocalBroker) -> None:
    controls = ring.attach_rings(extent.require_running(broker.store).region_directory)
    owners = controls.words.reshape(-1, ring.WORDS_PER_RING)[:, ring.ControlWord.OWNER_PID]
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        producer.send("t", b"x")
        mine = [int(owner) for owner in owners].index(os.getpid())

        def leave() -> None:
            with producer:
                pass
            producer.close()
            producer.__dict__.clear()
            gc.collect()

        assert in_child(leave) == "returned"
        assert owners[mine] == os.getpid()
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as other:
            assert other.send("t", b"x").status is PutMessageStatus.PUT_OK
            assert list(owners).count(os.getpid()) == 2, "not the same ring"
        assert producer.send("t", b"x").status is PutMessageStatus.PUT_OK


def test_a_child_that_lives_on_does_not_hold_the_ring_of_a_parent_that_closed_or_died(broker: LocalBroker) -> None:
    parents = (
        "import os, sys, time; from engine.producer import Producer\n"
        "producers = [Producer(sys.argv[1]) for _ in range(4)]\n"
        "if os.fork() == 0:\n"
        "    print('child', flush=True); sys.stdin.read(); os._exit(0)\n"
        "if sys.argv[2] == 'close':\n"
        "    [producer.close() for producer in producers]\n"
        "os._exit(0)\n"
    )
    for way in ("close", "die"):
        command = [sys.executable, "-c", parents, str(broker.store), way]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"child\n"
            assert parent.wait(DEADLINE_SECONDS) == 0
            producers = [Producer(broker.store, timeout=DEADLINE_SECONDS) for _ in range(4)]
        for producer in producers:
            assert producer.send("t", b"x").status is PutMessageStatus.PUT_OK
            producer.close()


def _send(producer: Any) -> None:
    producer.send("t", b"x")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_producer_handed_to_a_process_of_multiprocessing_is_an_error(broker: LocalBroker, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        child = context.Process(target=_send, args=(producer,))
        if method == "fork":
            child.start()
            child.join(DEADLINE_SECONDS)
            assert child.exitcode == 1
        else:
            with pytest.raises(ForeignProducer, match="in each process"):
                child.start()
        assert producer.send("t", b"x").status is PutMessageStatus.PUT_OK


def test_a_producer_is_neither_pickled_nor_copied(broker: LocalBroker) -> None:
    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(ForeignProducer, match="cannot be used by another one"):
                copied(producer)


def test_producers_that_are_dropped_give_their_rings_back(broker: LocalBroker) -> None:
    for number in range(12):  # three times as many as there are rings
        producer = Producer(broker.store, timeout=DEADLINE_SECONDS)
        half = producer.send_half("t", b"half", group="g")
        producer.end_transaction(half, commit=False)
        future = producer.send_async("t", b"x")
        future.add_done_callback(lambda _future: None)
        assert future.result(DEADLINE_SECONDS).status is PutMessageStatus.PUT_OK
        producer.write_ops()
        del producer, half
        _until_free(broker.store, number)


def _until_free(store: Path, number: int) -> None:
    """Wait until the threads of a dropped producer have let go of it, and nobody has a ring."""
    region = extent.require_running(store).region_directory
    words = ring.attach_rings(region).words.reshape(-1, ring.WORDS_PER_RING)
    owners = words[:PRODUCERS_MAX, ring.ControlWord.OWNER_PID]  # behind them are the broker's own
    end = time.monotonic() + DEADLINE_SECONDS
    while owners.any():
        assert time.monotonic() < end, f"{number} dropped, {owners} are left"
        gc.collect()
        threading.Event().wait(0.01)


def test_the_threads_of_a_dropped_producer_end(broker: LocalBroker) -> None:
    before = set(threading.enumerate())
    producer = Producer(broker.store, timeout=DEADLINE_SECONDS)
    producer.send_async("t", b"x").result(DEADLINE_SECONDS)
    producer.end_transaction(producer.send_half("t", b"half", group="g"), commit=False)
    producer.write_ops()
    made = [thread for thread in threading.enumerate() if thread not in before]
    assert sorted(thread.name for thread in made) == ["answers", "ops"]
    del producer
    end = time.monotonic() + DEADLINE_SECONDS
    while any(thread.is_alive() for thread in made):
        assert time.monotonic() < end, threading.enumerate()
        gc.collect()
        threading.Event().wait(0.01)


def test_a_closed_producer_says_so_and_is_closed_twice_without_harm(broker: LocalBroker) -> None:
    producer = Producer(broker.store, timeout=DEADLINE_SECONDS)
    half = producer.send_half("t", b"half", group="g")
    pending = producer.send_async("t", b"x")
    producer.close()
    producer.close()
    with producer:
        pass
    for name, call in Calls(producer, half, pending).by_name.items():
        if name in FUTURES:
            call()
        else:
            with pytest.raises(ProducerClosed, match="is closed; nothing was sent"):
                call()
    with (
        Producer(broker.store, timeout=DEADLINE_SECONDS) as first,
        Producer(broker.store, timeout=DEADLINE_SECONDS) as second,
    ):
        first.close()
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as third:
            first.close()
            assert third.send("t", b"x").status is second.send("t", b"x").status is PutMessageStatus.PUT_OK


def test_a_sender_that_waits_for_room_fails_when_another_thread_closes(broker: LocalBroker) -> None:
    counters, failure = counters_of(broker.store), []
    producer = Producer(broker.store, timeout=DEADLINE_SECONDS)
    producer.send("t", b"x", queue_id=0)
    with Stopped(counters, "writer"):
        full = threading.Event()

        def fill() -> None:
            try:
                while True:
                    full.set()
                    producer.send("t", b"x" * 60_000, queue_id=0, wait=False, timeout=DEADLINE_SECONDS)
            except EngineError as error:
                failure.append(error)

        filling = threading.Thread(target=fill)
        filling.start()
        assert full.wait(DEADLINE_SECONDS)
        producer.close()
        filling.join(DEADLINE_SECONDS)
    assert [error.code for error in failure] == ["PRODUCER_CLOSED"]
