"""How a slave's connection begins: who the master is, whether its log is ours, and where its history begins.

spec: ha-protocol, 4 slave side, 13 edge cases (new slave, slave offset above master's max, master log shorter)
The master's half: `connection.py`, `_accept_request` judges the offset that the slave asks from.

A slave asks from before its own end (`Tail`: OVERLAP_BYTES of store/recovery/overlap.py) and compares what comes with
what it has, before it appends or acknowledges anything: numbers that fit say nothing about the bytes below them. A
master may be RocketMQ's, which cannot be asked a question: what it has is seen by what it sends, and that it has
nothing there by a heartbeat.

An empty slave asks from 1 ("all you have"). Our masters send from where their log begins, RocketMQ's from byte 1 while
they have their first segment. (Byte 0 is the first of a record's size, and zero: no record has 16 MiB.) A RocketMQ
master that has deleted that segment sends a heartbeat. Then the slave asks from 0, which gives the base of the last
segment, and searches the first one by halves, with one connection for each probe.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.protocol.ha.hello import CONTROL_BYTES_MAX, CONTROL_OFFSET, SlaveGreeting
from engine.protocol.ha.wire import FRAME_HEADER, FRAME_HEADER_BYTES, CloseReason, Frame, PeerError

FROM_LAST_SEGMENT, ALL_THERE_IS = 0, 1
# A heartbeat says "no more here" once nothing follows it for so long. A RocketMQ 5.x also sends one while its flow
# control lets nothing pass in this second, and as the first frame after it was held up for long.
QUIET_MS = 1500
NEVER = 1 << 62
DIFFERENCE_BYTES = 16  # of either side, shown


class Tail(NamedTuple):
    """The bytes of our own log before its end: `data` begins at `start`."""

    start: int
    data: bytes

    @property
    def end(self) -> int:
        """The end of our log."""
        return self.start + len(self.data)


NO_TAIL = Tail(0, b"")


class Difference(NamedTuple):
    """First difference of two logs, as far as they were compared, and the bytes there."""

    offset: int
    own: bytes
    masters: bytes


class HistorySearch:
    """Search for the beginning of a master's log, over connections that each ask for `request`."""

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._begin_again()

    def _begin_again(self) -> None:
        self.request = ALL_THERE_IS
        self._missing, self._held = 0, 0  # bases of segments that are not there, and that are; 0: not known

    def came(self, offset: int, has_bytes: bool) -> bool:
        """The first frame that answers `request`; whether the log begins with it. Else: hang up, and ask again."""
        if self.request == ALL_THERE_IS:
            if has_bytes or offset != ALL_THERE_IS:
                return True
            self.request = FROM_LAST_SEGMENT
            return False
        if self.request == FROM_LAST_SEGMENT:
            self._held = offset
        elif has_bytes:
            self._held = self.request
        elif self.request == self._held:  # it was there, and has expired
            self._begin_again()
            return False
        else:
            self._missing = self.request
        if self._held - self._missing > self._segment_bytes:
            half = (self._missing + self._held) // 2
            self.request = half - half % self._segment_bytes
            return False
        was_asked = self.request in (FROM_LAST_SEGMENT, self._held) and offset == self._held
        self.request = self._held
        return was_asked


