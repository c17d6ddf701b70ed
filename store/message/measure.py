"""How a record's lengths add up, for one record in plain Python.

Implements: CommitLog.checkMessageAndReturnSize (spec: store-formats, section 1)
`measure_kernel` is the same rule, compiled; one test holds the two together. The length of the body takes four bytes
before it, that of the topic one (magic v1) or two (v2), that of the properties two. All are signed, and what they lead
to is the record's end.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

BODY_LENGTH_BYTES, PROPERTIES_LENGTH_BYTES = 4, 2
_INT32, _INT16, _INT8 = (struct.Struct(code) for code in (">i", ">h", ">b"))


class Spans(NamedTuple):
    """Positions of a record's parts, each with its end. The record ends with its properties."""

    body_at: int
    body_end: int
    topic_at: int
    topic_end: int
    properties_at: int
    end: int


def measure(
    view: memoryview | bytes, position: int, end: int, body_at: int, is_v2: bool, *, exact: bool = True
) -> Spans | str:
    """The spans of the record of `position` to `end`, or why its lengths do not add up to that.

    `body_at` says which hosts it has. Not `exact`: it may end anywhere up to `end`, its size being unknown.
    """
    size, topic_length_form = end - position, _INT16 if is_v2 else _INT8
    if body_at + 1 + PROPERTIES_LENGTH_BYTES > end:
        return f"its size {size} is less than its fixed part"
    (body_length,) = _INT32.unpack_from(view, body_at - BODY_LENGTH_BYTES)
    body_end = body_at + body_length
    topic_at = body_end + topic_length_form.size
    if body_length < 0 or topic_at + PROPERTIES_LENGTH_BYTES > end:
        return f"its body length {body_length} does not fit into its size {size}"
    (topic_length,) = topic_length_form.unpack_from(view, body_end)
    topic_end = topic_at + topic_length
    properties_at = topic_end + PROPERTIES_LENGTH_BYTES
    if topic_length < 0 or properties_at > end:
        return f"its topic length {topic_length} does not fit into its size {size}"
    (properties_length,) = _INT16.unpack_from(view, topic_end)
    reached = properties_at + properties_length
    if properties_length < 0 or reached > end or (exact and reached != end):
        return f"its size is {size}, but its parts add up to {reached - position}"
    return Spans(body_at, body_end, topic_at, topic_end, properties_at, reached)
