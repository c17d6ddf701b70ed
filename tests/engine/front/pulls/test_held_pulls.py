"""Pulls that wait at a front, held by compiled code or by Python: both are answered with the same, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from engine.front.connections.peer import Peer
from engine.front.pulls import waiting_pulls
from engine.front.pulls.compiled_pulls import CompiledPulls
from engine.front.pulls.log_view import EmptyQueues
from engine.front.pulls.pull_words import OF_A_KIND_MAX
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand, Serialize, decode, encode
from ipc.clock import monotonic_ms
from store.compat import LINES
from tests.engine.front.pulls.test_compiled_pulls import TABLES, TOPIC, Bed, Front, asked, common_fields


@pytest.fixture(params=list(LINES))
def bed(request: pytest.FixtureRequest, region_dir: Path) -> Iterator[Bed]:
    """Its log has 400 messages in each of three queues."""
    one = Bed(region_dir, request.param, mappedFileSizeConsumeQueue=20_000)
    yield one
    one.close()


def test_held_pulls_are_answered_with_what_comes(bed: Bed) -> None:
    """In either way, in both forms, and once."""
    form = RemotingCommand(
        RequestCode.PULL_MESSAGE, 5, ext_fields=common_fields(queueOffset=400), serialize=Serialize.ROCKETMQ
    )
    frames = [asked(3, queueOffset=400), encode(form)]
    bed.both(asked())
    for frame in frames:
        assert bed.both(frame) == (b"", b"")
    bed.both(encode(form))
    held = bed.compiled.held
    assert held == bed.plain.held == 3
    bed.log.append(TOPIC, b"what comes", queue_id=0)
    bed.dispatch()
    for front in (bed.compiled, bed.plain):
        front.wake()
        assert front.held == 0
    assert bed.compiled.peer.take() == bed.plain.peer.take() != b""


def hold_one(bed: Bed) -> None:
    """A pull that the compiled way holds, where it may."""
    for queue_id in (2, 0):  # the last file of the log is at hand then
        bed.both(asked(queueId=queue_id, queueOffset=399))
    assert bed.both(asked(9, queueOffset=400)) == (b"", b"")
    assert (bed.compiled.pulls.compiled.held, bed.plain.pulls.compiled.held) == (1, 0)


def test_compiled_code_answers_what_it_holds(bed: Bed) -> None:
    hold_one(bed)
    bed.log.append(TOPIC, b"what comes", queue_id=0)
    bed.dispatch()
    bed.compiled.pulls.compiled.totals()
    for front in (bed.compiled, bed.plain):
        front.wake()
    assert bed.compiled.peer.take() == bed.plain.peer.take() != b""
    assert bed.compiled.pulls.compiled.totals()[:2] == (1, 1)


def test_as_many_messages_as_clients_ask_for_wake_a_pull_without_python(bed: Bed) -> None:
    hold_one(bed)
    for _ in range(40):
        bed.log.append(TOPIC, b"-" * 1024, queue_id=0)
    bed.dispatch()
    bed.compiled.pulls.compiled.totals()
    for front in (bed.compiled, bed.plain):
        front.wake()
    assert bed.compiled.peer.take() == bed.plain.peer.take() != b""
    assert bed.compiled.pulls.compiled.totals()[:2] == (1, 32)


@pytest.mark.parametrize("socket_is", ["idle", "full", "busy"])
def test_woken_pulls_leave_by_an_idle_socket_at_once(bed: Bed, socket_is: str) -> None:
    """What it does not take is the transport's, as all is where something is before it."""
    hold_one(bed)
    for opaque in (10, 11):
        assert bed.both(asked(opaque, queueOffset=400)) == (b"", b"")
    bed.log.append(TOPIC, b"what comes", queue_id=0)
    bed.dispatch()
    peer, before = bed.compiled.peer, b""
    if socket_is == "full":
        peer.near.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                before += b"-" * peer.near.send(b"-" * 4096)
    peer.is_gathering = socket_is == "busy"
    for front in (bed.compiled, bed.plain):
        front.wake()
    assert (peer.written != b"", peer.rests) == (socket_is != "idle", socket_is == "full")
    answers = peer.take()
    assert answers[: len(before)] == before
    assert sorted(frames_of(answers[len(before) :])) == sorted(frames_of(bed.plain.peer.take())) != []


def test_a_held_pull_is_answered_when_its_time_is_over(bed: Bed) -> None:
    hold_one(bed)
    for front in (bed.compiled, bed.plain):
        front.turn(monotonic_ms() + 60_000)
        assert front.held == 0
    answer = bed.compiled.peer.take()
    assert answer == bed.plain.peer.take()
    assert decode(answer[4:]).code == ResponseCode.PULL_NOT_FOUND


