"""How the lengths of many records add up, as arrays: the rule of `store.message.measure`, a part of all at a time.

A part is looked at when it is first asked for. The rare shapes (IPv6 hosts, magic v2) are offsets that shift, not
branches. Where a record's lengths were found wrong, its own first bytes are read instead of what lies outside.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ipc.arrays import Bytes, Words
from store.message.measure import BODY_LENGTH_BYTES, PROPERTIES_LENGTH_BYTES
from store.message.record import (
    BORN_V6,
    FIXED_BYTES,
    HOST_MASK,
    MAGIC_V2,
    STORE_V6,
    V6_EXTRA_BYTES,
    fixed_dtype,
)

HEAD = fixed_dtype(0)  # all before a body, with two IPv4 hosts; an IPv6 host moves what lies behind it
BODY_AT = HEAD.itemsize
Int32s = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
Heads = npt.NDArray[np.void]


class ByteViews:
    """Bytes, readable as any type at any byte."""

    def __init__(self, array: Bytes) -> None:
        self.bytes = array
        self.length = len(array)
        self._views: dict[str, npt.NDArray[Any]] = {}

    def view(self, code: str) -> npt.NDArray[Any]:
        """The bytes as an overlapping array of `code`: item i is the value at byte i."""
        array = self._views.get(code)
        if array is None:
            count = max(0, self.length - np.dtype(code).itemsize + 1)
            array = self._views[code] = np.ndarray((count,), code, self.bytes.data if count else b"", strides=(1,))
        return array

    def int32(self, positions: Words) -> Int32s:
        """The big-endian int32 at each position, in native order."""
        return self.view(">i4")[positions].astype(np.int32)

    def int64(self, positions: Words) -> Words:
        """The big-endian int64 at each position, in native order."""
        return self.view(">i8")[positions].astype(np.int64)

    def heads(self, positions: Words) -> Heads:
        """Copy the head at each position: one wait for memory, not one for each field."""
        return self.view(f"V{HEAD.itemsize}")[positions].view(HEAD)


class Part(NamedTuple):
    """A part of each record: where it begins, its length, and which records' lengths add up so far."""

    at: Words
    length: Int32s
    good: Mask


class Measures:
    """The parts of the records that begin at `starts`, each with as many bytes in `views` as its size says.

    `heads` are theirs, if they were copied already.
    """

    def __init__(self, views: ByteViews, starts: Words, heads: Heads | None = None) -> None:
        self._views, self._starts, self._heads = views, starts, heads

    @property
    def heads(self) -> Heads:
        """The fixed fields. Behind the born timestamp they are only right where hosts are IPv4."""
        if self._heads is None:
            self._heads = self._views.heads(self._starts)
        return self._heads

    @property
    def known_heads(self) -> Heads | None:
        """The same if somebody asked for them."""
        return self._heads

    @cached_property
    def sizes(self) -> Int32s:
        """Return what each record says of its size."""
        return self.heads["total_size"].astype(np.int32)

    @cached_property
    def sys_flag(self) -> Int32s:
        """Says among other things which hosts are IPv6."""
        return self.heads["sys_flag"].astype(np.int32)

    @cached_property
    def is_v2(self) -> Mask:
        """Return which records have a topic length of two bytes."""
        mask: Mask = self.heads["magic_code"] == MAGIC_V2
        return mask

    @cached_property
    def _has_v6(self) -> bool:
        return bool(np.bitwise_and(self.sys_flag, HOST_MASK).any())

    def _shift(self, bit: int) -> Words | int:
        if not self._has_v6:
            return 0
        return np.where(self.sys_flag & bit, np.int64(V6_EXTRA_BYTES), np.int64(0))

    @cached_property
    def born_shift(self) -> Words | int:
        """Return by how much an IPv6 born host moves the fields behind it."""
        return self._shift(BORN_V6)

    @cached_property
    def hosts_shift(self) -> Words | int:
        """Return by how much both hosts move the fields behind them."""
        return self.born_shift + self._shift(STORE_V6)

    @cached_property
    def body_at(self) -> Words:
        """Return the position of each body."""
        return self._starts + BODY_AT + self.hosts_shift

    def _inside(self, at: Words, good: Mask) -> Words:
        """The places that are known to lie in their records, and places that can be read for the others."""
        return at if good.all() else np.where(good, at, self._starts)

    @cached_property
    def body(self) -> Part:
        """Return the bodies' places, as stored."""
        room = self.sizes.astype(np.int64) - FIXED_BYTES - self.hosts_shift  # for body, topic and properties
        good: Mask = room >= 0
        if self._has_v6:
            length = self._views.int32(self._inside(self.body_at - BODY_LENGTH_BYTES, good))
        else:
            length = self.heads["body_length"].astype(np.int32)
        return Part(self.body_at, length, good & (length >= 0) & (length <= room))

    @cached_property
    def topic(self) -> Part:
        """Return the places of the topics."""
        at, length, good = self.body
        length_at = self._inside(at + length, good)
        topic_length = self._views.view("i1")[length_at].astype(np.int32)
        if self.is_v2.any():
            topic_length[self.is_v2] = self._views.view(">i2")[length_at[self.is_v2]]
        topic_at = length_at + 1 + self.is_v2
        ends = self._starts + self.sizes
        fits = (topic_length >= 0) & (topic_at + topic_length + PROPERTIES_LENGTH_BYTES <= ends)
        return Part(topic_at, topic_length, good & fits)

    @cached_property
    def properties(self) -> Part:
        """Property strings. Their `good` records are those whose lengths add up to their sizes."""
        at, length, good = self.topic
        length_at = self._inside(at + length, good)
        properties_length = self._views.view(">i2")[length_at].astype(np.int32)
        properties_at = length_at + PROPERTIES_LENGTH_BYTES
        ends = self._starts + self.sizes
        fits = (properties_length >= 0) & (properties_at + properties_length == ends)
        return Part(properties_at, properties_length, good & fits)

    @property
    def likely_topic_at(self) -> Words:
        """Return where each topic begins if the record is sound, with nothing checked; may lie outside."""
        if self._has_v6:
            length = self._views.int32(np.minimum(self.body_at, self._views.length) - BODY_LENGTH_BYTES)
        else:
            length = self.heads["body_length"].astype(np.int32)
        at: Words = self.body_at + length + 1
        at += self.is_v2
        return at
