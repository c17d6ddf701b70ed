"""The compiled way of usual sends at work in a front: which connections and topics it takes, when, and its answers.

Implements: the usual case of SendMessageProcessor (spec: remoting, 7)
Whatever is not usual goes through `engine.front.sends.sends`. A topic is usual once Python's way has served it, until
it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.front.connections.peer import Peer
from engine.front.connections.tables import TOPICS
from engine.front.frames.answer_forms import forms_of
from engine.front.frames.send_words import (
    ASKED_WORDS,
    PEER_WORDS,
    AnswerForm,
    AskedWord,
    BlockWord,
    Hole,
    PeerWord,
    Unusual,
)
from engine.front.sends.puts import Puts
from engine.front.sends.send_desk import SHARE_OF_ONE, SendDesk
from engine.front.sends.sends import Sends
from engine.front.sends.usual_sends import NO_SLOT, Limits, UnderWay, UsualSends
from engine.producer.pipeline import STATUSES, Outcome
from engine.producer.queue_slots import NO_SLOT as NO_QUEUE_SLOT
from engine.protocol.access import rights
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand, Serialize
from engine.protocol.sending import answers
from engine.protocol.sending.checks import PERM_WRITE
from ipc import waiting
from ipc.arrays import Bytes
from store.message.record import BLANK_BYTES, MAX_RECORD_OVERHEAD_BYTES
from store.message.topics import RETRY_PREFIX, TOPIC_PATTERN, is_not_for_clients

CODES = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
SINGLE_TAG = "SINGLE_TAG"
TOGETHER_BYTES = 256 * 1024  # in a turn with several connections: the writer begins before it ends
ALONE_FROM = 16  # sends of one connection behind each other
UNKNOWN = (Unusual.TOPIC, Unusual.QUEUE)


class QuickSends:
    """Usual sends of one front of a master."""

    def __init__(self, desk: SendDesk, puts: Puts, buffer: Bytes) -> None:
        self._desk, self._pipeline, self._published = desk, puts.pipeline, puts.published
        pipeline = puts.pipeline
        config = desk.config
        record_max = min(
            config.mapped_file_size_commit_log_bytes - BLANK_BYTES,
            len(pipeline.ring.data),
            config.max_message_bytes + MAX_RECORD_OVERHEAD_BYTES,
        )
        limits = Limits(
            config.send_queue_capacity,
            config.send_bytes_in_flight_max,
            max(1, config.send_queue_capacity // SHARE_OF_ONE),
            config.send_bytes_in_flight_max // SHARE_OF_ONE,
            record_max,
        )
        codes = {number: desk.put_answer(status).code for number, status in enumerate(STATUSES) if status.is_stored}
        self.usual = UsualSends(
            desk.facts.now(),
            pipeline.policy,
            desk.board,
            pipeline.outlet,
            UnderWay(pipeline.table, pipeline.state, pipeline.done, pipeline.latencies),
            limits,
            buffer,
            forms_of(self._stored, codes),
        )
        self._block = self.usual.block
        self._peers: dict[int, Peer] = {}  # by slot
        self._stored_before = self._takes = 0
        self._last_slot, self._in_a_row = NO_SLOT, 0  # who sent last, how often nobody else did
        desk.context.tables.follow(self._changed)
        self.turn(0)

    def _stored(self, request: RemotingCommand, code: int, values: Mapping[Hole, str]) -> RemotingCommand:
        """Return the answer to a stored message."""
        fields = answers.stored_fields(
            self._desk.common,
            values[Hole.MESSAGE_ID],
            0,
            0,
            capacity=self._desk.fields_capacity(request),
            transaction_id=values.get(Hole.TRANSACTION_ID) if self._desk.line.put.adds_unique_key else None,
        )
        fields |= {"queueId": values[Hole.QUEUE_ID], "queueOffset": values[Hole.QUEUE_OFFSET]}
        return self._desk.answered(request, code, None, fields)

    def _changed(self, table: str, name: str | None) -> None:
        if table == TOPICS:
            self.usual.topics.forget(name)

    # connections

    def enter(self, peer: Peer) -> None:
        """A connection came; its sends are usual where it may send at all."""
        if any(rights.refusal(code, peer.connection.rights) is not None for code in CODES):
            return
        peer.slot = self.usual.enter(peer.number, peer.address)
        if peer.slot != NO_SLOT:
            self._peers[peer.slot] = peer

    def leave(self, peer: Peer) -> None:
        """Take a closed connection out of the compiled tables."""
        if peer.slot != NO_SLOT:
            self._peers.pop(peer.slot, None)
            self.usual.leave(peer.slot)
            peer.slot = NO_SLOT

    # requests

    def take(self, peer: Peer, at: int, end: int) -> int:
        """Put the usual sends of the receive buffer from `at` to `end`; return where the first other frame begins."""
        if self._pipeline.parked_puts:
            return at
        taken_to = self.usual.take(at, end, peer.slot)
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
        if block[BlockWord.UNRUNG]:
            block[BlockWord.UNRUNG] = 0
            waiting.ring(self._desk.board.writer_bell)
        block[BlockWord.RINGS_FROM] = 0 if self._takes <= 1 else TOGETHER_BYTES
        is_alone = self._takes == 1 and self._in_a_row >= ALONE_FROM
        self._takes = 0
        return is_alone

    def learn(self, request: RemotingCommand) -> None:
        """A request that Python's way took, because its topic or queue is not known here."""
        if request.code not in CODES or self.usual.reason not in UNKNOWN or request.ext_fields is None:
            return
        self._desk.context.counts.usual_code = request.code
        fields, is_short = request.ext_fields, request.code != RequestCode.SEND_MESSAGE
        topic, queue = fields.get("b" if is_short else "topic", ""), fields.get("e" if is_short else "queueId", "")
        config = self._desk.context.tables.topics.get(topic)
        if config is None or not _is_usual(topic, config) or not queue.isdecimal():
            return
        slots, named = self._pipeline.slots, (topic, int(queue))
        if slots.missing(named) is None and (slot := slots.slot_of(named)) != NO_QUEUE_SLOT:
            queues = max(config["writeQueueNums"], config["readQueueNums"])
            self.usual.topics.learn(topic, queues, named[1], slot)

    # answers

    def look(self) -> bool:
        """Note what is done by now; whether the pipeline has to look at each itself."""
        return self.usual.look()

    def answer(self) -> int:
        """Answer what is done; how many rows of `done`, from its beginning on, are left to the pipeline."""
        for slot, frames in self.usual.answers():
            self._peers[slot].write(frames)
        return self.usual.left

    def answer_failed(self, outcome: Outcome) -> None:
        """Answer a put that was not stored; one whose front is gone is ignored."""
        asked, rows = self.usual.asked, len(self.usual.asked) // ASKED_WORDS
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
        said, opaque = self._desk.put_answer(outcome.status), int(asked[at + AskedWord.OPAQUE])
        request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque, serialize=Serialize(form & 1))
        answer = self._desk.answered(request, said.code, said.remark, self._desk.common)
        self._desk.context.answer(peer, request, answer)

    def _forget(self, at: int) -> None:
        """Take a put off those under way."""
        asked, peers, taken = self.usual.asked, self.usual.peers, self.usual.asked[at + AskedWord.BYTES]
        self._block[BlockWord.UNDER_WAY] -= 1
        self._block[BlockWord.BYTES_UNDER_WAY] -= taken
        row = asked[at + AskedWord.PEER]
        if peers[row + PeerWord.NUMBER] == asked[at + AskedWord.PEER_NUMBER]:
            peers[row + PeerWord.PUTS] -= 1
            peers[row + PeerWord.BYTES] -= taken

    # accounts

    def of_peer(self, peer: Peer) -> tuple[int, int] | None:
        """Return the puts and bytes of a connection that are under way, tasks' too; None where it has no place here."""
        if peer.slot == NO_SLOT:
            return None
        row, peers = peer.slot * PEER_WORDS, self.usual.peers
        return int(peers[row + PeerWord.PUTS]), int(peers[row + PeerWord.BYTES])

    def charge(self, peer: Peer, requests: int, size: int) -> None:
        """Add tasks and bytes to those under way of a connection; negative numbers take them off."""
        if peer.slot != NO_SLOT:
            row, peers = peer.slot * PEER_WORDS, self.usual.peers
            peers[row + PeerWord.PUTS] += requests
            peers[row + PeerWord.BYTES] += size

    # time

    def turn(self, now_ms: int) -> None:
        """Look whether all is as usual (`now_ms`: wall time); count what was stored."""
        desk, board = self._desk, self._desk.board
        is_open = desk.context.tables.is_complete and now_ms >= desk.config.accepts_sends_from_ms
        is_open &= board.broker_permission.read() & PERM_WRITE != 0
        self._block[BlockWord.IS_OPEN] = is_open and not desk.is_store_busy()
        stored = int(self._block[BlockWord.STORED])
        if stored != self._stored_before:
            waiting.add(desk.words.sends, stored - self._stored_before)
            self._stored_before = stored

    @property
    def puts(self) -> int:
        """Return how many messages are under way."""
        return int(self._block[BlockWord.UNDER_WAY])

    @property
    def bytes(self) -> int:
        """Return how many bytes are under way."""
        return int(self._block[BlockWord.BYTES_UNDER_WAY])


def quick_sends(services: Iterable[object], buffer: Bytes) -> QuickSends | None:
    """The compiled way beside `Sends`, where that is one of the services and this broker's sends may be usual."""
    desk = next((each.desk for each in services if isinstance(each, Sends)), None)
    if desk is None or desk.puts is None:
        return None
    quick = QuickSends(desk, desk.puts, buffer)
    if not quick.usual.is_possible:
        return None
    desk.puts.quick = desk.quick = quick
    return quick


def _is_usual(topic: str, config: Mapping[str, Any]) -> bool:
    """Whether plain messages to a topic are nothing special."""
    if topic.startswith(RETRY_PREFIX) or is_not_for_clients(topic) or not TOPIC_PATTERN.fullmatch(topic):
        return False
    return config.get("topicFilterType") == SINGLE_TAG and not config.get("order") and not config.get("attributes")
