"""All queues of a store while they are built: which queue of which kind a record's entry goes to.

Implements: CommitLogDispatcherBuildConsumeQueue, ConsumeQueueStore.findOrCreateConsumeQueue, multi-dispatch
spec: store-formats, sections 10 to 12 and 20
A topic has batch consume queues when its configuration or such a directory says so, and, where nobody knows the
topic (a slave without its master's topics.json), when the first record seen of it is an inner batch; else plain ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from ipc.arrays import Bytes, Words
from store.compat import NEWEST, QueueRules, line_of
from store.files.segment import Segment
from store.files.segment_files import named_files
from store.message import properties as property_string
from store.message.delay import DELAYS_MS
from store.message.measure import PROPERTIES_LENGTH_BYTES
from store.message.multi_dispatch import JAVA_LONG, targets
from store.message.properties import INNER_BASE, INNER_NUM, java_hash, java_text
from store.message.record import SysFlag
from store.message.rows_kernel import Row, Scanned, Special
from store.message.topics import LMQ_PREFIX
from store.names import BATCH_QUEUES, CONSUME_QUEUES, QUEUE_EXTENSIONS
from store.queues import group_kernel
from store.queues.batch_consume_queue import BatchConsumeQueue, BatchTopics, batch_file_bytes_of
from store.queues.builders import BatchBuilder, Builder, Expired, PlainBuilder, Share
from store.queues.consume_queue import CQ_DTYPE, ENTRY_BYTES, ConsumeQueue, is_file_name, queue_directories
from store.queues.extension import QueueExt
from store.queues.group_kernel import NEW_COST, NO_BUDGET, NO_LANE, Group, Grouping, Groups, OpenQueues
from store.queues.lanes import NO_SLOT, Lanes

# How many queues are opened in a turn: as many as take a few milliseconds, by what it took in the turns before.
#
# Implements: nothing of RocketMQ's, which opens queues while it dispatches a record
# A directory and a file cost 0.1 ms on an idle disk and ten times that on one that is busy, nearly all of it in the
# kernel. The rows of a turn are chosen before its queues are opened, so what is measured counts for the next one.
BUDGET_MAX = 64  # of one turn, in costs of `group_rows`
TURN_NS = 4_000_000  # of CPU: a machine that is busy with others makes no turn smaller
RISE = 8  # after a quick turn the next one may cost an eighth more


class Opening:
    """Number of queues that one process opens in a turn. `clock`: the CPU time of its thread."""

    def __init__(self, budget_max: int = NO_BUDGET, clock: Callable[[], int] = time.thread_time_ns) -> None:
        self.budget = self._most = budget_max
        self.now_ns = clock

    def note(self, opened: int, new: int, began_ns: int) -> None:
        """A turn opened so many files, some of them of new queues."""
        cost = opened + new * (NEW_COST - 1)
        if self._most == NO_BUDGET or cost < NEW_COST:
            return  # too little is opened to tell anything by
        would_do = cost * TURN_NS // max(self.now_ns() - began_ns, 1)
        if would_do < self.budget:
            self.budget = max(NEW_COST, would_do)
        else:
            self.budget = min(self._most, self.budget + max(1, self.budget // RISE))


ROWS_MAX = 32768
BATCH_FILE_BYTES = batch_file_bytes_of(13_800_000)
INNER_BATCH = int(SysFlag.INNER_BATCH)
COUNTS_END = 1 << 15  # a unit's count has two bytes
FURTHER_ROWS = 128  # are looked at in a turn behind a log that grows where some of them go to further queues


class QueueKinds(NamedTuple):
    """Kinds of queues beside the plain ones, and the length of their files."""

    ext_file_bytes: int = 0  # enableConsumeQueueExt; 0: no extensions
    batch_file_bytes: int = BATCH_FILE_BYTES
    multi_dispatch: bool = False  # enableMultiDispatch
    lmq: bool = False  # enableLmq
    rules: QueueRules = line_of(NEWEST).queues
    delays_ms: tuple[int, ...] = DELAYS_MS  # messageDelayLevel


PLAIN_QUEUES = QueueKinds()


class EndsTable(Protocol):
    """A table that shows where queues end, once what lies before is in their files."""

    next_offsets: Words  # by slot

    def slot_for(self, topic: bytes, queue_id: int) -> int:
        """The queue's place in the table; NO_SLOT where it has none."""

    def set_ends(self, slots: Words, ends: Words) -> None:
        """The ends of the queues at these places."""


