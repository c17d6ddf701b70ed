"""A front's own wait for its puts: it stays near while it pays, and the bridges follow whatever is under way."""

from __future__ import annotations

import threading
import time
from typing import Any, cast

import numpy as np
import pytest

from engine.front.connections import near_wait as wait_module
from engine.front.connections.bridge import Bridge
from engine.front.connections.near_wait import APART_LAST_NS, NearWait
from engine.producer.pipeline import Pipeline
from engine.protocol.ha.policy import PutPolicy
from ipc.compiled.atomics import Followed as FollowedWord
from ipc.compiled.atomics import publish
from ipc.descriptors import await_readable
from ipc.ring import WORDS_PER_RING, ControlWord
from tests.harness.conditions import await_that

CONFIRMED = 0


class Ring:
    """What a wait looks at of a pipeline; `puts` are answered by `collect` as far as head and confirmation are."""

    def __init__(self, policy: PutPolicy) -> None:
        self.policy, self.control, self.counters = policy, np.zeros(WORDS_PER_RING, np.int64), np.zeros(2, np.int64)
        self.followed = [(self.control, int(ControlWord.HEAD)), (self.control, int(ControlWord.ANSWERED))]
        if policy.in_sync_replicas > 1:
            self.followed.append((self.counters, CONFIRMED))
        self.tail = self.answered = 0
        self.collected: list[int] = []  # what was answered by then

    @property
    def puts(self) -> int:
        return self.tail - self.answered

    def collect(self) -> None:
        self.answered = int(self.control[ControlWord.HEAD])
        if self.policy.in_sync_replicas > 1:
            self.answered = min(self.answered, int(self.counters[CONFIRMED]))
        self.collected.append(self.answered)


class Followed:
    """A bridge's two words to it."""

    def __init__(self) -> None:
        self.rests = True

    def rest(self) -> None:
        self.rests = True

    def go_on(self) -> None:
        self.rests = False


def near_wait(ring: Ring) -> tuple[NearWait, list[Followed]]:
    bridges = [Followed() for _ in ring.followed]
    return NearWait(cast(Pipeline, ring), cast(Any, bridges), ring.collect), bridges


def test_a_front_stays_near_while_the_writer_is_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(PutPolicy(1, False, False))
    near, bridges = near_wait(ring)
    for number in range(1, 4):
        ring.tail = number
        publish(ring.control, int(ControlWord.HEAD), number)
        near.wait()
        assert (ring.puts, near.is_near, [bridge.rests for bridge in bridges]) == (0, True, [True, True])


@pytest.mark.parametrize(
    ("policy", "told"),
    [(PutPolicy(1, False, False), 1), (PutPolicy(2, False, False), 0), (PutPolicy(1, True, False), 0)],
)
def test_the_writer_knows_of_a_near_wait_only_while_one_is_alone(policy: PutPolicy, told: int) -> None:
    ring = Ring(policy)
    near, _bridges = near_wait(ring)
    for is_alone in (False, True, True, False, True, False):
        near.wait(is_alone=is_alone)
        assert ring.control[ControlWord.NEAR] == (told if is_alone else 0)


def test_the_writer_is_not_kept_near_after_a_wait_in_vain() -> None:
    ring = Ring(PutPolicy(1, False, False))
    near, _bridges = near_wait(ring)
    ring.tail = 1
    near.wait(is_alone=True)
    assert not near.is_near and ring.control[ControlWord.NEAR]
    near.wait()
    assert not ring.control[ControlWord.NEAR]


def test_what_is_still_under_way_is_followed_and_the_next_wait_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(PutPolicy(1, False, False))
    near, bridges = near_wait(ring)
    now_ns, apart_ns = 10**12, []
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    for _ in range(12):
        ring.tail += 1
        near.wait()
        assert ring.puts and not near.is_near and not any(bridge.rests for bridge in bridges)
        began_ns = now_ns
        while not near.is_near:  # everything is answered; what comes next is tried as soon as it may be
            publish(ring.control, int(ControlWord.HEAD), ring.tail)
            now_ns += 1_000_000
            near.wait()
            assert not ring.puts or not near.is_near
        apart_ns.append(now_ns - began_ns)
    assert apart_ns[0] == apart_ns[-1], "one that paid begins anew"


def test_a_wait_in_vain_again_and_again_is_tried_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring(PutPolicy(1, False, False))
    near, _bridges = near_wait(ring)
    ring.tail, now_ns, tries, before = 1, 10**12, 0, -1
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    for _ in range(4_000):
        near.wait()
        tries += near._next_ns != before
        before = near._next_ns
        now_ns += 1_000_000
    assert tries <= 9 + 4_000 * 1_000_000 // APART_LAST_NS + 1


def test_a_lone_put_is_waited_for_each_time_even_after_waits_in_vain() -> None:
    ring = Ring(PutPolicy(1, False, False))
    near, bridges = near_wait(ring)
    for number in range(1, 13):
        ring.tail = number
        near.wait(is_alone=True)
        assert ring.puts and not near.is_near and not any(bridge.rests for bridge in bridges)
        publish(ring.control, int(ControlWord.HEAD), number)
        near.wait(is_alone=True)
        assert not ring.puts and near.is_near and all(bridge.rests for bridge in bridges)


