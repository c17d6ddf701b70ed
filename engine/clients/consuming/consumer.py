"""A consumer of topics for Python programs: a member of a group with Java's clients, with the habits of Python.

Implements: DefaultMQPushConsumer, DefaultLitePullConsumer

    with Consumer("10.0.0.1:9876", "billing", "orders") as consumer:
        for message in consumer:
            print(message.topic, message.body)

A message is acknowledged when the loop comes back for the next one. One that is not acknowledged when its consumer ends
is delivered again, so every message is handled at least once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, TypeVar

from engine.clients.access import Credentials
from engine.clients.cluster import Cluster, Place, log
from engine.clients.consuming.assigned_queue import AssignedQueue, Bounds
from engine.clients.consuming.back_off import BROKER_DECIDES, PAUSE_MS, RETRIES_MAX, TRY_AGAIN_MS
from engine.clients.consuming.database_offsets import DatabaseOffsets
from engine.clients.consuming.member import FAILURES, Member, Wanted
from engine.clients.consuming.processes import SIGNALS, run_in_processes
from engine.clients.consuming.received import ReceivedMessage
from engine.clients.consuming.requests import FIRST, LAST, Subscription
from engine.clients.consuming.shelf import REST_SECONDS, Handed, HandedBlock
from engine.clients.consuming.strategies import Strategy, strategy_of
from engine.clients.loop_thread import LoopThread
from engine.clients.names import ClientError, tls_of
from ipc.clock import ms_of
from ipc.extras import require_arrow
from store.message.record import Message
from store.reading import extent

if TYPE_CHECKING:  # pyarrow is an extra
    import pyarrow as pa

    from engine.clients.consuming.arrow_batches import MadeBatch

T = TypeVar("T")

Topics = str | Iterable[str] | Mapping[str, "str | Subscription"]

ROWS_A_BATCH = 4096  # at most
MESSAGES_A_TURN = 64  # that a loop takes from the shelf at a time
INSTANCE = "DEFAULT"  # of Java's broadcasting consumers
STOP_SECONDS = 30.0
TIMEOUT_SECONDS = 5.0


class Options(NamedTuple):
    """How a consumer consumes.

    `consume_from`: where a group begins that has no offset in a queue yet: "first", "last", or a time.
    `ordered`: each queue's messages one after another, by one member at a time.
    `strategy`: RocketMQ's name of one, or a function; all members of a group need the same.
    `acknowledges`: whether the loop and `poll` acknowledge; else the program calls `ack` of each message.
    `broadcasts`: every member gets all messages, and keeps its offsets in a file of this host, as Java's do, under the
    name `instance`, which is needed where two such members of a group run on one host.
    `offsets`: where the program keeps the group's offsets with its work; needs `ordered` (`database_offsets`).
    `max_times`: how often a message is delivered again before it goes to the group's dead letters.
    `prefetch`: messages that are held of one queue. `timeout`: seconds for an answer of a broker.
    """

    consume_from: str | datetime = LAST
    ordered: bool = False
    strategy: str | Strategy = "AVG"
    acknowledges: bool = True
    max_times: int = RETRIES_MAX
    broadcasts: bool = False
    instance: str = ""
    offsets: DatabaseOffsets | None = None
    prefetch: int = Bounds().messages
    timeout: float = TIMEOUT_SECONDS


class Consumer:
    """A member of `group` that consumes `topics`. Threads may share one, processes may not (ForeignClient).

    `where` is the address of a name server (several: `host:port;host:port`), or the directory of a store whose broker
    runs on this host: then messages are read from the store's mapped files, in the threads that poll. The group is at
    the master then, which the name servers of that broker know. `broker` names one broker, `host:port`, in place of
    name servers. `topics` is a topic, several, or a table from topics to tags
    (`"a || b"`) or to a Subscription, which can also have SQL92. `tls_config` is a tls.properties file, and
    `credentials` signs requests where brokers ask for it. Further keywords are the fields of Options. It becomes a
    member at `with`, or when it is first asked for messages.
    Raises ClientError for wrong arguments, and for a topic that does not exist when it becomes a member.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | None,
        group: str,
        topics: Topics,
        *,
        broker: str | None = None,
        tls_config: str | os.PathLike[str] | None = None,
        credentials: Credentials | None = None,
        **options: Any,
    ) -> None:
        self.group, self.options = group, _options_of(options)
        names, broker, store = _reached(where, broker)
        self._cluster = Cluster(names, broker, self.options.timeout, tls_of(tls_config), credentials)
        if self.options.instance or self.options.broadcasts:
            self._cluster.rename(self.options.instance or INSTANCE)
        wanted = _wanted(group, topics, self.options)
        same = partial(Consumer, broker=broker, tls_config=tls_config, credentials=credentials, **options)
        self._another = partial(same, where, group, wanted.topics)
        self._member = Member(self._cluster, wanted)
        if store is not None:
            self._member.read_near(store)
        self._thread = LoopThread(self, f"consumer of {group}", self._cluster.close)
        self._starting, self._closing = threading.Lock(), threading.RLock()  # a signal's handler may close, too
        self._is_started = False
        self._in_hand: dict[int, MadeBatch] = {}  # that loops over batches are at
        self._last = threading.local()  # of each thread: what `poll` handed out and did not acknowledge yet

    @property
    def client_id(self) -> str:
        """The name by which brokers and administrators know this member."""
        return self._cluster.client_id

    # beginning and end

    def start(self) -> Self:
        """Become a member of the group. Raises ClientError, PeerRefused, PeerUnreachable."""
        self._thread.require_owned()
        with self._starting:
            if not self._is_started:
                self._thread.run(self._member.start())
                self._is_started = True
        return self

    def stop(self) -> None:
        """End the loops and `run` after the message that they are at. From any thread, and from a signal's handler."""
        self._member.shelf.end()

    def close(self) -> None:
        """Commit what is acknowledged, leave the group and end the connections. Twice is once, also in two threads.

        Nothing happens in a forked child.
        """
        if self._thread.is_foreign:
            return  # a thread of the parent may have held any lock
        self.stop()
        with self._closing:
            if not self._thread.is_closed:
                with suppress(TimeoutError, CancelledError):  # a signal's handler closed it meanwhile
                    self._thread.submit(self._member.stop()).result(STOP_SECONDS)
                self._thread.close()
                self._member.shelf.close()

    async def close_awaited(self) -> None:
        """The same for programs with asyncio."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close_awaited()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Consumer cannot be pickled; make one in each process")

    # messages

    def poll(self, max_messages: int = 500, timeout: float | None = None) -> list[ReceivedMessage]:
        """Return at most `max_messages`, waiting for the first one; none after `timeout` seconds, or after `stop`.

        What this thread's last call returned is acknowledged, unless the option `acknowledges` is False.
        """
        self.start()
        self._acknowledge_last()
        handed = self._member.shelf.await_some(max_messages, timeout)
        return self._remembered(handed)

    async def poll_awaited(self, max_messages: int = 500, timeout: float | None = None) -> list[ReceivedMessage]:
        """The same for programs with asyncio, in any event loop."""
        await self._started()
        self._acknowledge_last()
        return self._remembered(await self._awaited(partial(self._member.shelf.take, max_messages), timeout))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        self.start()
        while handed := self._member.shelf.await_some(MESSAGES_A_TURN, None):
            yield from self._one_by_one(handed)

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        await self._started()
        while handed := await self._awaited(partial(self._member.shelf.take, MESSAGES_A_TURN), None):
            for message in self._one_by_one(handed):
                yield message

    def _one_by_one(self, handed: list[Handed]) -> Generator[ReceivedMessage, None, None]:
        """Each message, acknowledged when the next one is asked for; what is not, when the loop ends, comes again."""
        done, message = 0, None
        try:
            for one in handed:
                if self._member.shelf.is_ended:
                    break
                message = ReceivedMessage(one, self)
                yield message
                done += 1
                if self.options.acknowledges:
                    message.ack()
        finally:
            is_kept = not self.options.acknowledges or (message is not None and message.is_done)
            self._member.shelf.again(handed[done + is_kept :], 0.0)  # the program keeps the one that it was at, or not

    def batches(
        self, max_messages: int = ROWS_A_BATCH, timeout: float | None = None, columns: Sequence[str] | None = None
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield messages as Arrow record batches, with the columns of `scan` or some of them; needs pyarrow.

        A batch is acknowledged when the loop comes back. The loop ends when no message came for `timeout` seconds, or
        after `stop`. Bodies are binary views, from a store on this host into the mapped segment, which stays mapped as
        long as the batch exists. A body that cannot be inflated is null, and the logger says why. `retry_rows` gives
        rows back. Raises ClientError for an unknown column, ExtraMissing without pyarrow.
        """
        made = self._batch_maker(max_messages, columns)

        def loop() -> Generator[pa.RecordBatch, None, None]:
            self.start()
            while handed := self._member.shelf.await_blocks(max_messages, timeout):
                yield from self._batch_by_batch(handed, made(handed))

        return loop()

    def batches_awaited(
        self, max_messages: int = ROWS_A_BATCH, timeout: float | None = None, columns: Sequence[str] | None = None
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """The same for programs with asyncio, in any event loop."""
        made = self._batch_maker(max_messages, columns)

        async def loop() -> AsyncGenerator[pa.RecordBatch, None]:
            await self._started()
            while handed := await self._awaited(partial(self._member.shelf.take_blocks, max_messages), timeout):
                for batch in self._batch_by_batch(handed, made(handed)):
                    yield batch

        return loop()

    def _batch_maker(
        self, max_messages: int, columns: Sequence[str] | None
    ) -> Callable[[Sequence[HandedBlock]], Iterator[MadeBatch]]:
        require_arrow("batches of messages")
        from engine.clients.consuming.arrow_batches import columns_named, made_batches  # pyarrow is an extra

        if max_messages < 1:
            raise ClientError(f"max_messages={max_messages}: give at least 1")
        if not self.options.acknowledges or self.options.offsets is not None:
            raise ClientError("batches are acknowledged as a whole: use poll with acknowledges=False, or with offsets")
        return partial(made_batches, columns=columns_named(columns))

    def _batch_by_batch(
        self, handed: Sequence[HandedBlock], made: Iterator[MadeBatch]
    ) -> Generator[pa.RecordBatch, None, None]:
        """The batches of what was handed out. It is acknowledged behind the last one, or comes again as a whole."""
        is_done = False
        try:
            for one in made:
                self._in_hand[id(one.batch)] = one
                try:
                    yield one.batch
                finally:
                    del self._in_hand[id(one.batch)]
            is_done = True
        finally:
            if is_done:
                self._member.shelf.all_done(handed)
            else:
                self._member.shelf.again(handed, 0.0)

    def retry_rows(self, batch: pa.RecordBatch, rows: Sequence[int], delay_level: int = BROKER_DECIDES) -> None:
        """Have some messages of the batch that a loop over `batches` is at delivered again, as `retry` of a message.

        It returns when their brokers have them; the batch is acknowledged as always. Raises PeerRefused and
        PeerUnreachable for a message that is not taken back: leave the loop, and the whole batch comes again. Raises
        ClientError in a group that is ordered or broadcasts, which has no retries.
        """
        if self.options.broadcasts or self.options.ordered:
            raise ClientError("a group that is ordered or broadcasts gives no rows back: leave the loop, and all come")
        made = self._in_hand.get(id(batch))
        if made is None or made.batch is not batch:
            raise ClientError("the batch is not the one that a loop over batches is at")
        self._thread.run(self._retry(made.messages(rows), made.broker, delay_level))

    async def _started(self) -> None:
        if not self._is_started:
            await asyncio.to_thread(self.start)

    async def _awaited(self, take: Callable[[], list[T]], timeout: float | None) -> list[T]:
        self._thread.require_owned()
        loop, shelf, changed = asyncio.get_running_loop(), self._member.shelf, asyncio.Event()
        deadline = None if timeout is None else loop.time() + timeout

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(changed.set)

        with shelf.woken_by(wake):
            while not (handed := take()) and not shelf.is_ended:
                left = REST_SECONDS if deadline is None else min(REST_SECONDS, deadline - loop.time())
                if left <= 0:
                    break
                if shelf.near is not None:
                    await asyncio.to_thread(shelf.await_more, left)
                    continue
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), left)
                changed.clear()
            return handed

    def _remembered(self, handed: list[Handed]) -> list[ReceivedMessage]:
        messages = [ReceivedMessage(one, self) for one in handed]
        if self.options.acknowledges:
            self._last.messages = messages
        return messages

    def _acknowledge_last(self) -> None:
        messages: list[ReceivedMessage] = getattr(self._last, "messages", [])
        self._last.messages = []
        left = [message for message in messages if not message.is_done]
        for message in left:
            message.is_done = True
        if left:
            self._member.shelf.all_done([message.handed for message in left])

    # what a message's program says

    def finish(self, message: ReceivedMessage) -> None:
        """Acknowledge a message, which is what `ReceivedMessage.ack` calls."""
        if not message.is_done:
            message.is_done = True
            self._member.shelf.done(message.handed)

    def give_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Have a message delivered again, which is what `ReceivedMessage.retry` calls."""
        if message.is_done:
            return
        if self.options.broadcasts:
            raise ClientError("a group that broadcasts has no retries: handle the message again, or acknowledge it")
        message.is_done = True
        if self.options.ordered:
            self._member.shelf.again([message.handed], PAUSE_MS / 1000)
            return
        self._thread.submit(self._give_back(message, delay_level))

    async def _give_back(self, message: ReceivedMessage, delay_level: int) -> None:
        try:
            await self._member.give_back(message.handed.message, message.broker, delay_level, self.options.max_times)
            self._member.shelf.done(message.handed)
        except FAILURES as error:
            log.warning("%r is not taken back, and comes again here: %s", message, error)
            self._member.shelf.again([message.handed], TRY_AGAIN_MS / 1000)

    async def _retry(self, messages: Sequence[Message], broker: str, delay_level: int) -> None:
        for message in messages:
            await self._member.give_back(message, broker, delay_level, self.options.max_times)

    def run(
        self, handler: Callable[[ReceivedMessage], object], *, workers: int = 1, processes: int | None = None
    ) -> None:
        """Call `handler` with each message, in `workers` threads, until `stop`, SIGTERM or Ctrl-C; then close.

        A message is acknowledged when the handler returns, and delivered again, later, when it raises. Signals are
        heeded where this is called in the main thread. With `processes`, that number of forked processes do it, each
        with its own threads and as a member of its own; one that dies is reported and replaced. Raises ClientError if
        one dies ten times, and for a consumer that is a member already, or whose name only one member can have.
        """
        if processes is not None:
            self._run_in_processes(partial(self._run_another, handler, workers), processes)
            return
        self.start()
        threads = [threading.Thread(target=self._work, args=(handler,)) for _ in range(workers)]
        try:
            with _ended_by_signals(self.stop):
                for thread in threads:
                    thread.start()
                for thread in threads:
                    while thread.is_alive():
                        thread.join(REST_SECONDS)  # between which Python calls the handlers of signals
        finally:
            self.close()

    def _run_in_processes(self, serve: Callable[[], None], count: int) -> None:
        if count < 1:
            raise ClientError(f"processes={count}: give at least 1")
        if self.options.broadcasts or self.options.instance:
            raise ClientError("processes exclude broadcasts and instance: each process is a member with its own name")
        with self._starting:
            if self._is_started:
                raise ClientError("processes need a consumer that is no member yet: call run first, and not in `with`")
            self._thread.require_owned()
            self._thread.close()  # a process with threads forks into one with their locks
            self._member.shelf.close()
        with _ended_by_signals(self.stop):
            run_in_processes(serve, self.group, count, lambda: self._member.shelf.is_ended)

    def _run_another(self, handler: Callable[[ReceivedMessage], object], workers: int) -> None:
        another = self._another()
        with _ended_by_signals(another.stop):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            another.run(handler, workers=workers)

    def _work(self, handler: Callable[[ReceivedMessage], object]) -> None:
        while handed := self._member.shelf.await_some(1, None):
            message = ReceivedMessage(handed[0], self)
            try:
                handler(message)
            except Exception:
                log.exception("%r: its handler failed; it is delivered again", message)
                message.retry()
            else:
                message.ack()

    # queues

    def assignment(self) -> list[Place]:
        """The queues that are this member's now: topic, broker and number of each."""
        with self._member.shelf.changed:
            return sorted(self._member.shelf.queues)

    def pause(self, *queues: Place) -> None:
        """Hand out no more messages of these queues, or of all, until `resume`. One that is assigned later is not."""
        self._change(queues, is_paused=True)

    def resume(self, *queues: Place) -> None:
        """Hand out messages of these queues, or of all, again."""
        self._change(queues, is_paused=False)

    def _change(self, queues: tuple[Place, ...], *, is_paused: bool) -> None:
        with self._member.shelf.changing():
            for place in queues or tuple(self._member.shelf.queues):
                self._queue(place).is_paused = is_paused
        self._member.shelf.when_taken()

    def seek(self, queue: Place, to: int | str | datetime) -> None:
        """Go on at an offset of a queue, at "first", "last" or a time. Raises ClientError, PeerRefused."""
        with self._member.shelf.changed:
            self._queue(queue)
        self._thread.run(self._seek(queue, to))

    async def _seek(self, queue: Place, to: int | str | datetime) -> None:
        offset = to if isinstance(to, int) else await self._member.offset_at(queue, _where(to))
        self._member.seek(queue, offset)

    def position(self, queue: Place) -> int:
        """The offset up to which a queue is acknowledged here. Raises ClientError for one that is not assigned."""
        with self._member.shelf.changed:
            return self._queue(queue).consumed_to

    def committed(self, queue: Place) -> int | None:
        """The group's offset in any queue, as its broker has it; None before the first. Raises PeerRefused."""
        return self._thread.run(self._member.offsets.committed(queue))

    def commit(self) -> None:
        """Commit now what is acknowledged; without a call that happens every 5 seconds. Raises PeerUnreachable."""
        self._thread.run(self._member.commit())

    def lag(self) -> dict[Place, int]:
        """How many messages of each assigned queue are not acknowledged, by its end as the broker said it last."""
        return self._member.shelf.lags()

    @property
    def is_at_end(self) -> bool:
        """Whether each assigned queue was read to its end, and all of it was handed out."""
        return self._member.shelf.is_at_end

    def _queue(self, place: Place) -> AssignedQueue:
        queue = self._member.shelf.queues.get(place)
        if queue is None:
            raise ClientError(f"{place.topic}/{place.queue_id} at {place.broker} is not assigned to this consumer")
        return queue


