"""Batches of plain messages into a ring, by the compiled encoder, and the places that the writer gives them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from engine.errors import BatchIncomplete, MessageIllegal, SendTimeout
from engine.producer.connection import Connection
from engine.producer.property_texts import PropertyColumn
from engine.protocol.ha.put_status import PutMessageStatus
from engine.rings import encode_kernel
from engine.rings.encode_kernel import Column
from ipc.clock import monotonic_ms, wall_ms
from ipc.ring import DESCRIPTOR_WORDS, Descriptor, LocalWord
from store.errors import PropertiesTooLarge
from store.message.properties import MAX_PROPERTIES_BYTES

Places = npt.NDArray[np.int64]  # a row of PlaceColumns for each message


class PlaceColumn(IntEnum):
    """Columns of a message's place in the log."""

    PHYSICAL_OFFSET = 0  # or -errno
    QUEUE_OFFSET = 1


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """Outcome of a batch: `queue_offsets` and `physical_offsets` are int64[count], in the batch's order."""

    status: PutMessageStatus
    count: int
    queue_id: int
    queue_offsets: npt.NDArray[np.int64]
    physical_offsets: npt.NDArray[np.int64]


def places_for(count: int) -> Places:
    """Return an empty table of places for `count` messages."""
    return np.zeros((count, len(PlaceColumn)), np.int64)


def check_sizes(connection: Connection, bodies: Column, properties: Column) -> None:
    """Raise MessageIllegal or PropertiesTooLarge for the worst message of a batch, if any is too large."""
    body_bytes, property_bytes = np.diff(bodies.ends), np.diff(properties.ends)
    if not len(body_bytes):
        return
    if int(body_bytes.max()) > connection.body_bytes_max:
        worst = int(body_bytes.argmax())
        raise MessageIllegal(
            f"body {worst} of {int(body_bytes[worst])} bytes", f"maxMessageSize is {connection.body_bytes_max}"
        )
    if not int(body_bytes.min()) and not connection.facts.settings.policy.stores_empty_bodies:
        raise MessageIllegal(f"body {int(body_bytes.argmin())}", "RocketMQ 5.x refuses an empty one")
    if int(property_bytes.max()) > MAX_PROPERTIES_BYTES:
        raise PropertiesTooLarge(int(property_bytes.max()), MAX_PROPERTIES_BYTES)


def publish_batch(
    connection: Connection,
    template: encode_kernel.Template,
    bodies: Column,
    properties: PropertyColumn,
    places: Places,
    deadline_ms: int,
) -> None:
    """Publish a batch, and collect its places before their descriptors are used again; no `places`: nobody asks.

    Raises BatchIncomplete.
    """
    texts = properties.column
    if len(bodies.ends) > 1:
        largest = int(np.diff(bodies.ends).max()) + int(np.diff(texts.ends).max())
        connection.check_record(len(template.record) + largest)
    connection.require_running()
    connection.raise_refusals()
    count = len(bodies.ends) - 1
    first_number, began_ms = int(connection.outlet.local[LocalWord.TAIL]), monotonic_ms()
    published = collected = 0
    chunk, shared = connection.ring.descriptors // 4, len(texts.ends) == 2
    batch = encode_kernel.Batch(bodies, texts, shared, properties.unique_at, properties.unique_first)
    while published < count:
        until = min(published + min(chunk, connection.room_to_publish()), count)
        before = published
        outlet, now_ms = connection.outlet, wall_ms()
        published = int(encode_kernel.put_many(outlet, template, batch, published, until, now_ms))
        if published == before and not connection.await_room(deadline_ms):
            raise BatchIncomplete(connection.store, published, count, monotonic_ms() - began_ms)
        if len(places) and published - collected > 2 * chunk:
            try:
                collected = _collect(connection, first_number, collected, published - chunk, places, deadline_ms)
            except SendTimeout as late:
                raise BatchIncomplete(connection.store, published, count, monotonic_ms() - began_ms) from late
    if len(places):
        _collect(connection, first_number, collected, count, places, deadline_ms)


def _collect(connection: Connection, first_number: int, begin: int, end: int, places: Places, deadline_ms: int) -> int:
    connection.await_appended(first_number + end - 1, deadline_ms)
    descriptors = connection.ring.words.reshape(-1, DESCRIPTOR_WORDS)
    numbers = np.arange(first_number + begin, first_number + end) % connection.ring.descriptors
    physical_offsets = descriptors[numbers, Descriptor.PHYSICAL_OFFSET]
    places[begin:end, PlaceColumn.PHYSICAL_OFFSET] = physical_offsets
    places[begin:end, PlaceColumn.QUEUE_OFFSET] = descriptors[numbers, Descriptor.QUEUE_OFFSET]
    connection.refusals_seen += int((physical_offsets < 0).sum())
    return end
