"""The compiled way of sends: what the kernels stand on, which connections and topics take it, when, and its answers.

Implements: the fast path of SendMessageProcessor (spec: remoting, 7)
Whatever leaves it goes through `engine.front.sends.sends`. A topic takes the fast path once Python's way has served it,
until it changes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from engine.front.connections.peer import Peer
from engine.front.connections.tables import TOPICS
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
    AnswerForm,
    AskedWord,
    Hole,
    PeerWord,
    PropertyWord,
    RulesWord,
    RunWord,
    ScratchWord,
    SendBlock,
    SendFallback,
)
from engine.front.sends.front_ring import FrontRing
from engine.front.sends.put_tasks import SHARE_OF_ONE, PutTasks
from engine.front.sends.send_kernel import TEXT_BYTES, take_sends
from engine.producer.pipeline import STATUSES, Outcome, Pipeline
from engine.producer.pipeline_kernel import SENT_WORDS, StateWord
from engine.producer.queue_slots import NO_SLOT as NO_QUEUE_SLOT
from engine.protocol.access import rights
from engine.protocol.ha.policy import PutPolicy, may_append
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand, Serialize
from engine.protocol.sending import answers
from engine.protocol.sending.checks import PERM_WRITE
from engine.rings.encode_kernel import template_of
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from ipc.arrays import Bytes, Words
from ipc.ring import DESCRIPTOR_WORDS, Outlet
from store.message.host import V4_BYTES, Host, pack_host
from store.message.properties import CLUSTER, MSG_REGION, NAME_SEPARATOR, TRACE_ON, java_hash
from store.message.record import BLANK_BYTES, MAX_RECORD_OVERHEAD_BYTES, NO_HOST
from store.message.topics import RETRY_PREFIX, TOPIC_PATTERN, is_not_for_clients
from store.put.policy import Facts, text_bytes

PEERS_MAX = 16_384
OUT_BYTES, RUNS_MAX = 1 << 20, 4096
NO_SLOT = -1
HOST_WORDS = struct.Struct(">iI")
HOST_WORD = struct.Struct(">q")
V4_HOST_BYTES = V4_BYTES + 4
SLAVES_MAX = 64
RUN_PEER, RUN_AT, RUN_END = (int(word) for word in RunWord)  # adding to members takes longer than the loop


class UnderWay(NamedTuple):
    """State of puts under way: the tables of `engine.producer.pipeline`, and its ring's latencies."""

    table: Words
    state: Words
    done: Words
    latencies: Words


class SendLimits(NamedTuple):
    """Limits of puts under way, in all and for one connection; a record's greatest length."""

    puts: int
    bytes: int
    peer_puts: int
    peer_bytes: int
    record_bytes: int


