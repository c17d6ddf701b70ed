"""A flusher in virtual time: the real one, on a disk that knows what was brought to it."""

from __future__ import annotations

from collections.abc import Callable

from engine.keeping import flusher
from engine.settings.config import BrokerConfig
from tests.simulation.logs import Log
from tests.simulation.world import NOTHING, Actor, World


class Flushing(Actor):
    """The flusher of a broker; `follow` is called once more is on the disk."""

    def __init__(self, world: World, log: Log, config: BrokerConfig, follow: Callable[[], None]) -> None:
        super().__init__(world)
        self._log, self._follow = log, follow
        self._role = flusher.open_role(config, log.counters)
        self._word, self._seen, _timeout_ms = self._role.awaited(flusher.IDLE_MS_MAX)
        self.wake()

    def close(self) -> None:
        """End the process, which brings nothing more to the disk."""
        self.is_gone = self._role._failed = True
        self._role.close()

    def look(self) -> None:
        """Work soon if the word that it sleeps on has changed."""
        if self._word.read() != self._seen:
            self.wake(self.world.rng.choice((1, 5)))

    def turn(self) -> object:
        """Bring to the disk what is due, then sleep until the next timer."""
        before = self._log.flushed
        while self._role.do_work(self.world.now_ms):
            pass
        self._word, self._seen, timeout_ms = self._role.awaited(flusher.IDLE_MS_MAX)
        self.wake(max(timeout_ms, 1))
        if self._log.flushed == before:
            return NOTHING
        self._follow()
        return None
