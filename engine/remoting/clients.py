"""The clients role: owns what all clients share.

Implements: BrokerController's processors but those of messages, registerBrokerAll's timers, SlaveSynchronize's timer
Publishes:  the words of live_settings, once an administrator changes them
Clients' connections are the fronts', who hand requests on to here, to the part that has their code (`PARTS`). One event
loop; the decisions are in engine/protocol.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from engine.monitoring.making import MAKING, note_made
from engine.monitoring.metrics import TableSizes
from engine.monitoring.metrics_server import MetricsServer
from engine.monitoring.runtime_info import ha_status, runtime_info
from engine.monitoring.series import GAUGE, Series, Shown
from engine.net import tls
from engine.net.rare_lines import RareLines
from engine.net.tls import BrokerTls
from engine.protocol.broker.admin_requests import AdminRequests
from engine.protocol.broker.requests import ShownFacts
from engine.protocol.clients.consumers import ConsumerManager
from engine.protocol.clients.locks import RebalanceLockManager
from engine.protocol.clients.producers import ProducerManager
from engine.protocol.clients.pull_offsets import PullOffsets
from engine.protocol.naming.registration import Learned
from engine.protocol.remoting.codes import KINDS, RequestCode, RequestKind
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.files.broker_files import BrokerFiles, OffsetWriting
from engine.remoting.files.kept_counts import KeptCounts
from engine.remoting.kept_changes import KeptChanges
from engine.remoting.kept_settings import KeptSettings
from engine.remoting.links.exchange import Bells
from engine.remoting.links.front_links import FrontLinks, Json
from engine.remoting.loop.role_loop import RoleLoop
from engine.remoting.loop.role_tasks import RoleTasks
from engine.remoting.loop.slices import in_slices
from engine.remoting.peers import last_offsets
from engine.remoting.peers.master_end import MasterEnd
from engine.remoting.peers.master_tables import MasterTables
from engine.remoting.peers.name_servers import NameServers
from engine.remoting.peers.registrar import Registrar
from engine.remoting.peers.replica_locks import ReplicaLocks
from engine.remoting.processors.admin.administration import Administration
from engine.remoting.processors.admin.shown_settings import settings_of
from engine.remoting.processors.client_processor import ClientProcessor
from engine.remoting.processors.front_tables import SUBSCRIPTIONS, FrontTables
from engine.remoting.processors.offset_processor import OffsetProcessor
from engine.remoting.processors.parts import Part, PartContext, SharedClients
from engine.remoting.processors.queries import Queries
from engine.remoting.processors.rivals import Rivals
from engine.remoting.processors.service_part import ServicePart
from engine.remoting.processors.topic_making import TopicMaking
from engine.remoting.sockets.log_answers import LogAnswers
from engine.remoting.sockets.server import Answered
from engine.settings.config import BrokerConfig, BrokerRole
from engine.shared_memory import live_settings
from engine.shared_memory.clients.client_table import ClientJournal
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.ha_samples import read_ha_samples
from engine.shared_memory.region_directory import settings_request
from ipc import waiting
from ipc.clock import monotonic_ms, wall_ms
from store.files.file_state import FileState
from store.files.segment_files import SegmentFiles
from store.names import GROUPS, TOPICS

log = logging.getLogger("slipstream.remoting")

PARTS: tuple[Callable[[PartContext], Part], ...] = (  # a line for each module of handlers
    ClientProcessor,
    OffsetProcessor,
    Queries,
    Administration,
    TopicMaking,
    ServicePart,
    Rivals,
)
T = TypeVar("T")
PROCESSOR = ("processor",)
OFFSETS_TASK, TABLES_TASK, METRICS_TASK = "consumer offsets", "tables", "metrics"
WHOLE_TABLES: dict[int, str] = {
    RequestCode.GET_ALL_TOPIC_CONFIG: TOPICS,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: GROUPS,
}
LOOK_MS, BIND_RETRY_MS = 1000, 1000
TURN_MS_MAX, SOON_TOPICS_MAX = 500, 1000  # how late the clock is looked at; of a file read again once it has changed
QUIET_MS, QUIET_TIMES = 2000, 4  # nothing came for so long: turns are as many times longer


class Clients:
    """The role that owns what all clients share, and answers what fronts pass on to it."""

    name = "clients"

    def __init__(
        self,
        config: BrokerConfig,
        counters: BrokerCounters,
        bells: Bells,
        how: BrokerTls | None = None,
        tables_from: str = "",
        file: str = "",
        asking_id: int = 0,
    ) -> None:
        self._config, self._counters, self._turns = config, counters, RoleLoop()
        self._loop = self._turns.loop
        self._is_slave = config.broker_role is BrokerRole.SLAVE
        self._journal = ClientJournal.attach(counters.directory)
        self._files = BrokerFiles(config, wall_ms(), counters.directory, is_beside=True, kept=self._journal)
        self._requests = AdminRequests(
            config.compat,
            self._files.metadata,
            self._facts(),
            is_slave=self._is_slave,
            has_timers=config.timer_wheel_enable,
            address=f"{config.broker_ip1}:{config.listen_port}",
        )
        self._log_answers = LogAnswers(config, counters)
        self._tls = how or tls.of_broker(config)
        self._lines, self._tasks = RareLines(log), RoleTasks(self._loop)
        self._links = FrontLinks(self._loop, counters.directory, config.front_processes, bells, self)
        metadata, about = self._files.metadata, (self._tasks, self._lines)
        names = NameServers(config, *about)
        self._master = MasterTables(names, counters, metadata, *about, self._tls.client)
        self._registrar = Registrar(
            names, counters, metadata, *about, self._learn, self._master.forget, self._turns.end_turn
        )
        self._registrar.asking_id = asking_id
        self._kept = KeptChanges(self._files, self._registrar, self._lines, self._turns.end_turn)
        self._settings = KeptSettings(file)
        self._files.on_round(self._turns.end_turn_soon)
        expiry_ms = config.channel_expired_timeout_ms
        self._clients = SharedClients(
            ConsumerManager(metadata.identity.line.groups, expiry_ms),
            ProducerManager(expiry_ms),
            RebalanceLockManager(),
            PullOffsets(),
        )
        self.front_tables = FrontTables(metadata, self._clients.consumers, self._links.replayed.is_set)
        self._files.take_journal(self._journal, self._clients.locks)
        self._writing, self._counts = OffsetWriting(metadata), KeptCounts(counters.directory)
        context = PartContext(
            config,
            counters,
            self._loop,
            metadata,
            self._links,
            self._registrar,
            self._clients,
            self._kept.saved,
            self._writing,
            ReplicaLocks(names, *about, self._tls.client),
            self._counts,
        )
        self._parts = [open_part(context) for open_part in PARTS]
        self._by_code = {code: part for part in self._parts for code in (*part.handlers, *part.later)}
        self._questions = {what: ask for part in self._parts for what, ask in part.questions.items()}
        self._master_end = MasterEnd(config, lambda: self._master.address, self._tls.client)
        self._metrics = MetricsServer(config, counters, self._sizes, self._master_end.read)
        self._metrics_at_ms = self._look_at_ms = self._quiet_at_ms = 0
        self._is_stirred = True  # something came since the last turn
        self._topics_seen: FileState | None = (0, 0, 0)  # as no file has: what was reported before is unknown
        self._links.begin()
        gc.freeze()  # the tables stay: a collection that looked at 10,000 groups' would be a turn of 0.1 s
        if tables_from and not self._is_slave:
            taking = last_offsets.take_over(tables_from, metadata, counters.directory, self._tls.client)
            self._tasks.begin("last offsets", taking)

    def _use_settings(self, wanted: dict[str, int], how_long: str) -> None:
        """Have what an administrator changed used from now on."""
        before, changed, now = (
            live_settings.texts(self._counters),
            self._set(wanted),
            live_settings.texts(self._counters),
        )
        for name in changed:
            log.info("an administrator set %s=%s (it was %s) %s", name, now[name], before[name], how_long)

    def _set(self, wanted: dict[str, int]) -> list[str]:
        """The names of those that were others before."""
        changed = live_settings.change(self._counters, wanted)
        waiting.add(self._counters.topics_changes, 1)  # a topic's permission is the broker's, too
        self._registrar.set_period()
        return changed

    def _figures(self) -> dict[str, str]:
        """Return what parts know of the broker's runtime."""
        return {name: value for part in self._parts for name, value in part.figures().items()}

    def _facts(self) -> ShownFacts:
        config, counters = self._config, self._counters
        files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
        root = os.fspath(config.store_path_root_dir)
        slave, fallbehind = self._is_slave, config.ha_slave_fallbehind_max_bytes
        samples = counters.directory
        return ShownFacts(
            lambda: runtime_info(root, counters, files, config.compat) | self._figures(),
            lambda: ha_status(counters, read_ha_samples(samples), is_slave=slave, fallbehind_max_bytes=fallbehind),
            lambda: settings_of(config, counters),
            live_settings.changeable(),
            live_settings.why_not,
        )

    # turns

    def do_work(self, now_ms: int) -> int:
        """Look at the clock and begin what is due; the event loop does it between turns."""
        if now_ms >= self._metrics_at_ms and not self._metrics.is_served and METRICS_TASK not in self._tasks:
            self._metrics_at_ms = now_ms + BIND_RETRY_MS
            self._tasks.begin(METRICS_TASK, self._metrics.start())
        has_other_topics = self._note_topics() and len(self._files.metadata.topics) <= SOON_TOPICS_MAX
        if now_ms >= self._look_at_ms or has_other_topics or self._files.has_read:
            self._look_at_ms = now_ms + LOOK_MS
            self._lines.flush(now_ms)
            self._look()
        self._tell_fronts()
        self._save(now_ms)
        for part in self._parts:
            part.turn(now_ms)
        self._counts.turn(now_ms)
        if not self._files.metadata.many_unwritten:
            self._registrar.turn(now_ms, self._tls.client)
        if self._is_slave:
            self._master.turn(now_ms)
        return 0

    def _save(self, now_ms: int) -> None:
        if TABLES_TASK not in self._tasks and self._files.metadata.many_unwritten:
            self._tasks.begin(TABLES_TASK, self._write_tables())
        are_due = self._files.are_offsets_due(now_ms)  # before other files' next turn: one that fails has ever more
        self._files.save(now_ms)
        waiting.note(self._counters.tables_errno, self._files.write_errno)
        if are_due and OFFSETS_TASK not in self._tasks:
            self._tasks.begin(OFFSETS_TASK, self._files.save_offsets(self._writing, now_ms))

    async def _write_tables(self) -> None:
        """Make texts of very many topics and groups: all that is said of them waits for that."""
        await self._files.write_tables()
        self._turns.end_turn()

    def _note_topics(self) -> bool:
        """Return whether topics.json was replaced since the last look; if so, have producers read it again."""
        before, self._topics_seen = self._topics_seen, self._files.state_of_topics()
        if before != self._topics_seen:
            waiting.add(self._counters.topics_changes, 1)
        return before != self._topics_seen

    def serve(self, turn: Callable[[], int], stopping: Callable[[], bool]) -> None:
        """Serve between turns; a request that changes what name servers are to know has the next turn begin."""
        self._turns.serve(turn, stopping, self._wait_ms)

    def idle(self, timeout_ms: int) -> None:
        """Serve until the next turn, `timeout_ms` at most."""
        self._turns.idle(min(timeout_ms, self._wait_ms()))

    def _wait_ms(self) -> int:
        now_ms = monotonic_ms()
        if self._is_stirred:
            self._is_stirred, self._quiet_at_ms = False, now_ms + QUIET_MS
        turn_ms = TURN_MS_MAX if now_ms < self._quiet_at_ms else QUIET_TIMES * TURN_MS_MAX
        return min(turn_ms, self._files.due_in_ms(now_ms))

    def close(self) -> None:
        """Say goodbye to the name servers, hang up, save."""
        self._turns.run(self._leave())
        self._settings.close()
        self._files.save(monotonic_ms(), is_last=True)
        self._files.close()
        self._links.close()
        self._journal.close()
        self._turns.close()

    # serving

    async def _sizes(self) -> TableSizes:
        tables = self._files.metadata
        series: list[Shown] = [one for part in self._parts for one in await part.series()]
        waits = [((name,), float(count)) for part in self._parts for name, count in part.waiting().items()]
        series.append(Series(GAUGE, "rocketmq_processor_watermark", "Request processor watermark", PROCESSOR, waits))
        return TableSizes(
            self._counters.broker_permission.read(),
            len(tables.topics),
            len(tables.groups),
            tuple(series),
            self._config.metrics_samples_max,
        )

    def answer_frame(self, request: RemotingCommand, channel: int) -> Answered | asyncio.Future[Answered]:
        """Answer a client's request, whichever front it came to."""
        began_ns = time.monotonic_ns()
        self._is_stirred |= KINDS.get(request.code) is not RequestKind.TABLES  # its slaves copy tables all the time
        answer = self._begin_answer(request, channel)
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda done: self._note_answer(request, done, began_ns))
        elif answer is not None:
            self._count(request, answer, began_ns)
        return answer

    def _count(self, request: RemotingCommand, answer: RemotingCommand, began_ns: int) -> None:
        self._counts.answered(request, answer.code, began_ns)
        if request.code in MAKING:
            note_made(self._counts, request, answer.code, began_ns)

    def _note_answer(self, request: RemotingCommand, done: asyncio.Future[Answered], began_ns: int) -> None:
        if not done.cancelled() and done.exception() is None and (answer := done.result()) is not None:
            self._count(request, answer, began_ns)

    def _begin_answer(self, request: RemotingCommand, channel: int) -> Answered | asyncio.Future[Answered]:
        if (of_log := self._log_answers.begin(request, channel, wall_ms())) is not None:
            return of_log
        part = self._by_code.get(request.code)
        if part is not None:
            answer = part.begin(request, channel, wall_ms())
        elif (table := WHOLE_TABLES.get(request.code)) and self._files.metadata.is_large(table):
            answer = self._answer_once_written(table, request, channel)
        else:
            answer = self._requests.answer(request, channel, wall_ms())
        registers, self._requests.wants_registration = self._requests.wants_registration, False
        if wanted := self._requests.changed_settings:
            self._requests.changed_settings, use = {}, partial(self._use_settings, wanted)
            assert answer is None or isinstance(answer, RemotingCommand), "the requests' processors answer at once"
            answer = self._settings.change(request, answer, live_settings.texts_of(wanted), use)
        answer = self._kept.answer(request, answer, registers=registers)
        self._tell_fronts()
        return answer if isinstance(answer, RemotingCommand | None) else self._later(answer)

    async def _answer_once_written(self, table: str, request: RemotingCommand, channel: int) -> Answered:
        await self._files.write_tables()
        await in_slices(self._files.metadata.prepare_json(table))
        return self._requests.answer(request, channel, wall_ms())

    def answer_question(self, what: str, fields: Json) -> Json | asyncio.Future[Json] | None:
        """Answer a question that a front asks on its own account."""
        self._is_stirred = True
        ask = self._questions.get(what)
        if ask is None:
            log.error("a front asked for %s, which the clients role does not know", what)
            return {}
        answer = ask(fields)
        self._tell_fronts()
        return answer if isinstance(answer, dict | None) else self._later(answer)

    def _later(self, work: Awaitable[T]) -> asyncio.Future[T]:
        """Return what is awaited, once the fronts have heard of what it changed."""

        async def finish() -> T:
            try:
                return await work
            finally:
                self._tell_fronts()

        return self._loop.create_task(finish())

    def replayed(self, request: RemotingCommand, channel: int) -> None:
        """The last heartbeat of a channel that was there before us."""
        for part in self._parts:
            part.replayed(request, channel, wall_ms())
        self._tell_fronts()

    def channel_left(self, channel: int) -> None:
        """A client's connection is gone."""
        for part in self._parts:
            part.channel_left(channel)
        self._tell_fronts()

    def channel_lost(self, channel: int) -> None:
        """Treat a channel's end as the death of its front: its client may come back."""
        for part in self._parts:
            part.channel_lost(channel)
        self._tell_fronts()

    def all_replayed(self) -> None:
        """Let fronts hear of groups without members, and members look who is left: earlier clients are known now."""
        self._links.note_all(SUBSCRIPTIONS)
        self._clients.consumers.notify_all()

    def _tell_fronts(self) -> None:
        """Send the fronts what changed in their tables since the last call."""
        for table, names in self.front_tables.take_altered():
            self._links.note(table, names)

    def _look(self) -> None:
        """Take what others wrote into files; ask again for a master's name that leads nowhere."""
        counters = self._counters
        if wanted := settings_request.take(counters.directory):
            self._set(wanted)
            settings_request.done(counters.directory)
        dispatched = counters.reput_from_offset.read() == counters.max_physical_offset.read()
        if self._files.look(wall_ms(), dispatched):
            self._registrar.hurry()
        if self._is_slave:
            self._master.look()

    async def _learn(self, name_server: str, learned: Learned) -> None:
        """Take in what a name server's answer says."""
        if self._is_slave:
            await self._master.learn(name_server, learned)
            return
        ordered = learned.order_topics
        if ordered is not None and self._files.metadata.set_order_topics(ordered, wall_ms()):
            self._registrar.hurry()

    async def _leave(self) -> None:
        await self._tasks.cancel()
        await self._registrar.leave()
        self._master.close()
        for part in self._parts:
            part.close()
        self._log_answers.close()
        await self._metrics.stop()
        self._master_end.close()


def open_role(
    config: BrokerConfig,
    counters: BrokerCounters,
    bells: Bells,
    how: BrokerTls | None = None,
    tables_from: str = "",
    file: str = "",
    asking_id: int = 0,
) -> Clients:
    """The clients role of a broker; `how`: its certificates, else read now; `tables_from`: the address of the master
    before it, of one that was promoted; `file`: what keeps changed settings; `asking_id`: a promoted master's brokerId
    at name servers until it has asked who else is one."""
    gc.disable()  # of what is loaded nothing is garbage, and to look for it again and again is a third of the load
    try:
        return Clients(config, counters, bells, how, tables_from, file, asking_id)
    finally:
        gc.enable()