class SendKernels:
    """For one front. All that is given must stay mapped until it is dropped; `is_possible` tells whether it may be."""

    def __init__(
        self,
        facts: Facts,
        policy: PutPolicy,
        counters: BrokerCounters,
        outlet: Outlet,
        under_way: UnderWay,
        limits: SendLimits,
        buffer: Bytes,
        forms: AnswerForms,
    ) -> None:
        self.topics = SendTopics()
        self.block: Words = np.zeros(len(SendBlock), np.int64)
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
        self._template = template_of("-", 0, 0, NO_HOST, facts.store_host).record
        self._kept = (outlet, under_way, buffer, forms, counters)
        self._fill(outlet, under_way, rows, buffer, forms)
        self._set_limits(limits, facts, policy, counters)

    def _fill(self, outlet: Outlet, under_way: UnderWay, rows: int, buffer: Bytes, forms: AnswerForms) -> None:
        block, counters = self.block, outlet.bell
        places: dict[SendBlock, Words | Bytes] = {
            SendBlock.DATA_AT: outlet.data, SendBlock.DESCRIPTORS_AT: outlet.words,
            SendBlock.CONTROL_AT: outlet.control, SendBlock.LOCAL_AT: outlet.local, SendBlock.COUNTERS_AT: counters,
            SendBlock.TABLE_AT: under_way.table, SendBlock.STATE_AT: under_way.state,
            SendBlock.DONE_AT: under_way.done, SendBlock.LATENCIES_AT: under_way.latencies,
            SendBlock.BUFFER_AT: buffer, SendBlock.TOPICS_AT: self.topics.words, SendBlock.NAMES_AT: self.topics.names,
            SendBlock.SLOTS_AT: self.topics.slots, SendBlock.PEERS_AT: self.peers, SendBlock.ASKED_AT: self.asked,
            SendBlock.UNIQUE_AT: self._unique, SendBlock.LENGTHS_AT: self._lengths,
            SendBlock.SCRATCH_AT: self._scratch, SendBlock.TEXT_AT: self._text, SendBlock.TEMPLATE_AT: self._template,
            SendBlock.RULES_AT: self._rules, SendBlock.OWN_TEXT_AT: self._own_text, SendBlock.OUT_AT: self._out,
            SendBlock.RUNS_AT: self._runs, SendBlock.FORMS_AT: forms.words, SendBlock.FORMS_TEXT_AT: forms.text,
        }  # fmt: skip
        for word, array in places.items():
            block[word] = array.ctypes.data
        sizes = {
            SendBlock.DATA_BYTES: len(outlet.data), SendBlock.DESCRIPTORS: len(outlet.words) // DESCRIPTOR_WORDS,
            SendBlock.COUNTERS: len(counters), SendBlock.BELL: outlet.bell_index, SendBlock.ROWS: rows,
            SendBlock.LATENCIES: len(under_way.latencies), SendBlock.BUFFER_BYTES: len(buffer),
            SendBlock.TOPICS: ROWS,
            SendBlock.NAMES_BYTES: len(self.topics.names), SendBlock.SLOTS: len(self.topics.slots),
            SendBlock.SEED: self.topics.seed, SendBlock.PEERS: PEERS_MAX,
            SendBlock.OWN_TEXT_BYTES: len(self._own_text), SendBlock.OUT_BYTES: OUT_BYTES, SendBlock.RUNS: RUNS_MAX,
            SendBlock.FORMS_TEXT_BYTES: len(forms.text), SendBlock.ANSWER_BYTES_MAX: forms.bytes_max,
        }  # fmt: skip
        for word, size in sizes.items():
            block[word] = size

    def _set_limits(self, limits: SendLimits, facts: Facts, policy: PutPolicy, counters: BrokerCounters) -> None:
        block = self.block
        block[SendBlock.PUTS_MAX], block[SendBlock.BYTES_MAX] = limits.puts, limits.bytes
        block[SendBlock.PEER_PUTS_MAX], block[SendBlock.PEER_BYTES_MAX] = limits.peer_puts, limits.peer_bytes
        block[SendBlock.RECORD_BYTES_MAX] = limits.record_bytes
        block[SendBlock.BROKER_STATE], block[SendBlock.DISK_STATE] = (
            counters.broker_state.index,
            counters.disk_state.index,
        )
        block[SendBlock.IN_SYNC_SLAVES] = counters.in_sync_slaves.index
        block[SendBlock.LOG_END], block[SendBlock.FLUSH_ERRNO] = (
            counters.max_physical_offset.index,
            counters.flush_errno.index,
        )
        block[SendBlock.IN_SYNC_MIN] = next((n for n in range(SLAVES_MAX) if may_append(policy, n)), SLAVES_MAX)
        block[SendBlock.REACHED_FIRST] = counters.flushed_offset.index if policy.wait_for_flush else NOBODY
        block[SendBlock.REACHED_SECOND] = counters.confirm_offset.index if policy.in_sync_replicas > 1 else NOBODY
        if policy.replicas_min:
            block[SendBlock.REACHED_FIRST] = NOT_SO
        host = pack_host(facts.store_host)
        block[SendBlock.IS_OPEN] = 1
        self.is_possible = len(host) == V4_HOST_BYTES and not facts.appends_crc
        if self.is_possible:
            (block[SendBlock.STORE_HOST],) = HOST_WORD.unpack(host)

    # connections

    def add_connection(self, number: int, host: Host) -> int:
        """A connection whose sends may take the fast path: its slot, NO_SLOT where it has none."""
        packed = pack_host(host)
        if not self._free or not self.is_possible or len(packed) != V4_HOST_BYTES:
            return NO_SLOT
        slot = self._free.pop()
        row = slot * PEER_WORDS
        address, port = HOST_WORDS.unpack(packed)
        self.peers[row : row + PEER_WORDS] = 0
        self.peers[row + PeerWord.ADDRESS], self.peers[row + PeerWord.PORT] = address, port
        self.peers[row + PeerWord.NUMBER], self.peers[row + PeerWord.IS_FAST] = number, 1
        return slot

    def remove_connection(self, slot: int) -> None:
        """Free a closed connection's slot: nothing is answered to it any more."""
        row = slot * PEER_WORDS
        self.peers[row + PeerWord.IS_FAST], self.peers[row + PeerWord.NUMBER] = 0, 0
        self._free.append(slot)

    # turns

    def take(self, at: int, end: int, slot: int) -> int:
        """Put the fast sends of the receive buffer into the ring; return the offset up to which they were taken."""
        return int(take_sends(self.block, at, end, slot))

    @property
    def reason(self) -> int:
        """Return why the last `take` ended; 0 where no whole frame was left."""
        return int(self.block[SendBlock.REASON])

    @property
    def taken(self) -> int:
        """Return how many messages the last `take` put."""
        return int(self.block[SendBlock.TAKEN])

    def note_done(self) -> bool:
        """Have the pipeline note what is done by now; whether it has to look at each itself."""
        return bool(look_at_log(self.block))

    def answers(self) -> Iterator[tuple[int, bytes]]:
        """The answers of those done: a connection's slot, and bytes for it."""
        while True:
            count = int(write_answers(self.block))
            runs, out = self._runs[: count * RUN_WORDS].tolist(), self._out_view
            for k in range(0, count * RUN_WORDS, RUN_WORDS):
                yield runs[k + RUN_PEER] // PEER_WORDS, bytes(out[runs[k + RUN_AT] : runs[k + RUN_END]])
            if self.block[SendBlock.NEXT_ROW] >= self._state[StateWord.DONE]:
                return

    @property
    def rows_for_python(self) -> int:
        """Return how many rows of `done`, from its beginning on, are for others to answer."""
        return int(self.block[SendBlock.ROWS_FOR_PYTHON])


