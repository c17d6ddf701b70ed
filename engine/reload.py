"""SIGHUP: a broker's file is read again while it runs; what may change then is changed, all else is named.

A file with an error changes nothing. The words are the clients role's to publish: it is asked, and looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

from engine.settings.config import BrokerConfig, ConfigError, load
from engine.settings.keys import KEYS
from engine.settings.read_again import outcome, tell_warnings
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.region_directory import settings_request
from ipc.clock import monotonic_ms

log = logging.getLogger("slipstream")

TAKEN_WITHIN_MS = 30_000
LIVE = {key.name: key.field for key in live_settings.KEYS.values()}


class _Asked(NamedTuple):
    """A change that the clients role has not made yet."""

    counters: BrokerCounters
    before: dict[str, str]
    restart: list[str]
    until_ms: int


class Reload:
    """Reads one broker's file again. `begun` and `ended` are called around each reading, for a service manager."""

    def __init__(
        self, file: str, begun: Callable[[], None] = lambda: None, ended: Callable[[str], None] = lambda _text: None
    ) -> None:
        self.file, self._begun, self._ended = file, begun, ended
        self._is_wanted = False
        self._asked: _Asked | None = None

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Handler for SIGHUP; `turn` acts."""
        self._is_wanted = True

    @property
    def has_work(self) -> bool:
        """Whether `turn` is to be called."""
        return self._is_wanted or self._asked is not None

    def turn(self, counters: BrokerCounters, of_file: BrokerConfig, *, has_clients: bool) -> BrokerConfig:
        """Read the file when that is wanted, see what became of it; the settings that the broker's next role has."""
        if self._asked is not None:
            self._follow(self._asked, counters)
        elif self._is_wanted:
            self._is_wanted = False
            self._begun()
            return self._read(counters, of_file, has_clients=has_clients)
        return of_file

    def _read(self, counters: BrokerCounters, of_file: BrokerConfig, *, has_clients: bool) -> BrokerConfig:
        try:
            wanted, warnings = load(self.file)
        except ConfigError as error:
            return self._refuse(str(error), of_file)
        tell_warnings(log, warnings)
        restart = [
            key.name
            for key in KEYS
            if key.name not in LIVE and getattr(wanted, key.field) != getattr(of_file, key.field)
        ]
        asked = _Asked(counters, live_settings.texts(counters), restart, monotonic_ms() + TAKEN_WITHIN_MS)
        words = live_settings.words(wanted)
        if has_clients:
            try:
                settings_request.write(counters.directory, words)
            except OSError as error:
                return self._refuse(f"the clients role cannot be reached: {error.strerror}", of_file)
        else:
            live_settings.change(counters, words)
        self._asked = asked
        self._follow(asked, counters)
        return _with_live(of_file, wanted)

    def live(self, of_file: BrokerConfig) -> BrokerConfig:
        """The settings with which another role begins: what administrators had written into the file since is in."""
        try:
            return _with_live(of_file, load(self.file)[0])
        except ConfigError as error:
            log.warning("what the broker began with counts: %s", error)
            return of_file

    def _refuse(self, why: str, of_file: BrokerConfig) -> BrokerConfig:
        log.error("SIGHUP: nothing was changed: %s", why)
        self._ended("nothing was changed: " + why)
        return of_file

    def _follow(self, asked: _Asked, counters: BrokerCounters) -> None:
        if asked.counters is not counters:  # another role has begun, with what the file says
            self._asked = None
            self._ended(f"{self.file} was read again")
        elif not settings_request.is_pending(counters.directory):
            before, now = asked.before, live_settings.texts(counters)
            applied = [f"{name}={now[name]} (it was {before[name]})" for name in now if now[name] != before[name]]
            self._end(outcome(self.file, applied, asked.restart))
        elif monotonic_ms() >= asked.until_ms:
            self._end(f"{self.file} was read, but the clients role has not applied it yet: it will once it runs again")

    def _end(self, text: str) -> None:
        self._asked = None
        log.info("SIGHUP: %s", text)
        self._ended(text)


def _with_live(of_file: BrokerConfig, wanted: BrokerConfig) -> BrokerConfig:
    """The settings of the one, but for those that may change at run time: they are the other's."""
    return of_file.replaced(**{field: getattr(wanted, field) for field in LIVE.values()})
