"""Looks at half messages that nobody ended: puts them back, has their producers asked, gives them up.

Implements: TransactionalMessageCheckService, TransactionalMessageServiceImpl.check, putBackHalfMsgQueue,
DefaultTransactionalMessageCheckListener (spec: store-formats, section 8; remoting, 39 and 323)
Follows:    reput_from_offset, the clock, its ring's head, the clients role's words
Publishes:  its counters; how far it is also as consumer offsets, through the clients role
What is decided is a round of `engine.protocol.services.transactions`; here it is given what it asks for.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.net.log_lines import Seldom
from engine.producer.pipeline import Outcome
from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.services import transactions
from engine.protocol.services.transactions import (
    CheckLimits,
    Commit,
    GiveUp,
    IsDecided,
    Passed,
    Pause,
    PutBack,
    ReadHalf,
    ReadOps,
    Round,
    Wanted,
)
from engine.protocol.store.retention import DiskState
from engine.protocol.tables.defaults import PERM_READ_WRITE, TRANSACTION_GROUP
from engine.remoting.links.exchange import Bells, Json, Kind
from engine.remoting.links.exchange import Message as Word
from engine.remoting.links.questions import Questions
from engine.role import stop_alarm
from engine.services.check_request import check_request
from engine.services.decided_halves import DecidedHalves
from engine.services.facts import facts_of
from engine.services.half_puts import NOTHING, HalfPut, HalfPuts
from engine.services.half_queues import HalfQueues
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters, BrokerState
from ipc import descriptors, waiting
from ipc.clock import monotonic_ms, wall_ms
from ipc.compiled import atomics
from ipc.ring import ControlWord
from store.compat import line_of
from store.errors import StoreError
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.message.record import Message
from store.message.topics import CHECK_MAX_TOPIC, HALF_TOPIC, OP_TOPIC
from store.put.draft import draft_of
from store.put.request import Stored, to_log
from store.put.resend import checked_half, given_up_half, resumed_half
from store.queues.consume_queue import file_bytes_of

log = logging.getLogger("slipstream.transactions")

STEPS_A_TURN, UNDER_WAY_MS, HELD_UP_MS, RESUMING_MAX = 256, 5, 100, 32
TOPIC_OF_GIVEN_UP = {"topic": CHECK_MAX_TOPIC, "queueNums": 1, "perm": PERM_READ_WRITE, "sysFlag": 0}


class ClientsLink(Questions):
    """The role's pipe to the clients role, as a front has one, but without connections.

    `on_word` is given what the clients role says on its own account.
    """

    def __init__(self, directory: Path, fronts: int, bells: Bells, on_word: Callable[[Json], None]) -> None:
        self._on_word = on_word
        super().__init__(directory, fronts, bells, log)

    def _take(self, word: Word) -> None:
        if word.kind is Kind.WORD:
            self._on_word(word.fields)
        else:
            super()._take(word)


class Transactions:
    """The role of the transaction check service."""

    name = "transactions"

    def __init__(self, config: BrokerConfig, counters: BrokerCounters, bells: Bells) -> None:
        self._config, self._counters, self._words = config, counters, counters.transactions
        files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
        directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
        file_bytes = file_bytes_of(config.mapped_file_size_consume_queue_bytes)
        self._queues = HalfQueues(directory.consumequeue, file_bytes, files, counters)
        self._decided = DecidedHalves(config, counters)
        self._puts, self._facts = HalfPuts(config, counters), facts_of(config, counters)
        self._rules, self._seldom = line_of(config.compat).broker, Seldom(log)
        self._link = ClientsLink(counters.directory, config.front_processes, bells, self._on_word)
        self._host = f"{config.broker_ip1}:{config.listen_port}"
        self._round: Round | None = None
        self._passed = Passed()
        self._reply: Any = None
        self._awaited: Wanted | None = None  # whose put is under way
        self._round_at_ms = self._pause_until_ms = 0
        self._is_begun = self._is_asked = False

    # the beginning

    def _begin(self, now_ms: int) -> None:
        """Find where the queues are gone on with: from shared memory, or as the clients role says."""
        half, is_put = self._puts.settle()
        self._round_at_ms = now_ms + self._config.transaction_check_interval_ms
        if not self._words.is_begun.read():
            self._is_asked = self._link.ask("transaction_offsets", {}, self._begin_at)
            return
        if is_put and half >= self._words.half_offset.read():
            waiting.publish(self._words.half_offset, half + 1)
        self._is_begun = True

    def _begin_at(self, said: Json) -> None:
        first_half, first_op = self._queues.first_offsets()
        half, op = int(said.get("half", -1)), int(said.get("op", -1))
        waiting.publish(self._words.half_offset, half if half >= 0 else first_half)
        waiting.publish(self._words.op_offset, op if op >= 0 else first_op)
        waiting.publish(self._words.is_begun, 1)
        self._is_begun = True

    # turns

    def do_work(self, now_ms: int) -> int:
        """Go on with the round, or begin one when it is due; how many steps were made."""
        self._link.receive()
        if not self._is_begun:
            if not self._is_asked and self._puts.is_drained:
                self._begin(now_ms)
            return 0
        for outcome in self._puts.collect():
            self._take(outcome, now_ms)
        state = self._counters.broker_state.read()
        if state == BrokerState.STOPPING:
            return self._stopping()
        if state != BrokerState.RUNNING:
            return 0
        if self._round is None and now_ms >= self._round_at_ms:
            if not self._decided.is_known:  # it would ask about what is committed, and that would be written again
                self._round_at_ms = now_ms + HELD_UP_MS
                return 0
            self._begin_round()
        steps = 0
        while self._round is not None and steps < STEPS_A_TURN and not self._is_waiting(now_ms):
            self._step(now_ms)
            steps += 1
        return steps

    def _stopping(self) -> int:
        """Begin no further step; a put under way must be answered."""
        if self._puts.puts:
            head = self._puts.head
            atomics.await_change(self._puts.control, int(ControlWord.HEAD), head, HELD_UP_MS * waiting.NS_PER_MS)
        return self._puts.puts

    def _begin_round(self) -> None:
        config, words = self._config, self._words
        hours = self._counters.file_reserved_hours.read()
        limits = CheckLimits(config.transaction_timeout_ms, config.transaction_check_max, hours)
        half, op = words.half_offset.read(), words.op_offset.read()
        self._round = transactions.check_round(half, op, limits, wall_ms, self._passed, self._queues.halves_end())
        self._reply = None
        waiting.add(words.rounds, 1)

    def _is_waiting(self, now_ms: int) -> bool:
        return self._awaited is not None or now_ms < self._pause_until_ms

    def _step(self, now_ms: int) -> None:
        """Do what the round wishes next."""
        assert self._round is not None
        try:
            wanted = self._round.send(self._reply)
        except StopIteration:
            self._round, self._round_at_ms = None, now_ms + self._config.transaction_check_interval_ms
            return
        self._reply = None
        match wanted:
            case ReadOps():
                self._reply = self._queues.read_ops(wanted.offset)
            case ReadHalf():
                self._reply = self._queues.read_half(wanted.offset)
            case IsDecided():
                self._reply = self._decided.is_decided(wanted.half.message)
            case PutBack():
                make: Callable[[Message], Stored] = lambda half: checked_half(  # noqa: E731
                    half, self._facts.current(), wanted.check_times, is_early=not wanted.asks
                )
                self._put(wanted, wanted.half.message, wanted.half.queue_offset, make)
            case GiveUp():
                self._link.ask("ensure_back_topic", TOPIC_OF_GIVEN_UP, _ignored)
                give_up: Callable[[Message], Stored] = lambda half: given_up_half(  # noqa: E731
                    half, self._facts.current(), wanted.check_times
                )
                self._put(wanted, wanted.half.message, wanted.half.queue_offset, give_up)
            case Pause():
                self._pause_until_ms = now_ms + wanted.milliseconds
            case Commit():
                self._commit(wanted)

    def _put(self, wanted: Wanted, half: Message, half_offset: int, make: Callable[[Message], Stored]) -> None:
        """Begin a put; the round goes on with its answer."""
        if self._counters.disk_state.read() >= DiskState.READ_ONLY:
            self._reply = False
            return
        try:
            facts = self._facts.current()
            draft = draft_of(to_log(make(half), facts), facts)
        except StoreError as error:  # nor would the next attempt
            self._seldom.tell("half message %d was skipped: %s", half_offset, error)
            self._reply = True
            return
        self._puts.put(draft, waits=False, token=HalfPut(half_offset))
        self._awaited = wanted

    def _take(self, outcome: Outcome, now_ms: int) -> None:
        """Take in the outcome of a put."""
        is_put = outcome.status is PutMessageStatus.PUT_OK
        if outcome.token is None:
            return
        if outcome.token.half_offset == NOTHING:
            self._link.tell("resumed", {"number": outcome.token.number, "is_put": is_put})
            return
        wanted, self._awaited = self._awaited, None
        self._reply = is_put
        if isinstance(wanted, GiveUp):
            waiting.add(self._words.given_up, is_put)
        elif isinstance(wanted, PutBack) and is_put:
            waiting.add(self._words.put_back, 1)
            if wanted.asks:
                self._ask(wanted, outcome)

    def _commit(self, wanted: Commit) -> None:
        for cursor, topic, offset in (
            (self._words.half_offset, HALF_TOPIC, wanted.half_offset),
            (self._words.op_offset, OP_TOPIC, wanted.op_offset),
        ):
            if offset is not None:
                waiting.publish(cursor, offset)
                said = {"group": TRANSACTION_GROUP, "topic": topic, "queueId": 0, "offset": offset, "host": self._host}
                self._link.tell("commit_offset", said)

    # producers

    def _ask(self, wanted: PutBack, outcome: Outcome) -> None:
        """Have a producer of the group asked, whichever lives."""
        try:
            request = check_request(
                wanted.half.message,
                wanted.check_times,
                outcome.physical_offset,
                outcome.queue_offset,
                self._facts.current(),
                self._rules,
                self._config.broker_name,
            )
        except StoreError as error:
            self._seldom.tell("cannot ask a producer about half message %d: %s", wanted.half.queue_offset, error)
            return

        def push(said: Json) -> None:
            channel = said.get("channel")
            if channel is None:
                self._seldom.tell("no producer of group %s is connected to be asked about a transaction", request.group)
                return
            body = base64.b64encode(request.body).decode()
            code = int(RequestCode.CHECK_TRANSACTION_STATE)
            sent = {"channel": channel, "code": code, "extFields": request.fields, "body": body}
            if self._link.tell("push", sent):
                waiting.add(self._words.checks, 1)

        self._link.ask("find_producer", {"group": request.group}, push)

    # administrators

    def _on_word(self, said: Json) -> None:
        """323: a half message is to be put back, as one that nobody was asked about."""
        if said.get("what") != "resume":
            return
        number, is_put = int(said["number"]), False
        try:
            half = self._queues.records.message(int(said["offset"]))
            if half is not None and self._puts.puts < RESUMING_MAX:
                facts = self._facts.current()
                draft = draft_of(to_log(resumed_half(half, facts), facts), facts)
                self._puts.put(draft, waits=False, token=HalfPut(NOTHING, number))
                is_put = True
        except (StoreError, OSError, ValueError) as error:
            self._seldom.tell("a half message was not put back for an administrator: %s", error)
        if not is_put:
            self._link.tell("resumed", {"number": number, "is_put": False})

    # waiting

    def idle(self, timeout_ms: int) -> None:
        """Sleep until a put is answered, the clients role says something, or a round is due."""
        if self._puts.puts or not self._puts.is_drained:
            head = self._puts.head
            wait_ns = min(timeout_ms, UNDER_WAY_MS) * waiting.NS_PER_MS
            atomics.await_change(self._puts.control, int(ControlWord.HEAD), head, wait_ns)
            return
        timeout_ms = min(timeout_ms, self._rest_ms(monotonic_ms()))
        descriptors.await_readable(self._link.bell, stop_alarm(), timeout_ms=timeout_ms)

    def _rest_ms(self, now_ms: int) -> int:
        """Return how long nothing is to be done here, unless somebody rings: nothing waits for the log."""
        is_running = self._counters.broker_state.read() == BrokerState.RUNNING
        if not self._is_begun or not is_running or self._awaited is not None:
            return HELD_UP_MS
        due_ms = self._round_at_ms if self._round is None else self._pause_until_ms
        return max(0, due_ms - now_ms)

    def close(self) -> None:
        """Close queues, tables, ring and link."""
        self._queues.close()
        self._decided.close()
        self._puts.close()
        self._link.close()


def _ignored(_said: Json) -> None:
    """The topic is made for those who look at it; the message goes there in any case."""


def open_role(config: BrokerConfig, counters: BrokerCounters, bells: Bells) -> Transactions:
    """The transactions role of a master."""
    return Transactions(config, counters, bells)
