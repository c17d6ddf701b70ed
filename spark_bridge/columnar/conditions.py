"""Which rows of a side file a read wants: what `records.selection` asks of records, asked of columns instead.

Rows are those of one row group, in the log's order. What the group's statistics rule out is not read at all; what they
prove of every row is not asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_bridge.columnar.names import POSITION, side_name
from spark_bridge.options.ranges import MICROSECONDS, RANGED, TIMES, Range
from spark_bridge.records.row_filter import Condition, RowFilter
from spark_bridge.records.selection import admitted, assigned, inside_bounds, inside_times
from spark_bridge.split.splits import RangeSplit, Selection
from store.message.record import NOT_FOR_QUEUES
from store.message.topics import SYSTEM_PREFIX, SYSTEM_TOPICS, is_lmq, is_system_topic

Mask = npt.NDArray[np.bool_]
Limits = Mapping[str, tuple[Any, Any]]  # least and greatest value of columns; times in microseconds
FIELD_OF = {name: field for name, field in RANGED.items() if side_name(name) == name}
LOWEST_PENDING = int(NOT_FOR_QUEUES & -NOT_FOR_QUEUES)


class SideRows:
    """Columns of a side file by name, read when they are asked for."""

    def __init__(self, read: Callable[[str], pa.ChunkedArray]) -> None:
        self.column = read

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """A column of whole numbers, or of times in microseconds."""
        column = self.column(name)
        column = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        values: npt.NDArray[Any] = column.to_numpy()
        return values

    def topics(self) -> tuple[list[str], npt.NDArray[Any]]:
        """The names of topics, and of each row the number of its name."""
        encoded = pa.chunked_array([self.column("topic")]).dictionary_encode().combine_chunks()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()

    def of_topic(self, topic: str) -> Mask:
        """Return which rows are of a topic."""
        names, codes = self.topics()
        is_its: Mask = codes == (names.index(topic) if topic in names else -1)
        return is_its


class Question(NamedTuple):
    """Columns that are looked at, and which rows meet what is asked of them."""

    columns: frozenset[str]
    meets: Callable[[SideRows], Mask]


class Wanted(NamedTuple):
    """The rows of a segment that a split and a scan's conditions want; `later` is left to ask of the records."""

    start: int
    end: int
    selection: Selection
    conditions: tuple[Condition, ...] = ()
    later: RowFilter | None = None

    @classmethod
    def of(cls, split: RangeSplit, row_filter: RowFilter | None, names: frozenset[str]) -> Wanted | None:
        """Return the wish for columns of these names; None where they do not tell.

        Keys go by unique ones, multi-dispatch by a property.
        """
        selection = split.selection
        if selection.keys is not None or any(map(is_lmq, selection.topics or ())):
            return None
        conditions = row_filter.conditions if row_filter is not None else ()
        here = tuple(one for one in conditions if side_name(one.column.name) in names)
        later = [one for one in conditions if side_name(one.column.name) not in names]
        wanted = cls(split.start, split.end, selection, here, RowFilter(later) if later else None)
        return wanted if all(question.columns <= names for question in wanted.questions({})) else None

    def none_within(self, limits: Limits) -> bool:
        """Whether no row within the limits of a group can be wanted."""
        selection = self.selection
        if any(_is_outside(part, limits.get(name)) for name, part in self._ranges()):
            return True
        for name, values in (("topic", selection.topics), ("queueId", selection.queue_ids), ("tags", selection.tags)):
            if values is not None and not _any_within(values, limits.get(name)):
                return True
        return any(_rules_out(condition, limits) for condition in self.conditions)

    def mask(self, rows: SideRows, limits: Limits) -> Mask | None:
        """Return which rows are wanted; None: all of them."""
        mask: Mask | None = None
        for question in self.questions(limits):
            meets = question.meets(rows)
            mask = meets if mask is None else mask & meets
            if not mask.any():
                break
        return None if mask is None or (len(mask) and mask.all()) else mask

    def questions(self, limits: Limits) -> Iterator[Question]:
        """Yield what has to be asked of rows within the limits."""
        selection = self.selection
        low, high = limits.get("sysFlag", (-1, -1))
        if low < 0 or high >= LOWEST_PENDING:
            yield Question(frozenset({"sysFlag"}), lambda rows: (rows.numbers("sysFlag") & int(NOT_FOR_QUEUES)) == 0)
        for name, part in self._ranges():
            if not _holds_all(part, limits.get(name)):
                yield _range_question(name, part)
        if selection.queue_ids is not None:
            queue_ids = list(selection.queue_ids)
            yield Question(frozenset({"queueId"}), lambda rows: np.isin(rows.numbers("queueId"), queue_ids))
        if _asks_topic(selection, limits):
            columns = {"topic", "queueId"} if selection.queues is not None else {"topic"}
            yield Question(frozenset(columns), lambda rows: _of_queues(rows, selection))
        if selection.bounds:
            columns = {"topic", "queueId", "queueOffset"}
            yield Question(frozenset(columns), lambda rows: _inside_bounds(rows, selection))
        if selection.stored:
            named = any(bound.topic is not None for bound in selection.stored)
            columns = {"storeTimestamp", "topic", "queueId"} if named else {"storeTimestamp"}
            yield Question(frozenset(columns), lambda rows: _inside_times(rows, selection))
        if selection.tags is not None:
            tags = pa.array(sorted(selection.tags), pa.string())
            yield Question(frozenset({"tags"}), lambda rows: _as_mask(pc.is_in(rows.column("tags"), value_set=tags)))
        for condition in self.conditions:
            yield _condition_question(condition)

    def _ranges(self) -> Iterator[tuple[str, Range]]:
        """Columns and what they have to be in; times in microseconds."""
        yield POSITION, Range(self.start, self.end)
        for name, field in FIELD_OF.items():
            part: Range = getattr(self.selection.ranges, field)
            unit = MICROSECONDS if field in TIMES else 1
            if part != Range():
                yield name, Range(*(None if limit is None else limit * unit for limit in part))