@contextmanager
def _ended_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, _frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, end) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _options_of(given: Mapping[str, Any]) -> Options:
    unknown = sorted(set(given) - set(Options._fields))
    if unknown:
        raise ClientError(f"{', '.join(unknown)}: no options of a consumer; these are: {', '.join(Options._fields)}")
    options = Options(**given)
    if options.consume_from not in (FIRST, LAST) and not isinstance(options.consume_from, datetime):
        raise ClientError(f"consume_from={options.consume_from!r}: give 'first', 'last' or a datetime")
    if options.ordered and options.broadcasts:
        raise ClientError("ordered and broadcasts exclude each other: members that get all messages lock no queues")
    if options.offsets is not None and not options.ordered:
        raise ClientError("offsets of the program's own need ordered=True: one offset says what is done of a queue")
    if options.prefetch < 1:
        raise ClientError(f"prefetch={options.prefetch}: give at least 1 message")
    return options


def _wanted(group: str, topics: Topics, options: Options) -> Wanted:
    named = [topics] if isinstance(topics, str) else topics
    table = dict(named) if isinstance(named, Mapping) else dict.fromkeys(named, Subscription())
    if not table:
        raise ClientError("no topic given: give one, several, or a table from topics to tags")
    chosen = {topic: one if isinstance(one, Subscription) else Subscription(one) for topic, one in table.items()}
    strategy = strategy_of(options.strategy) if isinstance(options.strategy, str) else options.strategy
    bounds = Bounds(options.prefetch, span=max(Bounds().span, 2 * options.prefetch))
    begin, offset_of = _where(options.consume_from), options.offsets.offset_of if options.offsets else None
    return Wanted(group, chosen, begin, options.ordered, options.broadcasts, offset_of, strategy, bounds)


def _where(at: str | datetime) -> str | int:
    return ms_of(at) if isinstance(at, datetime) else at


def _reached(where: str | os.PathLike[str] | None, broker: str | None) -> tuple[str, str | None, Path | None]:
    """The name servers, or the broker, that have the group, and the store to read. Raises NoBroker, NotAStore."""
    if where is None:
        return "", broker, None
    if isinstance(where, str) and os.sep not in where:
        return where, broker, None
    settings = extent.require_running(Path(where)).settings
    if broker is None and (names := str(settings["namesrvAddr"])):
        return names, None, Path(where)
    if broker is None and settings["brokerRole"] == "SLAVE":
        why = "is the store of a slave, which has no groups, and its broker has no name servers"
        raise ClientError(f"{where} {why}; give broker=HOST:PORT, the master's listenPort")
    return "", broker or str(settings["storeHost"]), Path(where)
