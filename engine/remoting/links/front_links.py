"""The clients role's side of what it and the fronts say to each other: requests in, answers, pushes and tables out.

A *channel* is a connection of any front, under one number here. What is asked of a client (307, 309 and their like) is
a push whose answer comes back as a frame: `ask` waits for it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections import deque
from collections.abc import Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from engine.net.log_lines import Seldom
from engine.protocol.remoting.answers import FAILED
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import MalformedFrame, RemotingCommand, decode, encode
from engine.remoting.links import exchange
from engine.remoting.links.exchange import Bells, Kind, Message, Pipe, channel_of, front_of
from engine.remoting.loop.slices import in_slices
from engine.remoting.sockets.server import Answered

log = logging.getLogger("slipstream.remoting")

Json = dict[str, Any]
OPAQUE_MAX = (1 << 31) - 1
ASKED_MAX = 10_000  # of clients, unanswered
ENTRIES_A_STEP = 100  # of tables
OF_CHANNELS = (Kind.OPENED, Kind.FRAME, Kind.REPLAY)


class Address(NamedTuple):
    """Address of a channel's client."""

    ip: str
    port: int

    def __str__(self) -> str:
        return f"{self.ip}:{self.port}"


class FrontTables(Protocol):
    """Tables by which the fronts decide."""

    def tables(self) -> Iterable[str]:
        """The tables that fronts may hear of now, in this order."""

    def names_in(self, table: str) -> Sequence[Any]:
        """Return the names that have an entry in a table."""

    def entries_of(self, table: str, names: Sequence[Any]) -> Json:
        """Return what a front is to know of these, each by its name at the front; None: it is gone."""


class ClientsRole(Protocol):
    """The clients role, which answers the fronts."""

    def answer_frame(self, request: RemotingCommand, channel: int) -> Answered | asyncio.Future[Answered]:
        """Answer a client's request, at once or by a future."""

    def answer_question(self, what: str, fields: Json) -> Json | asyncio.Future[Json] | None:
        """A front's own question, or word; None to a word."""

    def replayed(self, request: RemotingCommand, channel: int) -> None:
        """Take in the last heartbeat of a channel, replayed to a new clients role."""

    def channel_left(self, channel: int) -> None:
        """Handle the end of a channel."""

    def channel_lost(self, channel: int) -> None:
        """A channel is gone because its front died."""

    def all_replayed(self) -> None:
        """Note that all fronts have said who was there before this process."""

    @property
    def front_tables(self) -> FrontTables:
        """Return the tables by which the fronts decide."""