def test_a_lone_put_is_polled_for_before_the_front_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_module, "ALONE_NS", 60_000_000_000)
    monkeypatch.setattr(wait_module, "LOOK_NS", 60_000_000_000)
    ring = Ring(PutPolicy(1, False, False))
    near, _bridges = near_wait(ring)
    ring.tail = 1
    moving = threading.Timer(0.05, ring.control.__setitem__, (int(ControlWord.HEAD), 1))  # it wakes nobody
    moving.start()
    near.wait(is_alone=True)
    moving.join()
    assert near.is_near and not ring.puts


def test_a_lone_put_is_waited_for_until_the_last_replica_confirms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_module, "ALONE_NS", 60_000_000_000)
    ring = Ring(PutPolicy(2, False, False))
    near, _bridges = near_wait(ring)
    ring.tail = 3

    def move() -> None:
        publish(ring.control, int(ControlWord.HEAD), 3)
        for confirmed in (1, 2, 3):
            collected = len(ring.collected)
            publish(ring.counters, CONFIRMED, confirmed)
            await_that(lambda before=collected: len(ring.collected) > before, "it was looked at")  # type: ignore[misc]

    moving = threading.Thread(target=move)
    moving.start()
    near.wait(is_alone=True)
    moving.join()
    assert near.is_near and not ring.puts


def test_a_replica_is_near_and_a_disk_is_not() -> None:
    ring = Ring(PutPolicy(2, False, False))
    near, bridges = near_wait(ring)
    ring.tail = 1
    publish(ring.control, int(ControlWord.HEAD), 1)
    publish(ring.counters, CONFIRMED, 1)
    near.wait()
    assert near.is_near and not ring.puts
    ring.tail = 2
    publish(ring.control, int(ControlWord.HEAD), 2)
    near.wait()
    assert ring.puts and not near.is_near and not any(bridge.rests for bridge in bridges)
    assert not near_wait(Ring(PutPolicy(1, True, False)))[0].is_possible


def test_the_bridges_follow_for_a_disk_while_a_put_is_under_way_only() -> None:
    ring = Ring(PutPolicy(1, True, False))
    near, bridges = near_wait(ring)
    near.wait()
    assert all(bridge.rests for bridge in bridges), "nothing is under way"
    ring.tail = 1
    near.wait()
    assert not any(bridge.rests for bridge in bridges)
    for _ in range(3):
        near.rang()
        assert not any(bridge.rests for bridge in bridges), "a put is under way"
    ring.answered = 1
    near.rang()
    assert not any(bridge.rests for bridge in bridges), "two bridges may ring for one put"
    near.rang()
    assert all(bridge.rests for bridge in bridges)
    ring.tail = 2
    near.wait()
    assert not any(bridge.rests for bridge in bridges)


def test_a_lone_sender_that_waits_for_a_disk_keeps_its_bridges_awake() -> None:
    ring = Ring(PutPolicy(1, True, False))
    near, bridges = near_wait(ring)
    for number in range(1, 5):
        ring.tail = number
        near.wait()
        near.rang()  # the head moved
        ring.answered = number
        near.rang()  # the disk has it: told twice
        assert not any(bridge.rests for bridge in bridges)


def test_a_bridge_that_follows_a_word_at_rest_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.front.connections.bridge.LOOK_NS", 3_600 * 1_000_000_000)
    monkeypatch.setattr("engine.front.connections.bridge.STOP_SECONDS", 60.0)
    control = np.zeros(WORDS_PER_RING, np.int64)
    for rests in (False, True):
        bridge = Bridge(control, int(ControlWord.HEAD), rests=rests)
        if not rests:
            await_that(lambda: control[ControlWord.HEAD + FollowedWord.WAITERS] == 1, "it follows")
        bridge.close()
        assert not bridge._thread.is_alive()


def test_a_bridge_that_goes_on_rings_for_what_moved_meanwhile() -> None:
    ring = Ring(PutPolicy(1, False, False))
    bridge = Bridge(ring.control, int(ControlWord.HEAD))
    try:
        near = NearWait(cast(Pipeline, ring), [bridge], ring.collect)
        ring.tail = 1
        moving = threading.Timer(0.05, publish, (ring.control, int(ControlWord.HEAD), 1))
        moving.start()
        near.wait()
        moving.join()
        assert near.is_near or _is_rung(bridge)
    finally:
        bridge.close()


def test_a_bridge_whose_thread_comes_late_rings_for_what_moved_before(monkeypatch: pytest.MonkeyPatch) -> None:
    may_run = threading.Event()

    class Late(threading.Thread):
        def run(self) -> None:
            may_run.wait(60)
            super().run()

    monkeypatch.setattr(threading, "Thread", Late)
    control = np.zeros(WORDS_PER_RING, np.int64)
    bridge = Bridge(control, int(ControlWord.HEAD))
    try:
        publish(control, int(ControlWord.HEAD), 1)
        may_run.set()
        assert _is_rung(bridge)
    finally:
        may_run.set()
        bridge.close()


def _is_rung(bridge: Bridge) -> bool:
    return await_readable(bridge.fd, timeout_ms=30_000)