def form_of(opaque: int, code: int, **fields: object) -> bytes:
    """A pull in RocketMQ's own form."""
    said = common_fields(**fields)
    return encode(RemotingCommand(code, opaque, ext_fields=said, serialize=Serialize.ROCKETMQ))


@pytest.mark.parametrize(("queue_id", "offset"), [(0, 400), (3, 0)])
def test_compiled_code_says_that_nothing_came(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, queue_id: int, offset: int
) -> None:
    """To all whose time is over, of a queue that ends there and of one that never had a message, without Python."""
    asks = {"queueId": queue_id, "queueOffset": offset}
    codes = [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE]
    bed.both(asked(queueId=2, queueOffset=399))
    for code in codes:  # the first of its kind is held by Python
        bed.both(form_of(100, code, suspendTimeoutMillis=1 << 40, **asks))
    frames = [asked(number, **asks) for number in range(3)] + [form_of(9, code, **asks) for code in codes]
    for frame in frames:
        assert bed.both(frame) == (b"", b"")
    assert bed.compiled.pulls.compiled.held == len(frames)
    by_python: list[object] = []
    monkeypatch.setattr(CompiledPulls, "request_of", lambda *told: by_python.append(told))
    counted = [front.pulls._words.pulls.read() for front in (bed.compiled, bed.plain)]
    for front in (bed.compiled, bed.plain):
        front.turn(monotonic_ms() + 60_000)
        assert front.held == len(codes) and front.pulls.compiled.held == 0
    answers = bed.compiled.peer.take()
    assert sorted(frames_of(answers)) == sorted(frames_of(bed.plain.peer.take())) and not by_python
    assert {decode(frame).code for frame in frames_of(answers)} == {ResponseCode.PULL_NOT_FOUND}
    now = [front.pulls._words.pulls.read() for front in (bed.compiled, bed.plain)]
    assert [new - old for new, old in zip(now, counted, strict=True)] == [len(frames)] * 2
    assert counts_of(bed.compiled) == counts_of(bed.plain)


def frames_of(content: bytes) -> list[bytes]:
    """Without their lengths."""
    frames = []
    while content:
        end = 4 + int.from_bytes(content[:4])
        frames.append(content[4:end])
        content = content[end:]
    return frames


def counts_of(front: Front) -> dict[tuple[str, ...], int]:
    """How often each kind of answer was counted."""
    front.turn(1 << 40)
    return {key: sum(row[:-1]) for key, row in front.pulls._context.counts.rows.items()}


