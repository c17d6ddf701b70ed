"""Parts of what the clients role answers: clients' requests by code, fronts' questions by name.

A part is a subclass of `Part` in a module of its own, named in `PARTS` (`engine.remoting.clients`). Its `handlers`
answer at once, its `later` by coroutines; both may raise `Refused` and `Thrown`. What a part decides by stands in
`engine/protocol`; what all parts share is the `PartContext`.

A new request needs a number and a kind in `codes.py`: the kind says who may ask, and without one the test
`test_every_code_has_one_kind` fails. An administrators' number also stands in that test's file and in docs/security.md.

A front answers the `codes` of its `sends.py` and `pulls.py`, a name server those of `name_server.py`. All others reach
`Clients._begin_answer` (engine/remoting/clients.py). There answers, in this order:
  `_log_answers`  `LogAnswers` (engine/remoting/sockets/log_answers.py): other brokers' questions about this log
  `_by_code`      the parts, which need files, links or threads; for administrators in engine/remoting/processors/admin
  `WHOLE_TABLES`  tables so large that their text is made first, in steps; then `_requests` answers
  `_requests`     `BrokerRequests` and `AdminRequests` (`requests.py`, `admin_requests.py` in engine/protocol/broker):
                  they answer from tables, and leave what is to be saved or set to `engine.remoting.clients`
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from engine.monitoring.counted import Counts
from engine.monitoring.series import Shown
from engine.protocol.clients.consumers import ConsumerManager
from engine.protocol.clients.locks import RebalanceLockManager
from engine.protocol.clients.producers import ProducerManager
from engine.protocol.clients.pull_offsets import PullOffsets
from engine.protocol.remoting.answers import Answerer, Json
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.tables.metadata import Metadata
from engine.remoting.files.broker_files import OffsetWriting
from engine.remoting.links.front_links import FrontLinks
from engine.remoting.peers.registrar import Registrar
from engine.remoting.peers.replica_locks import ReplicaLocks
from engine.remoting.sockets.server import Answered
from engine.settings.config import BrokerConfig, BrokerRole
from engine.shared_memory.cursors import BrokerCounters

HandlerLater = Callable[[RemotingCommand, int, int], Awaitable[RemotingCommand]]
Question = Callable[[Json], Json | Awaitable[Json] | None]


class SharedClients(NamedTuple):
    """Tables of connected clients that several parts share."""

    consumers: ConsumerManager
    producers: ProducerManager
    locks: RebalanceLockManager
    pulled: PullOffsets


class PartContext(NamedTuple):
    """The objects that all parts share: settings, tables, links."""

    config: BrokerConfig
    counters: BrokerCounters
    loop: asyncio.AbstractEventLoop
    metadata: Metadata  # topics, groups, offsets; `take_altered` tells the fronts
    links: FrontLinks  # the clients, by channel
    registrar: Registrar  # `hurry` where topics changed, `await registered(seconds)` where clients must see them first
    clients: SharedClients
    saved: Callable[[Sequence[str]], Awaitable[None]]  # until files are on disk as their tables are; raises NotSaved
    offsets: OffsetWriting
    replicas: ReplicaLocks
    counts: Counts  # what fronts and this role count, by name and labels

    @property
    def is_slave(self) -> bool:
        """Whether this broker follows a master."""
        return self.config.broker_role is BrokerRole.SLAVE


class Part(Answerer):
    """Answers some requests and questions. `channel` is a connection of any front, `now_ms` wall time."""

    def __init__(self, context: PartContext) -> None:
        super().__init__(context.config.compat)
        self.context = context
        self.handlers = {}
        self.later: dict[int, HandlerLater] = {}
        self.questions: dict[str, Question] = {}

    def begin(self, request: RemotingCommand, channel: int, now_ms: int) -> Answered | Awaitable[Answered]:
        """Return the answer to a request of this part, or an awaitable of it."""
        handler = self.later.get(request.code)
        if handler is None or request.is_response:
            return self.answer(request, channel, now_ms)
        return self._finish(request, handler(request, channel, now_ms))

    async def _finish(self, request: RemotingCommand, work: Awaitable[RemotingCommand]) -> Answered:
        try:
            answer = await work
        except self.REFUSALS as refused:
            answer = self.refusal(request, refused)
        return None if request.is_oneway else answer

    def turn(self, now_ms: int) -> None:
        """Look at the clock (monotonic), some times a second."""

    def figures(self) -> dict[str, str]:
        """Return what it adds to the figures of GET_BROKER_RUNTIME_INFO, under RocketMQ's names."""
        return {}

    async def series(self) -> list[Shown]:
        """Return what it adds to the metrics; it gives way to others as often as that takes long."""
        return []

    def waiting(self) -> dict[str, int]:
        """Return how many requests wait for a thread of its own, by RocketMQ's name of the processor."""
        return {}

    def replayed(self, request: RemotingCommand, channel: int, now_ms: int) -> None:
        """The last heartbeat of a channel that was there before this process."""

    def channel_left(self, channel: int) -> None:
        """A client's connection is gone."""

    def channel_lost(self, channel: int) -> None:
        """Handle a channel whose front died; by default like `channel_left`."""
        self.channel_left(channel)

    def close(self) -> None:
        """Release what the part holds."""
