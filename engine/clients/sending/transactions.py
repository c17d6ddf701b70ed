"""Brokers' questions whether a transaction was committed, and a user's callback that answers them in its own thread.

Implements: TransactionMQProducer, DefaultMQProducerImpl.checkTransactionState
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from engine.clients.cluster import log
from engine.clients.sending.messages import transaction_fields
from engine.clients.sending.publishing import RemoteSendResult
from engine.errors import MessageIllegal
from engine.protocol.remoting.frame import RemotingCommand
from store.message.compression import body_of
from store.message.properties import PRODUCER_GROUP, UNIQ_KEY
from store.message.record import Message, decode

CHECKS_MAX = 2000  # that wait for the callback, as checkRequestHoldMax
Decide = Callable[[Message], bool | None]  # True commits, False rolls back, None: not known yet


class TransactionResult(NamedTuple):
    """Outcome of `send_in_transaction`: the half message, what the local work decided, whether the broker knows it.

    If `is_ended` is False, the broker asks `on_check` later.
    """

    half: RemoteSendResult
    decision: bool | None
    is_ended: bool


class Check(NamedTuple):
    """A broker's question: the half message, and where the answer's header says that it is."""

    message: Message
    queue_offset: int
    physical_offset: int
    transaction_id: str

    def answer(self, group: str, decision: bool | None) -> dict[str, str]:
        """Return the fields of END_TRANSACTION that answer it."""
        ids = self.message.properties.get(UNIQ_KEY, ""), self.transaction_id
        fields = transaction_fields(group, self.queue_offset, self.physical_offset, ids, decision)
        return fields | {"fromTransactionCheck": "true"}


def check_of(command: RemotingCommand, group: str) -> Check | None:
    """Return the question that a broker asks; None if it is for another group.

    Raises StoreError for bytes that are not a message, ValueError for a header that is not one.
    """
    message, fields = decode(bytes(command.body)), command.ext_fields or {}
    if message.properties.get(PRODUCER_GROUP) != group:
        return None
    body = bytes(body_of(message.body, message.sys_flag))
    places = int(fields.get("tranStateTableOffset") or ""), int(fields.get("commitLogOffset") or "")
    return Check(replace(message, body=body), *places, fields.get("transactionId") or "")


def checked_decision(decision: object) -> bool | None:
    """Return what a user decided about a transaction. Raises MessageIllegal if it is no decision."""
    if decision is not None and not isinstance(decision, bool):
        raise MessageIllegal("decision", f"it is True, False or None, not {type(decision).__name__}")
    return decision


def decided(decide: Decide, message: Message) -> bool | None:
    """Return what the callback decides. An error of the callback, or another value, is None, with a warning."""
    try:
        return checked_decision(decide(message))
    except Exception:
        log.exception("on_check failed for a message of %s", message.topic)
        return None


class CheckThread:
    """Runs check callbacks one after the other. The thread begins with the first one."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None]) -> bool:
        """Have `work` done; False if too many wait already. Only the client's loop calls it."""
        if self._waiting.qsize() >= CHECKS_MAX:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=_run, args=(self._waiting,), name="on_check", daemon=True)
            self._thread.start()
        self._waiting.put(work)
        return True

    def end(self) -> None:
        """Let the thread end after what waits. Nobody waits for a callback that hangs."""
        self._waiting.put(None)


def _run(waiting: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (work := waiting.get()) is not None:
        work()
        del work
