"""Settings that an administrator may change while a broker runs: which they are, and the words that hold them.

Each is one counter, named like its field in engine.settings.config. The supervisor publishes what the file says before
it forks; from then on the clients role is their only writer, and finds them there when it is started again. A file that
is read again while the broker runs comes to it by engine.shared_memory.region_directory.settings_request.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from engine.protocol.broker.requests import Changeable
from engine.protocol.naming.registration import PERIOD_MS_MAX, PERIOD_MS_MIN
from engine.settings import keys as config_keys
from engine.settings.config import BrokerConfig, converted
from engine.settings.key import Key
from engine.settings.key_names import why_not_live
from engine.settings.log_settings import level_text
from engine.shared_memory import addresses
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.counters import Cursor

NAMES = (
    "brokerPermission", "registerNameServerPeriod", "deleteWhen", "fileReservedTime", "diskMaxUsedSpaceRatio",
    "haFlowControlEnable", "maxHaTransferByteInSecond", "maxHaCatchUpByteInSecond", "logLevel",
)  # fmt: skip
KEYS = {  # RocketMQ takes a period out of bounds as the nearest bound
    key.name: key._replace(low=PERIOD_MS_MIN, high=PERIOD_MS_MAX) if key.name == "registerNameServerPeriod" else key
    for key in config_keys.KEYS
    if key.name in NAMES
}
DAY_HOURS = 24


class Retention(NamedTuple):
    """Settings that decide which files are deleted."""

    delete_when_hours: frozenset[int]
    reserved_hours: int
    max_used_percent: int


def word_of(value: int | frozenset[int]) -> int:
    """A setting as one word: of hours, each is a bit."""
    return int(value) if isinstance(value, int) else sum(1 << hour for hour in value)


def value_of(key: Key, word: int) -> int | frozenset[int]:
    """Return a setting's value from its word: a bool, a set of hours or a number."""
    if key.kind == "bool":
        return bool(word)
    return _hours_of(word) if key.kind == "hours" else word


def _hours_of(word: int) -> frozenset[int]:
    return frozenset(hour for hour in range(DAY_HOURS) if word >> hour & 1)


def _parsed(key: Key, text: str) -> int:
    return word_of(converted(key, text))


def changeable() -> dict[str, Changeable]:
    """The settings by name, for the requests of administrators."""
    return {name: Changeable(partial(_parsed, key), key.allowed) for name, key in KEYS.items()}


def why_not(name: str) -> str:
    """Return why a setting cannot be changed while the broker runs; its name is not in `changeable`."""
    return why_not_live(name, KEYS)


def publish(counters: BrokerCounters, config: BrokerConfig) -> None:
    """Publish the settings of the file; only the supervisor does this, before it forks."""
    for name, word in words(config).items():
        waiting.publish(_cursor(counters, KEYS[name]), word)


def words(config: BrokerConfig) -> dict[str, int]:
    """Return a file's settings as words, by name."""
    return {name: word_of(getattr(config, key.field)) for name, key in KEYS.items()}


def _cursor(counters: BrokerCounters, key: Key) -> Cursor:
    return counters.region.cursor_or_absent(key.field)


def values(counters: BrokerCounters) -> dict[str, int | frozenset[int]]:
    """The settings as they are now, by name."""
    return {name: value_of(key, _cursor(counters, key).read()) for name, key in KEYS.items()}


def text_of(value: object, kind: str) -> str:
    """A setting as its file could say it."""
    if value is None:
        return ""
    if kind == "log_level" and isinstance(value, int):
        return level_text(value)
    if isinstance(value, frozenset):
        return ";".join(f"{hour:02d}" for hour in sorted(value))
    if isinstance(value, tuple):
        return addresses.host_and_port(*value) if kind == "host_port" else ";".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def texts(counters: BrokerCounters) -> dict[str, str]:
    """The settings as they are now, as a file could say them."""
    return texts_of({name: _cursor(counters, key).read() for name, key in KEYS.items()})


def texts_of(words: Mapping[str, int]) -> dict[str, str]:
    """What words say, by name, as a file could say it."""
    return {name: text_of(value_of(KEYS[name], word), KEYS[name].kind) for name, word in words.items()}


def change(counters: BrokerCounters, wanted: Mapping[str, int]) -> list[str]:
    """Publish these words, one after the other, and tell the names of those that were others before.

    Longer times and higher percentages come first, lower ones last, hours between them: so the retention that somebody
    finds between two of them, or after a kill, deletes nothing that it would keep both before and after.
    """
    before = {name: _cursor(counters, KEYS[name]).read() for name in wanted}

    def turn(name: str) -> int:
        return 1 if KEYS[name].kind == "hours" else 0 if wanted[name] > before[name] else 2

    changed = sorted((name for name in wanted if wanted[name] != before[name]), key=turn)
    for name in changed:
        waiting.publish(_cursor(counters, KEYS[name]), wanted[name])
    return changed


def retention(counters: BrokerCounters) -> Retention:
    """Return the current settings for retention: words of one moment, read twice."""
    cursors = (counters.delete_when_hours, counters.file_reserved_hours, counters.disk_max_used_space_percent)
    seen = [cursor.read() for cursor in cursors]
    while (again := [cursor.read() for cursor in cursors]) != seen:
        seen = again
    hours, reserved_hours, percent = seen
    return Retention(_hours_of(hours), reserved_hours, percent)