class Opening:
    """The beginning of one connection: `take` gets all bytes until `is_over`."""

    def __init__(
        self, segment_bytes: int, tail: Tail, search: HistorySearch | None, greeting: SlaveGreeting | None, now_ms: int
    ) -> None:
        self._segment_bytes, self.tail, self._search, self.greeting = segment_bytes, tail, search, greeting
        # Where to ask from; the search may know better already, for the next connection.
        # A log that has begun, and holds nothing any more, has an empty tail behind offset 0: it goes on from there.
        self.request = tail.start or (FROM_LAST_SEGMENT if search is None else search.request)
        self.is_over = False
        self.difference: Difference | None = None
        self.answer = b""  # what is to be sent to the master
        self.first: Frame | None = None  # of an empty log: the frame that it begins with, its body not taken yet
        self.rest_bytes = 0  # of the last frame compared, what goes into the log
        self.frames = 0
        self._position = tail.start
        self.quiet_since_ms = NEVER  # a heartbeat came, and nothing behind it
        self._buffer = bytearray()  # of a header, or of a control frame's body
        self._control_bytes = self._body_left = 0

    def take(self, data: memoryview, now_ms: int) -> int:
        """Judge what came; how many bytes of it were of the opening. Raises PeerError."""
        at = 0
        while at < len(data) and not self.is_over:
            if self._body_left:
                at += self._compare(data[at:])
                continue
            missing = (self._control_bytes or FRAME_HEADER_BYTES) - len(self._buffer)
            piece = data[at : at + missing]
            self._buffer += piece
            at += len(piece)
            if len(piece) == missing:
                whole = bytes(self._buffer)
                self._buffer.clear()
                self._took(whole, now_ms)
        return at

    def _took(self, whole: bytes, now_ms: int) -> None:
        if self._control_bytes:
            self._control_bytes = 0
            assert self.greeting is not None
            self.answer += self.greeting.take(whole)
            return
        frame = Frame(*FRAME_HEADER.unpack(whole))
        if frame.physical_offset == CONTROL_OFFSET and self.greeting is not None:
            if not 0 < frame.body_bytes <= CONTROL_BYTES_MAX:
                raise PeerError(CloseReason.HANDSHAKE, CONTROL_OFFSET, f"a message of {frame.body_bytes} bytes")
            self._control_bytes = frame.body_bytes
            return
        if self.greeting is not None:
            self.greeting.require_known()
        self.frames += 1
        if self.tail.data:
            self._begin_to_compare(frame, now_ms)
        else:
            self._begin_log(frame, now_ms)

    # an empty log

    def _begin_log(self, frame: Frame, now_ms: int) -> None:
        """Whether our log begins with this frame: HaClient judges it then."""
        if self._search is not None:
            if frame.body_bytes == 0 and frame.physical_offset == self.request:
                self._note_quiet(now_ms)
                return
            self._require_beginning(frame.physical_offset, frame.body_bytes != 0)
        self.first = frame
        self.is_over = frame.body_bytes != 0

    def _require_beginning(self, offset: int, has_bytes: bool) -> None:
        assert self._search is not None
        if not self._search.came(offset, has_bytes):
            where = f"next asked from {self._search.request}"
            raise PeerError(CloseReason.HISTORY_SEARCH, offset, where)

    # silence

    def _note_quiet(self, now_ms: int) -> None:
        if self.quiet_since_ms == NEVER:
            self.quiet_since_ms = now_ms

    def conclude_from_silence(self, now_ms: int) -> None:
        """Conclude from a heartbeat that nothing followed. Raises PeerError."""
        if now_ms - self.quiet_since_ms < QUIET_MS:
            return
        if self.tail.data:
            raise self._ahead()
        self.quiet_since_ms = NEVER
        self._require_beginning(self.request, has_bytes=False)

    # what we have

    def _begin_to_compare(self, frame: Frame, now_ms: int) -> None:
        if frame.physical_offset != self._position:
            detail = f"asked from {self.tail.start}, compared up to {self._position}"
            raise PeerError(CloseReason.OFFSET_MISMATCH, frame.physical_offset, detail)
        if not 0 <= frame.body_bytes <= self._segment_bytes - self._position % self._segment_bytes:
            detail = f"{frame.body_bytes} bytes announced, segments have {self._segment_bytes}"
            raise PeerError(CloseReason.BODY_SIZE, frame.physical_offset, detail)
        if frame.body_bytes == 0:
            self._note_quiet(now_ms)
        self._body_left = frame.body_bytes

    def _compare(self, data: memoryview) -> int:
        self.quiet_since_ms = NEVER
        at = self._position - self.tail.start
        count = min(len(data), self._body_left, len(self.tail.data) - at)
        own = memoryview(self.tail.data)[at : at + count]
        if own != data[:count]:
            self._raise_difference(own, data[:count])
        self._position += count
        self._body_left -= count
        if self._position == self.tail.end:
            self.is_over, self.rest_bytes = True, self._body_left
        elif self._masters_end() == self._position and not self._body_left:
            raise self._ahead()
        return count

    def _masters_end(self) -> int | None:
        """Return where its log ended when it said who it is."""
        return None if self.greeting is None or self.greeting.master is None else self.greeting.master.end_offset

    def _raise_difference(self, own: memoryview, masters: memoryview) -> None:
        first = next(index for index, pair in enumerate(zip(own, masters, strict=True)) if pair[0] != pair[1])
        self.difference = Difference(
            self._position + first,
            bytes(own[first : first + DIFFERENCE_BYTES]),
            bytes(masters[first : first + DIFFERENCE_BYTES]),
        )
        detail = f"this log has {self.difference.own.hex()}, the master's {self.difference.masters.hex()}"
        raise PeerError(CloseReason.DIVERGED, self.difference.offset, detail)

    def _ahead(self) -> PeerError:
        detail = f"the master has nothing more there, this log ends at {self.tail.end}"
        return PeerError(CloseReason.AHEAD, self._position, detail)
