"""A producer of any RocketMQ brokers, over the network: the methods and results of `Producer`, without its store.

Implements: DefaultMQProducer, TransactionMQProducer
Every client has an event loop in a thread of its own (`loop_thread`); these methods check what a caller hands over and
wait for the loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, NamedTuple, Self, TypeVar, Unpack

from engine.clients.access import Credentials
from engine.clients.cluster import Cluster, Place
from engine.clients.loop_thread import ClientClosed, ForeignClient, LoopThread
from engine.clients.names import check_group, tls_of
from engine.clients.sending.latency import LatencyTable
from engine.clients.sending.messages import BatchFields, Draft, Limits, MessageFields, batch_of, check_topic, draft_of
from engine.clients.sending.publishing import RemoteBatchResult, RemoteSendResult, batch_result
from engine.clients.sending.send_room import SendRoom
from engine.clients.sending.sends import GOODBYE_SECONDS, Sends
from engine.clients.sending.transactions import Decide, TransactionResult, checked_decision
from engine.errors import EngineError, MessageIllegal
from engine.producer.unique_keys import UniqueKeys
from engine.protocol.ha.put_status import PutMessageStatus

T = TypeVar("T")
__all__ = ["ProducerSettings", "RemoteProducer"]

TIMEOUT_SECONDS, SECONDS_MAX = 3.0, 1e9  # sendMsgTimeout; of a timeout
MIB = 1 << 20


class ProducerSettings(NamedTuple):
    """Settings of a RemoteProducer, with the defaults of RocketMQ's Java client."""

    retries: int = 2  # further tries of a send, on other brokers (retryTimesWhenSendFailed)
    retry_unstored: bool = False  # also if the status is not PUT_OK (retryAnotherBrokerWhenNotStoreOK)
    avoid_slow_brokers: bool = False  # for a while after slow answers and failures (sendLatencyFaultEnable)
    compress_from: int = 4096  # bytes of a body (compressMsgBodyOverHowmuch)
    message_bytes_max: int = 4 * MIB  # of a body, or of a batch (maxMessageSize)
    pending_max: int = 4096  # messages that are not answered yet; then a send waits for room
    pending_bytes_max: int = 100 * MIB


