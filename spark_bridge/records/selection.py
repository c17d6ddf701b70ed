"""Which of some records are wanted, by arrays: what neither splits nor the walk's filter could tell."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_bridge.options.ranges import UNLIMITED, Ranges
from spark_bridge.split.splits import Selection
from store.columns.records import Records
from store.columns.spans import indices_of, texts
from store.columns.window import Mask
from store.message.delay import SCHEDULE_TOPIC
from store.message.multi_dispatch import SEPARATOR
from store.message.properties import KEYS, MULTI_DISPATCH, MULTI_QUEUE_OFFSET, TAGS, UNIQ_KEY, java_hash
from store.message.record import BORN_TIMESTAMP_AT, QUEUE_ID_AT, QUEUE_OFFSET_AT
from store.message.topics import is_lmq
from store.message.unit import LAST_ADDRESS
from store.queues.consume_queue import Entries

KEY_SEPARATOR = " "
Topics = tuple[list[str], npt.NDArray[Any]]  # names, and of each message the number of its topic's name


def select(records: Records, selection: Selection) -> Records:
    """Return those of a walk's records that are of the selected queues, where the filter of heads left that open."""
    if len(records) and (selection.queues is not None or any(map(is_lmq, selection.topics or ()))):
        return records.meeting(_of_queues(records, selection))
    return records


def select_messages(records: Records, selection: Selection) -> Records:
    """Return the messages wanted by the bounds of their queue, by ranges, time, tags and keys."""
    if selection.ranges != UNLIMITED and len(records):
        records = records.meeting(_inside_ranges(records, selection.ranges))
    if selection.bounds and len(records):
        offsets = records.int64_at(QUEUE_OFFSET_AT)
        records = records.meeting(inside_bounds(_topics_of(records), records.int32_at(QUEUE_ID_AT), offsets, selection))
    if selection.stored and len(records):
        records = records.meeting(_inside_times(records, selection))
    if selection.tags is not None and len(records):
        records = records.meeting(_are_among(records.property_value(TAGS), selection.tags))
    if selection.keys is not None and len(records):
        records = records.meeting(_carrying(records, selection.keys))
    return records


def may_have_tags(topic: str, entries: Entries, selection: Selection) -> Mask | None:
    """Return which entries name messages that may have one of the tags, by the hash there; None: all of them.

    The delay topic's queues keep a time there, and those with an extension the place of their unit.
    """
    if selection.tags is None or topic == SCHEDULE_TOPIC:
        return None
    codes = entries["tags_code"].astype(np.int64)
    mask: Mask = np.isin(codes, [java_hash(tag) for tag in selection.tags]) | (codes <= LAST_ADDRESS)
    return mask


def _of_queues(records: Records, selection: Selection) -> Mask:
    """Return which records are of the selected topics and queues."""
    topics = _topics_of(records)
    wanted = admitted(topics, selection)
    for name in filter(is_lmq, selection.topics or ()):
        wanted |= in_multi_dispatch(records, name)
    return wanted if selection.queues is None else wanted & assigned(topics, records.int32_at(QUEUE_ID_AT), selection)


def _topics_of(records: Records) -> Topics:
    topics = records.topic_dictionary
    return topics.dictionary.to_pylist(), indices_of(topics)


def admitted(topics: Topics, selection: Selection) -> Mask:
    """Return which messages are of the selected topics."""
    names, codes = topics
    mask: Mask = np.array([selection.admits(name) for name in names], np.bool_)[codes]
    return mask


def assigned(topics: Topics, queue_ids: npt.NDArray[Any], selection: Selection) -> Mask:
    """Return which messages are of the selected pairs of topic and queue."""
    names, codes = topics
    mask, code_of = np.zeros(len(codes), np.bool_), {name: code for code, name in enumerate(names)}
    for topic, queue_id in selection.queues or ():
        mask |= (codes == code_of.get(topic, -1)) & (queue_ids == queue_id)
    return mask


