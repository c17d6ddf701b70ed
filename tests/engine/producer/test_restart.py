"""A producer whose broker is started again: it goes on there, tells once what has no answer, and doubles nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from engine.errors import BrokerGone
from engine.producer.producer import Producer
from engine.protocol.ha.put_status import PutMessageStatus
from ipc.compiled import carried
from store.reading.log_reader import open_log
from store.reading.summary import messages
from tools.common.local_broker import LocalBroker

TIMEOUT = 60.0


def bodies(store: Path) -> Counter[bytes]:
    return Counter(bytes(message.body) for message in messages(open_log(store)) if message.topic == "t")


def gone(producer: Producer, body: bytes) -> str:
    with pytest.raises(BrokerGone) as raised:
        producer.send("t", body)
    return str(raised.value)


def test_a_producer_goes_on_at_the_broker_that_is_started_again(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as first:
        producer = Producer(first.store, timeout=TIMEOUT)
        producer.send("t", b"first")
        producer.send("t", b"flushed", wait=False)
        producer.flush()
    assert "attaches to the next broker" in gone(producer, b"nobody's")
    gone(producer, b"nobody's")
    with LocalBroker(tmp_path) as second:
        assert producer.send("t", b"second").status is PutMessageStatus.PUT_OK
        batch = producer.send_batch("t", [b"batch"] * 3)
        assert batch is not None and batch.status is PutMessageStatus.PUT_OK
        assert producer.send_async("t", b"future").result(TIMEOUT).status is PutMessageStatus.PUT_OK
        half = producer.send_half("t", b"transaction", group="g")
        second.process.kill()
        second.process.wait()
        with pytest.raises(BrokerGone):  # a killed broker says nothing: it may have taken this one
            producer.send("t", b"unknown")
    with LocalBroker(tmp_path):
        producer.end_transaction(half, commit=True)
        producer.write_ops()
        producer.close()
        stored = bodies(first.store)
    certain = {b"first": 1, b"flushed": 1, b"second": 1, b"batch": 3, b"future": 1, b"transaction": 1}
    assert stored.pop(b"unknown", 0) <= 1
    assert stored == certain


@pytest.mark.parametrize("kills", [False, True])
def test_lost_sends_without_waiting_are_reported_once_and_never_put_again(tmp_path: Path, kills: bool) -> None:
    with LocalBroker(tmp_path) as first:
        producer = Producer(first.store, timeout=TIMEOUT)
        producer.send("t", b"acknowledged")
        producer.send("t", b"unanswered", wait=False)
        if kills:
            first.process.kill()
            first.process.wait()
    with LocalBroker(tmp_path):
        gone(producer, b"not put")
        assert producer.send("t", b"next").status is PutMessageStatus.PUT_OK
        producer.flush()
        producer.close()
        stored = bodies(first.store)
    assert stored.pop(b"unanswered", 0) <= 1
    assert stored == {b"acknowledged": 1, b"next": 1}


CALLS = """
import sys
from ipc.compiled import compiler
made, late, taking = [], [], compiler._taking_members_as_numbers

def counted(compiling):
    inner = taking(compiling)
    def compile_or_load(signature):
        made.append(signature)
        return inner(signature)
    return compile_or_load

compiler._taking_members_as_numbers = counted
import numpy as np
from engine.producer.broker_puts import BrokerPuts
from slipstream import Producer
from store.put.request import SendRequest

deadline = BrokerPuts.deadline
def began(self, timeout):
    late.append(len(made))
    return deadline(self, timeout)
BrokerPuts.deadline = began

bodies = np.zeros((3, 8), np.uint8)
with Producer(sys.argv[1], timeout=60) as producer:
    calls = {
        "send": lambda: producer.send("t", b"x", timeout=60),
        "keys": lambda: producer.send("u", b"x", keys=["k"], timeout=60),
        "async": lambda: producer.send_async("t", b"x", timeout=60).result(),
        "delay": lambda: producer.send("t", b"x", delay_level=18, timeout=60),
        "half": lambda: producer.send_half("t", b"x", group="g", timeout=60),
        "batch": lambda: producer.send_batch("t", [b"x", b"y"], timeout=60),
        "columns": lambda: producer.send_batch("t", bodies, keys=["a", "b", "c"], tags="t", timeout=60),
        "request": lambda: producer.put_message(SendRequest(topic="t", body=b"x", queue_id=0), timeout=60),
        "flush": lambda: producer.flush(60),
    }
    assert made, "the producer's own code is ready when it is"
    for name, call in calls.items():
        late.clear()
        call()
        assert late, name
        assert len(made) == late[0], f"{name}: {made[late[0]:]} while its time ran"
"""


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_no_code_is_compiled_or_loaded_while_the_time_of_a_call_runs(tmp_path: Path, compat: str) -> None:
    with LocalBroker(tmp_path, compat=compat) as broker:
        command = [sys.executable, "-c", CALLS, str(broker.store)]
        by_numba = {**os.environ, carried.ASKED: carried.BASELINE}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=by_numba)
        assert ran.returncode == 0, ran.stderr
