"""Replaces config files on a thread: a disk that takes its time holds up no client.

Implements: the threads of ConfigManager.persist
The owner of the tables makes what is written; the thread sees bytes, or joins texts that do not change any more. One
round runs at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from store.errors import StoreError
from store.files import file_io
from store.files.file_state import FileState, state_of
from store.tables import json_files


class Draft(NamedTuple):
    """The future content of a table's file. `over`: only if the file's state is one of these; None: whatever it is."""

    name: str
    content: bytes | Callable[[], bytes]
    over: tuple[FileState | None] | None = None
    first: tuple[tuple[str, bytes | Callable[[], bytes]], ...] = ()  # files that are replaced before it
    is_json: bool = True  # what the file said is kept as its backup


class Written(NamedTuple):
    """The fate of a draft. `is_outdated`: somebody else wrote the file meanwhile, it stays as it is."""

    name: str
    state: FileState | None = None
    is_outdated: bool = False
    error: OSError | StoreError | None = None


class FileWrites:
    """Writes to one directory; `is_beside`: on a thread, else `begin` itself writes."""

    def __init__(self, directory: Path, *, is_beside: bool) -> None:
        self._directory = directory
        self.on_done: Callable[[], None] = lambda: None  # called on the thread once a round is through
        self._thread = ThreadPoolExecutor(1, "files") if is_beside else None
        self._under_way: Future[list[Written]] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a round was begun whose outcome was not taken."""
        return self._under_way is not None

    def begin(self, drafts: Sequence[Draft]) -> None:
        """Write the drafts in turn, on the thread if there is one."""
        if self._thread is not None:
            self._under_way = self._thread.submit(self._write_all, drafts)
            self._under_way.add_done_callback(lambda _done: self.on_done())
            return
        self._under_way = Future()
        self._under_way.set_result(self._write_all(drafts))

    def take(self, *, waits: bool) -> list[Written]:
        """Return what became of the round, once it is through.

        `waits`: wait for that, however long the disk takes.
        """
        if self._under_way is None or not (waits or self._under_way.done()):
            return []
        written, self._under_way = self._under_way.result(), None
        return written

    def _write_all(self, drafts: Sequence[Draft]) -> list[Written]:
        return [self._write(draft) for draft in drafts]

    def _write(self, draft: Draft) -> Written:
        path = self._directory / draft.name
        try:
            with json_files.exclusive(self._directory):
                if draft.over is not None and state_of(path) not in draft.over:
                    return Written(draft.name, is_outdated=True)
                for name, content in draft.first:
                    json_files.write_text(self._directory / name, _made(content))
                (json_files.write_text if draft.is_json else file_io.replace_file)(path, _made(draft.content))
                return Written(draft.name, state_of(path))
        except (OSError, StoreError) as error:
            return Written(draft.name, error=error)

    def close(self) -> None:
        """End the thread; nothing is under way."""
        if self._thread is not None:
            self._thread.shutdown()


def _made(content: bytes | Callable[[], bytes]) -> bytes:
    return content if isinstance(content, bytes) else content()
