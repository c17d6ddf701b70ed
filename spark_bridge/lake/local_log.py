"""What is to be loaded from stores of this host: queue by queue behind the table's offsets, under a lease.

How far queues reach, and when something is lost, is decided where streams decide it. A table needs one check more,
because any process may load it next: that the log is the one that its offsets belong to.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from spark_bridge.lake import marks
from spark_bridge.lake.errors import OtherLog
from spark_bridge.lake.load import Portion
from spark_bridge.lake.progress import UNKNOWN, Progress, QueueAt, refuse_other_brokers
from spark_bridge.lake.schema import table_rows
from spark_bridge.options.rows import DEFAULT_ROWS, RowOptions
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.inventory import selection_of
from spark_bridge.records.columns import Asked
from spark_bridge.records.in_order import cpus, in_order
from spark_bridge.records.reader import read_split
from spark_bridge.split.splits import QueueSplit, Selection, Split
from spark_bridge.stream.offsets import (
    ONLY_STORE,
    Bounds,
    DataLost,
    Loss,
    Offsets,
    QueueKey,
    advance,
    first_unread,
    not_beyond,
)
from spark_bridge.stream.options import StreamOptions
from spark_bridge.stream.plan import pack
from spark_bridge.stream.stores import StreamStores, Unread
from store.reading import extent

log = logging.getLogger("slipstream.lake")

READY_S = 60.0  # for a broker that is being started
PIECE_BYTES, PIECES_MAX = 4 << 20, 100_000  # what is read at a time
LEFT_SHARE = 8  # a commit is as large as it may be when so small a part of its room is left
MADE_ANEW = "its message before offset {} differs from the one in the table: the topic was created anew"
GO_ON = "--on-loss go-on loads the present messages"


class Backlog(NamedTuple):
    """The messages that wait to be loaded; full, when they are as many as a commit takes."""

    rows: int
    is_full: bool
    done: Offsets
    end: Offsets
    losses: list[Loss]
    there: Bounds


class LocalLog:
    """The stores of one table. Offsets and keys here have stores as streams name them, progress has brokers."""

    def __init__(self, table: str, options: StreamOptions, names: list[str], schema: pa.Schema) -> None:
        self._table, self._options, self._schema = table, options, schema
        self._rows = options.read.rows
        self._names = names
        self._stores = self._opened()
        self._target: Offsets | None = None
        self._said: set[Loss] = set()

    def _opened(self) -> StreamStores:
        return StreamStores(self._options.read)

    def _batches(self, split: Split, names: Sequence[str], rows: RowOptions) -> Iterator[pa.RecordBatch]:
        """These columns of a split's messages."""
        return read_split(split, Asked.of(names, rows))

    def _plain(self, split: Split, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._batches(split, names, DEFAULT_ROWS)

    def open(self, progress: Progress) -> Progress:
        """Look whether the table goes on here; its progress, with where new queues begin that do not at their first.

        Raises OtherLog, DataLost, StoreNotReady, InvalidOption, and what stores are found wrong with.
        """
        there = self._stores.begin(self._options, READY_S)
        other = refuse_other_brokers(self._table, progress, map(self._broker, self._stores.tails))
        if other is not None:
            raise OtherLog(other)
        self._stores.refuse_missing({key.topic for key in progress.offsets})
        self._require_marks(progress)
        known = {(key.store, key.topic) for key in progress.offsets}
        begins = {
            key: offset
            for key, offset in self._stores.starts(self._options, there).items()
            if (self._broker(key.store), key.topic) not in known and offset > there[key][0]
        }
        self._refuse_beyond(begins, there)
        return self._advanced(progress, begins) if begins else progress

    def _refuse_beyond(self, begins: Offsets, there: Bounds) -> None:
        """Raise InvalidOption for a beginning that a queue does not reach: the table would keep it for good."""
        for key, offset in begins.items():
            if offset > there[key][1] and key.store in self._stores.judged:
                what = f"queue {key.queue_id} of topic {key.topic} is to begin at {offset} and ends at {there[key][1]}"
                raise InvalidOption(f"startingOffsets: {what}; give an offset up to there, or leave it out")

    def settle(self) -> None:
        """Settle what is loaded: what was acknowledged before this moment, nothing after it. Raises StoreNotReady."""
        self._target = {key: end for key, (_, end) in self._stores.await_dispatched(READY_S).items()}

    def backlog(self, progress: Progress) -> Backlog | None:
        """Return what waits behind the table's offsets; None without anything. Raises DataLost."""
        there = self._stores.look()
        done = self._done(progress)
        anew = {key: Loss(key, MADE_ANEW.format(done[key])) for key in self._made_anew(progress, done, there)}
        done |= {key: there[key][0] for key in anew}
        step = advance(done, there, self._stores.judged)
        losses = [*anew.values(), *step.losses]
        if losses and self._rows.fail_on_data_loss:
            raise DataLost(f"{'; '.join(map(str, losses[:3]))}. {self._table} continues at its offsets, {GO_ON}")
        end = step.end if self._target is None else not_beyond(step.end, self._target, done)
        self._stores.hold(done)
        waiting = {key: until - first_unread(key, done, there) for key, until in end.items()}
        rows = sum(count for count in waiting.values() if count > 0)
        if not rows and all(end[key] == progress_at for key, progress_at in self._done(progress).items() if key in end):
            return None
        return Backlog(rows, self._is_full(rows, waiting, end), done, end, losses, there)

    def read(self, backlog: Backlog, progress: Progress, bytes_max: int) -> Portion:
        """The rows of the next commit, about so many bytes of memory at most, and the progress behind them.

        Raises what reading finds wrong, and OtherLog where the log is not the one that was read before.
        """
        self._require_marks(progress)
        self._say(backlog.losses)
        done, there = backlog.done, backlog.there
        until = self._stores.limited(done, backlog.end, there, self._options.limits)
        spans = []
        for key, stop in until.items():
            first, last = first_unread(key, done, there), min(stop, there.get(key, (0, 0))[1])
            if first < last:
                spans.append(Unread(key, first, last))
        parts = self._stores.parts(spans, Selection(tags=self._options.read.tags))
        held = {key: offset for key, offset in until.items() if offset <= first_unread(key, done, there)}
        tables: list[pa.Table] = []
        splits = [split for task in pack(parts, PIECES_MAX, PIECE_BYTES) for split in _single(task)]
        room = bytes_max
        jobs = (partial(self._ahead, split, bytes_max // LEFT_SHARE) for split in splits)
        with closing(in_order(jobs, min(self._threads(), len(splits)), 1, awaits_end=True)) as made:
            for whole, ready in zip(splits, made, strict=False):
                waiting = [whole]
                while waiting and room * LEFT_SHARE > bytes_max:
                    split = waiting.pop()
                    piece, taken = split.pieces[0], ready
                    if split is not whole or ready is None or sum(table.nbytes for table in ready) > room:
                        taken = self._within(split, room)
                    if taken is None:
                        waiting += _halves(split)
                        continue
                    tables += taken
                    room -= sum(table.nbytes for table in taken)
                    store = split.log.broker_name if self._stores.by_store else ONLY_STORE
                    held[QueueKey(store, piece.topic, piece.queue_id)] = piece.end
                if room * LEFT_SHARE <= bytes_max:
                    break
        rows = pa.concat_tables(tables) if tables else self._schema.empty_table()
        return Portion(rows, self._advanced(progress, held))

    def _threads(self) -> int:
        """How many threads read ahead: one for each CPU, and one alone beside a broker, whose roles need the others."""
        beside = any(extent.running(tail.root) is not None for tail in self._stores.tails.values())
        return 1 if beside else cpus()

    def _ahead(self, split: QueueSplit, room: int) -> Iterator[list[pa.Table] | None]:
        """The rows of a piece of a queue, where there may be room for several of them."""
        yield self._within(split, room) if room >= PIECE_BYTES else None

    def _within(self, split: QueueSplit, room: int) -> list[pa.Table] | None:
        """The rows of a piece of a queue; None when they need more room, unless it is one message."""
        tables: list[pa.Table] = []
        may_grow = split.pieces[0].end - split.pieces[0].start == 1
        for batch in self._batches(split, self._names, self._rows):
            tables.append(table_rows(batch, self._schema, self._rows))
            room -= tables[-1].nbytes
            if room < 0 and not may_grow:
                return None
        return tables

    def _say(self, losses: list[Loss]) -> None:
        for loss in losses:
            if loss not in self._said:
                log.warning("DATA_LOST: %s; continuing because of --on-loss go-on", loss)
        self._said = set(losses)

    def close(self) -> None:
        """Close the stores, and release their leases."""
        self._stores.close()

    def _is_full(self, rows: int, waiting: dict[QueueKey, int], end: Offsets) -> bool:
        limits = self._options.limits
        if limits.rows_max is not None and rows >= limits.rows_max:
            return True
        if limits.bytes_max is None:
            return False
        spans = [Unread(key, end[key] - count, end[key]) for key, count in waiting.items() if count > 0]
        sizes = self._stores.entry_bytes(spans)
        waits = sum(size * (last - first) for size, (_, first, last) in zip(sizes, spans, strict=True))
        return waits >= limits.bytes_max

    def _broker(self, store: str) -> str:
        """The name of the broker of a store, whose own name is empty where there is one only."""
        return self._stores.tails[store].broker_name

    def _done(self, progress: Progress) -> Offsets:
        """The table's offsets of the queues that are loaded now."""
        stores = {self._broker(store): store for store in self._stores.tails}
        selections = {broker: selection_of(self._options.read, broker) for broker in stores}
        return {
            key._replace(store=stores[key.store]): offset
            for key, offset in progress.offsets.items()
            if selections[key.store].admits(key.topic)
        }

    def _made_anew(self, progress: Progress, done: Offsets, there: Bounds) -> list[QueueKey]:
        """Queues that are others than the table has, as far as their last messages tell."""
        known = {
            key: at
            for key in done
            if (at := progress.at(key._replace(store=self._broker(key.store)))) is not None
            and at.physical_offset != UNKNOWN
            and key in there
        }
        short = [key for key, at in known.items() if there[key][1] < at.offset and key.store in self._stores.judged]
        lie_at = self._lie_at({key: at.offset for key, at in known.items() if self._may_be_anew(key, at, there)})
        return [*short, *(key for key, place in lie_at.items() if place not in (known[key].physical_offset, UNKNOWN))]

    def _may_be_anew(self, key: QueueKey, at: QueueAt, there: Bounds) -> bool:
        """Whether it is worth a look: only what grew is loaded."""
        return there[key][1] > at.offset

    def _advanced(self, progress: Progress, queues: Offsets) -> Progress:
        """The progress with these queues so far, and the sums of the new marks."""
        lie_at = self._lie_at(queues)
        advanced = progress.advanced(
            {
                key._replace(store=self._broker(key.store)): QueueAt(offset, lie_at.get(key, UNKNOWN))
                for key, offset in queues.items()
            }
        )
        sums = {}
        for store in {key.store for key in queues}:
            mark = advanced.stores[self._broker(store)].mark
            if mark is not None:
                summed = marks.sum_at(self._plain, self._stores.views[store].extent, mark[1].physical_offset)
                sums[self._broker(store)] = summed or marks.DAMAGED
        return advanced.summed(sums)

    def _lie_at(self, queues: Offsets) -> dict[QueueKey, int]:
        """Return where the messages before these offsets lie, of those that are there."""
        tails = {key: tail for key in queues if (tail := self._stores.tail_of(key)) is not None}
        return {
            key: tail.physical_offset(queues[key] - 1)
            for key, tail in tails.items()
            if tail.first < queues[key] <= tail.end
        }

    def _require_marks(self, progress: Progress) -> None:
        """Raise OtherLog where a log is not the one that the table's offsets are of.

        A log that is still behind the offsets (a slave's) is not refused yet.
        """
        for store, view in self._stores.views.items():
            known = progress.stores.get(self._broker(store))
            mark = None if known is None else known.mark
            if known is None or mark is None or known.sum == marks.DAMAGED:
                continue
            offset, root = mark[1].physical_offset, self._stores.tails[store].root
            if offset < view.extent.min_physical_offset:
                continue
            what = f"{self._table} has the message at offset {offset} of the log of {self._broker(store)}"
            do = "give the store that it was loaded from, a replica that has it, or name another table"
            if offset >= view.extent.max_physical_offset:
                if store in self._stores.judged:
                    end = view.extent.max_physical_offset
                    raise OtherLog(f"{what}, and {root} ends at {end} (cut since, or a replica that was behind); {do}")
                continue
            summed = marks.sum_at(self._plain, view.extent, offset)
            if summed not in (known.sum, marks.DAMAGED):
                raise OtherLog(f"{what}, and {root} has another one there: another history; {do}")


def _single(splits: Sequence[QueueSplit]) -> list[QueueSplit]:
    """A split for each piece."""
    return [replace(split, pieces=(piece,)) for split in splits for piece in split.pieces]


def _halves(split: QueueSplit) -> list[QueueSplit]:
    """Return both halves of a split of one piece, the second one first."""
    piece = split.pieces[0]
    middle = (piece.start + piece.end) // 2
    return [replace(split, pieces=(half,)) for half in (piece._replace(start=middle), piece._replace(end=middle))]
