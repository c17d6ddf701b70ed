"""The compiled way of pulls: what the kernels stand on, what is learned of pulls that Python served, held and counted.

Implements: the fast path of PullMessageProcessor, which checks each pull anew (spec: remoting, 7)
Whatever leaves it goes through `engine.front.pulls.pulls`. What is known of a topic or a group is forgotten when it
changes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from engine.front.connections.peer import Peer
from engine.front.connections.tables import FORBIDDEN, GROUPS, RESETS, SUBSCRIPTIONS, TOPICS
from engine.front.frames.answer_forms import AnswerForms
from engine.front.pulls.log_view import NO_UNITS, EmptyQueues, LogView, Queue, QueueFile
from engine.front.pulls.pull_kernel import (
    EVERYBODY,
    NEVER,
    NOTIFIED_MAX,
    answer_served,
    notify_held,
    release_held,
    send_notified,
    take_pulls,
)
from engine.front.pulls.pull_words import (
    HEADER_WORDS,
    HELD_WORDS,
    HOLES,
    KEY_BYTES_MAX,
    KEY_FIELDS,
    LEARNED,
    NAMES,
    NO_OFFSET,
    NO_SOCKET,
    SERVED_WORDS,
    HeadValues,
    PullBlock,
    PullFallback,
    ServedWord,
    forms_of,
)
from engine.front.pulls.resets import reset_name
from engine.protocol.pulling.decision import Catch
from engine.protocol.pulling.subscription import TagFilter
from engine.protocol.remoting.frame import LENGTH_BYTES, RemotingCommand, Serialize, decode, encode
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.queue_ends import NO_SLOT
from ipc.arrays import Bytes, Words
from ipc.clock import monotonic_ms
from ipc.compiled.texts import seeded_hash
from store.queues.consume_queue import ENTRY_BYTES

ROWS, INDEX = 1 << 16, 1 << 17
KEYS_BYTES = 16 << 20
KEY_NAMES = frozenset(NAMES[:KEY_FIELDS])
INT = struct.Struct(">i")
LET_GO_MAX = 1000


class ServedPull(NamedTuple):
    """Result of Python's checks and its look at the queue; `fields` are those of the key."""

    code: int
    fields: Mapping[str, str]
    group: str
    queue: Queue
    tags: TagFilter
    flags: int
    where: QueueFile
    suggested: tuple[int, int]  # the broker to ask next; who is far behind
    group_flag: int
    topic_flag: int


def key_of(code: int, fields: Mapping[str, str]) -> bytes | None:
    """Return the kernel's key of a pull's fields; None where a field is not ASCII or the key is too long."""
    parts = [INT.pack(code)]
    for name in NAMES[:KEY_FIELDS]:
        text = fields.get(name)
        if text is None:
            parts.append(INT.pack(-1))
        elif not text.isascii():
            return None
        else:
            parts += (INT.pack(len(text)), text.encode())
    key = b"".join(parts)
    return key if len(key) <= KEY_BYTES_MAX else None


