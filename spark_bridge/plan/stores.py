"""Which stores a read is about: directories, globs, or what name servers know of this host; and their brokers' names.

Two replicas of one log would give every row twice, so they are an error. A broker that runs says its name; a store at
rest says it by the topics that a broker makes for itself; else the directory's name has to do.
"""

from __future__ import annotations

import bisect
import glob
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from spark_bridge.options.read import ReadOptions
from spark_bridge.options.values import InvalidOption, nearest
from spark_bridge.replica.tls import tls_of
from store.errors import MalformedConfig
from store.files.directory import StoreDirectory, commit_log_apart
from store.files.segment import file_name
from store.files.segment_files import OFFSET_MAX, named_files
from store.message.topics import AUTO_CREATE_TOPIC, SYSTEM_PREFIX
from store.names import COMMIT_LOG, CONFIG, TOPICS
from store.tables import json_files
from store.tables.tables import topics

GLOB_MARKS = frozenset("*?[")
FILE_SCHEME = "file:"
COMPARED_BYTES = 256  # of a log's oldest bytes: a record's head with its times and hosts
MEMBER_TOPIC, REPLY_SUFFIX = SYSTEM_PREFIX + "SYNC_BROKER_MEMBER_", "_REPLY_TOPIC"
PERM_INHERIT = 1
PLAIN_NAMES = ("store", "data", "rocketmq")


class StoreAt(NamedTuple):
    """A store's root, and the name of its broker: unlike that of any other store of the read."""

    root: str
    broker_name: str


def resolve_stores(options: ReadOptions) -> list[StoreAt]:
    """The stores of a read, by name.

    Raises InvalidOption when there is none, when two hold the same log, when options name a broker that none is of;
    NameServersUnreachable, and NoReplicaHere for a broker that has no replica on this host (`failOnDataLoss` off: it is
    left out, and that is said).
    """
    roots = _given(options.paths) if options.paths else _from_name_servers(options)
    _refuse_replicas(roots)
    names = [broker_name_of(root) for root in roots]
    often = Counter(names)
    stores = [StoreAt(root, name if often[name] == 1 else root) for root, name in zip(roots, names, strict=True)]
    _refuse_unknown_brokers(options, [store.broker_name for store in stores])
    return sorted(stores, key=lambda store: store.broker_name)


def _given(paths: Sequence[str]) -> list[str]:
    roots = [root for path in paths for root in _matching(path)]
    return list({os.path.realpath(root): root for root in roots}.values())


def _matching(path: str) -> list[str]:
    """The directory of that name; else the stores that a glob or a list with commas names."""
    path = path.removeprefix(FILE_SCHEME) or path
    path = "/" + path.lstrip("/") if path.startswith("//") else path
    if os.path.isdir(path) or not (GLOB_MARKS & set(path) or "," in path):
        return [path]
    if "," in path:
        return [root for part in path.split(",") if part.strip() for root in _matching(part.strip())]
    roots = sorted(root for root in glob.glob(path) if (Path(root) / COMMIT_LOG).is_dir())
    if not roots:
        raise InvalidOption(f"path={path!r}: no directory of that pattern holds a store (a directory `{COMMIT_LOG}`)")
    return roots


def _from_name_servers(options: ReadOptions) -> list[str]:
    from spark_bridge.replica import name_servers  # loads how remoting is spoken

    roots, missing = name_servers.find_replicas(options.name_servers, tls_of(options.tls_config_file))
    if missing and (options.rows.fail_on_data_loss or not roots):
        raise name_servers.NoReplicaHere(missing)
    for reason in missing:
        warnings.warn(f"left out, because failOnDataLoss=false: {reason}", stacklevel=2)
    return roots


def _refuse_replicas(roots: Sequence[str]) -> None:
    logs = [_files(Path(root)) for root in roots] if len(roots) > 1 else []
    for number, log in enumerate(logs):
        for other in range(number):
            if _is_same_log(log, logs[other]):
                what = f"{roots[other]} and {roots[number]} hold the same log (a master and its slave?)"
                raise InvalidOption(f"{what}: give one of them")


def _is_same_log(*logs: _Log) -> bool:
    """Whether both have the same bytes where both have any, at the beginning of the one that begins later."""
    if not all(log.files for log in logs):
        return False
    base = max(log.files[0][0] for log in logs)
    heads = []
    for log in logs:
        start, size = log.files[max(0, bisect.bisect_right(log.files, (base, OFFSET_MAX)) - 1)]
        if not start <= base < start + size:
            return False
        with open(log.directory / file_name(start), "rb") as file:
            heads.append(os.pread(file.fileno(), COMPARED_BYTES, base - start))
    return heads[0] == heads[1] and any(heads[0])


class _Log(NamedTuple):
    """A log's directory, and the files there that are not empty: their offsets and bytes, ascending."""

    directory: Path
    files: list[tuple[int, int]]


def _files(root: Path) -> _Log:
    commitlog = commit_log_apart(root) or root / COMMIT_LOG
    return _Log(commitlog, [(base, size) for base, size in named_files(commitlog) if size])


def broker_name_of(root: str) -> str:
    """The name of the store's broker, as far as the store tells it."""
    pointer = StoreDirectory(root).read_pointer() or {}
    name = pointer.get("settings", {}).get("brokerName")
    if isinstance(name, str) and name:
        return name
    try:
        table = topics(json_files.read(Path(root) / CONFIG / TOPICS))
    except MalformedConfig:  # the rows are none the worse for it
        table = {}
    return _named_by_topics(table.items()) or _directory_name(Path(root).resolve())


def _named_by_topics(table: Iterable[tuple[str, dict[object, object]]]) -> str | None:
    """A broker's own topic (TopicConfigManager) bears its name, and passes its settings on to new ones."""
    entries = dict(table)
    for topic in entries:
        if topic.startswith(MEMBER_TOPIC):
            return topic.removeprefix(MEMBER_TOPIC)
    heirs = [name for name, fields in entries.items() if int(str(fields.get("perm", 0))) & PERM_INHERIT]
    own = [name for name in heirs if name != AUTO_CREATE_TOPIC and f"{name}{REPLY_SUFFIX}" not in entries]
    return own[0] if len(own) == 1 else None


def _directory_name(root: Path) -> str:
    return root.parent.name if root.name in PLAIN_NAMES and root.parent.name else root.name


def _refuse_unknown_brokers(options: ReadOptions, names: Sequence[str]) -> None:
    queues = [item.queue for item in (*options.starting_offsets, *options.ending_offsets)]
    queues += [item.queue for item in (*options.starting_moments, *options.ending_moments) if item.queue is not None]
    known = frozenset(names)
    for queue in (*queues, *options.assigned):
        if queue.broker is not None and queue.broker not in known:
            hint = nearest(queue.broker, names)
            raise InvalidOption(f"no store of broker {queue.broker!r}, which options name; {hint}")
