"""How many unanswered messages a producer holds."""

from __future__ import annotations

import threading
import time

import pytest

from engine.clients.loop_thread import ClientClosed
from engine.clients.sending.send_room import SendRoom
from engine.errors import EngineError
from tests.harness.conditions import SECONDS

NOW = 0.0  # a deadline that is over


def later() -> float:
    return time.monotonic() + SECONDS


def test_there_is_room_for_a_number_of_messages() -> None:
    room = SendRoom(2, 1000)
    room.take(1, NOW)
    room.take(1, NOW)
    with pytest.raises(EngineError, match="2 messages of 2 bytes are not answered yet"):
        room.take(1, NOW)
    room.give(1)
    room.take(1, NOW)


def test_there_is_room_for_a_number_of_bytes() -> None:
    room = SendRoom(10, 1000)
    room.take(600, NOW)
    with pytest.raises(EngineError, match="no room"):
        room.take(401, NOW)
    room.take(400, NOW)


def test_a_message_larger_than_all_room_is_sent_alone() -> None:
    room = SendRoom(10, 1000)
    room.take(5000, NOW)
    with pytest.raises(EngineError):
        room.take(1, NOW)
    room.give(5000)
    room.take(1, NOW)


def in_thread(work: object) -> threading.Thread:
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_a_send_waits_for_room() -> None:
    room, taken = SendRoom(1, 1000), threading.Event()
    room.take(1, NOW)
    thread = in_thread(lambda: (room.take(1, later()), taken.set()))
    room.give(1)
    assert taken.wait(SECONDS)
    thread.join()


def test_closing_ends_a_wait_and_lets_nothing_in() -> None:
    room, raised = SendRoom(1, 1000), list[BaseException]()
    room.take(1, NOW)

    def waits() -> None:
        try:
            room.take(1, later())
        except ClientClosed as closed:
            raised.append(closed)

    thread = in_thread(waits)
    room.close()
    thread.join()
    assert len(raised) == 1
    assert room.await_empty(NOW) == 1
    room.give(1)
    assert room.await_empty(later()) == 0
    with pytest.raises(ClientClosed):
        room.take(1, later())