class ServedPulls:
    """A table of one front; full, it begins anew, and what is used comes back. A row is where its words begin."""

    def __init__(self) -> None:
        self.words: Words = np.zeros(ROWS * SERVED_WORDS, np.int64)
        self.index: Words = np.zeros(INDEX, np.int64)
        self.keys: Bytes = np.zeros(KEYS_BYTES, np.uint8)
        self.seed = int.from_bytes(os.urandom(7))  # so that nobody can choose keys that lie in one place
        self.generation = 0  # of rows
        self._rows: dict[bytes, int] = {}
        self._pulls: dict[int, ServedPull] = {}  # by row; they keep what the kernels look at
        self._of_name: dict[tuple[str, str], set[int]] = {}
        self._empty_queues: dict[Queue, set[int]] = {}  # rows of queues that never had a message
        self._keys_end = 0
        self._begins = -1  # the log, when files were let go last

    def __getitem__(self, row: int) -> ServedPull:
        return self._pulls[row]

    @property
    def is_full(self) -> bool:
        """Whether the next one may find no room."""
        return len(self._rows) >= ROWS or self._keys_end + KEY_BYTES_MAX > KEYS_BYTES

    def clear(self) -> None:
        """Forget all pulls, and begin a new generation."""
        self.words[: len(self._rows) * SERVED_WORDS] = self.index[:] = 0
        self._rows.clear()
        self._pulls.clear()
        self._of_name.clear()
        self._empty_queues.clear()
        self._keys_end = 0
        self.generation += 1

    def begun(self, queue: Queue, slot: int) -> None:
        """A queue has its first message, and its end a place."""
        for row in self._empty_queues.pop(queue, ()):
            self.words[row + ServedWord.SLOT] = slot

    def forget(self, table: str, name: str) -> None:
        """Forget what a changed topic, or group, decided."""
        for row in self._of_name.get((table, name), ()):
            self.words[row + ServedWord.IS_LEARNED] = 0
            self._drop_file(row)

    def let_go(self, begins: int) -> None:
        """Unmap files of queues not pulled since the log begins at `begins`, some in each call: they may be deleted."""
        if begins == self._begins:
            return
        rows = self.words[: len(self._rows) * SERVED_WORDS].reshape(-1, SERVED_WORDS)
        is_old = (rows[:, ServedWord.BEGINS] != begins) & (rows[:, ServedWord.FILE_UNITS] > 0)
        old: list[int] = np.flatnonzero(is_old)[: LET_GO_MAX + 1].tolist()
        for number in old[:LET_GO_MAX]:
            self._drop_file(number * SERVED_WORDS)
        if len(old) <= LET_GO_MAX:
            self._begins = begins

    def _drop_file(self, row: int) -> None:
        """Unmap the file of a queue: a deleted one would keep its room."""
        served = self._pulls[row]
        self.words[row + ServedWord.FILE_UNITS] = 0
        self._pulls[row] = served._replace(where=served.where._replace(units=NO_UNITS))

    def learn(self, key: bytes, served: ServedPull, names: Mapping[str, str]) -> None:
        """Pulls with this key are served so, until one of the `names`, by table, changes. There is room."""
        row = self._rows.get(key)
        if row is None:
            row = self._enter(key)
        words, where, file = self.words, served.where, served.where.units
        values = {
            ServedWord.SLOT: where.slot, ServedWord.BEGINS: where.begins, ServedWord.MINIMUM: where.minimum,
            ServedWord.FILE_FIRST: where.first, ServedWord.FILE_UNITS: len(file) // ENTRY_BYTES,
            ServedWord.FILE_AT: file.ctypes.data, ServedWord.TAKES_ALL: served.tags.takes_all,
            ServedWord.CODES_AT: served.tags.codes.ctypes.data, ServedWord.CODES: len(served.tags.codes),
            ServedWord.SUGGESTED: served.suggested[0], ServedWord.SUGGESTED_BEHIND: served.suggested[1],
            ServedWord.GROUP_FLAG: served.group_flag, ServedWord.TOPIC_FLAG: served.topic_flag,
            ServedWord.FLAGS: served.flags, ServedWord.IS_LEARNED: 1,
        }  # fmt: skip
        for word, value in values.items():
            words[row + word] = value
        self._pulls[row] = served
        if where.slot == NO_SLOT:
            self._empty_queues.setdefault(served.queue, set()).add(row)
        for each in names.items():
            self._of_name.setdefault(each, set()).add(row)

    def _enter(self, key: bytes) -> int:
        """Add a row for the key, not on the fast path yet; return the row."""
        number = len(self._rows)
        row = self._rows[key] = number * SERVED_WORDS
        end = self._keys_end + len(key)
        self.keys[self._keys_end : end] = np.frombuffer(key, np.uint8)
        self.words[row + ServedWord.KEY_AT], self.words[row + ServedWord.KEY_BYTES] = self._keys_end, len(key)
        self.words[row + ServedWord.COMMIT] = NO_OFFSET
        place = int(seeded_hash(self.keys, self._keys_end, len(key), self.seed)) & INDEX - 1
        self._keys_end = end
        while self.index[place]:
            place = place + 1 & INDEX - 1
        self.index[place] = number + 1
        return row


OUT_BYTES = 2 << 20  # twice the largest answer of the fast path
HELD_COST = 64


class Asked(NamedTuple):
    """A pull that waits: as its frame came, or as a request; and as the compiled way knows it, where it does."""

    peer: Peer
    frame: bytes
    command: RemotingCommand | None = None
    row: int = -1
    generation: int = -1
    offset: int = 0
    most: int = 0
    opaque: int = 0
    form: int = 0

    @property
    def request(self) -> RemotingCommand:
        """Return the pull's request, decoded from its frame if needed."""
        return decode(self.frame) if self.command is None else self.command

    @property
    def cost(self) -> int:
        """Return about how many bytes it costs to keep the pull."""
        return len(self.frame) + HELD_COST if self.command is None else self.command.cost


class HeldRow(NamedTuple):
    """A pull that the compiled way held, as HeldWord has it."""

    offset: int
    row: int
    peer: int
    most: int
    opaque: int
    form: int
    commit: int
    suspend_ms: int
    until_ms: int
    begin: int
    end: int
    answer: int
    came_ns: int


