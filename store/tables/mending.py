"""Reads a broker's tables where a file is damaged: sets the file aside, and goes on with what is sound.

Implements: nothing of RocketMQ's, which reads the backup without a word, and does not start where that is damaged, too
A file that is no JSON is replaced by its backup; without a sound backup by the entries before the damage. A file in
which single entries are of a wrong kind keeps all others, and has the wrong ones from its backup, where that has them.
The damaged file stays beside the table as `NAME.aside` (`store.files.set_aside`) until somebody removes it: so long a
broker reports it. Its second name is there before the table's file is replaced, so that no death loses both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from store.errors import MalformedConfig
from store.files import file_io, set_aside
from store.names import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    DELETED_TOPICS,
    GIVEN_OFFSETS,
    GROUPS,
    LIGHT_OFFSETS,
    REQUEST_MODES,
    TIMER_METRICS,
    TOPICS,
)
from store.tables import json_files, json_steps
from store.tables import tables as broker_tables
from store.tables.fastjson import INT32_MAX, INT32_MIN
from store.tables.tables import (
    FORBIDDEN_TABLE,
    GROUP_TABLE,
    KEY_VALUES,
    LIGHT_TABLE,
    OFFSET_TABLE,
    TOPIC_TABLE,
    VERSION,
    WIPED,
    DataVersion,
)

log = logging.getLogger("slipstream")

Value = dict[Any, Any]
Check = Callable[[Value], object]  # raises MalformedConfig


class Mended(NamedTuple):
    """The content of a table's file by now; `is_mended`: not what it said, which lies beside it."""

    value: Value
    is_mended: bool = False


class Wrong(NamedTuple):
    """An entry of a wrong kind; the table itself, or its version, where the key is its name."""

    table: str
    key: Any
    reason: str


def _check_topic(value: Value) -> None:
    for topic, fields in broker_tables.topics(value, TOPICS).items():
        wrong = [name for name in ("readQueueNums", "writeQueueNums", "perm") if not _is_int32(fields.get(name, 0))]
        if wrong or not isinstance(fields.get("attributes") or {}, dict):
            raise MalformedConfig(TOPICS, f"{topic}: {', '.join(wrong) or 'attributes'} is of a wrong kind")


def _is_int32(value: object) -> bool:
    return type(value) is int and INT32_MIN <= value <= INT32_MAX


def _check_key_values(value: Value) -> None:
    for name, of in value[KEY_VALUES].items():
        if not isinstance(of, dict) or any(text is None or isinstance(text, dict | list) for text in of.values()):
            raise MalformedConfig(KEY_VALUES, f"{name} is not an object of texts")


def _check_wiped(value: Value) -> None:
    for version in value[WIPED].values():
        DataVersion.of({VERSION: version})


OF_NAME_SERVERS: dict[str, Check] = {KEY_VALUES: _check_key_values, WIPED: _check_wiped}
WHOLE: dict[str, Check] = {VERSION: DataVersion.of}
DELETED: dict[str, Check] = {"deletedTopics": broker_tables.deleted_topics}
ENTRIES: dict[str, dict[str, Check]] = {  # by file: its tables, and what an entry has to be
    TOPICS: {TOPIC_TABLE: _check_topic},
    GROUPS: {GROUP_TABLE: broker_tables.groups, FORBIDDEN_TABLE: broker_tables.forbidden_topics},
    CONSUMER_OFFSETS: {OFFSET_TABLE: broker_tables.consumer_offsets},
    LIGHT_OFFSETS: {OFFSET_TABLE: broker_tables.consumer_offsets, LIGHT_TABLE: broker_tables.consumer_offsets},
    GIVEN_OFFSETS: {OFFSET_TABLE: broker_tables.consumer_offsets},
    DELAY_OFFSETS: {OFFSET_TABLE: broker_tables.delay_offsets},
    TIMER_METRICS: {"timingCount": lambda _value: None},
    REQUEST_MODES: {"messageRequestModeMap": lambda _value: None},
    DELETED_TOPICS: {},
}


def read(path: Path) -> Mended:
    """Return what the table's file says; mend a damaged one first. Raises MalformedConfig where that is impossible."""
    try:
        loaded = json_files.load(path)
        if not loaded.problem:
            return Mended(loaded.value)
    except MalformedConfig:
        pass
    return mend(path)


