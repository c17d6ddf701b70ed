"""Named snapshots: where a store's log and its queues ended at one moment, kept so that reads can agree on it.

A snapshot is a small file, `slipstream.snapshots/NAME.json` below the store's root, which RocketMQ does not look at. It
is of the folder and the history that it was made in: a copy holds nothing and is not read by it. Until it expires it
keeps retention from the log that it names, even if its maker is gone; when the disk is nearly full it gives way
(engine/protocol/store/retention.py). One that cannot be read holds nothing, is not deleted, and is reported.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ipc.process import boot_id
from store.epochs import INT64_MAX, number_of, require_fields, text_of
from store.errors import OwnFileDamaged, StoreError
from store.files import file_io
from store.files.place import Place
from store.names import SNAPSHOTS
from store.notes import summed_json
from store.upkeep.leases import Held

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_RULE = "1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', a letter or digit first"
SUFFIX = ".json"
SNAPSHOTS_MAX = 100
BYTES_MAX = 8 << 20  # some 300,000 queues
HOUR_MS = 3_600_000
KEEP_MS_MAX = 31 * 24 * HOUR_MS
NAMES_TOLD_MAX = 10
ADVICE = "it holds nothing and is not read; remove it, and make the snapshot again"
SUM_HEX = re.compile(r"[0-9a-f]{64}")

Offsets = Mapping[str, Mapping[int, int]]  # topic: queue id: the first queue offset that is not in it


class SnapshotUnknown(StoreError):
    """Raised when a store has no snapshot of that name.

    Next: `slipstream snapshot --list STORE`; `slipstream snapshot NAME STORE` makes one.
    """

    code = "SNAPSHOT_UNKNOWN"

    def __init__(self, root: str, name: str, known: list[str]) -> None:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        listed = ", ".join(sorted(known)[:NAMES_TOLD_MAX]) or "none"
        super().__init__(
            f"{root}: no snapshot {name!r}; {hint}known: {listed}; `slipstream snapshot {name} STORE` makes one"
        )


class SnapshotForeign(StoreError):
    """Raised for a snapshot of another directory (this store is a copy) or of another history of the log.

    Next: `slipstream snapshot --drop NAME STORE`, then make it again here.
    """

    code = "SNAPSHOT_FOREIGN"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}; drop it and make it again here, or read without a snapshot")


class SnapshotGone(StoreError):
    """Raised when messages of a snapshot were deleted: it expired, retention deleted them, or the log was cut.

    Next: make it again, with a longer `--keep`; `failOnDataLoss=false` reads what retention has left of it.
    """

    code = "SNAPSHOT_GONE"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}; make the snapshot again")


class SnapshotRefused(StoreError):
    """Raised when a snapshot cannot be made: invalid name or time, too many snapshots, or too large.

    Next: do what the error says; nothing was changed.
    """

    code = "SNAPSHOT_REFUSED"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The log from `min_offset` to `end_offset`, a record's boundary, and the queues' ends there.

    `epoch` is the last reign that began below the end, (0, 0) before the first promotion; `tail` the SHA-256 of the
    log's last bytes. Times are of the wall clock, in ms.
    """

    name: str
    min_offset: int
    end_offset: int
    offsets: Offsets = field(repr=False)
    epoch: tuple[int, int]
    tail: str
    created_ms: int
    expires_ms: int
    place: Place
    boot: str

    @property
    def queues(self) -> int:
        """Return the number of queues in the snapshot."""
        return sum(map(len, self.offsets.values()))

    def is_here(self, folder: Place) -> bool:
        """Whether it was made for the store in that folder, whose device may have another number since a boot."""
        if self.place.is_same(folder):
            return True
        return (folder.path, folder.inode) == (self.place.path, self.place.inode) and self.boot != boot_id()

    def holds(self, now_ms: int) -> bool:
        """Whether retention waits for it; a clock that was put back makes it hold for KEEP_MS_MAX at most."""
        return now_ms < self.expires_ms <= now_ms + KEEP_MS_MAX