class Commit(NamedTuple):
    """An offset that a pull brought. `number` counts new ones; 0: the same offset was reported before."""

    offset: int
    peer: int
    number: int


class Noted(NamedTuple):
    """Pulls of one kind that were answered since the last report."""

    served: ServedPull
    is_pulled: int  # whether the offset is new
    pulls: int
    messages: int
    bytes: int
    next_offset: int
    behind_bytes: int
    commit: Commit


class PullHolder(Protocol):
    """What keeps the pulls that compiled code does not: `HeldPulls`."""

    def hold_fast(self, asked: Asked, suspend_ms: int) -> bool:
        """Keep a fast pull whose queue has nothing more; False where it may not wait."""

    def held_changed(self) -> None:
        """Compiled code holds more pulls than before, or fewer."""


class CompiledPulls:
    """Fast pulls of one front, which arrive in `buffer`. `holder` keeps those that compiled code may not hold."""

    def __init__(
        self,
        view: LogView,
        counters: BrokerCounters,
        forms: AnswerForms,
        buffer: Bytes,
        *,
        commits: bool,
        short_ms: int | None,
        sweep_ms: int,
        holder: PullHolder,
    ) -> None:
        self.served, self.block = ServedPulls(), np.zeros(len(PullBlock), np.int64)
        self._holder, self._empty_queues = holder, EmptyQueues(view)
        self._sweep_ms, self._sweep_at_ms = sweep_ms, monotonic_ms() + sweep_ms
        self._commits_seen = 0
        self._held_count = self.block[PullBlock.HELD : PullBlock.HELD + 1]
        self._held_rows: Words = np.zeros(ROWS * HELD_WORDS, np.int64)
        self._notified_rows: Words = np.zeros(NOTIFIED_MAX * HELD_WORDS, np.int64)
        self._out: Bytes = np.zeros(OUT_BYTES, np.uint8)
        self._out_view = memoryview(self._out)  # type: ignore[arg-type]
        self._changed: Words = np.zeros(ROWS, np.int64)
        self._buffer = buffer
        header, values = np.zeros(HEADER_WORDS, np.int64), np.zeros(HOLES, np.int64)
        key, words, ends = np.zeros(KEY_BYTES_MAX, np.uint8), counters.region.words, view.ends.next_offsets
        self._begins = counters.min_physical_offset
        self._kept = header, values, key, forms, view, counters
        places: dict[PullBlock, Words | Bytes] = {
            PullBlock.COUNTERS_AT: words, PullBlock.ENDS_AT: ends, PullBlock.SERVED_AT: self.served.words,
            PullBlock.INDEX_AT: self.served.index, PullBlock.KEYS_AT: self.served.keys,
            PullBlock.FILES_AT: view.files.table, PullBlock.LIMITS_AT: view.limits, PullBlock.UNITS_AT: view.rows,
            PullBlock.RANGES_AT: view.ranges,
            PullBlock.TAKEN_AT: view.taken, PullBlock.HEADER_AT: header, PullBlock.KEY_AT: key,
            PullBlock.VALUES_AT: values, PullBlock.FORMS_AT: forms.words, PullBlock.FORMS_TEXT_AT: forms.text,
            PullBlock.OUT_AT: self._out, PullBlock.CHANGED_AT: self._changed,
            PullBlock.HELD_AT: self._held_rows, PullBlock.NOTIFIED_AT: self._notified_rows,
            PullBlock.BUFFER_AT: buffer,
        }  # fmt: skip
        for word, array in places.items():
            self.block[word] = array.ctypes.data
        for word, size in {
            PullBlock.BUFFER_BYTES: len(buffer),
            PullBlock.COUNTERS: len(words),
            PullBlock.ENDS: len(ends),
            PullBlock.SERVED: ROWS,
            PullBlock.INDEX: INDEX,
            PullBlock.KEYS_BYTES: KEYS_BYTES,
            PullBlock.SEED: self.served.seed,
            PullBlock.FILES: view.files.places,
            PullBlock.UNITS: len(view.rows),
            PullBlock.FORMS_TEXT_BYTES: len(forms.text),
            PullBlock.HEAD_BYTES_MAX: forms.bytes_max,
            PullBlock.OUT_BYTES: OUT_BYTES,
            PullBlock.COMMITS: commits,
            PullBlock.LOG_BEGINS: counters.min_physical_offset.index,
            PullBlock.LOG_ENDS: counters.max_physical_offset.index,
            PullBlock.PERMISSION: counters.broker_permission.index,
            PullBlock.SHORT_MS: -1 if short_ms is None else short_ms,
        }.items():
            self.block[word] = size

    # turns

    def take(self, peer: Peer, at: int, end: int, room_max: int | None = None) -> int:
        """Answer, or hold, the fast pulls of the receive buffer from `at` to `end`.

        Return where the first other frame begins. At most about `room_max` bytes of answers are made; None: as many as
        the peer has room for.
        """
        block, held = self.block, self.held
        block[PullBlock.REASON] = 0
        while end - at > LENGTH_BYTES:
            fd = peer.idle_fd
            room = peer.room if room_max is None else min(peer.room, room_max)
            at = int(take_pulls(block, at, end, fd, peer.number, room))
            if block[PullBlock.WRITTEN]:
                self._hand_over(peer, fd)
            if block[PullBlock.REASON] != PullFallback.NOT_YET:
                break
            held_to = self._hold(peer, at)
            if held_to == at:
                break
            at = held_to
        if self.held != held:
            self._holder.held_changed()
        return at

    def _hand_over(self, peer: Peer, fd: int) -> None:
        """Hand the peer what the socket did not take."""
        sent, written, error = (int(self.block[word]) for word in (PullBlock.SENT, PullBlock.WRITTEN, PullBlock.ERRNO))
        rest = bytes(self._out_view[sent:written])
        if fd == NO_SOCKET:
            peer.write(rest)
        else:
            peer.write_rest(rest, error)

    def _hold(self, peer: Peer, at: int) -> int:
        """Keep the pull that was looked at last, whose frame begins there: where the next one does."""
        block = self.block
        begin = at + LENGTH_BYTES
        end = begin + int.from_bytes(self._buffer[at:begin].tobytes())
        row = int(block[PullBlock.ROW])
        offset, most, opaque, form = (
            int(block[word]) for word in (PullBlock.OFFSET, PullBlock.MOST, PullBlock.OPAQUE, PullBlock.FORM)
        )
        asked = Asked(
            peer, self._buffer[begin:end].tobytes(), None, row, self.served.generation, offset, most, opaque, form
        )
        return end if self._holder.hold_fast(asked, int(block[PullBlock.SUSPEND_MS])) else at

    def answer(self, asked: Asked) -> bytes | None:
        """The answer to a pull that was held; None where Python has to look at it."""
        if asked.generation != self.served.generation:
            return None
        count = int(answer_served(self.block, asked.row, asked.offset, asked.most, asked.opaque, asked.form))
        return bytes(self._out_view[:count]) if count > 0 else None

    # pulls that wait

    @property
    def held(self) -> int:
        """Return how many pulls are held without Python."""
        return int(self._held_count[0])

    @property
    def held_max(self) -> int:
        """Return how many fast pulls may be held."""
        return int(self.block[PullBlock.HELD_MAX])

    @held_max.setter
    def held_max(self, count: int) -> None:
        self.block[PullBlock.HELD_MAX] = count

    def wake(self, place: int, now_ms: int = NEVER) -> tuple[int, list[HeldRow]]:
        """Answer held pulls from `place` on whose queues have more or whose time is over; return how far it looked.

        It also returns the rows. Their answers are in `out`, one behind the other; Python looks at a row without one.
        """
        place = int(notify_held(self.block, place, now_ms))
        return place, self._let_go()

    def send(self, peer: Peer, begin: int, end: int) -> None:
        """Answers to notified pulls of one connection, out[begin:end]: into its socket at once where that is idle."""
        fd = peer.idle_fd
        if fd == NO_SOCKET:
            peer.write(bytes(self._out_view[begin:end]))
            return
        send_notified(self.block, fd, begin, end)
        if self.block[PullBlock.WRITTEN]:
            self._hand_over(peer, fd)

    def _let_go(self) -> list[HeldRow]:
        count = int(self.block[PullBlock.NOTIFIED])
        rows = self._notified_rows[: count * HELD_WORDS].reshape(count, HELD_WORDS).tolist()
        return [HeldRow(*row) for row in rows]

    @property
    def next_sweep_ms(self) -> int:
        """Return the time of the next sweep."""
        return self._sweep_at_ms

    @property
    def has_news(self) -> bool:
        """Whether pulls were answered, or commits noted, that nobody has counted yet."""
        return bool(self.block[PullBlock.PULLS]) or int(self.block[PullBlock.COMMITS_NOTED]) != self._commits_seen

    def sweeps(self, now_ms: int) -> bool:
        """Whether it is time, as it is every now and then, to look at all."""
        if now_ms < self._sweep_at_ms:
            return False
        self._sweep_at_ms = now_ms + self._sweep_ms
        return True

    def release_all(self) -> list[HeldRow]:
        """Return all held pulls, and hold them no more."""
        return self._release(EVERYBODY)

    def release_of(self, number: int) -> list[HeldRow]:
        """Return a connection's held pulls, and hold them no more."""
        return self._release(number)

    def _release(self, number: int) -> list[HeldRow]:
        place, released = 0, list[HeldRow]()
        while place < self.held:
            place = int(release_held(self.block, place, number))
            released += self._let_go()
        return released

    def request_of(self, held: HeldRow) -> RemotingCommand:
        """A pull that was held, as a request."""
        served = self.served[held.row]
        fields = dict(served.fields) | {
            "queueOffset": str(held.offset), "maxMsgNums": str(held.most), "commitOffset": str(held.commit),
            "suspendTimeoutMillis": str(held.suspend_ms),
        }  # fmt: skip
        return RemotingCommand(served.code, held.opaque, ext_fields=fields, serialize=Serialize(held.form))

    # what is known

    @property
    def is_to_learn(self) -> bool:
        """Whether the last `take` ended at a pull of which nothing is known, or what is so no more."""
        return int(self.block[PullBlock.REASON]) in LEARNED

    def learn(self, key: bytes, served: ServedPull) -> None:
        """Such pulls take the fast path from now on; the table is not full."""
        names = {
            TOPICS: served.queue[0], GROUPS: served.group, SUBSCRIPTIONS: served.group, FORBIDDEN: served.group,
            RESETS: reset_name(served.queue[0], served.group),
        }  # fmt: skip
        if served.where.slot == NO_SLOT:
            served = served._replace(where=served.where._replace(slot=self._empty_queues.slot_of(served.queue)))
        self.served.learn(key, served, names)

    def note_born(self) -> None:
        """Note queues that got their first message."""
        for queue, slot in self._empty_queues.begun():
            self.served.begun(queue, slot)

    def forget(self, table: str, name: str) -> None:
        """A table has changed there."""
        self.served.forget(table, name)

    def let_go(self) -> None:
        """Unmap files of queues that may be deleted."""
        self.served.let_go(self._begins.read())

    @property
    def is_full(self) -> bool:
        """Whether it has to be cleared before the next is learned."""
        return self.served.is_full

    def clear(self) -> None:
        """Forget all pulls that are known; none are held or noted."""
        self.served.clear()
        self._empty_queues.clear()

    # what was answered

    def totals(self) -> tuple[int, int, int]:
        """Pulls, messages and bytes that were answered since this was asked last."""
        pulls, messages, size = self.block[PullBlock.PULLS : PullBlock.BYTES + 1].tolist()
        self.block[PullBlock.PULLS : PullBlock.BYTES + 1] = 0
        return pulls, messages, size

    def noted(self) -> Iterator[Noted]:
        """Yield what was answered since the last call; take all of it."""
        count, words = int(self.block[PullBlock.CHANGED]), self.served.words
        self.block[PullBlock.CHANGED] = 0
        self._commits_seen = int(self.block[PullBlock.COMMITS_NOTED])
        for row in self._changed[:count].tolist():
            begin = row + ServedWord.IS_CHANGED
            _changed, is_pulled, pulls, messages, size, following, behind, *commit, _held = words[
                begin : row + SERVED_WORDS
            ].tolist()
            words[begin : row + ServedWord.NEXT_OFFSET] = words[row + ServedWord.COMMIT_NUMBER] = 0
            yield Noted(self.served[row], is_pulled, pulls, messages, size, following, behind, Commit(*commit))


class _HoldsNothing:
    """A holder for a call that compiles and serves nothing."""

    def hold_fast(self, _asked: Asked, _suspend_ms: int) -> bool:
        """Return False: such a call keeps no pulls."""
        return False

    def held_changed(self) -> None:
        """Do nothing: no pulls are held."""


def warm_up(view: LogView, counters: BrokerCounters) -> None:
    """Compile what is called, with nothing to be done."""

    def head(request: RemotingCommand, _caught: Catch, _values: HeadValues) -> bytes:
        return encode(request.answer(0, version=0))

    kernels = CompiledPulls(
        view,
        counters,
        forms_of(head),
        np.zeros(1, np.uint8),
        commits=False,
        short_ms=None,
        sweep_ms=0,
        holder=_HoldsNothing(),
    )
    take_pulls(kernels.block, 0, 0, NO_SOCKET, 0, 0)
    answer_served(kernels.block, 0, 0, 1, 0, 0)
    notify_held(kernels.block, 0, NEVER)
    send_notified(kernels.block, NO_SOCKET, 0, 0)
    release_held(kernels.block, 0, EVERYBODY)
