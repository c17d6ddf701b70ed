"""Compiled sends as Python calls them: what the kernels stand on, connections by slot, answers by run."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from engine.board.cursors import Board
from engine.front.frames.answer_forms import AnswerForms, forms_of
from engine.front.frames.answer_kernel import NOBODY, NOT_SO, look_at_log, write_answers
from engine.front.frames.send_topics import ROWS, SendTopics
from engine.front.frames.send_words import (
    ASKED_WORDS,
    OWN_MAX,
    PEER_WORDS,
    PROPERTY_WORDS,
    RECORDS_MAX,
    RULES_WORDS,
    RUN_WORDS,
    UNIQUE_KEY_BYTES,
    BlockWord,
    PeerWord,
    PropertyWord,
    RulesWord,
    ScratchWord,
)
from engine.front.sends.send_record_kernel import TEXT_BYTES
from engine.front.sends.usual_send_kernel import take_sends
from engine.producer.pipeline import Pipeline
from engine.producer.pipeline_kernel import SENT_WORDS, StateWord
from engine.protocol.ha.policy import PutPolicy, may_append
from ipc.arrays import Bytes, Words
from ipc.ring import DESCRIPTOR_WORDS, Outlet
from store.message.host import V4_BYTES, Host, pack_host
from store.message.properties import CLUSTER, MSG_REGION, NAME_SEPARATOR, TRACE_ON, java_hash
from store.put.policy import Facts, text_bytes

PEERS_MAX = 16_384
OUT_BYTES, RUNS_MAX = 1 << 20, 4096
NO_SLOT = -1
HOST_WORDS = struct.Struct(">iI")
HOST_WORD = struct.Struct(">q")
V4_HOST_BYTES = V4_BYTES + 4
SLAVES_MAX = 64


class UnderWay(NamedTuple):
    """State of puts under way: the tables of `engine.producer.pipeline`, and its ring's latencies."""

    table: Words
    state: Words
    done: Words
    latencies: Words


class Limits(NamedTuple):
    """Limits of puts under way, in all and for one connection; a record's greatest length."""

    puts: int
    bytes: int
    peer_puts: int
    peer_bytes: int
    record_bytes: int


