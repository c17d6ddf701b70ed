"""What fronts and the clients role say to each other: messages in shared memory, a bell for each process.

Implements: nothing of RocketMQ's, whose broker is one process
A front hands up what it does not answer itself, as the frame came; the clients role hands down answers, pushes, and the
tables that a front decides by. Each front has a ring up and a ring down; the bells are eventfds that the supervisor
made, so that they outlive who dies. One that begins says HELLO: the clients role then tells a front all tables, a
front tells the clients role its connections and their last heartbeats.

    kind u8 | number u64 | the rest        number: a connection of that front, or a question's
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from engine.shared_memory import decided_table
from engine.shared_memory.clients import client_table
from ipc import byte_ring
from ipc.byte_ring import RingReader, RingWriter

HEAD = struct.Struct("<BQ")
RING_BYTES = 4 << 20
ROOMY_BYTES = 512 << 10  # with no more than that in a ring, there is room for any piece of a message
KEPT_BYTES_MAX = 64 << 20  # of one direction; a frame is at most 16 MiB
FRAMES_BYTES_MAX = KEPT_BYTES_MAX // 2  # so a client that sends or asks for too many of them takes no room of others
HELD_BACK_BYTES = 8 << 20  # so much that it has not taken, and nothing more of a front is answered
MESSAGES_A_TURN, BYTES_A_TURN = 64, 128 << 10  # the last may be longer
SERVICES, SERVICES_RING_BYTES = 1, 1 << 20  # behind the fronts' comes the pipe of the transactions role
CHANNEL_BITS = 56  # a connection's number at its front: microseconds of the monotonic clock when that began, counted up
Json = dict[str, Any]


class Kind(IntEnum):
    """Kinds of messages between fronts and clients role."""

    HELLO = 0  # both ways: who sends it has just begun, and knows nothing of what was said before
    OPENED = 1  # up: a connection; JSON peer, own
    CLOSED = 2  # up: its end
    FRAME = 3  # up: a request, or a client's answer to a push; down: an answer, or a push
    QUESTION = 4  # up: a front's own; JSON what, and fields; answered by ANSWER of the same number
    ANSWER = 5  # down
    WORD = 6  # both ways: as QUESTION, without an answer; down to a front: what it has counted is to be said
    TABLE = (
        7  # down: JSON table, entries (name to value, null: gone); whole: a part of all, begins, ends; then it counts
    )
    HANG_UP = 8  # down: end a connection
    REPLAY = 9  # up: the last heartbeat of a connection, or a goodbye after it, again; nobody waits for the answer
    REPLAYED = 10  # up: all of them are said


class Message(NamedTuple):
    """One message between a front and the clients role."""

    kind: Kind
    number: int
    body: bytes

    @property
    def fields(self) -> Json:
        """Return the fields of a JSON body."""
        fields: Json = json.loads(self.body)
        return fields


def encode(kind: Kind, number: int = 0, body: bytes | Json = b"") -> bytes:
    """A message as it lies in a ring."""
    return HEAD.pack(kind, number) + (body if isinstance(body, bytes) else text_of(body))


def text_of(fields: Json) -> bytes:
    """Return the JSON body for these fields."""
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(message: bytes) -> Message:
    """Return the message of these bytes, unchecked: both ends are slipstream's."""
    kind, number = HEAD.unpack_from(message)
    return Message(Kind(kind), number, message[HEAD.size :])


def channel_of(front: int, number: int) -> int:
    """A connection's number in the clients role: of whichever front."""
    return front << CHANNEL_BITS | number


def front_of(channel: int) -> tuple[int, int]:
    """Return a channel's front, and its number there."""
    return channel >> CHANNEL_BITS, channel & ((1 << CHANNEL_BITS) - 1)


class Bells(NamedTuple):
    """An eventfd a process: rung when something is to be looked at in one of its rings."""

    clients: int
    fronts: tuple[int, ...]

    @classmethod
    def make(cls, fronts: int) -> Bells:
        """Made by the supervisor, before it forks anybody."""
        flags = os.EFD_NONBLOCK | os.EFD_CLOEXEC
        return cls(os.eventfd(0, flags), tuple(os.eventfd(0, flags) for _ in range(fronts + SERVICES)))

    def close(self) -> None:
        """Close the eventfds of all bells."""
        for fd in (self.clients, *self.fronts):
            os.close(fd)


def _path(directory: Path, front: int, way: str) -> Path:
    return directory / f"front-{front}-{way}"


def create(directory: Path, fronts: int) -> None:
    """The rings of all fronts and of the transactions role, and what the clients role and fronts keep beyond a life.

    Only the supervisor makes them.
    """
    client_table.create(directory)
    for front in range(fronts):
        decided_table.create(directory, front)
    for front in range(fronts + SERVICES):
        for way in ("up", "down"):
            byte_ring.create(_path(directory, front, way), RING_BYTES if front < fronts else SERVICES_RING_BYTES)


class Pipe:
    """One end of a front's two rings. `own` is rung for us, `other` by us."""

    def __init__(self, directory: Path, front: int, *, is_front: bool, bells: Bells) -> None:
        out, back = ("up", "down") if is_front else ("down", "up")
        self._writer, self._reader = RingWriter(_path(directory, front, out)), RingReader(_path(directory, front, back))
        self._other = bells.clients if is_front else bells.fronts[front]
        self._is_front = is_front

    @property
    def kept_bytes(self) -> int:
        """Return the bytes that found no room yet."""
        return self._writer.kept_bytes

    @property
    def end(self) -> int:
        """Return the position up to which messages were handed over."""
        return self._writer.end

    @property
    def taken(self) -> int:
        """Return the position up to which the other side has handled messages."""
        return self._writer.taken

    def send(self, kind: Kind, number: int = 0, body: bytes | Json = b"") -> bool:
        """Hand a message over; False where too much is kept already, and it is dropped."""
        if self._writer.kept_bytes > (FRAMES_BYTES_MAX if kind is Kind.FRAME else KEPT_BYTES_MAX):
            return False
        self._writer.put(encode(kind, number, body))
        os.eventfd_write(self._other, 1)
        return True

    def receive(self) -> Iterator[Message]:
        """Yield the messages that have come, at most MESSAGES_A_TURN and some bytes a call; go on with what was kept.

        Each message is handled once the next is asked for. Take all that it yields, and call again while `has_more`.
        A front that asks for more than it takes is not heard until it has taken that: it would lose messages. A
        front always listens, so that one of the two can go on.
        """
        before, kept = self._reader.position, self._writer.kept_bytes
        self._writer.flush()
        messages = taken = 0
        while messages < MESSAGES_A_TURN and taken < BYTES_A_TURN and not self._is_held_back:
            at, messages = self._reader.position, messages + 1
            for message in self._reader.messages(1):
                taken += len(message)
                yield decode(message)
            if self._reader.position == at:
                break
        self._writer.flush()
        moved = self._reader.position - before
        lacked_room = moved > ROOMY_BYTES or (moved and self._reader.has_message)  # perhaps
        if lacked_room or self._writer.kept_bytes != kept:
            os.eventfd_write(self._other, 1)  # there is room again, or what was kept has come

    @property
    def _is_held_back(self) -> bool:
        return not self._is_front and self._writer.kept_bytes > HELD_BACK_BYTES

    @property
    def has_more(self) -> bool:
        """Whether a message lies there that is to be heard now."""
        return self._reader.has_message and not self._is_held_back

    def close(self) -> None:
        """Unmap both directions of the pipe."""
        self._writer.close()
        self._reader.close()