def is_name(text: str) -> bool:
    """Whether a snapshot may be called so: a name, never a path."""
    return NAME.fullmatch(text) is not None


def path_of(root: Path | str, name: str) -> Path:
    """The file of that snapshot. Raises SnapshotRefused."""
    if not is_name(name):
        raise SnapshotRefused(f"snapshot {name[:80]!r}: not a name for a snapshot; give {NAME_RULE}")
    return Path(root) / SNAPSHOTS / f"{name}{SUFFIX}"


def refuse_unkept(root: Path | str, name: str, keep_ms: int) -> None:
    """Raise SnapshotRefused for what is no name, or no time that a snapshot is kept for."""
    path = path_of(root, name)
    if not 0 < keep_ms <= KEEP_MS_MAX:
        asked, most = keep_ms / HOUR_MS, KEEP_MS_MAX // HOUR_MS
        raise SnapshotRefused(f"{path}: it would be kept for {asked:,.6g} h; give more than 0 h, at most {most} h")


def read(root: Path | str, name: str) -> Snapshot:
    """Return what the file says, checked against itself only. Raises SnapshotUnknown, OwnFileDamaged, OSError."""
    path = path_of(root, name)
    _refuse_link(path.parent)
    try:
        fields = summed_json.read(path, BYTES_MAX)
        if fields is not None:
            return _snapshot(fields, name)
    except ValueError as damaged:
        raise OwnFileDamaged(str(path), f"not a snapshot: {damaged}", ADVICE) from None
    raise SnapshotUnknown(str(root), name, list(itertools.islice(names(root), SNAPSHOTS_MAX)))


def write(root: Path | str, snapshot: Snapshot) -> None:
    """Write the file, all or nothing, readable for all who may read the store. Raises SnapshotRefused, OSError."""
    path = path_of(root, snapshot.name)
    _make(path.parent)
    _refuse_link(path.parent)
    try:
        summed_json.write(path, _fields(snapshot), BYTES_MAX)
    except ValueError:
        what = f"{snapshot.queues} queues do not fit into one snapshot, which holds {BYTES_MAX >> 20} MiB of offsets"
        raise SnapshotRefused(f"{path}: {what}; remove unused topics") from None
    os.chmod(path, file_io.FILE_MODE)  # whatever this user's umask is: the broker has to read it
    owner = os.stat(root)
    if os.geteuid() == 0 and owner.st_uid != 0:  # made by root for a broker that is not: it has to read it
        for made in (path.parent, path):
            os.chown(made, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=file_io.DIRECTORY_MODE)
    except FileExistsError:
        return
    folder.chmod(stat.S_IMODE(folder.stat().st_mode) | file_io.DIRECTORY_MODE)  # with what a group's folder hands on


def drop(root: Path | str, name: str) -> None:
    """Remove it, whatever it says. Raises SnapshotUnknown, OSError."""
    path = path_of(root, name)
    if not path.parent.is_dir() or not summed_json.remove(path):
        raise SnapshotUnknown(str(root), name, list(itertools.islice(names(root), SNAPSHOTS_MAX)))


def names(root: Path | str) -> Iterator[str]:
    """The snapshots there, sound or not; sorted by nothing. Raises AccessDenied, OSError."""
    folder = Path(root) / SNAPSHOTS
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX) and is_name(entry.name.removesuffix(SUFFIX)):
                    yield entry.name.removesuffix(SUFFIX)
    except FileNotFoundError:
        return
    except PermissionError:
        raise file_io.denied(folder) from None