class Building(NamedTuple):
    """How queues are built: where batch queues lie, who is shown the ends, how much is done at once."""

    batch_root: Path | None = None  # None: beside the consume queues
    ends: EndsTable | None = None  # shows where queues end, as soon as their entries are written
    open_max: int = 0  # files of queues that stay open; above 0 a turn is short, for one who goes on as the log grows
    rows_max: int = 0  # of one batch; 0: as many as the builder takes by default


ALONE = Building()


def kinds_found(root: Path, rules: QueueRules) -> QueueKinds:
    """The kinds of queues that a store has, for who does not know its broker's settings."""
    ext = _file_bytes_below(root / QUEUE_EXTENSIONS)
    batch = _file_bytes_below(root / BATCH_QUEUES)
    multi_dispatch = any((root / CONSUME_QUEUES).glob(f"{LMQ_PREFIX}*"))
    return QueueKinds(ext, batch or BATCH_FILE_BYTES, multi_dispatch, multi_dispatch, rules)


def _file_bytes_below(root: Path) -> int:
    """The length that most queue files there have; 0 without any."""
    sizes = [size for _, _, path in queue_directories(root) for _, size in named_files(path) if size]
    return max(set(sizes), key=sizes.count) if sizes else 0


class _Grouped:
    """The rows of a range sorted by their queues, all of a queue together, in the log's order."""

    def __init__(self, rows: Words, groups: Words, entries: Bytes) -> None:
        self.rows, self._groups, self._entries = rows, groups, entries.view(CQ_DTYPE)
        self._order: Words | None = None  # row numbers by group

    def lane(self, number: int) -> int:
        """A group's lane, or NO_LANE."""
        return int(self._groups[number, Group.LANE])

    def left(self) -> list[int]:
        """The groups that are not written."""
        return np.flatnonzero(self._groups[:, Group.IS_DONE] == 0).tolist()

    def first_row(self, number: int) -> Words:
        """The first row of a group."""
        row: Words = self.rows[self._groups[number, Group.FIRST_ROW]]
        return row

    def rows_of(self, number: int) -> Words:
        """Return the rows of one group."""
        if self._order is None:
            order = np.argsort(self.rows[:, Row.GROUP], kind="stable")
            self._order = order[np.count_nonzero(self.rows[:, Row.GROUP] < 0) :]  # without those of no queue
        start = self._groups[number, Group.STARTS_AT]
        return self.rows[self._order[start : start + self._groups[number, Group.ENTRIES]]]

    def share(self, number: int) -> Share:
        """A group for its queue's builder."""
        group = self._groups[number]
        start = int(group[Group.STARTS_AT])
        return Share(
            self._entries[start : start + int(group[Group.ENTRIES])],
            int(group[Group.FIRST_QUEUE_OFFSET]),
            bool(group[Group.DENSE]),
            lambda: self.rows_of(number)[:, Row.QUEUE_OFFSET],
            lambda: self.rows_of(number)[:, Row.STORE_TIMESTAMP],
        )


