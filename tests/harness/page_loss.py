"""A model of a disk that loses power: of what was not synced any page may be there or not, of any age; names, too.

`store.files.file_io` is the only caller of fsync and its kin: there the model notes what became durable. Everything
else it sees by looking at the files (`observe`), so also what was stored through mappings. A crash state takes, for
each page of each file, the durable bytes or those of any look since; for each name that was not synced in its
directory, what it meant then or now; for each length that was not synced, what it was at any time. Nothing is synced
for real: the disk is this model.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from store.files import file_io
from store.files.directory import StoreDirectory
from store.files.place import Place
from store.notes import flushed_mark

PAGE_BYTES = 512
BOOT_BEFORE = bytes(range(16))
Names = dict[str, int]
Look = TypeVar("Look")


class LossyDisk:
    """What a directory tree holds for sure, and what it may hold."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.before_sync: Callable[[], None] = lambda: None
        self.is_paused = False  # what is synced now is of another tree
        self._held: dict[int, int] = {}  # a descriptor of each file ever seen: no inode is used twice
        self._is_directory: dict[int, bool] = {}
        self._durable: dict[int, bytes] = {}
        self._since: dict[int, list[bytes]] = {}
        self._durable_names: dict[int, Names] = {}
        self._names_since: dict[int, list[Names]] = {}
        for name in ("sync_data", "sync_file"):
            patch.setattr(file_io, name, self._sync)

        def sync_directory(path: Path) -> None:
            if self.is_paused or not path.is_relative_to(self.root):
                return
            self.before_sync()
            inode = os.stat(path).st_ino
            self._hold(path)
            self._durable_names[inode], self._names_since[inode] = self._names(path), []

        patch.setattr(file_io, "sync_directory", sync_directory)
        self.settle()

    def close(self) -> None:
        for fd in self._held.values():
            os.close(fd)

    def settle(self) -> None:
        """All of it is on disk as it is now."""
        self.observe()
        for path in [self.root, *self.root.rglob("*")]:
            inode = path.stat().st_ino
            if path.is_dir():
                self._durable_names[inode], self._names_since[inode] = self._names(path), []
            else:
                self._durable[inode], self._since[inode] = path.read_bytes(), []

    def observe(self) -> None:
        """Look at everything: what is there now may be what a power cut leaves."""
        for path in [self.root, *self.root.rglob("*")]:
            inode = self._hold(path)
            if path.is_dir():
                _add(self._names_since.setdefault(inode, []), self._names(path), self._durable_names.get(inode))
            else:
                _add(self._since.setdefault(inode, []), path.read_bytes(), self._durable.get(inode))

    def _hold(self, path: Path) -> int:
        inode = path.stat().st_ino
        if inode not in self._held:
            self._held[inode] = os.open(path, os.O_RDONLY)
            self._is_directory[inode] = path.is_dir()
        return inode

    def _names(self, directory: Path) -> Names:
        return {path.name: self._hold(path) for path in directory.iterdir()}

    def _sync(self, fd: int) -> None:
        if self.is_paused:
            return
        self.before_sync()
        inode = os.fstat(fd).st_ino
        if inode not in self._held:
            self._held[inode] = os.dup(fd)
            self._is_directory[inode] = False
        self._durable[inode], self._since[inode] = os.pread(fd, os.fstat(fd).st_size, 0), []

    # what a power cut leaves

    def crash(self, dice: random.Random, target: Path) -> None:
        """One state that may be found afterwards, as a tree at `target`."""
        self.observe()
        odds = dice.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        self._put_directory(self.root.stat().st_ino, target, dice, odds)
        _as_the_same_place(target)

    def _put_directory(self, inode: int, target: Path, dice: random.Random, odds: float) -> None:
        target.mkdir()
        durable, since = self._durable_names.get(inode, {}), self._names_since.get(inode, [])
        for name in sorted({*durable, *(name for names in since for name in names)}):
            meant = durable.get(name)
            if since and dice.random() < odds:
                meant = dice.choice(since).get(name)
            if meant is None:
                continue
            if self._is_directory[meant]:
                self._put_directory(meant, target / name, dice, odds)
            else:
                (target / name).write_bytes(self._content(meant, dice, odds))

    def _content(self, inode: int, dice: random.Random, odds: float) -> bytes:
        durable, since = self._durable.get(inode, b""), self._since.get(inode, [])
        if not since:
            return durable
        newest = since[-1]
        size = dice.choice([len(durable), *(len(each) for each in since)])
        content = bytearray(durable[:size].ljust(size, b"\0"))
        for at in range(0, size, PAGE_BYTES):
            if dice.random() < odds:
                chosen = newest if dice.random() < 0.7 else dice.choice(since)
                page = chosen[at : min(at + PAGE_BYTES, size)]
                content[at : at + len(page)] = page
        return bytes(content)


def _as_the_same_place(root: Path) -> None:
    """The tree is what the next boot finds, and no copy: the mark's pages name it, and the boot before."""
    mark, place = StoreDirectory(root).mark, Place.of(root)
    pages = mark.read_bytes() if mark.exists() else b""
    for at in range(0, len(pages), flushed_mark.PAGE_BYTES):
        note = flushed_mark.decode(pages[at : at + flushed_mark.PAGE_BYTES])
        if note is not None:
            boot = note.boot if note.has_failed else BOOT_BEFORE
            note = note._replace(boot=boot, device=place.device, inode=place.inode)
            file = flushed_mark.encode(note)
            pages = pages[:at] + file + pages[at + len(file) :]
    if pages:
        mark.write_bytes(pages)


def _add(looks: list[Look], now: Look, durable: Look | None) -> None:
    if now != (looks[-1] if looks else durable):
        looks.append(now)
