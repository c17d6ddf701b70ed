"""What the compiled walk is compared with beyond starts: heads, and where parts lie, gathered with numpy a field each.

A part is measured only where all before it fit. Where a record's lengths are wrong, its own first bytes are read
instead of what lies outside.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from store.columns.records import REASONS
from store.columns.window import LogWindow, Mask, Positions
from store.message.measure_kernel import Fault
from store.message.record import (
    BORN_TIMESTAMP_AT,
    BORN_V6,
    FIXED_BYTES,
    MAGIC_AT,
    MAGIC_V2,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_V6,
    SYS_FLAG_AT,
    V6_EXTRA_BYTES,
    body_length_at,
    store_timestamp_at,
)

BODY_LENGTH_BYTES, PROPERTIES_LENGTH_BYTES = 4, 2


class NumpyRows(NamedTuple):
    """Columns in the order of `Head`; why rows are no records; topic and properties of the sound rows."""

    heads: Positions
    faults: dict[int, str]
    spans: Positions


class _Part(NamedTuple):
    at: Positions
    length: Positions
    good: Mask


def rows_at(window: LogWindow, starts: Positions) -> NumpyRows:
    """The rows of the whole records that begin at `starts`."""
    size, flags = window.int32(starts).astype(np.int64), window.int32(starts + SYS_FLAG_AT).astype(np.int64)
    born = np.where(flags & BORN_V6, V6_EXTRA_BYTES, 0)
    hosts = born + np.where(flags & STORE_V6, V6_EXTRA_BYTES, 0)
    body = _body(window, starts, size, hosts)
    topic = _topic(window, starts, size, body)
    properties = _properties(window, starts, size, topic)
    heads = np.stack([
        starts, size, flags, window.int32(starts + QUEUE_ID_AT), window.int64(starts + QUEUE_OFFSET_AT),
        window.int64(starts + BORN_TIMESTAMP_AT), window.int64(starts + store_timestamp_at(0) + born), body.at,
        np.where(body.good, body.length, -1),
    ])  # fmt: skip
    faults: dict[int, str] = {}
    for fault, part in ((Fault.BODY, body), (Fault.TOPIC, topic), (Fault.SIZE, properties)):
        for row in np.flatnonzero(~part.good).tolist():
            faults.setdefault(row, REASONS[fault])
    spans = np.stack([topic.at, topic.length, properties.at, properties.length])
    return NumpyRows(heads, faults, spans[:, properties.good])


def _body(window: LogWindow, starts: Positions, size: Positions, hosts: Positions) -> _Part:
    room = size - FIXED_BYTES - hosts  # for body, topic and properties
    at = starts + body_length_at(0) + BODY_LENGTH_BYTES + hosts
    length = window.int32(np.where(room >= 0, at - BODY_LENGTH_BYTES, starts)).astype(np.int64)
    return _Part(at, length, (room >= 0) & (length >= 0) & (length <= room))


def _topic(window: LogWindow, starts: Positions, size: Positions, body: _Part) -> _Part:
    is_v2 = window.view(">u4")[starts + MAGIC_AT] == MAGIC_V2
    length_at = np.where(body.good, body.at + body.length, starts)
    length = np.where(is_v2, window.view(">i2")[length_at], window.view("i1")[length_at]).astype(np.int64)
    at = length_at + 1 + is_v2
    return _Part(at, length, body.good & (length >= 0) & (at + length + PROPERTIES_LENGTH_BYTES <= starts + size))


def _properties(window: LogWindow, starts: Positions, size: Positions, topic: _Part) -> _Part:
    length_at = np.where(topic.good, topic.at + topic.length, starts)
    length = window.view(">i2")[length_at].astype(np.int64)
    at = length_at + PROPERTIES_LENGTH_BYTES
    return _Part(at, length, topic.good & (length >= 0) & (at + length == starts + size))