def test_waiting_pulls_are_answered_in_several_turns(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it takes long, others have their turn; nobody waits for the next sweep."""
    monkeypatch.setattr(waiting_pulls, "TURN_SECONDS", -1.0)
    bed.both(asked(queueId=2, queueOffset=399))
    for kind in range(10):
        bed.both(asked(queueOffset=399, subVersion=kind))
        for number in range(60):
            assert bed.both(asked(number, queueOffset=400, subVersion=kind)) == (b"", b"")
    assert bed.compiled.pulls.compiled.held == 600
    over_ms = monotonic_ms() + 60_000
    for front in (bed.compiled, bed.plain):
        front.pulls.turn(over_ms)
    assert 0 < bed.compiled.pulls.compiled.held < 600
    while bed.compiled.pulls.compiled.held:
        bed.compiled.loop.call_soon(bed.compiled.loop.stop)
        bed.compiled.loop.run_forever()
    while bed.plain.held or bed.plain.pulls._held.notified._notified:
        bed.plain.pulls._held.notified.go_on()
    assert sorted(frames_of(bed.compiled.peer.take())) == sorted(frames_of(bed.plain.peer.take()))


def test_more_of_a_kind_than_compiled_code_holds_are_held_by_python(bed: Bed) -> None:
    bed.both(asked(queueOffset=399))
    for number in range(OF_A_KIND_MAX + 3):
        assert bed.both(asked(number, queueOffset=400)) == (b"", b"")
    assert (bed.compiled.pulls.compiled.held, bed.compiled.pulls._held._held.count) == (OF_A_KIND_MAX, 3)
    bed.compiled.pulls.peer_gone(cast(Peer, bed.compiled.peer))
    assert bed.compiled.held == 0
    assert bed.compiled.compiled(asked(queueOffset=400))
    assert bed.compiled.pulls.compiled.held == 1


def test_a_queue_that_never_had_a_message_is_heard_of_when_it_has_one(bed: Bed) -> None:
    """What waits there in compiled code is answered; from then on its pulls take the fast path as any other's."""
    bed.both(asked(queueId=3))
    assert bed.both(asked(9, queueId=3)) == (b"", b"") and bed.compiled.pulls.compiled.held == 1
    bed.log.append(TOPIC, b"of another queue", queue_id=0)
    bed.dispatch()
    for front in (bed.compiled, bed.plain):
        front.wake()
    assert bed.compiled.held == 2
    bed.log.append(TOPIC, b"the first", queue_id=3)
    bed.dispatch()
    for front in (bed.compiled, bed.plain):
        front.wake()
    answers = bed.compiled.peer.take()
    assert sorted(frames_of(answers)) == sorted(frames_of(bed.plain.peer.take())) and answers.count(b"the first") == 2
    assert bed.compiled.held == 0
    assert bed.both(asked(9, queueId=3))[0] is None
    compiled, by_python = bed.both(asked(9, queueId=3))
    assert compiled == by_python
    assert bed.both(asked(9, queueId=3, queueOffset=1)) == (b"", b"") and bed.compiled.pulls.compiled.held == 1


def test_queues_that_are_not_there_are_looked_for_only_when_one_is_new(bed: Bed) -> None:
    view, slots = bed.compiled.pulls._view, []
    empty_queues = EmptyQueues(view)
    for number in range(3, 300):
        empty_queues.slot_of((TOPIC, number))
    find = view.ends.find
    view.ends.find = lambda *name: slots.append(name) or find(*name)  # type: ignore[method-assign, func-returns-value]
    assert not list(empty_queues.begun())
    bed.log.append(TOPIC, b"new", queue_id=7)
    bed.log.append("other", b"new", queue_id=7)
    bed.dispatch()
    assert [queue for queue, _slot in empty_queues.begun()] == [(TOPIC, 7)]
    assert not list(empty_queues.begun()) and not slots and len(empty_queues) == 296 and (TOPIC, 7) not in empty_queues


def test_a_client_that_leaves_takes_its_held_pulls_along(bed: Bed) -> None:
    hold_one(bed)
    bed.compiled.pulls.peer_gone(cast(Peer, bed.compiled.peer))
    assert bed.compiled.held == 0
    bed.log.append(TOPIC, b"what comes", queue_id=0)
    bed.dispatch()
    bed.compiled.wake()
    assert bed.compiled.peer.take() == b""


def test_held_pulls_outlast_tables_that_are_sent_again(bed: Bed) -> None:
    """They are answered in Python's way then."""
    hold_one(bed)
    for front in (bed.compiled, bed.plain):
        front.tables.take({"table": "topics", "entries": TABLES["topics"], "whole": True, "begins": True, "ends": True})
    assert (bed.compiled.pulls.compiled.held, bed.compiled.held) == (0, 1)
    bed.log.append(TOPIC, b"what comes", queue_id=0)
    bed.dispatch()
    for front in (bed.compiled, bed.plain):
        front.wake()
    assert bed.compiled.peer.take() == bed.plain.peer.take() != b""


def test_a_client_that_takes_no_answers_is_not_woken_until_it_does(bed: Bed) -> None:
    """Some are answered; the others wait in Python's list until it takes."""
    bed.both(asked(queueId=2, queueOffset=399))
    for number in range(12):
        bed.both(asked(queueOffset=399, subVersion=number))
        assert bed.compiled.compiled(asked(number, queueOffset=400, subVersion=number))
    peer, pulls = bed.compiled.peer, bed.compiled.pulls
    assert pulls.compiled.held == 12
    bed.log.append(TOPIC, b"-" * 30_000, queue_id=0)
    bed.dispatch()
    peer.take()
    peer.room = 0
    bed.compiled.wake()
    answered = len(peer.take()) // 30_000
    assert 0 < answered < 12 and pulls.compiled.held == 0 and peer.when_taken is not None
    peer.room = 1 << 20
    peer.when_taken()
    bed.compiled.wake()
    assert answered + len(peer.take()) // 30_000 == 12 and bed.compiled.held == 0


def test_a_held_pull_whose_group_is_gone_is_refused(bed: Bed) -> None:
    bed.both(asked())
    assert bed.both(asked(9, queueOffset=400))[0] == b""
    bed.log.append(TOPIC, b"what comes", queue_id=0)
    bed.dispatch()
    for front in (bed.compiled, bed.plain):
        front.tables.take({"table": "groups", "entries": {"g": TABLES["groups"]["off"]}})
        front.wake()
    assert bed.compiled.peer.take() == bed.plain.peer.take() != b""
