"""A front sleeps on words that others' puts move only while a put of its own waits for them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine.protocol.remoting.codes import ResponseCode
from ipc import waiting
from ipc.counters import Cursor
from tests.engine.front.connections.test_flow_control import opened, pipeline_of, send
from tests.harness.conditions import await_that
from tests.harness.front_client import FrontClient


@pytest.mark.parametrize(
    "policy",
    [
        {"brokerRole": "SYNC_MASTER"},
        {"flushDiskType": "SYNC_FLUSH"},
        {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 3, "compat": "5"},
    ],
)
def test_others_puts_wake_a_front_only_while_it_waits_for_one_of_its_own(
    region_dir: Path, policy: dict[str, object]
) -> None:
    """Who publishes a word wakes all that sleep on it: no thread of a front may, where it waits for nothing."""
    with opened(region_dir, **policy) as bed:
        log_end = bed.counters.max_physical_offset
        followed = [Cursor(words, index, "") for words, index in pipeline_of(bed.front).followed[2:]]

        def are_followed() -> set[bool]:
            return {waiting.is_awaited(cursor) for cursor in followed}

        def puts_of_others(count: int = 1) -> None:
            for _ in range(count):
                waiting.publish(log_end, log_end.read() + 100)
                for cursor in followed:
                    waiting.publish(cursor, log_end.read())

        def is_at_rest() -> bool:
            """Also after a while: between two sleeps a thread that follows is not seen to sleep."""
            for _ in range(20):
                puts_of_others()
                threading.Event().wait(0.005)
                if are_followed() != {False}:
                    return False
            return True

        assert are_followed() == {False}, "nothing was ever sent"
        client = FrontClient(bed.port)
        waiting.publish(bed.counters.in_sync_slaves, 3)
        bed.works.set()
        for number in range(3):
            client.send(send(number, queue_id=number))
            await_that(lambda: are_followed() == {True}, "its put is waited for")
            await_that(lambda number=number: len(bed.writer.taken) > number, "it is in the log")  # type: ignore[misc]
            puts_of_others()
            assert client.take().code == ResponseCode.SUCCESS
            await_that(is_at_rest, "nobody of the front sleeps on them")
            puts_of_others(1000)
            assert are_followed() == {False}
