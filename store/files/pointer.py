"""The pointer to a running broker: a file in the store's root that says who it is and where its shared memory lies.

It is bound to its place: it says which directory is the root (device, inode, path) and is believed there only, so a
copy that travelled with a copied store says nothing of it. Its broker holds a lock on the file (an open file
description's, as long as any of its processes lives), which shows every process that sees the file whether a broker
runs, also from another PID namespace. A random token is here and in the region directory's `owner` file, which says the
root, too: shared memory is used only where both name each other. Nothing that the file says is taken on trust.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ipc.process import boot_id, is_alive, is_hidden, namespace
from store.errors import NotAStore
from store.files import file_io, small_files
from store.files.place import Place, is_there
from store.names import COMMIT_LOG, POINTER

COUNTERS_FILE = "counters"  # in the region directory that the pointer names
OWNER_NAME = "owner"
SINKS_NAME = "sinks"  # a directory beside the regions: notes of the Spark sink's tasks
POINTER_BYTES_MAX = 1 << 20
OWNER_BYTES_MAX = 1 << 16
TOKEN_BYTES = 16
TOLD_MAX = 1000
COMMIT_LOG_KEY = "storePathCommitLog"

_said_texts: set[str] = set()


class Pointer(NamedTuple):
    """A pointer that belongs to the store at `root`; `fields` is what it says, with paths as they lead from here."""

    root: Path
    fields: dict[str, Any]
    place: Place
    token: str
    is_held: bool
    owner_uid: int

    @property
    def pid(self) -> int:
        """The broker's process, in its own namespace."""
        return int(self.fields["pid"])

    @property
    def start_time(self) -> int:
        """Return when the broker's process began."""
        return int(self.fields["start_time"])

    @property
    def is_of_this_boot(self) -> bool:
        """Whether this very machine, since its last start, ran the broker."""
        return bool(self.fields.get("boot_id") == boot_id())

    @property
    def is_alive(self) -> bool:
        """Whether the broker runs: it holds the file and, where pids can be compared, is there."""
        if not self.is_held:
            return False
        if not self.is_of_this_boot or self.fields.get("namespace") != namespace():
            return True
        return is_alive(self.pid, self.start_time) or is_hidden(self.pid)

    def regions(self) -> Path | None:
        """The broker's region directory; None where none can be reached that names this store and this broker."""
        path = str(self.fields["region_directory"])
        for candidate in (Path(path), self.place.led_from(path, self.root)):
            if candidate is not None and self._owns(candidate):
                return candidate
        return None

    def _owns(self, directory: Path) -> bool:
        try:
            status = directory.lstat()
        except (OSError, ValueError):
            return False
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != self.owner_uid:
            return False
        owner = read_owner(directory)
        return owner is not None and owner[0] == self.token and owner[1].is_same(self.place)


def new_token() -> str:
    """A name that nobody can guess."""
    return os.urandom(TOKEN_BYTES).hex()


def write(root: Path, commitlog: Path, fields: Mapping[str, Any]) -> int:
    """Tell other processes of this broker; the descriptor that holds the file, open as long as the broker runs.

    `fields` has pid, start_time, region_directory, settings, and the token of the region directory where it has one.
    """
    said = {
        "boot_id": boot_id(),
        "namespace": namespace(),
        **fields,
        "root": Place.of(root).fields(),
        COMMIT_LOG: Place.of(commitlog).fields() if commitlog.is_dir() else None,
    }
    if "token" not in said:
        said["token"] = new_token()
        if os.path.isdir(said["region_directory"]):
            claim(Path(said["region_directory"]), root, said["token"])
    return file_io.replace_held(root / POINTER, json.dumps(said, indent=1).encode("utf-8"))


def claim(directory: Path, root: Path, token: str) -> None:
    """Say whose region directory this is."""
    content = {"token": token, "root": Place.of(root).fields()}
    file_io.replace_file(directory / OWNER_NAME, json.dumps(content).encode("utf-8"))


