"""The split function on logs that exist as numbers only: each record in exactly one split, whatever is asked for."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_bridge.split.splits import Cuts, LogExtent, Queue, QueueSplit, RangeSplit, Selection, Split, plan
from store.queues.consume_queue import CQ_DTYPE


@dataclass
class Entries:
    """A queue's entries in memory."""

    offsets: list[int]
    sizes: list[int]
    min_offset: int = 0

    def end_below(self, physical_offset: int) -> int:
        return bisect.bisect_left(self.offsets, physical_offset)

    def entries(self, start: int, end: int) -> Any:
        found = np.zeros(len(self.offsets[start:end]), CQ_DTYPE)
        found["physical_offset"], found["size"] = self.offsets[start:end], self.sizes[start:end]
        return found

    def last_entry(self, end: int) -> Any:
        return self.entries(end - 1, end)[0]


@dataclass
class PureLog:
    """Records that exist as numbers only: (offset, size, topic, queue id)."""

    records: list[tuple[int, int, str, int]]
    segment_bytes: int

    @property
    def end(self) -> int:
        return sum(self.records[-1][:2])

    def queues(self, log: LogExtent, topics: frozenset[str]) -> list[Queue]:
        found = []
        for topic, queue_id in sorted({record[2:] for record in self.records if record[2] in topics}):
            own = [record[:2] for record in self.records if record[2:] == (topic, queue_id)]
            entries = Entries(*(list(column) for column in zip(*own, strict=True)))
            found.append(Queue.below(f"{topic}/{queue_id}", topic, queue_id, entries, log))
        return found

    def covered(self, split: Split) -> list[tuple[int, int, str, int]]:
        """The records that a split stands for."""
        if isinstance(split, RangeSplit):
            inside = [record for record in self.records if split.start <= record[0] < split.end]
            return [record for record in inside if split.selection.admits(record[2])]
        assert isinstance(split, QueueSplit)
        found = []
        for piece in split.pieces:
            own = [record for record in self.records if record[2:] == (piece.topic, piece.queue_id)]
            found += own[piece.start : piece.end]
        return found


@st.composite
def pure_logs(draw: st.DrawFn) -> PureLog:
    segment_bytes = draw(st.integers(300, 2000))
    kinds = st.tuples(st.integers(91, 290), st.sampled_from(["a", "b", "c"]), st.integers(0, 2))
    records, end = [], 0
    for size, topic, queue_id in draw(st.lists(kinds, min_size=1, max_size=60)):
        rest = segment_bytes - end % segment_bytes
        end += rest if size + 8 > rest else 0
        records.append((end, size, topic, queue_id))
        end += size
    return PureLog(records, segment_bytes)


CUTS = st.tuples(
    st.booleans(),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(30, 3000),
    st.lists(st.integers(0, 59), max_size=8).map(sorted),
)
TOPICS = st.frozensets(st.sampled_from(["a", "b", "c"]))


@settings(deadline=None, max_examples=150)
@given(
    pure_logs(),
    CUTS,
    st.integers(0, 60),
    st.none() | st.integers(30, 5000),
    st.integers(1, 70),
    st.none() | TOPICS,
    TOPICS,
    st.booleans(),
)
def test_every_record_is_in_exactly_one_split_for_any_cut(
    pure: PureLog,
    limits: Any,
    reput: int,
    split_bytes: int | None,
    partitions: int,
    topics: frozenset[str] | None,
    scanned: frozenset[str],
    is_costly: bool,
) -> None:
    boundaries = [record[0] for record in pure.records] + [pure.end]
    log = LogExtent("", pure.segment_bytes, 0, boundaries[min(reput, len(boundaries) - 1)], pure.end)
    offsets = sorted({boundaries[at] for at in limits[3] if at < len(pure.records)})
    cuts = Cuts(limits[0], limits[1], limits[2], tuple(offsets))
    scanned = scanned & (topics or frozenset())
    queues = pure.queues(log, (frozenset("abc") if topics is None else topics) - scanned)
    with pytest.MonkeyPatch.context() as patch:
        if is_costly:  # small logs are planned as large ones are
            patch.setattr("spark_bridge.split.splits.SPLIT_BYTES_DEFAULT_MIN", 100)
            patch.setattr("spark_bridge.split.splits.QUEUE_COST_MIN", 1)
        splits = plan(log, queues, scanned, Selection(topics), split_bytes, partitions, cuts)
    wanted = [record for record in pure.records if topics is None or record[2] in topics]
    assert sorted(record for split in splits for record in pure.covered(split)) == sorted(wanted)
    for split in splits:
        if isinstance(split, RangeSplit):
            assert split.chain_from in boundaries and split.chain_from <= split.start < split.end
            assert split.base_offset <= split.start and split.end <= split.base_offset + pure.segment_bytes
            assert cuts.bytes_max is None or split.end - split.start <= cuts.bytes_max
            assert not [at for at in cuts.offsets if split.start < at < split.end]
        else:
            records = pure.covered(split)
            assert cuts.records_max is None or len(records) <= cuts.records_max
            assert cuts.bytes_max is None or len(records) == 1 or sum(r[1] for r in records) <= cuts.bytes_max
