"""Connections in virtual time: each direction delays, cuts its bytes anywhere, fills up, goes dead without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.world import Actor, World

if TYPE_CHECKING:
    from tests.simulation.receiver import Slave

BUFFER_BYTES = 16_000


class Weather(NamedTuple):
    """How a network is on this day."""

    delay_ms_max: int
    cuts: float  # how often what was sent comes in pieces


class Pipe:
    """One direction: bytes in order. What was sent is taken as a socket takes it: as much as there is room for."""

    def __init__(self, world: World, weather: Weather) -> None:
        self._world, self._weather = world, weather
        self.inbox = bytearray()
        self.reader: Actor | None = None
        self.writer: Actor | None = None
        self.is_dead = False  # nothing arrives any more, and nobody is told
        self.is_ended = False  # for the reader: behind the inbox comes nothing
        self.is_reset = False  # for either side: what was on its way is lost
        self.has_been_sent = False
        self._on_the_way = 0
        self._arrives_ms = 0

    @property
    def room(self) -> int:
        """How much may be sent at once."""
        return max(BUFFER_BYTES - self._on_the_way - len(self.inbox), 0)

    def send(self, data: bytes | memoryview, *, beyond: bool = False) -> int:
        """Send what there is room for, or all of it; how much that was."""
        is_first, data = not self.has_been_sent, bytes(data if beyond else data[: self.room])
        self._on_the_way += len(data)
        self.has_been_sent = True
        rng, at = self._world.rng, 0
        while at < len(data):
            cut = rng.randint(at + 1, len(data)) if not is_first and rng.random() < self._weather.cuts else len(data)
            self._later(lambda piece=data[at:cut]: self._arrive(piece))
            at = cut
        return len(data)

    def end(self) -> None:
        """The writer hung up: that arrives behind what it sent."""
        self._later(self._end)

    def reset(self) -> None:
        """Both sides are told now; what was on its way never comes."""
        self.is_reset = self.is_ended = True
        self.inbox.clear()
        for actor in (self.reader, self.writer):
            if actor is not None:
                actor.wake()

    def hold(self, held_ms: int) -> None:
        """Let nothing arrive for a while; it comes afterwards."""
        self._arrives_ms = max(self._arrives_ms, self._world.now_ms + held_ms)

    def take(self, size: int | None = None, *, whole: bool = False) -> bytes:
        """What has come, or a part of it: a read brings what it likes. The writer has room again."""
        rng, there = self._world.rng, len(self.inbox) if size is None else min(size, len(self.inbox))
        if there and not whole and rng.random() < self._weather.cuts:
            there = rng.randint(1, there)
        data = bytes(self.inbox[:there])
        was_full = self.room == 0
        del self.inbox[:there]
        if was_full and there and self.writer is not None:
            self.writer.wake()
        return data

    def _later(self, action: Callable[[], None]) -> None:
        now_ms = self._world.now_ms
        self._arrives_ms = max(self._arrives_ms, now_ms + self._world.rng.randint(0, self._weather.delay_ms_max))
        self._world.after(self._arrives_ms - now_ms, action)

    def _arrive(self, data: bytes) -> None:
        if self.is_dead or self.is_reset:
            return
        self._on_the_way -= len(data)
        self.inbox += data
        if self.reader is not None:
            self.reader.wake()

    def _end(self) -> None:
        if not self.is_dead:
            self.is_ended = True
            if self.reader is not None:
                self.reader.wake()


class Connection:
    """Both directions between a caller and who accepted it."""

    def __init__(self, world: World, weather: Weather, host: int, port: int) -> None:
        self.host, self.port = host, port  # the caller's
        self.owner: Slave | None = None  # a stranger's has none
        self.breaks_in_head = False  # as soon as a part of a record's head has come, and no more
        self.to_caller, self.to_listener = Pipe(world, weather), Pipe(world, weather)

    @property
    def pipes(self) -> tuple[Pipe, Pipe]:
        """Both directions."""
        return self.to_caller, self.to_listener

    def die(self) -> None:
        """Nothing arrives any more on either side, and nobody is told."""
        for pipe in self.pipes:
            pipe.is_dead = True

    def reset(self) -> None:
        """Both sides are told that it is over."""
        for pipe in self.pipes:
            pipe.reset()