class Holds:
    """The log that snapshots keep from retention. A file is read again only when it is another one."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int, int], Snapshot | str]] = {}

    def look(self, root: Path | str, now_ms: int) -> Held:
        """The lowest offset that one of them needs, at that time of the wall clock; and what was odd."""
        findings: list[str] = []
        try:
            _refuse_link(Path(root) / SNAPSHOTS)
            listed = list(itertools.islice(names(root), SNAPSHOTS_MAX + 1))
            here = Place.of(root)
        except (StoreError, OSError) as error:
            return Held(None, [f"{error}; the snapshots there hold nothing"])
        if len(listed) > SNAPSHOTS_MAX:
            folder = Path(root) / SNAPSHOTS
            findings.append(f"{folder}: more than {SNAPSHOTS_MAX} snapshots; those behind hold nothing, drop some")
        self._known = {name: known for name, known in self._known.items() if name in listed}
        lowest: int | None = None
        for name in listed[:SNAPSHOTS_MAX]:
            one = self._one(root, name)
            if isinstance(one, Snapshot) and not one.is_here(here):
                one = f"{path_of(root, name)}: made for {one.place.path}, a copy of it holds nothing here; drop it"
            if isinstance(one, str):
                findings.append(one)
            elif one is not None and one.holds(now_ms) and (lowest is None or one.min_offset < lowest):
                lowest = one.min_offset
        return Held(lowest, findings)

    def _one(self, root: Path | str, name: str) -> Snapshot | str | None:
        """Return the snapshot, or why it is invalid; None for one that has just gone."""
        try:
            status = path_of(root, name).lstat()
        except OSError:
            return None
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        known = self._known.get(name)
        if known is None or known[0] != stamp:
            try:
                said: Snapshot | str = read(root, name)
            except SnapshotUnknown:
                return None
            except (StoreError, OSError) as error:
                said = str(error)
            known = self._known[name] = stamp, said
        return known[1]


def _refuse_link(folder: Path) -> None:
    """Raise SnapshotForeign for a link: what lies behind it is another store's. Raises AccessDenied."""
    try:
        is_link = folder.is_symlink()
    except PermissionError:
        raise file_io.denied(folder) from None
    if is_link:
        raise SnapshotForeign(str(folder), "a symbolic link in the place of the folder of snapshots, remove it")


def _fields(one: Snapshot) -> dict[str, Any]:
    return {
        "name": one.name,
        "min_offset": one.min_offset,
        "end_offset": one.end_offset,
        "offsets": {topic: {str(queue): end for queue, end in ends.items()} for topic, ends in one.offsets.items()},
        "epoch": list(one.epoch),
        "tail": one.tail,
        "created_ms": one.created_ms,
        "expires_ms": one.expires_ms,
        "place": one.place.fields(),
        "boot_id": one.boot,
    }


def _snapshot(fields: dict[str, Any], name: str) -> Snapshot:
    """Make a snapshot of the file's fields. Raises ValueError."""
    require_fields(
        fields,
        "name",
        "min_offset",
        "end_offset",
        "offsets",
        "epoch",
        "tail",
        "created_ms",
        "expires_ms",
        "place",
        "boot_id",
    )
    place, epoch, tail = Place.from_fields(fields["place"]), fields["epoch"], text_of(fields, "tail")
    first = number_of(fields, "min_offset")
    if fields["name"] != name:
        raise ValueError("it is of another name")
    if place is None or not SUM_HEX.fullmatch(tail):
        raise ValueError("it does not say of what it is")
    if not isinstance(epoch, list) or len(epoch) != 2 or not all(_is_number(each) for each in epoch):
        raise ValueError("its epoch is invalid")
    return Snapshot(
        name,
        first,
        number_of(fields, "end_offset", first),
        _offsets(fields["offsets"]),
        (epoch[0], epoch[1]),
        tail,
        number_of(fields, "created_ms"),
        number_of(fields, "expires_ms"),
        place,
        text_of(fields, "boot_id"),
    )


def _offsets(said: Any) -> Offsets:
    if not isinstance(said, dict) or not all(isinstance(queues, dict) for queues in said.values()):
        raise ValueError("its offsets are not an object of topics")
    for queues in said.values():
        if not all(queue.isascii() and queue.isdecimal() and _is_number(end) for queue, end in queues.items()):
            raise ValueError("its offsets are no offsets of queues")
    return {topic: {int(queue): end for queue, end in queues.items()} for topic, queues in said.items()}


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= INT64_MAX
