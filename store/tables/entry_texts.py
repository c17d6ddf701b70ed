"""A table's entries as JSON, each kept as it was written last: what has not changed is not written again.

Implements: RemotingSerializable.encode of tables with very many entries (ConsumerOffsetManager, TopicConfigManager)
Work is done in steps of STEP pieces at most, between which the caller may do something else. The bytes are
those that `fastjson` makes of the whole table.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from store.tables import fastjson
from store.tables.tables import bucket_of, buckets_of

STEP = 100
PARTS = 64  # of the table, sorted one by one
NUMBER_BITS = 32
INSERTED_MAX = 1000  # entries that come or go between two writings, each of which moves all behind it
Key = TypeVar("Key")


class EntryTexts(Generic[Key]):
    """Texts of a table. `keys` is the table, `name` an entry's key in JSON, `pieces` its text in parts or None."""

    def __init__(
        self,
        keys: Callable[[], Mapping[Key, Any]],
        name: Callable[[Key], str],
        pieces: Callable[[Key], Iterable[str] | None],
        capacity: int,
    ) -> None:
        self._keys, self._name, self._pieces, self._capacity = keys, name, pieces, capacity
        self._texts: dict[Key, str] = {}
        self._stale: dict[Key, bool] = dict.fromkeys(keys(), True)  # in the order of their coming; whether it is there
        self._gone: set[Key] = set()  # of what has a text: it left the table, perhaps to come again
        self._order: list[Key] = []
        self._ranks: list[int] = []  # where in the order, rising: bucket, and when it came
        self._rank_of: dict[Key, int] = {}
        self._buckets = self._came = self._changes = 0

    def alter(self, key: Key) -> None:
        """An entry has come, changed or gone. Of one bucket they are listed as they came, those to be written, too."""
        is_there = key in self._keys()
        if self._stale.get(key) is not is_there:
            self._stale.pop(key, None)
            self._stale[key] = is_there
        if key in self._texts and not is_there:
            self._gone.add(key)

    def alter_all(self, capacity: int | None = None) -> None:
        """The table is another one, perhaps a map of another capacity."""
        self._capacity = self._capacity if capacity is None else capacity
        self._buckets = 0
        self._stale = dict.fromkeys(self._texts, False)
        self._stale.update(dict.fromkeys(self._keys(), True))

    @property
    def stale(self) -> int:
        """Return how many entries are to be written anew."""
        return len(self._stale)

    def steps(self) -> Iterator[int]:
        """Bring the texts up to what the table says now; yields how much each step did."""
        self._changes = 0
        yield from self._write()
        if self._buckets != buckets_of(len(self._texts), self._capacity):
            yield from self._sort()

    def _write(self) -> Iterator[int]:
        done = 0
        for key in list(self._stale):
            is_there = self._stale.pop(key, True)
            try:
                for _piece in self._write_one(key):
                    done += 1
                    if done >= STEP:
                        yield done
                        done = 0
            except GeneratorExit:  # the caller gives up in the middle of it
                self._stale = {key: is_there} | self._stale
                raise
        yield done

    def _write_one(self, key: Key) -> Iterator[None]:
        if key in self._gone:
            self._gone.discard(key)
            self._forget(key)
        pieces = self._pieces(key)
        yield
        if pieces is None:
            self._forget(key)
            return
        parts = []
        for piece in pieces:
            parts.append(piece)
            yield
        if key not in self._texts:
            self._enter(key)
        self._texts[key] = "".join(parts)

    def _enter(self, key: Key) -> None:
        """A new entry goes where it belongs; of many at once, all are sorted afterwards."""
        if not self._is_sorted_later():
            self._came += 1
            rank = bucket_of(self._name(key), self._buckets) << NUMBER_BITS | self._came
            at = bisect_left(self._ranks, rank)
            self._ranks.insert(at, rank)
            self._order.insert(at, key)
            self._rank_of[key] = rank

    def _forget(self, key: Key) -> None:
        if self._texts.pop(key, None) is None or self._is_sorted_later():
            return
        rank = self._rank_of.pop(key, None)  # None: it left the table before all were sorted
        if rank is not None:
            at = bisect_left(self._ranks, rank)
            del self._ranks[at], self._order[at]

    def _is_sorted_later(self) -> bool:
        self._changes += 1
        if self._changes > INSERTED_MAX:
            self._buckets = 0
        return not self._buckets

    def _sort(self) -> Iterator[int]:
        """Sort the keys as a ConcurrentHashMap lists them."""
        keys = [key for key in self._keys() if key in self._texts]
        buckets, mask = buckets_of(len(self._texts), self._capacity), (1 << NUMBER_BITS) - 1
        parts: list[list[int]] = [[] for _ in range(PARTS)]
        for number, key in enumerate(keys):
            bucket = bucket_of(self._name(key), buckets)
            parts[bucket * PARTS // buckets].append(bucket << NUMBER_BITS | number)
            if number % STEP == STEP - 1:
                yield STEP
        order: list[Key] = []
        ranks: list[int] = []
        for part in parts:
            part.sort()
            ranks += part
            order += [keys[number & mask] for number in part]
            yield 1
        self._order, self._ranks, self._came = order, ranks, len(keys)
        self._rank_of = dict(zip(order, ranks, strict=True))
        self._buckets = buckets

    def texts(self) -> list[str]:
        """The entries in order, as far as `steps` has brought them."""
        known = self._texts
        return [known[key] for key in self._order if key in known]

    def order(self) -> list[Key]:
        """Keys as they are listed, all steps done at once; perhaps with some that are gone."""
        for _ in self.steps():
            pass
        return self._order.copy()

    def parts(self) -> Iterator[list[str]]:
        """`brought_up` as it is now, some entries after some."""
        order, known = self.order(), self._texts.copy()
        for start in range(0, len(order), STEP):
            yield [known[key] for key in order[start : start + STEP] if key in known]

    def brought_up(self) -> list[str]:
        """The entries in order, all steps done at once: of what changes seldom."""
        for _ in self.steps():
            pass
        return self.texts()


def table_text(name: str, entries: list[str]) -> str:
    """A table within an object, on lines."""
    between = ",\n\t\t"
    return f'\t"{name}":{{\n\t\t{between.join(entries)}\n\t}}' if entries else f'\t"{name}":{{}}'


def object_text(head: Mapping[str, Any], tables: list[str]) -> bytes:
    """Return what a file says: some small fields, then tables."""
    parts = [fastjson.dumps_pretty(head)[2:-2]] if head else []
    return ("{\n" + ",\n".join([*parts, *tables]) + "\n}").encode("utf-8", "replace")


def compact_of(pretty: bytes) -> bytes:
    """The same without lines: within texts they are escaped."""
    return pretty.translate(None, b"\n\t")