def warm_up(pipeline: Pipeline, counters: BrokerCounters, facts: Facts) -> None:
    """Compile all that is called here."""
    forms = forms_of(lambda request, code, _values: request.answer(code, version=0), {})
    under_way = UnderWay(pipeline.table, pipeline.state, pipeline.done, pipeline.latencies)
    buffer = np.zeros(1, np.uint8)
    kernels = SendKernels(
        facts, pipeline.policy, counters, pipeline.outlet, under_way, SendLimits(1, 1, 1, 1, 1), buffer, forms
    )
    kernels.topics.learn("-", 1, 0, 0)
    kernels.take(0, 0, 0)
    kernels.note_done()
    list(kernels.answers())


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


CODES = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
SINGLE_TAG = "SINGLE_TAG"
TOGETHER_BYTES = 256 * 1024  # in a turn with several connections: the writer begins before it ends
ALONE_FROM = 16  # sends of one connection behind each other
UNKNOWN = (SendFallback.TOPIC, SendFallback.QUEUE)


class CompiledSends:
    """Fast sends of one front of a master."""

    def __init__(self, tasks: PutTasks, ring: FrontRing, buffer: Bytes) -> None:
        self._tasks, self._pipeline, self._published = tasks, ring.pipeline, ring.published
        pipeline = ring.pipeline
        config = tasks.config
        record_max = min(
            config.mapped_file_size_commit_log_bytes - BLANK_BYTES,
            len(pipeline.ring.data),
            config.max_message_bytes + MAX_RECORD_OVERHEAD_BYTES,
        )
        limits = SendLimits(
            config.send_queue_capacity,
            config.send_bytes_in_flight_max,
            max(1, config.send_queue_capacity // SHARE_OF_ONE),
            config.send_bytes_in_flight_max // SHARE_OF_ONE,
            record_max,
        )
        codes = {number: tasks.put_answer(status).code for number, status in enumerate(STATUSES) if status.is_stored}
        self.kernels = SendKernels(
            tasks.settings.now(),
            pipeline.policy,
            tasks.counters,
            pipeline.outlet,
            UnderWay(pipeline.table, pipeline.state, pipeline.done, pipeline.latencies),
            limits,
            buffer,
            forms_of(self._stored, codes),
        )
        self._block = self.kernels.block
        self._peers: dict[int, Peer] = {}  # by slot
        self._stored_before = self._takes = 0
        self._last_slot, self._in_a_row = NO_SLOT, 0  # who sent last, how often nobody else did
        tasks.context.tables.follow(self._changed)
        self.turn(0)

    def _stored(self, request: RemotingCommand, code: int, values: Mapping[Hole, str]) -> RemotingCommand:
        """Return the answer to a stored message."""
        fields = answers.stored_fields(
            self._tasks.common,
            values[Hole.MESSAGE_ID],
            0,
            0,
            capacity=self._tasks.fields_capacity(request),
            transaction_id=values.get(Hole.TRANSACTION_ID) if self._tasks.line.put.adds_unique_key else None,
        )
        fields |= {"queueId": values[Hole.QUEUE_ID], "queueOffset": values[Hole.QUEUE_OFFSET]}
        return self._tasks.answered(request, code, None, fields)

    def _changed(self, table: str, name: str | None) -> None:
        if table == TOPICS:
            self.kernels.topics.forget(name)

    # connections

    def add_connection(self, peer: Peer) -> None:
        """A connection came; its sends take the fast path where it may send at all."""
        if any(rights.refusal(code, peer.connection.rights) is not None for code in CODES):
            return
        peer.slot = self.kernels.add_connection(peer.number, peer.address)
        if peer.slot != NO_SLOT:
            self._peers[peer.slot] = peer

    def remove_connection(self, peer: Peer) -> None:
        """Take a closed connection out of the compiled tables."""
        if peer.slot != NO_SLOT:
            self._peers.pop(peer.slot, None)
            self.kernels.remove_connection(peer.slot)
            peer.slot = NO_SLOT

    # requests

    def take(self, peer: Peer, at: int, end: int) -> int:
        """Put the fast sends of the receive buffer from `at` to `end`; return where the first other frame begins."""
        if self._pipeline.parked_puts:
            return at
        taken_to = self.kernels.take(at, end, peer.slot)
        if taken_to > at:
            self._takes += 1
            self._in_a_row = self._in_a_row + 1 if peer.slot == self._last_slot else 0
            self._last_slot = peer.slot
            self._published()
        return taken_to

    def end_turn(self) -> bool:
        """Ring for what came in this turn: once, as each wake-up costs both sides more than to copy what one had.

        For a connection that is alone it is rung at once in the next turn, too. Whether one is all that sends.
        """
        block = self._block
        if block[SendBlock.UNRUNG]:
            block[SendBlock.UNRUNG] = 0
            waiting.ring(self._tasks.counters.writer_bell)
        block[SendBlock.RINGS_FROM] = 0 if self._takes <= 1 else TOGETHER_BYTES
        is_alone = self._takes == 1 and self._in_a_row >= ALONE_FROM
        self._takes = 0
        return is_alone

    def learn(self, request: RemotingCommand) -> None:
        """A request that Python's way took, because its topic or queue is not known here."""
        if request.code not in CODES or self.kernels.reason not in UNKNOWN or request.ext_fields is None:
            return
        self._tasks.context.counts.fast_code = request.code
        fields, is_short = request.ext_fields, request.code != RequestCode.SEND_MESSAGE
        topic, queue = fields.get("b" if is_short else "topic", ""), fields.get("e" if is_short else "queueId", "")
        config = self._tasks.context.tables.topics.get(topic)
        if config is None or not _is_for_compiled_sends(topic, config) or not queue.isdecimal():
            return
        slots, named = self._pipeline.slots, (topic, int(queue))
        if slots.missing(named) is None and (slot := slots.slot_of(named)) != NO_QUEUE_SLOT:
            queues = max(config["writeQueueNums"], config["readQueueNums"])
            self.kernels.topics.learn(topic, queues, named[1], slot)

    # answers

    def note_done(self) -> bool:
        """Note what is done by now; whether the pipeline has to look at each itself."""
        return self.kernels.note_done()

    def answer(self) -> int:
        """Answer what is done; how many rows of `done`, from its beginning on, are left to the pipeline."""
        for slot, frames in self.kernels.answers():
            self._peers[slot].write(frames)
        return self.kernels.rows_for_python

    def answer_failed(self, outcome: Outcome) -> None:
        """Answer a put that was not stored; one whose front is gone is ignored."""
        asked, rows = self.kernels.asked, len(self.kernels.asked) // ASKED_WORDS
        at = outcome.number % rows * ASKED_WORDS
        if asked[at + AskedWord.NUMBER] != outcome.number:
            return
        peer = self._peers.get(int(asked[at + AskedWord.PEER]) // PEER_WORDS)
        self._forget(at)
        if peer is None or peer.number != asked[at + AskedWord.PEER_NUMBER]:
            return
        form = int(asked[at + AskedWord.FORM])
        if form == AnswerForm.NONE:
            return
        said, opaque = self._tasks.put_answer(outcome.status), int(asked[at + AskedWord.OPAQUE])
        request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque, serialize=Serialize(form & 1))
        answer = self._tasks.answered(request, said.code, said.remark, self._tasks.common)
        self._tasks.context.answer(peer, request, answer)

    def _forget(self, at: int) -> None:
        """Take a put off those under way."""
        asked, peers, taken = self.kernels.asked, self.kernels.peers, self.kernels.asked[at + AskedWord.BYTES]
        self._block[SendBlock.UNDER_WAY] -= 1
        self._block[SendBlock.BYTES_UNDER_WAY] -= taken
        row = asked[at + AskedWord.PEER]
        if peers[row + PeerWord.NUMBER] == asked[at + AskedWord.PEER_NUMBER]:
            peers[row + PeerWord.PUTS] -= 1
            peers[row + PeerWord.BYTES] -= taken

    # accounts

    def of_peer(self, peer: Peer) -> tuple[int, int] | None:
        """Return the puts and bytes of a connection that are under way, tasks' too; None where it has no place here."""
        if peer.slot == NO_SLOT:
            return None
        row, peers = peer.slot * PEER_WORDS, self.kernels.peers
        return int(peers[row + PeerWord.PUTS]), int(peers[row + PeerWord.BYTES])

    def charge(self, peer: Peer, requests: int, size: int) -> None:
        """Add tasks and bytes to those under way of a connection; negative numbers take them off."""
        if peer.slot != NO_SLOT:
            row, peers = peer.slot * PEER_WORDS, self.kernels.peers
            peers[row + PeerWord.PUTS] += requests
            peers[row + PeerWord.BYTES] += size

    # time

    def turn(self, now_ms: int) -> None:
        """Look whether the fast path is open (`now_ms`: wall time); count what was stored."""
        tasks, counters = self._tasks, self._tasks.counters
        is_open = tasks.context.tables.is_complete and now_ms >= tasks.config.accepts_sends_from_ms
        is_open &= counters.broker_permission.read() & PERM_WRITE != 0
        self._block[SendBlock.IS_OPEN] = is_open and not tasks.is_store_busy()
        stored = int(self._block[SendBlock.STORED])
        if stored != self._stored_before:
            waiting.add(tasks.words.sends, stored - self._stored_before)
            self._stored_before = stored

    @property
    def puts(self) -> int:
        """Return how many messages are under way."""
        return int(self._block[SendBlock.UNDER_WAY])

    @property
    def bytes(self) -> int:
        """Return how many bytes are under way."""
        return int(self._block[SendBlock.BYTES_UNDER_WAY])


def compiled_sends(tasks: PutTasks, buffer: Bytes) -> CompiledSends | None:
    """Open the fast path beside `tasks`, for what arrives in `buffer`; None where this broker has none."""
    if tasks.ring is None:
        return None
    compiled = CompiledSends(tasks, tasks.ring, buffer)
    if not compiled.kernels.is_possible:
        return None
    tasks.share(compiled)
    return compiled


def _is_for_compiled_sends(topic: str, config: Mapping[str, Any]) -> bool:
    """Whether plain messages to a topic are nothing special."""
    if topic.startswith(RETRY_PREFIX) or is_not_for_clients(topic) or not TOPIC_PATTERN.fullmatch(topic):
        return False
    return config.get("topicFilterType") == SINGLE_TAG and not config.get("order") and not config.get("attributes")