def inside_bounds(
    topics: Topics, queue_ids: npt.NDArray[Any], queue_offsets: npt.NDArray[np.int64], selection: Selection
) -> Mask:
    """Return True for messages that no bounds of their queue exclude."""
    names, codes = topics
    inside, code_of = np.ones(len(codes), np.bool_), {name: code for code, name in enumerate(names)}
    for topic, queue_id, first, end in selection.bounds:
        outside = queue_offsets < first
        if end is not None:
            outside |= queue_offsets >= end
        inside &= ~(outside & (queue_ids == queue_id) & (codes == code_of.get(topic, -1)))
    return inside


def in_multi_dispatch(records: Records, name: str) -> Mask:
    """Return which records a multi-dispatch queue holds, too: the broker gave them an offset there."""
    mask = _listing(records.property_value(MULTI_DISPATCH), SEPARATOR, [name])
    if mask.any():
        mask &= _mask(records.property_value(MULTI_QUEUE_OFFSET).is_valid())
    return mask


def _inside_ranges(records: Records, ranges: Ranges) -> Mask:
    """Return True for records that lie in all ranges."""
    inside = np.ones(len(records), np.bool_)
    for (first, end), values_of in zip(ranges, RANGED_VALUES, strict=True):
        if first is None and end is None:
            continue
        values = values_of(records)
        if first is not None:
            inside &= values >= first
        if end is not None:
            inside &= values < end
    return inside


# In the order of the fields of `Ranges`.
RANGED_VALUES: tuple[Callable[[Records], npt.NDArray[np.int64]], ...] = (
    lambda records: records.int64_at(QUEUE_OFFSET_AT),
    lambda records: records.window.offsets(records.starts),
    lambda records: records.stored_ms,
    lambda records: records.int64_at(BORN_TIMESTAMP_AT),
)


def _inside_times(records: Records, selection: Selection) -> Mask:
    """Return True for records that no bounds in time exclude."""
    return inside_times(
        records.stored_ms,
        selection,
        lambda queue_id: records.int32_at(QUEUE_ID_AT) == queue_id,
        lambda topic: _are_among(records.topic, [topic]),
    )


def inside_times(
    stored_ms: npt.NDArray[np.int64],
    selection: Selection,
    of_queue: Callable[[int], Mask],
    of_topic: Callable[[str], Mask],
) -> Mask:
    """Return True for messages of these store times that no bounds in time exclude.

    `of_queue` and `of_topic` return which messages are of one.
    """
    inside = np.ones(len(stored_ms), np.bool_)
    for topic, queue_id, from_ms, until_ms in selection.stored:
        outside = np.zeros(len(stored_ms), np.bool_)
        if from_ms is not None:
            outside |= stored_ms < from_ms
        if until_ms is not None:
            outside |= stored_ms >= until_ms
        if queue_id is not None:
            outside &= of_queue(queue_id)
        if topic is not None and outside.any():
            outside &= of_topic(topic)
        inside &= ~outside
    return inside


def _carrying(records: Records, keys: frozenset[str]) -> Mask:
    """Return True for messages with one of the keys: among those of KEYS, or the unique one."""
    unique = _are_among(records.property_value(UNIQ_KEY), keys)
    return unique | _listing(records.property_value(KEYS), KEY_SEPARATOR, keys)


def _listing(values: pa.StringArray, separator: str, names: Collection[str]) -> Mask:
    """Return which of the texts have one of the names among their parts."""
    import pyarrow.compute as pc  # few reads ask, and it is slow to load

    joined, mask = pc.binary_join_element_wise("", values, "", separator), np.zeros(len(values), np.bool_)
    for name in names:
        mask |= _mask(pc.match_substring(joined, f"{separator}{name}{separator}"))
    return mask


def _are_among(values: pa.StringArray, wanted: Collection[str]) -> Mask:
    """Return which of the texts are wanted."""
    import pyarrow.compute as pc

    return _mask(pc.is_in(values, value_set=texts(sorted(wanted))))


def _mask(values: Any) -> Mask:
    """Return the values as a numpy array; null becomes False."""
    mask: Mask = values.fill_null(False).to_numpy(zero_copy_only=False)
    return mask