class UsualSends:
    """For one front. All that is given must stay mapped until it is dropped; `is_possible` tells whether it may be."""

    def __init__(
        self,
        facts: Facts,
        policy: PutPolicy,
        board: Board,
        outlet: Outlet,
        under_way: UnderWay,
        limits: Limits,
        buffer: Bytes,
        forms: AnswerForms,
    ) -> None:
        self.topics = SendTopics()
        self.block: Words = np.zeros(len(BlockWord), np.int64)
        self.peers: Words = np.zeros(PEERS_MAX * PEER_WORDS, np.int64)
        self._free = list(range(PEERS_MAX - 1, -1, -1))
        rows = len(under_way.table) // SENT_WORDS
        self.asked: Words = np.full(rows * ASKED_WORDS, -1, np.int64)
        self._unique: Bytes = np.zeros(rows * UNIQUE_KEY_BYTES, np.uint8)
        self._lengths: Words = np.zeros(rows * RECORDS_MAX, np.int64)
        self._scratch: Words = np.zeros(ScratchWord.END, np.int64)
        self._text: Bytes = np.zeros(TEXT_BYTES, np.uint8)
        self._out: Bytes = np.zeros(OUT_BYTES, np.uint8)
        self._out_view = memoryview(self._out)  # type: ignore[arg-type]
        self._runs: Words = np.zeros(RUNS_MAX * RUN_WORDS, np.int64)
        self._state = under_way.state
        self._rules, self._own_text = rules_of(facts)
        self._kept = (outlet, under_way, buffer, forms, board)
        self._fill(outlet, under_way, rows, buffer, forms)
        self._set_limits(limits, facts, policy, board)

    def _fill(self, outlet: Outlet, under_way: UnderWay, rows: int, buffer: Bytes, forms: AnswerForms) -> None:
        block, counters = self.block, outlet.bell
        places: dict[BlockWord, Words | Bytes] = {
            BlockWord.DATA_AT: outlet.data, BlockWord.DESCRIPTORS_AT: outlet.words,
            BlockWord.CONTROL_AT: outlet.control, BlockWord.LOCAL_AT: outlet.local, BlockWord.COUNTERS_AT: counters,
            BlockWord.TABLE_AT: under_way.table, BlockWord.STATE_AT: under_way.state,
            BlockWord.DONE_AT: under_way.done, BlockWord.LATENCIES_AT: under_way.latencies,
            BlockWord.BUFFER_AT: buffer, BlockWord.TOPICS_AT: self.topics.words, BlockWord.NAMES_AT: self.topics.names,
            BlockWord.SLOTS_AT: self.topics.slots, BlockWord.PEERS_AT: self.peers, BlockWord.ASKED_AT: self.asked,
            BlockWord.UNIQUE_AT: self._unique, BlockWord.LENGTHS_AT: self._lengths,
            BlockWord.SCRATCH_AT: self._scratch, BlockWord.TEXT_AT: self._text,
            BlockWord.RULES_AT: self._rules, BlockWord.OWN_TEXT_AT: self._own_text, BlockWord.OUT_AT: self._out,
            BlockWord.RUNS_AT: self._runs, BlockWord.FORMS_AT: forms.words, BlockWord.FORMS_TEXT_AT: forms.text,
        }  # fmt: skip
        for word, array in places.items():
            block[word] = array.ctypes.data
        sizes = {
            BlockWord.DATA_BYTES: len(outlet.data), BlockWord.DESCRIPTORS: len(outlet.words) // DESCRIPTOR_WORDS,
            BlockWord.COUNTERS: len(counters), BlockWord.BELL: outlet.bell_index, BlockWord.ROWS: rows,
            BlockWord.LATENCIES: len(under_way.latencies), BlockWord.BUFFER_BYTES: len(buffer),
            BlockWord.TOPICS: ROWS,
            BlockWord.NAMES_BYTES: len(self.topics.names), BlockWord.SLOTS: len(self.topics.slots),
            BlockWord.SEED: self.topics.seed, BlockWord.PEERS: PEERS_MAX,
            BlockWord.OWN_TEXT_BYTES: len(self._own_text), BlockWord.OUT_BYTES: OUT_BYTES, BlockWord.RUNS: RUNS_MAX,
            BlockWord.FORMS_TEXT_BYTES: len(forms.text), BlockWord.ANSWER_BYTES_MAX: forms.bytes_max,
        }  # fmt: skip
        for word, size in sizes.items():
            block[word] = size

    def _set_limits(self, limits: Limits, facts: Facts, policy: PutPolicy, board: Board) -> None:
        block = self.block
        block[BlockWord.PUTS_MAX], block[BlockWord.BYTES_MAX] = limits.puts, limits.bytes
        block[BlockWord.PEER_PUTS_MAX], block[BlockWord.PEER_BYTES_MAX] = limits.peer_puts, limits.peer_bytes
        block[BlockWord.RECORD_BYTES_MAX] = limits.record_bytes
        block[BlockWord.BROKER_STATE], block[BlockWord.DISK_STATE] = board.broker_state.index, board.disk_state.index
        block[BlockWord.IN_SYNC_SLAVES] = board.in_sync_slaves.index
        block[BlockWord.LOG_END], block[BlockWord.FLUSH_ERRNO] = (
            board.max_physical_offset.index,
            board.flush_errno.index,
        )
        block[BlockWord.IN_SYNC_MIN] = next((n for n in range(SLAVES_MAX) if may_append(policy, n)), SLAVES_MAX)
        block[BlockWord.REACHED_FIRST] = board.flushed_offset.index if policy.wait_for_flush else NOBODY
        block[BlockWord.REACHED_SECOND] = board.confirm_offset.index if policy.in_sync_replicas > 1 else NOBODY
        if policy.replicas_min:
            block[BlockWord.REACHED_FIRST] = NOT_SO
        host = pack_host(facts.store_host)
        block[BlockWord.IS_OPEN] = 1
        self.is_possible = len(host) == V4_HOST_BYTES and not facts.appends_crc
        if self.is_possible:
            (block[BlockWord.STORE_HOST],) = HOST_WORD.unpack(host)

    # connections

    def enter(self, number: int, host: Host) -> int:
        """A connection whose sends may be usual: its slot, NO_SLOT where it has none."""
        packed = pack_host(host)
        if not self._free or not self.is_possible or len(packed) != V4_HOST_BYTES:
            return NO_SLOT
        slot = self._free.pop()
        row = slot * PEER_WORDS
        address, port = HOST_WORDS.unpack(packed)
        self.peers[row : row + PEER_WORDS] = 0
        self.peers[row + PeerWord.ADDRESS], self.peers[row + PeerWord.PORT] = address, port
        self.peers[row + PeerWord.NUMBER], self.peers[row + PeerWord.IS_USUAL] = number, 1
        return slot

    def leave(self, slot: int) -> None:
        """Free a closed connection's slot: nothing is answered to it any more."""
        row = slot * PEER_WORDS
        self.peers[row + PeerWord.IS_USUAL], self.peers[row + PeerWord.NUMBER] = 0, 0
        self._free.append(slot)

    # turns

    def take(self, at: int, end: int, slot: int) -> int:
        """Put the usual sends of the receive buffer into the ring; return the offset up to which they were taken."""
        return int(take_sends(self.block, at, end, slot))

    @property
    def reason(self) -> int:
        """Return why the last `take` ended; 0 where no whole frame was left."""
        return int(self.block[BlockWord.REASON])

    @property
    def taken(self) -> int:
        """Return how many messages the last `take` put."""
        return int(self.block[BlockWord.TAKEN])

    def look(self) -> bool:
        """Have the pipeline note what is done by now; whether it has to look at each itself."""
        return bool(look_at_log(self.block))

    def answers(self) -> Iterator[tuple[int, bytes]]:
        """The answers of those done: a connection's slot, and bytes for it."""
        while True:
            count = int(write_answers(self.block))
            runs, out = self._runs[: count * RUN_WORDS].tolist(), self._out_view
            for k in range(0, count * RUN_WORDS, RUN_WORDS):
                yield runs[k] // PEER_WORDS, bytes(out[runs[k + 1] : runs[k + 2]])
            if self.block[BlockWord.NEXT_ROW] >= self._state[StateWord.DONE]:
                return

    @property
    def left(self) -> int:
        """Return how many rows of `done`, from its beginning on, are for others to answer."""
        return int(self.block[BlockWord.LEFT])


