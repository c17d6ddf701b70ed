"""Which of some records are wanted: what splits could not tell, asked of the records themselves, by arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_bridge.options.ranges import UNLIMITED, Ranges
from spark_bridge.records.properties import property_value
from spark_bridge.records.records import Records
from spark_bridge.records.scan import LogWindow, Positions
from spark_bridge.split.splits import Selection
from store.message.delay import SCHEDULE_TOPIC
from store.message.multi_dispatch import SEPARATOR
from store.message.properties import KEYS, MULTI_DISPATCH, MULTI_QUEUE_OFFSET, TAGS, UNIQ_KEY, java_hash
from store.message.record import (
    BORN_TIMESTAMP_AT,
    FIXED_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    NOT_FOR_QUEUES,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    store_timestamp_at,
)
from store.message.topics import SYSTEM_PREFIX, SYSTEM_TOPICS, is_lmq, is_system_topic
from store.message.unit import LAST_ADDRESS
from store.queues.consume_queue import Entries

KEY_SEPARATOR = " "
STORE_TIMESTAMP_AT = store_timestamp_at(0)  # with an IPv4 born host
SYSTEM_BEGINS = np.unique([int.from_bytes(name.encode()[:4], "big") for name in (*SYSTEM_TOPICS, SYSTEM_PREFIX)])
SYSTEM_LETTERS = np.isin(np.arange(256), SYSTEM_BEGINS >> 24)
Mask = npt.NDArray[np.bool_]


def select(records: Records, selection: Selection) -> Records:
    """Return the records wanted by topic and queue; never what a transaction has not committed."""
    records = records.meeting(records.sys_flag & NOT_FOR_QUEUES == 0)
    if selection.queue_ids is not None:
        records = records.meeting(np.isin(records.int32_at(QUEUE_ID_AT), list(selection.queue_ids)))
    if not len(records):
        return records
    if selection.topics is not None or selection.topic_pattern is not None or selection.queues is not None:
        return records.meeting(_of_queues(records, selection))
    return records.meeting(~_of_system_topics(records)) if selection.hides_system else records


def select_messages(records: Records, selection: Selection) -> Records:
    """Return the messages wanted by the bounds of their queue, by ranges, time, tags and keys."""
    if selection.ranges != UNLIMITED and len(records):
        records = records.meeting(_inside_ranges(records, selection.ranges))
    if selection.bounds and len(records):
        records = records.meeting(_inside_bounds(records, selection))
    if selection.stored and len(records):
        records = records.meeting(_inside_times(records, selection))
    if selection.tags is not None and len(records):
        tags = property_value(records.properties, TAGS)
        records = records.meeting(_mask(pc.is_in(tags, value_set=pa.array(sorted(selection.tags), pa.string()))))
    if selection.keys is not None and len(records):
        records = records.meeting(_carrying(records.properties, selection.keys))
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


def records_at(window: LogWindow, positions: Positions) -> Records:
    """The records that begin at some of the positions, name themselves so and are whole; others are no records.

    For places that an index tells, which may outlive what they name.
    """
    records = Records(window, positions[(positions >= 0) & (positions + FIXED_BYTES <= window.length)])
    heads, sizes = records.measures.heads, records.sizes.astype(np.int64)
    good = (heads["magic_code"] == MAGIC_V1) | (heads["magic_code"] == MAGIC_V2)
    good &= heads["physical_offset"] == records.starts + window.base_offset
    return records.meeting(good & (sizes >= FIXED_BYTES) & (records.starts + sizes <= window.length))


def _of_queues(records: Records, selection: Selection) -> Mask:
    """Return which records are of the selected topics and queues."""
    topics = records.topic.dictionary_encode()
    names, codes = topics.dictionary.to_pylist(), topics.indices.to_numpy()
    wanted: Mask = np.array([selection.admits(name) for name in names], np.bool_)[codes]
    for name in filter(is_lmq, selection.topics or ()):
        wanted |= in_multi_dispatch(records, name)
    if selection.queues is not None:
        queue_ids = records.int32_at(QUEUE_ID_AT)
        code_of = {name: code for code, name in enumerate(names)}
        assigned = np.zeros(len(wanted), np.bool_)
        for topic, queue_id in selection.queues:
            assigned |= (codes == code_of.get(topic, -1)) & (queue_ids == queue_id)
        wanted &= assigned
    return wanted


def in_multi_dispatch(records: Records, name: str) -> Mask:
    """Return which records a multi-dispatch queue holds, too: the broker gave them an offset there."""
    named = pc.binary_join_element_wise("", property_value(records.properties, MULTI_DISPATCH), "", SEPARATOR)
    mask = _mask(pc.match_substring(named, f"{SEPARATOR}{name}{SEPARATOR}"))
    if mask.any():
        mask &= _mask(pc.is_valid(property_value(records.properties, MULTI_QUEUE_OFFSET)))
    return mask


def _of_system_topics(records: Records) -> Mask:
    """Return which records are of topics that brokers make for themselves; few are looked at, by their beginning."""
    window, mask = records.window, np.zeros(len(records), np.bool_)
    topic_at = np.clip(records.likely_topic_at, 0, window.length - 4)
    likely = np.flatnonzero(SYSTEM_LETTERS[window.bytes[topic_at]])
    likely = likely[np.isin(window.view(">u4")[topic_at[likely]], SYSTEM_BEGINS)]
    if len(likely):
        topics = records.chosen(likely).topic.dictionary_encode()
        system = np.array([is_system_topic(topic) for topic in topics.dictionary.to_pylist()], np.bool_)
        mask[likely] = system[topics.indices.to_numpy()]
    return mask


def _inside_bounds(records: Records, selection: Selection) -> Mask:
    """Return True for records that no bounds of their queue exclude."""
    queue_ids, queue_offsets = records.int32_at(QUEUE_ID_AT), records.int64_at(QUEUE_OFFSET_AT)
    topics = records.topic
    inside = np.ones(len(records), np.bool_)
    for topic, queue_id, first, end in selection.bounds:
        outside = queue_offsets < first
        if end is not None:
            outside |= queue_offsets >= end
        outside &= queue_ids == queue_id
        if outside.any():
            inside &= ~(outside & _mask(pc.equal(topics, topic)))
    return inside


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


def _stored_ms(records: Records) -> npt.NDArray[np.int64]:
    return records.int64_at(STORE_TIMESTAMP_AT, records.born_shift)


# In the order of the fields of `Ranges`.
RANGED_VALUES: tuple[Callable[[Records], npt.NDArray[np.int64]], ...] = (
    lambda records: records.int64_at(QUEUE_OFFSET_AT),
    lambda records: records.window.offsets(records.starts),
    _stored_ms,
    lambda records: records.int64_at(BORN_TIMESTAMP_AT),
)


def _inside_times(records: Records, selection: Selection) -> Mask:
    """Return True for records that no bounds in time exclude."""
    return inside_times(
        _stored_ms(records),
        selection,
        lambda queue_id: records.int32_at(QUEUE_ID_AT) == queue_id,
        lambda topic: _mask(pc.equal(records.topic, topic)),
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


def _carrying(properties: pa.StringArray, keys: frozenset[str]) -> Mask:
    """Return True for messages with one of the keys: among those of KEYS, or the unique one."""
    unique = property_value(properties, UNIQ_KEY)
    mask = _mask(pc.is_in(unique, value_set=pa.array(sorted(keys), pa.string())))
    texts = pc.binary_join_element_wise("", property_value(properties, KEYS), "", KEY_SEPARATOR)
    for key in keys:
        mask |= _mask(pc.match_substring(texts, f"{KEY_SEPARATOR}{key}{KEY_SEPARATOR}"))
    return mask


def _mask(values: Any) -> Mask:
    """Return the values as a numpy array; null becomes False."""
    mask: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return mask
