"""A dispatcher killed between any two stores of the kernel loses no entry and leaves none twice.

The kernels run as plain Python here, on an array that dies at the n-th store: what it holds then is what the page cache
would hold, and the next dispatcher has to make the whole index of it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipc.compiled.kernels import python_of
from store.index import index_kernel
from store.index.index_file import IndexFile
from store.index.service import IndexService
from store.message import rows_kernel
from store.recovery.log_end import new_rows, store_timestamp_ms
from tests.harness.logs import SmallLog

SLOTS, ENTRIES_MAX = 3, 9
NOW = 1_790_000_000_000
PUTTING = ("put_one", "put_rows")
CUTTING = ("unchain", "clear")


class KilledError(Exception):
    """The process is gone."""


class Stores:
    """Big-endian stores into byte arrays, so many and no more."""

    def __init__(self, left: int) -> None:
        self.left = left

    def store(self, size: int, array: Any, at: int, value: int) -> None:
        if self.left == 0:
            raise KilledError
        self.left -= 1
        array[at : at + size] = np.frombuffer((int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "big"), np.uint8)

    @staticmethod
    def load(size: int, array: Any, at: int) -> int:
        return int.from_bytes(array[at : at + size].tobytes(), "big", signed=True)

    def kernels(self, names: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
        """The kernels of those names as plain functions that store through here."""
        space: dict[str, Any] = dict(vars(index_kernel))
        for bits in (32, 64):
            space[f"load_be{bits}"] = partial(self.load, bits // 8)
            space[f"store_be{bits}"] = partial(self.store, bits // 8)
        space["prefetch"] = lambda address: None
        for name in names:
            function = python_of(getattr(index_kernel, name))
            space[name] = types.FunctionType(function.__code__, space, name)
        return {name: space[name] for name in names}


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    """One segment, whose records have up to three keys; in each index file some share a slot."""
    made = SmallLog(tmp_path / "store")
    for number in range(12):
        texts = {"UNIQ_KEY": f"u{number}" if number % 3 else "", "KEYS": " ".join(f"k{n}" for n in range(number % 4))}
        made.append(
            properties={name: text for name, text in texts.items() if text},
            store_timestamp_ms=NOW + 700 * number,
            sys_flag=12 if number == 7 else 0,
        )
    assert made.end < made.segment_bytes
    return made


def service(log: SmallLog, directory: Path) -> IndexService:
    ticks: Iterator[int] = count(NOW)
    return IndexService(directory, SLOTS, ENTRIES_MAX, lambda: next(ticks))


def rows_of(log: SmallLog, start: int) -> tuple[Any, int]:
    rows = new_rows(100)
    with log.files.open(0) as segment:
        _, found, _ = rows_kernel.scan(segment.array, start, log.end, 0, rows)
    return rows, found


def dispatch(log: SmallLog, index: IndexService, start: int) -> None:
    rows, found = rows_of(log, start)
    with log.files.open(0) as segment:
        index.put(segment, rows, found)
    index.close()


def contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.iterdir())]


def stored_at(log: SmallLog) -> Callable[[int], int | None]:
    return partial(store_timestamp_ms, log.files)


def plain(monkeypatch: pytest.MonkeyPatch, left: int, names: tuple[str, ...]) -> Stores:
    """The service with these kernels as plain functions."""
    stores = Stores(left)
    for name, function in stores.kernels(names).items():
        monkeypatch.setattr(index_kernel, name, function)
    return stores


def test_a_dispatcher_killed_at_any_store_leaves_an_index_that_can_be_completed(log: SmallLog, tmp_path: Path) -> None:
    dispatch(log, service(log, tmp_path / "whole"), 0)
    whole = contents(tmp_path / "whole")
    assert len(whole) == 3
    cursors = [log.records[number].offset for number in (0, 6)]
    for cursor in cursors:
        killed, left = True, 0
        while killed:
            directory = tmp_path / f"{cursor}-{left}"
            dispatch(log, service(log, directory), 0)
            service(log, directory).cut(cursor, stored_at(log))  # what a dispatcher has built when it is at `cursor`
            with pytest.MonkeyPatch.context() as patch:
                stores = plain(patch, left, PUTTING)
                patch.setattr(IndexFile, "write_header", partial_header(stores, IndexFile.write_header))
                killed = died(partial(dispatch, log, service(log, directory), cursor))
            again = service(log, directory)
            again.cut(cursor, stored_at(log))
            dispatch(log, again, cursor)
            assert contents(directory) == whole, f"killed at {cursor}, after {left} stores"
            left += 1
        assert left > 7 * 5


def died(work: Callable[[], object]) -> bool:
    try:
        with np.errstate(over="ignore"):  # Java's hash, as compiled, wraps
            work()
    except KilledError:
        return True
    return False


def test_a_cut_that_is_killed_is_done_again(log: SmallLog, tmp_path: Path) -> None:
    dispatch(log, service(log, tmp_path / "whole"), 0)
    cursor = log.records[6].offset
    killed, left = True, 0
    while killed:
        directory = tmp_path / str(left)
        dispatch(log, service(log, directory), 0)
        with pytest.MonkeyPatch.context() as patch:
            stores = plain(patch, left, CUTTING)
            patch.setattr(IndexFile, "write_header", partial_header(stores, IndexFile.write_header))
            killed = died(partial(service(log, directory).cut, cursor, stored_at(log)))
        again = service(log, directory)
        again.cut(cursor, stored_at(log))
        dispatch(log, again, cursor)
        assert contents(directory) == contents(tmp_path / "whole"), f"killed after {left} stores"
        left += 1
    assert left > 20


def partial_header(stores: Stores, write: Callable[..., None]) -> Callable[..., None]:
    """Writes a header in one go, or not at all."""

    def written(file: IndexFile, header: Any) -> None:
        if stores.left == 0:
            raise KilledError
        stores.left -= 1
        write(file, header)

    return written