def read_owner(directory: Path) -> tuple[str, Place] | None:
    """The token and the root that a region directory names; None when it names none. Raises AccessDenied."""
    try:
        fields = json.loads(small_files.read_small(directory / OWNER_NAME, OWNER_BYTES_MAX))
    except PermissionError:
        raise file_io.denied(directory / OWNER_NAME) from None
    except (OSError, ValueError, RecursionError):
        return None
    token = fields.get("token") if isinstance(fields, dict) else None
    place = Place.from_fields(fields.get("root")) if isinstance(fields, dict) else None
    return (token, place) if isinstance(token, str) and place is not None else None


def read(root: Path) -> Pointer | None:
    """The pointer of the store at `root`; None without one, and for a foreign one, which is said once.

    Raises NotAStore when the file is something else, AccessDenied.
    """
    path = root / POINTER
    try:
        fd = small_files.open_small(path)
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise NotAStore(str(root), "it is a file") from error
    except PermissionError:
        raise file_io.denied(path) from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotAStore(str(path), "not a pointer file of Slipstream (it is not a regular file); remove it")
        held = small_files.is_held(fd)
        fields = _fields(path, os.pread(fd, POINTER_BYTES_MAX, 0))
    finally:
        os.close(fd)
    here, there = Place.of(root), Place.from_fields(fields.get("root"))
    if there is None or not _is_at(here, there, fields):
        says = f"it was written for {there.path}" if there is not None else "it does not name a directory"
        say_once(f"{path}: ignored: {says}, not for this directory (a copy?); using this store's own files")
        return None
    fields["settings"] = _led(fields, root, there, status.st_uid)
    token = fields.get("token")
    return Pointer(root, fields, there, token if isinstance(token, str) else "", held, status.st_uid)


def _fields(path: Path, content: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise NotAStore(str(path), f"not a pointer file of Slipstream ({error}); remove it") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("settings"), dict):
        raise NotAStore(str(path), "not a pointer file of Slipstream; remove it")
    numbers = all(type(fields.get(name)) is int and 0 <= fields[name] < 1 << 63 for name in ("pid", "start_time"))
    texts = (fields.get("region_directory"), fields["settings"].get(COMMIT_LOG_KEY, ""))
    if not numbers or not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise NotAStore(str(path), "not a pointer file of Slipstream; remove it")
    return fields


def _is_at(here: Place, there: Place, fields: Mapping[str, Any]) -> bool:
    """Whether the pointer is of this directory; since a new boot its device may have got another number."""
    if here.is_same(there):
        return True
    return (here.path, here.inode) == (there.path, there.inode) and fields.get("boot_id") != boot_id()


def _led(fields: Mapping[str, Any], root: Path, there: Place, owner_uid: int) -> dict[str, Any]:
    """The settings, with the commit log where it lies as seen from here; below the root where the file errs."""
    settings = dict(fields["settings"])
    path = settings.get(COMMIT_LOG_KEY)
    if not path:
        return settings
    below = there.led_from(path, root)
    chosen = Path(path) if below is None else below
    recorded = Place.from_fields(fields.get(COMMIT_LOG))
    wrong = ""
    if below is None and not _is_trusted(chosen, owner_uid):
        wrong = "it belongs to another user than this file"
    elif recorded is not None and fields.get("boot_id") == boot_id() and chosen.is_dir():
        wrong = "" if is_there(recorded, chosen) else "another directory is now there"
    if wrong:
        say_once(f"{root / POINTER}: the commit log that it names, {path}, is ignored: {wrong}")
        chosen = root / COMMIT_LOG
    settings[COMMIT_LOG_KEY] = str(chosen)
    return settings


def _is_trusted(commitlog: Path, owner_uid: int) -> bool:
    """Return whether the pointer's writer may name that directory: this user, root, or the directory's owner."""
    if owner_uid in (0, os.geteuid()):
        return True
    try:
        return commitlog.stat().st_uid == owner_uid
    except OSError:
        return True  # there is nothing to be led to


def say_once(text: str) -> None:
    """A warning that is repeated to nobody."""
    if text not in _said_texts and len(_said_texts) < TOLD_MAX:
        _said_texts.add(text)
        import logging  # here: a process without warnings starts without it

        logging.getLogger("slipstream").warning("%s", text)
