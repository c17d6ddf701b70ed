"""Fills a member's queues from the mapped files of the broker on its host, master or replica, in the thread that polls.

Implements: PullMessageService, for a consumer that shares its host with the broker
All but the sleep is called with the lock of the shelf held. It goes on with the next broker when one ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from engine.clients.blocks import Chosen, chosen
from engine.clients.cluster import Place
from engine.clients.consuming.assigned_queue import AssignedQueue, Bounds
from engine.clients.consuming.requests import Subscription
from engine.clients.local.local_queues import LocalQueues, Queue
from engine.shared_memory.queue_ends import NO_SLOT
from ipc.clock import wall_ms
from ipc.errors import IpcError
from store.errors import StoreError
from store.reading import extent

LEAST_READ = 256  # offsets of a queue at a time
LIVENESS_SECONDS = 0.1
REST_SECONDS = 1.0  # of a queue that cannot be read


class Heard(NamedTuple):
    """Topics and limits of the member, and its reports of what happens to its queues.

    `moved`: a queue has not the offset that it is read from, and goes on at another one. `absent`: a replica's store
    has not the offset, and the queue has to be pulled. `warn`: a rare line.
    """

    topics: Mapping[str, Subscription]
    bounds: Bounds
    moved: Callable[[AssignedQueue, int], None]
    absent: Callable[[AssignedQueue], None]
    warn: Callable[[str, str], None]


class LocalReads:
    """The reads of one member. Raises at first what a running broker's memory is refused with: IpcError, StoreError."""

    def __init__(self, store: Path, heard: Heard) -> None:
        self._store, self._heard = store, heard
        self._wanted: dict[str, Chosen | None] = {}  # by topic
        self._elsewhere: set[Place] = set()  # queues that are pulled, since this replica lacked messages
        self._look_at = 0.0  # when to look again whether the broker lives, or the next one is there
        self._is_dry = False  # the last sleep ended without news
        self._is_closed = False
        running = extent.require_running(store)
        self._broker = str(running.settings["brokerName"])
        self._here: LocalQueues | None = LocalQueues(running)
        self._sleeper: Callable[[float], bool] | None = None

    def serves(self, place: Place) -> bool:
        """Whether a queue's messages are read here: a condition in SQL is for the broker to judge."""
        is_here = place.broker == self._broker and place not in self._elsewhere
        return is_here and self._wanted_of(place.topic) is not None

    def _wanted_of(self, topic: str) -> Chosen | None:
        """The tags that are wanted of a topic; None for a topic that is not read here."""
        try:
            return self._wanted[topic]
        except KeyError:
            said = self._heard.topics.get(topic)
            wanted = self._wanted[topic] = chosen(said.tags) if said is not None and said.is_by_tags else None
            return wanted

    def close(self) -> None:
        """Unmap all, and read nothing any more."""
        self._is_closed, self._sleeper = True, None
        if self._here is not None:
            self._here.wake()
            self._here.close()
            self._here = None

    # messages

    def read(self, queues: Iterable[AssignedQueue], most: int) -> bool:
        """Give messages to queues of which none waits; whether one of them has come further."""
        now = time.monotonic()
        here = self._attached(now)
        self._sleeper = None
        if here is None:
            return False
        here.forget_deleted()
        used, watched, is_further = here.used, [], False
        for queue in queues:
            if self._may_read(queue, now):
                is_further |= self._read(here, queue, max(most, LEAST_READ), now)
                watched.append(queue)
        if not is_further:
            self._sleeper = here.sleeper(used, self._ends(here, watched, now))
        return is_further

    def _may_read(self, queue: AssignedQueue, now: float) -> bool:
        if queue.waiting or queue.is_paused or queue.is_dropped or now < max(queue.rests_until, queue.refused_until):
            return False
        return not queue.is_full(self._heard.bounds) and self.serves(queue.place)

    def _read(self, here: LocalQueues, queue: AssignedQueue, most: int, now: float) -> bool:
        place, before, turn = queue.place, queue.pulled_to, queue.turn
        named = place.topic, place.queue_id
        if here.end_of(named) == before:
            queue.end, queue.is_at_end = before, True
            return False
        wanted = self._wanted_of(place.topic)
        assert wanted is not None
        try:
            catch = here.read(named, before, wanted, most)
        except (StoreError, OSError) as error:
            self._heard.warn("a read failed", str(error))
            queue.rests_until = now + REST_SECONDS
            return False
        is_cut = catch.end < before <= queue.end  # the store had the offset, and has it no longer
        queue.end = catch.end
        if catch.is_moved and here.is_copy and not is_cut:
            if catch.next_offset > before:
                self._elsewhere.add(place)
                self._heard.absent(queue)
            return False  # else the replica has not got so far yet
        if catch.is_moved:
            self._heard.moved(queue, catch.next_offset)
        else:
            queue.pulled_ms = wall_ms()
            queue.pulled(catch.blocks, catch.next_offset)
            queue.is_at_end = catch.next_offset >= catch.end
        return queue.pulled_to != before or queue.turn != turn

    def _ends(self, here: LocalQueues, queues: list[AssignedQueue], now: float) -> list[int]:
        """A slot and an end of each queue that rests at its end."""
        ends: list[int] = []
        for queue in queues:
            slot = here.slot_of(_queue_of(queue))
            if slot != NO_SLOT and now >= queue.rests_until:
                ends += (slot, max(queue.pulled_to, queue.end))
        return ends

    def look(self, queues: Iterable[AssignedQueue]) -> None:
        """Note where queues end now."""
        here = self._attached(time.monotonic())
        for queue in queues if here is not None else ():
            assert here is not None
            if self.serves(queue.place):
                queue.end = max(queue.end, here.end_of(_queue_of(queue)))

    # sleep

    @property
    def sleep(self) -> Callable[[float], None] | None:
        """A function that sleeps for seconds, until a queue has more or `wake` is called; None without a broker."""
        sleeper = self._sleeper
        if sleeper is None:
            return None

        def sleep(seconds: float) -> None:
            self._is_dry = not sleeper(seconds)

        return sleep

    def wake(self) -> None:
        """End a sleep that is under way."""
        if self._here is not None:
            self._here.wake()

    # the broker

    def _attached(self, now: float) -> LocalQueues | None:
        """The running broker's queues; None while none runs."""
        if self._here is not None:
            if not self._is_dry or now < self._look_at:
                return self._here
            self._is_dry, self._look_at = False, now + LIVENESS_SECONDS
            if self._here.is_alive():
                return self._here
            self._here.close()
            self._here = None
            self._heard.warn("the broker is gone", f"{self._store}: the broker has ended; waiting for the next one")
        elif now < self._look_at or self._is_closed:
            return None
        self._look_at = now + LIVENESS_SECONDS
        try:
            running = extent.running(self._store)
            if running is not None:
                self._here = LocalQueues(running)
        except (IpcError, StoreError, OSError) as error:
            self._heard.warn("the broker's memory cannot be read", f"{self._store}: {error}")
        return self._here


def _queue_of(queue: AssignedQueue) -> Queue:
    return queue.place.topic, queue.place.queue_id