class QueueSet:
    """Queues by name, and where each ends. One process at a time."""

    def __init__(
        self,
        consumequeue: Path,
        file_bytes: int,
        kinds: QueueKinds,
        report: Callable[[str], None],
        *,
        refuse_gaps: bool,
        building: Building,
    ) -> None:
        batch_root, ends, open_max, rows_max = building
        self._ends, self._end_words = ends, np.zeros(0, np.int64) if ends is None else ends.next_offsets
        self._batch_root = batch_root or consumequeue.parent / BATCH_QUEUES
        self._root, self._file_bytes, self._kinds = consumequeue, file_bytes, kinds
        self._report, self._refuse_gaps = report, refuse_gaps
        self._batch_topics = BatchTopics(consumequeue.parent)
        self._expired = Expired()
        self._lanes = Lanes(open_max)
        self._builders: dict[tuple[bytes, int], Builder | None] = {}
        self._by_lane: list[Builder | None] = []
        self._grouped = Groups(
            np.zeros(_table_words(rows_max), np.int64),
            np.zeros((rows_max, len(Group)), np.int64),
            np.zeros(rows_max * ENTRY_BYTES, np.uint8),
            np.zeros(len(Grouping), np.int64),
        )
        self.opening = Opening(BUDGET_MAX) if open_max else Opening()

    def skip_to(self, physical_offset: int) -> None:
        """Records below expired before they came here: queues have gaps there, and whose records all did begin anew."""
        self._expired.below = physical_offset

    @property
    def skipped_to(self) -> int:
        """Return the offset given to the last `skip_to`, or 0."""
        return self._expired.below

    def close(self) -> None:
        """Close the files that are open; they are opened again when they are needed."""
        self._lanes.close()

    @property
    def passed_on(self) -> int:
        """Return the kinds of special rows that only `put` can put."""
        return int(Special.TAGS_NOT_ASCII | (Special.INNER_PROPERTIES if self._kinds.multi_dispatch else 0))

    @property
    def known(self) -> int:
        """Return the number of queues."""
        return len(self._lanes)

    @property
    def taken(self) -> int:
        """Return the number of rows that were grouped."""
        return int(self._grouped.state[Grouping.TAKEN])

    def failure(self, number: int) -> OSError:
        """The error with that number of writing the queue at which `put_groups` stopped."""
        builder = self._by_lane[int(self._grouped.rows[self._grouped.state[Grouping.GROUP], Group.LANE])]
        assert builder is not None
        return OSError(number, os.strerror(number), str(builder.files.directory))

    def open(self) -> OpenQueues:
        """Return that on which a turn works, until the next queue is met."""
        return OpenQueues(self._grouped, self._lanes.table(), self._end_words, self.opening.budget)

    def put(self, segment: Segment, rows: Words, from_offset: int) -> int:
        """Put the rows' entries into their queues; how many rows that were. A queue met for the first time is as
        `from_offset` left it.

        Raises QueueGap before anything is written, if gaps are to be refused.
        """
        marked = np.flatnonzero(rows[:, Row.SPECIAL])  # none, or the topic is of such a kind
        for number in marked[rows[marked, Row.SPECIAL] & Special.TAGS_NOT_ASCII > 0]:
            self._hash_tags(segment, rows[number])
        special, lanes = marked if self._kinds.multi_dispatch and len(marked) else None, self._lanes
        if special is not None and lanes.open_max:
            rows = rows[:FURTHER_ROWS]
        scanned = Scanned(segment.array, segment.base_offset, rows)
        group_kernel.group_rows(scanned, len(rows), self._grouped, lanes.table(), self.opening.budget)
        if special is None and lanes.open_max:
            error = group_kernel.put_groups(scanned, self._grouped, lanes.words, self._end_words)
            if error:
                raise self.failure(-error)
        if special is not None:  # fewer rows are looked at, and fewer grouped where many queues are to be opened
            special = special[special < self.taken]
        self.put_left(segment, rows[: self.taken], special, from_offset)
        return self.taken

    def put_left(self, segment: Segment, rows: Words, special: Words | None, from_offset: int) -> None:
        """Put what of these grouped rows is not written yet. `special`: rows that may have further queues."""
        opened, known, began_ns = self._lanes.opened, len(self._lanes), self.opening.now_ns()
        self._put_left(segment, rows, special, from_offset)
        self.opening.note(self._lanes.opened - opened, len(self._lanes) - known, began_ns)

    def _put_left(self, segment: Segment, rows: Words, special: Words | None, from_offset: int) -> None:
        count = int(self._grouped.state[Grouping.QUEUES])
        grouped = _Grouped(rows, self._grouped.rows[:count], self._grouped.entries)
        work = []
        for number in grouped.left():
            builder = self._builder_of(segment, grouped.first_row(number), grouped.lane(number), from_offset)
            if builder is not None:
                share = grouped.share(number)
                if isinstance(builder, BatchBuilder):
                    self._count_messages(segment, grouped.rows_of(number), share)
                work.append((builder, share))
        if special is not None:
            work = self._with_further_queues(work, segment, rows[special], from_offset)
        if self._refuse_gaps:
            for builder, share in work:
                builder.refuse_gap(share)
        for builder, share in work:
            for finding in builder.put(share):
                self._report(finding)
        if self._ends is not None:
            shown = [(builder.slot, builder.end) for builder, _ in work if builder.slot != NO_SLOT]
            if shown:
                slots, ends = np.array(shown, np.int64).T.copy()
                self._ends.set_ends(slots, ends)

    @staticmethod
    def _hash_tags(segment: Segment, row: Words) -> None:
        at, count = int(row[Row.TAGS_AT]), int(row[Row.TAGS_BYTES])
        if count:
            row[Row.TAGS_CODE] = java_hash(java_text(segment.array[at : at + count].tobytes()))

    def _builder_of(self, segment: Segment, row: Words, lane: int, from_offset: int) -> Builder | None:
        """The row's queue; None when its name cannot be a directory's (nothing we or RocketMQ accept from a client)."""
        if lane != NO_LANE:
            return self._by_lane[lane]
        topic, queue_id = _topic_of(segment, row), int(row[Row.QUEUE_ID])
        where = segment.base_offset + int(row[Row.POSITION])
        return self._enter((topic, queue_id), where, from_offset, int(row[Row.SYS_FLAG]))

    def _enter(self, name: tuple[bytes, int], where: int, from_offset: int, sys_flag: int = 0) -> Builder | None:
        made = self._builders[name] = self._made(name, where, from_offset, sys_flag)
        self._by_lane.append(made)
        if made is None:
            self._lanes.add(*name)
        elif self._ends is not None:
            made.slot = self._ends.slot_for(*name)
        return made

    def _made(self, key: tuple[bytes, int], where: int, from_offset: int, sys_flag: int) -> Builder | None:
        name, queue_id = java_text(key[0]), key[1]
        if not is_file_name(name) or queue_id < 0:
            self._report(f"records of topic {name!r}, queue {queue_id} (first at {where}) have no queue: bad name")
            return None
        below = Path(name) / str(queue_id)
        if name in self._batch_topics or (sys_flag & INNER_BATCH and not (self._root / name).is_dir()):
            batches = BatchConsumeQueue(self._batch_root / below, self._kinds.batch_file_bytes)
            return BatchBuilder(batches, from_offset, self._lanes, key)
        if self._batch_topics.problem:
            self._report(self._batch_topics.problem)
        ext = None
        if self._kinds.ext_file_bytes:
            ext = QueueExt(self._root.parent / QUEUE_EXTENSIONS / below, self._kinds.ext_file_bytes)
        plain = ConsumeQueue(self._root / below, self._file_bytes)
        return PlainBuilder(plain, from_offset, self._lanes, key, self._expired, ext)

    def _count_messages(self, segment: Segment, rows: Words, share: Share) -> None:
        """Find how many messages each record of a batch queue stands for, and the queue offset of the first."""
        bases, counts = rows[:, Row.QUEUE_OFFSET].copy(), np.ones(len(rows), np.int64)
        inner = np.flatnonzero(rows[:, Row.SPECIAL] & Special.INNER_PROPERTIES)
        for number, row in zip(inner.tolist(), rows[inner].tolist(), strict=True):
            properties = _properties_of(segment, row)
            count, base = properties.get(INNER_NUM), properties.get(INNER_BASE)
            if count is None or base is None:
                continue
            if JAVA_LONG(count) and JAVA_LONG(base) and abs(int(count)) < COUNTS_END:
                counts[number], bases[number] = int(count), int(base)
            else:
                where = segment.base_offset + row[Row.POSITION]
                self._report(f"record at {where}: {INNER_NUM} {count[:20]!r}, {INNER_BASE} {base[:20]!r}: not numbers")
        share.first_queue_offset = int(bases[0])
        share.queue_offsets, share.counts = lambda: bases, lambda: counts

    # multi-dispatch

    def _with_further_queues(
        self, work: list[tuple[Builder, Share]], segment: Segment, rows: Words, from_offset: int
    ) -> list[tuple[Builder, Share]]:
        """The work, and what these rows give to queues besides their own."""
        further: dict[tuple[str, int], list[tuple[int, int, int, int]]] = {}
        inner = (rows[:, Row.SPECIAL] & Special.INNER_PROPERTIES > 0) & (rows[:, Row.GROUP] >= 0)
        for row in rows[inner].tolist():
            where, topic = segment.base_offset + row[Row.POSITION], _topic_of(segment, row)
            if isinstance(self._builders.get((topic, row[Row.QUEUE_ID])), BatchBuilder):
                continue  # RocketMQ does it for plain queues only
            others = targets(
                java_text(topic),
                row[Row.QUEUE_ID],
                _properties_of(segment, row),
                lmq=self._kinds.lmq,
                rules=self._kinds.rules,
            )
            if others is None:
                self._report(f"record at {where}: its further queues and their offsets do not match")
            for name, queue_id, queue_offset in others or ():
                entry = where, row[Row.SIZE], row[Row.TAGS_CODE], queue_offset
                further.setdefault((name, queue_id), []).append(entry)
        own = {id(builder): number for number, (builder, _) in enumerate(work)}
        for (name, queue_id), entries in further.items():
            key = name.encode("utf-8", "surrogatepass"), queue_id
            known = key in self._builders
            builder = self._builders[key] if known else self._enter(key, entries[0][0], from_offset)
            if isinstance(builder, BatchBuilder):
                self._report(f"{builder.files.directory}: multi-dispatch to a batch queue is not supported")
            elif builder is not None and id(builder) in own:
                number = own[id(builder)]
                work[number : number + 1] = _in_turn(builder, work[number][1], entries)
                own = {id(each): at for at, (each, _) in enumerate(work)}
            elif builder is not None:
                work.append((builder, _further_share(entries)))
        return work