def warm_up(pipeline: Pipeline, board: Board, facts: Facts) -> None:
    """Compile all that is called here."""
    forms = forms_of(lambda request, code, _values: request.answer(code, version=0), {})
    under_way = UnderWay(pipeline.table, pipeline.state, pipeline.done, pipeline.latencies)
    buffer = np.zeros(1, np.uint8)
    usual = UsualSends(facts, pipeline.policy, board, pipeline.outlet, under_way, Limits(1, 1, 1, 1, 1), buffer, forms)
    usual.take(0, 0, 0)
    usual.look()
    list(usual.answers())


def rules_of(facts: Facts) -> tuple[Words, Bytes]:
    """Return the words of `PutRules` for a plain message, and the broker's own properties as text."""
    policy, rules, text = facts.policy, np.zeros(RULES_WORDS, np.int64), b""
    own = {MSG_REGION: facts.region_id, TRACE_ON: str(facts.trace_on).lower()} if policy.adds_region else {}
    own[CLUSTER] = facts.cluster_name
    assert len(own) <= OWN_MAX
    rules[RulesWord.MAP_CAPACITY], rules[RulesWord.TRAILING] = policy.map_capacity, policy.trailing_separator
    rules[RulesWord.REMOVES_WAIT], rules[RulesWord.NEEDS_UNIQUE_KEY] = policy.removes_wait, policy.adds_unique_key
    rules[RulesWord.BODY_BYTES_MAX], rules[RulesWord.OWN_PROPERTIES] = facts.message_bytes_max, len(own)
    for number, (name, value) in enumerate(own.items()):
        property_text = text_bytes(f"{name}{NAME_SEPARATOR}{value}")
        at = RulesWord.OWN_FIRST + number * PROPERTY_WORDS
        rules[at + PropertyWord.AT], rules[at + PropertyWord.BYTES] = len(text), len(property_text)
        rules[at + PropertyWord.NAME_BYTES], rules[at + PropertyWord.HASH] = len(name), java_hash(name)
        text += property_text
    return rules, np.frombuffer(text, np.uint8).copy()
