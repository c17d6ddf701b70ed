"""An exception between any two lines of a call (a signal's handler raises it) leaves a producer that works."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from engine.errors import NoPermission
from engine.producer.producer import Producer, PutMessageStatus
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.reading import extent
from tests.engine.producer.test_producer import DEADLINE_SECONDS
from tests.harness.audit import messages_of
from tools.common.local_broker import LocalBroker

SMALL = {
    "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20,
    "maxMessageSize": 65536,
}  # fmt: skip
OURS = str(Path(__file__).parents[3] / "engine")
READ, READ_WRITE = 4, 6


class Interrupted(Exception):
    """What the handler of a signal raised."""


def is_with(frame: FrameType) -> bool:
    """Whether a `with` is entered or left: there the interpreter lets no handler run."""
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")


def interrupted_at(line: int, call: Callable[[], object]) -> bool:
    """Make the call, with an exception before the `line`th line that it runs; whether it came to that line."""
    left, raised = line, False

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left, raised
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line" and not is_with(frame):
            left -= 1
            if left == 0:
                raised = True
                raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        pass
    finally:
        sys.settrace(None)
    return raised


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("broker"), **SMALL, compat="5") as running:
        yield running


def calls_of(producer: Producer) -> dict[str, Callable[[], object]]:
    return {
        "send": lambda: producer.send("t", b"x", queue_id=0),
        "send_async": lambda: producer.send_async("t", b"x"),
        "send_batch": lambda: producer.send_batch("t", [b"x"] * 3),
        "transaction": lambda: producer.end_transaction(producer.send_half("t", b"x", group="g"), commit=True),
    }


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)


@pytest.mark.parametrize("name", calls_of(Producer.__new__(Producer)))
def test_after_an_exception_at_any_line_everything_can_be_sent(broker: LocalBroker, name: str) -> None:
    line, was_raised, sent = 0, True, dict[int, bytes]()
    while was_raised:
        line += 1
        with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
            was_raised = interrupted_at(line, calls_of(producer)[name])
            for number in range(4):
                body = f"{name} {line} {number}".encode()
                result = producer.send("t", body, queue_id=number, timeout=DEADLINE_SECONDS)
                assert result.status is PutMessageStatus.PUT_OK
                sent[result.physical_offset] = body
            if name != "send":
                assert producer.send_batch("t", [b"y"] * 2) is not None
                assert producer.send_async("t", b"z").result(DEADLINE_SECONDS).queue_id < 4
    assert line > 5
    stored = messages_of(broker.store, counters_of(broker).max_physical_offset.read())
    found = {message.physical_offset: bytes(message.body) for message in stored}
    assert sent.items() <= found.items()


def test_an_exception_while_new_rules_are_learnt_does_not_keep_the_old_ones(broker: LocalBroker) -> None:
    counters, line, was_raised = counters_of(broker), 0, True

    def permit(perm: int) -> None:
        waiting.publish(counters.broker_permission, perm)
        waiting.publish(counters.topics_changes, counters.topics_changes.read() + 1)

    with Producer(broker.store, timeout=DEADLINE_SECONDS) as producer:
        try:
            while was_raised:
                line += 1
                permit(READ_WRITE)
                producer.send("ruled", b"x", queue_id=0)
                permit(READ)
                try:
                    was_raised = interrupted_at(line, lambda: producer.send("ruled", b"x", queue_id=0, wait=False))
                except NoPermission:
                    was_raised = False
                with pytest.raises(NoPermission):
                    producer.send("ruled", b"x", queue_id=0, wait=False)
        finally:
            permit(READ_WRITE)
    assert line > 5