def _table_words(rows: int) -> int:
    """A hash table for so many rows: a power of two, at most half full."""
    return 1 << (2 * rows - 1).bit_length()


def _topic_of(segment: Segment, row: Words | list[int]) -> bytes:
    at = row[Row.TOPIC_AT]
    return bytes(segment.view[at : at + row[Row.TOPIC_BYTES]])


def _properties_of(segment: Segment, row: list[int]) -> dict[str, str]:
    """The properties are the last part of a record."""
    at = row[Row.TOPIC_AT] + row[Row.TOPIC_BYTES] + PROPERTIES_LENGTH_BYTES
    return property_string.parse(segment.view[at : row[Row.POSITION] + row[Row.SIZE]])


def _further_share(entries: list[tuple[int, int, int, int]]) -> Share:
    """Return what multi-dispatch gives to a queue: (log offset, size, tags code, queue offset) each, without units."""
    queue_offsets = np.array([queue_offset for *_, queue_offset in entries], np.int64)
    of_queue = np.array([entry[:3] for entry in entries], CQ_DTYPE)
    places = of_queue["physical_offset"].astype(np.int64)
    dense = bool((np.diff(queue_offsets) == 1).all() and (np.diff(places) > 0).all())
    return Share(of_queue, int(queue_offsets[0]), dense, lambda: queue_offsets, lambda: queue_offsets, with_unit=False)


def _in_turn(builder: Builder, own: Share, further: list[tuple[int, int, int, int]]) -> list[tuple[Builder, Share]]:
    """A queue that gets messages of its own and others' at once: one by one, in the log's order."""
    offsets, times = own.queue_offsets(), own.store_timestamps_ms()
    parts = [
        Share(
            own.entries[at : at + 1],
            int(offsets[at]),
            False,
            lambda at=at: offsets[at : at + 1],  # type: ignore[misc]
            lambda at=at: times[at : at + 1],  # type: ignore[misc]
        )
        for at in range(len(own.entries))
    ]
    parts += [_further_share([entry]) for entry in further]
    parts.sort(key=lambda share: int(share.entries[0]["physical_offset"]))
    return [(builder, share) for share in parts]