def _is_outside(part: Range, limits: tuple[int, int] | None) -> bool:
    if limits is None:
        return False
    low, high = limits
    return (part.end is not None and low >= part.end) or (part.first is not None and high < part.first)


def _holds_all(part: Range, limits: tuple[int, int] | None) -> bool:
    if limits is None:
        return False
    low, high = limits
    return (part.end is None or high < part.end) and (part.first is None or low >= part.first)


def _any_within(values: frozenset[Any], limits: tuple[Any, Any] | None) -> bool:
    return limits is None or any(limits[0] <= value <= limits[1] for value in values)


def _rules_out(condition: Condition, limits: Limits) -> bool:
    """Whether no value within the limits meets a condition; numbers, times and texts are compared."""
    kind, known = condition.column.kind, limits.get(side_name(condition.column.name))
    if known is None or pa.types.is_binary(kind):
        return False
    low, high = known
    scalars = condition.value if isinstance(condition.value, pa.Array) else [condition.value]
    values = [one.value if pa.types.is_timestamp(kind) else one.as_py() for one in scalars]
    match condition.operator:
        case "==" | "=" | "in":
            return not any(value is not None and low <= value <= high for value in values)
        case "<":
            return bool(low >= values[0])
        case "<=":
            return bool(low > values[0])
        case ">":
            return bool(high <= values[0])
        case ">=":
            return bool(high < values[0])
    return False


def _range_question(name: str, part: Range) -> Question:
    def meets(rows: SideRows) -> Mask:
        values = rows.numbers(name)
        mask: Mask = np.ones(len(values), np.bool_)
        if part.first is not None:
            mask &= values >= part.first
        if part.end is not None:
            mask &= values < part.end
        return mask

    return Question(frozenset({name}), meets)


def _condition_question(condition: Condition) -> Question:
    name = side_name(condition.column.name)
    return Question(
        frozenset({name}), lambda rows: _as_mask(condition.of(rows.column(name).cast(condition.column.kind)))
    )


def _asks_topic(selection: Selection, limits: Limits) -> bool:
    if _only_hides_system(selection):
        return selection.hides_system and not _without_system(limits.get("topic"))
    return True


def _only_hides_system(selection: Selection) -> bool:
    return selection.topics is None and selection.topic_pattern is None and selection.queues is None


def _without_system(limits: tuple[str, str] | None) -> bool:
    """Whether no topic within the limits is one that brokers keep for themselves."""
    if limits is None:
        return False
    low, high = limits
    beyond_prefix = high < SYSTEM_PREFIX or (low > SYSTEM_PREFIX and not low.startswith(SYSTEM_PREFIX))
    return beyond_prefix and not any(low <= name <= high for name in SYSTEM_TOPICS)


def _of_queues(rows: SideRows, selection: Selection) -> Mask:
    """Return which rows are of the selected topics and queues."""
    names, codes = rows.topics()
    if _only_hides_system(selection):
        ours: Mask = np.array([not is_system_topic(name) for name in names], np.bool_)[codes]
        return ours
    wanted = admitted((names, codes), selection)
    if selection.queues is not None:
        wanted &= assigned((names, codes), rows.numbers("queueId"), selection)
    return wanted


def _inside_bounds(rows: SideRows, selection: Selection) -> Mask:
    """Return which rows are inside their queues' bounds."""
    return inside_bounds(rows.topics(), rows.numbers("queueId"), rows.numbers("queueOffset"), selection)


def _inside_times(rows: SideRows, selection: Selection) -> Mask:
    """Return which rows are inside the bounds in time."""
    stored_ms = rows.numbers("storeTimestamp") // MICROSECONDS
    return inside_times(stored_ms, selection, lambda queue_id: rows.numbers("queueId") == queue_id, rows.of_topic)


def _as_mask(values: Any) -> Mask:
    """Return the values as a numpy array; null becomes False."""
    mask: Mask = np.asarray(pc.fill_null(values, False))
    return mask