class FrontLinks:
    """The links to all fronts. To be made on the loop that serves."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, directory: Path, fronts: int, bells: Bells, role: ClientsRole
    ) -> None:
        self._loop, self._bell, self._role = loop, bells.clients, role
        self._fronts = fronts  # the last pipe is the transactions role's, who knows no tables and no channels
        self._pipes = [
            Pipe(directory, front, is_front=False, bells=bells) for front in range(fronts + exchange.SERVICES)
        ]
        self.channels: dict[int, Address] = {}
        self._opaques = itertools.count(1)
        self._asked: dict[tuple[int, int], asyncio.Future[RemotingCommand]] = {}  # by channel and opaque
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard: set[int] = set()  # channels of which something came to us: the clients role hears of their end
        self._untold: set[int] = set()  # fronts that missed something of a table
        self._tellings: deque[Iterator[int]] = deque()  # of tables, to be gone on with
        self._silent = set(range(fronts))  # fronts that have not said yet who was there before us
        self.replayed = asyncio.Event()  # set when all have, or nobody waits for them any longer
        self._seldom = Seldom(log)

    def begin(self) -> None:
        """Say that we are new, tell every front all tables, and listen."""
        for pipe in self._pipes:
            pipe.send(Kind.HELLO)
        self._begin(self._all(set(range(self._fronts))))
        self._loop.add_reader(self._bell, self._on_bell)
        os.eventfd_write(self._bell, 1)  # for what came while nobody was here

    # out

    def send(self, channel: int, command: RemotingCommand) -> None:
        """An answer, or a push that asks for none."""
        front, number = front_of(channel)
        try:
            frame = encode(command)
        except MalformedFrame as malformed:
            log.error("a frame to %s cannot be sent: %s", self.channels.get(channel), malformed)
            return
        self._put(front, Kind.FRAME, number, frame)

    async def ask(self, channel: int, request: RemotingCommand, seconds: float) -> RemotingCommand:
        """Ask a client, and wait. Raises TimeoutError, ConnectionResetError."""
        if channel not in self.channels or len(self._asked) >= ASKED_MAX:
            raise ConnectionResetError
        opaque = next(self._opaques) & OPAQUE_MAX
        answer = self._asked[channel, opaque] = self._loop.create_future()
        self.send(channel, replace(request, opaque=opaque))
        try:
            return await asyncio.wait_for(answer, seconds)
        finally:
            self._asked.pop((channel, opaque), None)

    def hang_up(self, channel: int) -> None:
        """Close the connection of a channel."""
        front, number = front_of(channel)
        self._put(front, Kind.HANG_UP, number)

    def note(self, table: str, names: Sequence[Any]) -> None:
        """Tell every front of entries that are new, changed or gone: at once, but for what is beyond a step."""
        changes = self._changes(table, names)
        if next(changes, 0) < len(names):
            self._later(changes)

    def note_all(self, table: str) -> None:
        """Tell every front all of a table: what is not in it is gone."""
        self._begin(self._whole(table, set(range(self._fronts))))

    def _changes(self, table: str, names: Sequence[Any]) -> Iterator[int]:
        """Yield what the entries are by then: so later changes of the same may go before."""
        for start in range(0, len(names), ENTRIES_A_STEP):
            some = names[start : start + ENTRIES_A_STEP]
            self._put_table(set(range(self._fronts)), table, some, {})
            yield len(some)

    def _whole(self, table: str, fronts: set[int]) -> Iterator[int]:
        names = self._role.front_tables.names_in(table)
        for start in range(0, len(names) or 1, ENTRIES_A_STEP):
            some, end = names[start : start + ENTRIES_A_STEP], start + ENTRIES_A_STEP
            self._put_table(fronts, table, some, {"whole": True, "begins": start == 0, "ends": end >= len(names)})
            yield len(some)

    def _all(self, fronts: set[int]) -> Iterator[int]:
        for table in self._role.front_tables.tables():
            yield from self._whole(table, fronts)

    def _put_table(self, fronts: set[int], table: str, names: Sequence[Any], part: Json) -> None:
        """Send fronts a part of a table. One that does not take it leaves `fronts`; it gets whole tables later."""
        entries = self._role.front_tables.entries_of(table, names)
        body = exchange.text_of({"table": table, "entries": entries, **part})
        untold = {front for front in fronts if not self._put(front, Kind.TABLE, 0, body)}
        fronts -= untold
        self._untold |= untold

    def _begin(self, telling: Iterator[int]) -> None:
        """Tell whole tables, of several at once one after the other; at once what is no more than a step."""
        entries = 0
        while not self._tellings and entries < ENTRIES_A_STEP:
            step = next(telling, None)
            if step is None:
                return
            entries += step
        self._later(telling)

    def _later(self, telling: Iterator[int]) -> None:
        self._tellings.append(telling)
        if len(self._tellings) == 1:
            self._await(in_slices(self._steps()))

    def _steps(self) -> Generator[int, None, None]:
        while self._tellings:
            try:
                yield from self._tellings[0]
            except Exception:  # the others are to be heard of
                self._seldom.tell("a table could not be sent to a front", level=logging.ERROR, error=True)
            self._tellings.popleft()

    def end_replay(self) -> None:
        """Wait no longer for fronts that have not said who is there."""
        if not self.replayed.is_set():
            self.replayed.set()
            self._role.all_replayed()

    def _replayed(self, front: int) -> None:
        self._silent.discard(front)
        if not self._silent:
            self.end_replay()

    def tell_services(self, fields: Json) -> None:
        """Say something to the transactions role."""
        self._put(self._fronts, Kind.WORD, 0, fields)

    def ask_counts(self, number: int) -> set[int]:
        """Have every front say what it has counted, under this number; which ones there are."""
        for front in range(self._fronts):
            self._put(front, Kind.WORD, 0, {"number": number, "front": front})
        return set(range(self._fronts))

    def _tell_again(self) -> None:
        """Send whole tables to fronts that missed a part of one."""
        fronts = {front for front in self._untold if not self._pipes[front].kept_bytes}
        if fronts:
            self._untold -= fronts
            self._begin(self._all(fronts))

    def _put(self, front: int, kind: Kind, number: int, body: bytes | Json = b"") -> bool:
        is_put = self._pipes[front].send(kind, number, body)
        if not is_put:
            self._seldom.tell("front %d reads nothing: messages to it are lost", front)
        return is_put

    # in

    def _on_bell(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        for front, pipe in enumerate(self._pipes):
            for message in pipe.receive():
                try:
                    self._take(front, message)
                except Exception:  # it must not be taken again by the next process, and the next
                    what = "a message of front %d failed: kind %d"
                    self._seldom.tell(what, front, message.kind, level=logging.ERROR, error=True)
        self._tell_again()
        if any(pipe.has_more for pipe in self._pipes):
            os.eventfd_write(self._bell, 1)

    def _take(self, front: int, message: Message) -> None:
        channel = channel_of(front, message.number)
        if message.kind in OF_CHANNELS:
            self._heard.add(channel)
        match message.kind:
            case Kind.FRAME:
                self._frame(channel, message.body)
            case Kind.OPENED:
                self.channels[channel] = Address(message.fields["ip"], message.fields["port"])
            case Kind.CLOSED:
                self._closed(channel)
            case Kind.QUESTION:
                self._question(front, message)
            case Kind.WORD:
                fields = message.fields
                self._role.answer_question(fields.pop("what"), fields)
            case Kind.REPLAY:
                self._role.replayed(decode(message.body), channel)
            case Kind.REPLAYED:
                self._replayed(front)
            case Kind.HELLO:  # another process than before: its connections went with it
                for gone in [channel for channel in self._heard if front_of(channel)[0] == front]:
                    self._closed(gone, is_lost=True)
                if front < self._fronts:
                    self._begin(self._all({front}))
                self._replayed(front)

    def _question(self, front: int, message: Message) -> None:
        fields = message.fields
        answer = self._role.answer_question(fields.pop("what"), fields)
        if isinstance(answer, asyncio.Future):
            self._await(self._answer_question_later(front, message.number, answer))
        elif answer is not None:
            self._put(front, Kind.ANSWER, message.number, answer)

    async def _answer_question_later(self, front: int, number: int, answer: asyncio.Future[Json]) -> None:
        try:
            self._put(front, Kind.ANSWER, number, await answer)
        except Exception:
            self._seldom.tell("a question of front %d failed", front, level=logging.ERROR, error=True)
            self._put(front, Kind.ANSWER, number, {"code": int(ResponseCode.SYSTEM_ERROR), "remark": FAILED})

    def _await(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _closed(self, channel: int, *, is_lost: bool = False) -> None:
        if channel not in self._heard:
            return
        self._heard.discard(channel)
        self.channels.pop(channel, None)
        for key in [key for key in self._asked if key[0] == channel]:
            if not self._asked[key].done():
                self._asked[key].set_exception(ConnectionResetError())
        if is_lost:
            self._role.channel_lost(channel)
        else:
            self._role.channel_left(channel)

    def _frame(self, channel: int, frame: bytes) -> None:
        request = decode(frame)
        if request.is_response:
            asked = self._asked.get((channel, request.opaque))
            if asked is not None and not asked.done():
                asked.set_result(request)
            return
        try:
            answer = self._role.answer_frame(request, channel)
        except Exception:
            self._failed(channel, request)
            return
        if isinstance(answer, asyncio.Future):
            self._await(self._answer_later(channel, request, answer))
        elif answer is not None and not request.is_oneway:
            self.send(channel, answer)

    async def _answer_later(self, channel: int, request: RemotingCommand, answer: asyncio.Future[Answered]) -> None:
        try:
            command = await answer
        except Exception:
            self._failed(channel, request)
            return
        if command is not None and not request.is_oneway:
            self.send(channel, command)

    def _failed(self, channel: int, request: RemotingCommand) -> None:
        """Log a fault of this process, and answer the request, so that the client does not wait for its timeout."""
        self._seldom.tell("a request failed: code %d", request.code, level=logging.ERROR, error=True)
        if not request.is_oneway:
            self.send(channel, request.answer(ResponseCode.SYSTEM_ERROR, FAILED, version=request.version))

    def close(self) -> None:
        """Stop listening, cancel the tasks and unmap the pipes."""
        self._loop.remove_reader(self._bell)
        for task in self._tasks:
            task.cancel()
        for pipe in self._pipes:
            pipe.close()