def checked(path: Path) -> Mended:
    """Read like `read`, and check every entry: for small tables. Raises MalformedConfig."""
    mended = read(path)
    return mend(path) if not mended.is_mended and _split(path.name, mended.value)[1] else mended


def mend(path: Path) -> Mended:
    """The same, after a look at every entry."""
    try:
        with json_files.exclusive(path.parent):
            return _mend(path)
    except OSError as error:
        why = f"it is damaged and cannot be replaced: {error.strerror}"
        raise MalformedConfig(str(path), why) from error


def _mend(path: Path) -> Mended:
    backup = path.with_name(path.name + json_files.BACKUP_SUFFIX)
    if not (path.exists() or backup.exists()):
        return Mended({})
    value, reason = _parsed(path)
    if value is not None:
        sound, wrong = _split(path.name, value)
        if not wrong:
            return Mended(sound)
        other, _why = _parsed(backup)
        _take(sound, _split(path.name, other or {})[0], wrong)
        reason, used = f"{wrong[0].reason} (wrong entries: {len(wrong)})", "all other entries"
    else:
        sound, used = _instead(path, backup)
    kept = _keep(path)
    file_io.replace_file(path, json_files.encode(sound))
    log.error("%s: %s; %s; continuing with %s", path, reason, kept, used)
    return Mended(sound, is_mended=True)


def _instead(path: Path, backup: Path) -> tuple[Value, str]:
    """Return what stands for a file that is no JSON, and the description of that."""
    other, _why = _parsed(backup)
    if other is not None:
        return _split(path.name, other)[0], f"its backup, {backup.name}"
    sound = _split(path.name, _beginning(path))[0]
    if not sound:
        sound = _split(path.name, _beginning(backup))[0]
    if backup.exists():
        _keep(backup)
    count = sum(len(table) for name, table in sound.items() if name != VERSION and isinstance(table, dict))
    return sound, f"the {count} entries before the damage, as there is no sound backup"


def _parsed(path: Path) -> tuple[Value | None, str]:
    """Return a file's object and ""; or None and the reason."""
    try:
        content = json_files.content_of(path)
        if content:
            return json_files.parse(content, str(path)), ""
    except MalformedConfig as error:
        return None, error.reason
    return None, "it is empty" if path.exists() else "it is not there"


def _beginning(path: Path) -> Value:
    with suppress(MalformedConfig):
        value = json_steps.sound_beginning(json_files.content_of(path))
        return value if isinstance(value, dict) else {}
    return {}


def _split(name: str, value: Value) -> tuple[Value, list[Wrong]]:
    """Return what is sound of a file's value, and what is not."""
    sound, wrong = dict(value), list[Wrong]()
    for part, check in WHOLE.items() if name != DELETED_TOPICS else DELETED.items():
        try:
            check(value)
        except MalformedConfig as error:
            sound.pop(part, None)
            wrong.append(Wrong(part, part, error.reason))
    for table, check in ENTRIES.get(name, OF_NAME_SERVERS).items():
        entries = value.get(table)
        if entries is None:
            continue
        if not isinstance(entries, dict):
            del sound[table]
            wrong.append(Wrong(table, table, f"{table} is not an object"))
            continue
        checked = [Wrong(table, key, _wrong_in(check, table, key, entry)) for key, entry in entries.items()]
        sound[table] = {one.key: entries[one.key] for one in checked if not one.reason}
        wrong += [one for one in checked if one.reason]
    return sound, wrong


def _wrong_in(check: Check, table: str, key: Any, entry: Any) -> str:
    try:
        check({table: {key: entry}})
        return ""
    except MalformedConfig as error:
        return error.reason


def _take(sound: Value, other: Value, wrong: list[Wrong]) -> None:
    """The wrong entries as another file has them."""
    for one in wrong:
        if one.key == one.table and one.table in other:
            sound[one.table] = other[one.table]
        elif one.key in other.get(one.table, {}):
            sound[one.table][one.key] = other[one.table][one.key]


def _keep(path: Path) -> str:
    """Give a damaged file a second name; what became of it."""
    if not path.exists():
        return "there is nothing to set aside"
    aside = set_aside.keep_aside(path)
    if aside is None:
        return f"it is lost, since {set_aside.KEPT_MAX} others were set aside: look at {path.name}{set_aside.SUFFIX}*"
    return f"it was set aside as {aside.name}"