class RemoteProducer:
    """A producer of the brokers that `name_servers` ("HOST:PORT;HOST:PORT") list, or of one `broker` ("HOST:PORT").

    Threads may share one, processes may not: in a forked child every call raises ForeignClient, as does pickling one.
    `timeout` (seconds) is the default of all calls, and covers all tries of a send. `on_check` is asked for the outcome
    of a transaction whose end a broker did not hear of: it gets the half message, and returns True (commit), False
    (roll back) or None (not known yet). It runs in a thread of its own. `tls_config` is a tls.properties file, and
    `credentials` signs requests where brokers ask for it.
    If a producer is dropped without `close`, its loop ends. Raises ClientError, ConfigError, TlsUnusable.
    """

    def __init__(
        self,
        name_servers: str = "",
        *,
        group: str,
        broker: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        on_check: Decide | None = None,
        tls_config: str | os.PathLike[str] | None = None,
        credentials: Credentials | None = None,
        settings: ProducerSettings = ProducerSettings(),  # noqa: B008 - a NamedTuple does not change
    ) -> None:
        check_group(group)
        self.group, self._timeout, self._on_check = group, _seconds(timeout), on_check
        cluster = Cluster(name_servers, broker, self._timeout, tls_of(tls_config), credentials)
        self._settings, self._owner = settings, os.getpid()
        self._limits = Limits(settings.compress_from, settings.message_bytes_max)
        self._unique_keys = UniqueKeys(cluster.client_id.partition("@")[0])
        self._room = SendRoom(settings.pending_max, settings.pending_bytes_max)
        retries = settings.retries, settings.retry_unstored
        self._sends = Sends(cluster, group, retries, LatencyTable(settings.avoid_slow_brokers), on_check)
        self._closing = threading.Lock()  # taken once, for good
        self._loop = LoopThread(self, "slipstream-producer", cluster.close)
        weakref.finalize(self, self._sends.checks.end)
        self._loop.submit(self._sends.keep())

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """Neither pickled nor copied. Raises ForeignClient."""
        raise ForeignClient(self._owner)

    # messages

    def send(
        self, topic: str, body: bytes | str, *, timeout: float | None = None, **fields: Unpack[MessageFields]
    ) -> RemoteSendResult:
        """Send a message, and wait until a broker stored it.

        A failed send is tried again on another broker, `retries` times within the time; with `shard_by`, or a Place as
        `queue_id`, it is not. So a message can be stored twice: `may_be_appended` of an error says whether a broker
        may have stored it. Raises MessageIllegal (nothing sent), PeerRefused, PeerUnreachable, ClientError.
        """
        return self._run(self._draft(topic, body, fields), self._deadline(timeout), self._sends.send)

    def send_async(
        self, topic: str, body: bytes | str, *, timeout: float | None = None, **fields: Unpack[MessageFields]
    ) -> Future[RemoteSendResult]:
        """Begin to send a message; a future of what `send` returns or raises.

        If `pending_max` messages are not answered yet, the call waits for room, and raises EngineError at its timeout.
        The order of unanswered messages is not certain, even within a queue. Callbacks of the future run in the
        client's loop: they must be short, and must not call the client.
        """
        draft, deadline = self._draft(topic, body, fields), self._deadline(timeout)
        self._loop.require_owned()
        self._room.take(draft.cost, deadline)
        return self._begin(draft, deadline)

    async def send_awaited(
        self, topic: str, body: bytes | str, *, timeout: float | None = None, **fields: Unpack[MessageFields]
    ) -> RemoteSendResult:
        """Send a message from a coroutine of any event loop, like `send`. A cancelled send may be stored."""
        draft, deadline = self._draft(topic, body, fields), self._deadline(timeout)
        self._loop.require_owned()
        if not self._room.try_take(draft.cost):
            waiting = asyncio.get_running_loop().run_in_executor(None, self._room.take, draft.cost, deadline)
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                waiting.add_done_callback(lambda done: self._give_back(draft, done))
                raise
        return await asyncio.wrap_future(self._begin(draft, deadline))

    def send_one_way(
        self, topic: str, body: bytes | str, *, timeout: float | None = None, **fields: Unpack[MessageFields]
    ) -> None:
        """Send a message that no broker answers: whether it was stored is not known. Raises as `send`; no retries."""
        self._run(self._draft(topic, body, fields), self._deadline(timeout), self._sends.send_one_way)

    def send_batch(
        self, topic: str, bodies: Sequence[bytes | str], *, timeout: float | None = None, **fields: Unpack[BatchFields]
    ) -> RemoteBatchResult:
        """Send many messages to one queue, in one request: all of them are stored, or none. Raises as `send`.

        `tags` and `keys` are one str for all messages, or a list with one for each. Bodies are not compressed.
        """
        draft = batch_of(topic, bodies, fields, self._unique_keys, self._limits)
        return batch_result(self._run(draft, self._deadline(timeout), self._sends.send), draft.message_ids)

    def send_half(
        self, topic: str, body: bytes | str, *, timeout: float | None = None, **fields: Unpack[MessageFields]
    ) -> RemoteSendResult:
        """Send the half message of a transaction; `end_transaction` makes it seen, or not. Raises as `send`."""
        draft = self._draft(topic, body, fields, half_of=self.group)
        return self._run(draft, self._deadline(timeout), self._sends.send)

    def end_transaction(self, half: RemoteSendResult, *, commit: bool | None, timeout: float | None = None) -> None:
        """Commit (True) or roll back (False) what `send_half` sent; with None the broker asks `on_check` later.

        Raises PeerRefused, PeerUnreachable, ClientError.
        """
        if not isinstance(half, RemoteSendResult):
            raise MessageIllegal("half", f"it is what send_half returned, not {type(half).__name__}")
        self._loop.run(self._sends.end(half, checked_decision(commit), self._deadline(timeout)))

    def send_in_transaction(
        self,
        topic: str,
        body: bytes | str,
        local_work: Callable[[RemoteSendResult], bool | None],
        *,
        timeout: float | None = None,
        **fields: Unpack[MessageFields],
    ) -> TransactionResult:
        """Send a half message, do `local_work` in this thread, and commit (True), roll back (False) or leave it open.

        `local_work` gets the half message's result. If it raises, the transaction stays open, and the error is raised.
        If the half message's status is not PUT_OK, it is rolled back without `local_work`. `timeout` counts for each of
        the two requests. Raises EngineError without `on_check`, else as `send`.
        """
        if self._on_check is None:
            raise EngineError("a transaction needs on_check, which brokers ask when they do not hear of its end")
        half = self.send_half(topic, body, timeout=timeout, **fields)
        decision: bool | None = None
        try:
            decision = checked_decision(local_work(half)) if half.status is PutMessageStatus.PUT_OK else False
        except BaseException:
            self._ended(half, None, timeout)
            raise
        return TransactionResult(half, decision, self._ended(half, decision, timeout))

    def _ended(self, half: RemoteSendResult, decision: bool | None, timeout: float | None) -> bool:
        try:
            self.end_transaction(half, commit=decision, timeout=timeout)
        except EngineError:
            return False
        return True

    def queues(self, topic: str, *, timeout: float | None = None) -> list[Place]:
        """Return the queues to which a topic's messages are sent; one of them can be a message's `queue_id`."""
        check_topic(topic)
        return self._loop.run(self._sends.queues(topic, self._deadline(timeout)))

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far has its answer. Raises EngineError at the timeout."""
        self._loop.require_owned()
        if left := self._room.await_empty(self._deadline(timeout)):
            raise EngineError(f"{left} messages of group {self.group} have no answer yet")

    def close(self, timeout: float | None = None) -> None:
        """Wait for answers until the timeout, leave the group, and end the loop. What is left is cancelled.

        Harmless when done already, and in a forked child.
        """
        if os.getpid() != self._owner or not self._closing.acquire(blocking=False):
            return
        self._room.close()
        try:
            self._room.await_empty(self._deadline(timeout))
            with suppress(EngineError, TimeoutError):
                self._loop.submit(self._sends.close()).result(GOODBYE_SECONDS)
        finally:
            self._sends.checks.end()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # what all of them do

    def _deadline(self, timeout: float | None) -> float:
        """Return when a call that begins now times out, on the clock of `time.monotonic`."""
        return time.monotonic() + (self._timeout if timeout is None else _seconds(timeout))

    def _draft(self, topic: str, body: bytes | str, fields: MessageFields, half_of: str | None = None) -> Draft:
        return draft_of(topic, body, fields, self._unique_keys, self._limits, half_of)

    def _run(self, draft: Draft, deadline: float, work: Callable[[Draft, float], Coroutine[Any, Any, T]]) -> T:
        """Return what `work` does with a draft, once there is room for it."""
        self._loop.require_owned()
        self._room.take(draft.cost, deadline)
        try:
            return self._loop.run(work(draft, deadline))
        except CancelledError:
            raise ClientClosed() from None
        finally:
            self._room.give(draft.cost)

    def _begin(self, draft: Draft, deadline: float) -> Future[RemoteSendResult]:
        """Begin to send a draft that has taken its room. Its future keeps this producer alive."""
        try:
            future = self._loop.submit(self._sends.send(draft, deadline))
        except BaseException:
            self._room.give(draft.cost)
            raise
        future.add_done_callback(lambda _done: self._room.give(draft.cost))
        return future

    def _give_back(self, draft: Draft, waited: asyncio.Future[None]) -> None:
        """Give back the room that a cancelled send got."""
        if waited.exception() is None:
            self._room.give(draft.cost)


def _seconds(timeout: Any) -> float:
    """Return a timeout as it is. Raises MessageIllegal."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 <= timeout <= SECONDS_MAX:
        raise MessageIllegal(f"timeout {timeout!r}", "it is a number of seconds, 0 or more")
    return timeout
