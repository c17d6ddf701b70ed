"""The supervisor: recovers the store, makes the regions, starts the processes, keeps them running, stops them in order.

Implements: BrokerController and DefaultMessageStore, their start and shutdown
It imports everything once and stays single-threaded, so that a child is forked in milliseconds. Children die with it
(PR_SET_PDEATHSIG); `engine.children` watches them.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path

from engine import store_opening
from engine.children import Children
from engine.errors import StartRefused, StopIncomplete
from engine.front import front
from engine.keeping import allocator, dispatcher, flusher, housekeeper
from engine.net import log_lines, tls
from engine.reload import Reload
from engine.remoting import clients
from engine.remoting.links import exchange
from engine.replication import group_transfer, ha_listener, receiver, sender
from engine.role import Role, StopFlag
from engine.role_change import RoleChange
from engine.services import delay, transactions
from engine.settings.config import BrokerConfig, BrokerRole
from engine.settings.store_parts import index_of, kinds_of
from engine.shared_memory.cursors import FRONTS, SPARE_ROLES, BrokerCounters, BrokerState, Serving
from engine.shared_memory.delay_table import DelayTable
from engine.shared_memory.failures import Failures, errno_text
from engine.shared_memory.latencies import create_latencies
from engine.shared_memory.put_samples import Sampler
from engine.shared_memory.queue_ends import QueueEnds
from engine.shared_memory.queue_table import QueueTable
from engine.shared_memory.region_directory import dead_run, regions
from engine.shared_memory.region_directory.role_request import ROLE_SIGNAL
from engine.shared_memory.topic_table import TopicTable
from engine.writer import writer
from engine.writer.journal import create_journal
from engine.writer.topic_keeper import TopicKeeper
from ipc import ring, waiting
from ipc.clock import monotonic_ms, wall_ms
from ipc.compiled.kernels import CompilingStopped, is_carried, stopped_by, tell_progress_to
from ipc.errors import RegionNoSpace
from ipc.stop_signals import handle_stop_signals
from store.files import file_io, own_files, pointer
from store.files.directory import StoreDirectory
from store.files.pointer import COUNTERS_FILE
from store.message.delay import levels_ms
from store.notes import flushed_mark, starting
from store.queues.consume_queue import queue_directories
from store.recovery import last_run
from store.recovery.recovery import Recovered, recover

log = logging.getLogger("slipstream")

READY_DEADLINE_MS = 60_000  # a machine may be busy; a port in use is reported at once
READY_LOOK_MS = 5
POLL_MS, POLL_RESTED_MS = 1000, 2000
START_DEATHS_MAX = 3
YIELDING_NICENESS = 10
# The order of the stop: who makes new bytes first, who keeps them safe last.
STOP_ORDER = (
    *SPARE_ROLES,
    *FRONTS,
    "delay",
    "transactions",
    "clients",
    "writer",
    "receiver",
    "dispatcher",
    "ha_listener",
    "group_transfer",
    "housekeeper",
    "flusher",
    "allocator",
)
OpenSidecar = Callable[[BrokerConfig, BrokerCounters], Role]
HOLD_NOTHING = ("ha_listener", "group_transfer", *SPARE_ROLES)  # whose end loses nothing, however it comes


class Supervisor:
    """One running broker, or what `only` names of it."""

    def __init__(
        self,
        config: BrokerConfig,
        directory: StoreDirectory,
        only: Collection[str] = (),
        reload: Reload | None = None,
        sidecar: OpenSidecar | None = None,
    ) -> None:
        self._config, self._directory, self._only, self._reload = config, directory, only, reload
        self._sidecar, self._change = sidecar, RoleChange(config)
        self._regions: Path | None = None
        self._bells: exchange.Bells | None = None
        self._stop, self._is_warm = StopFlag(), False
        self._children: Children | None = None
        self._counters: BrokerCounters | None = None
        self._failures: Failures | None = None
        self._sampler: Sampler | None = None
        self._tls: tls.BrokerTls | None = None
        self._on_turn: Callable[[], None] | None = None

    def run(self, on_ready: Callable[[], None] | None = None, on_turn: Callable[[], None] | None = None) -> int:
        """Start, serve until a signal to stop, stop; start again in another role when asked to. Return 0 after a stop.

        SIGHUP is such a signal where it tells of a terminal's end; else the file is read again.
        `on_turn` is called at least every two seconds while it serves: else a service manager may think that it hangs.
        Raises StartRefused, what recovery finds, and StopIncomplete.
        """
        tell_progress_to(starting.telling(self._directory.root, log.info))
        self._on_turn = on_turn
        previous = handle_stop_signals(self._stop.on_signal, self._reload.on_signal if self._reload else None)
        previous[ROLE_SIGNAL] = signal.signal(ROLE_SIGNAL, lambda _number, _frame: None)  # it wakes, and no more
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        previous_wakeup = signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        try:
            while (ended := self._serve_in_a_role(wake_read, on_ready)) is None:
                self._end_role()
            return ended
        finally:
            self._end_role()
            signal.set_wakeup_fd(previous_wakeup)
            for number, handler in previous.items():
                signal.signal(number, handler)
            for fd in (wake_read, wake_write):
                os.close(fd)
            self._directory.unlock()

    def _serve_in_a_role(self, wake_read: int, on_ready: Callable[[], None] | None) -> int | None:
        """Serve in a role from its start to its stop; return None when another role follows."""
        starting.write(self._directory.root, "recovering the log and loading compiled code")
        try:
            with stopped_by(self._stop):
                children = self._prepare()
        except CompilingStopped:
            log.info("stopped while compiling: nothing was served; the next start compiles the rest")
            return 0
        self._start(children, wake_read)
        if on_ready is not None and not self._stop():
            on_ready()
        while not self._stop() and not self._change.is_asked(self._running_counters()):
            self._turn(wake_read, POLL_RESTED_MS if self._rests() else POLL_MS)
            self._look_at_file()
        ended = self._shut_down()
        if self._stop() or (wanted := self._change.take(self._running_counters())) is None:
            return ended
        if self._reload is not None:
            self._change.of_file = self._reload.live(self._change.of_file)
        log.warning("becomes %s", "the master" if wanted.to_master else f"a slave {wanted.master}".rstrip())
        return None

    def _end_role(self) -> None:
        """Remove what is left of the role: processes and shared memory."""
        if self._children is not None:
            self._children.kill_all()
        self._remove_regions()
        self._children, self._counters, self._failures, self._sampler, self._regions = None, None, None, None, None

    # start

    def _prepare(self) -> Children:
        """Do all that comes before the first change of the log, with what has to be compiled for that."""
        store_opening.give_to_group(self._config, self._directory)
        self._tls = tls.of_broker(self._config)
        store_opening.finish_interrupted(self._config, self._directory)
        self._config = self._change.config_now()
        store_opening.tell_divergence(self._directory)
        last = last_run.read(self._directory)
        before = self._remove_leftovers(last)
        own_files.make_rest_own(self._directory)
        began_ms = monotonic_ms()
        recovered = recover(
            self._directory,
            self._config.mapped_file_size_commit_log_bytes,
            self._config.mapped_file_size_consume_queue_bytes,
            check_crc=self._config.check_crc_on_recover,
            index=index_of(self._config),
            kinds=kinds_of(self._config),
            last=last,
            is_slave=self._change.was_slave(),
        )
        own_files.make_tail_own(self._directory, recovered.max_physical_offset)
        for finding in recovered.findings:
            log.warning("recovery: %s", finding)
        extent = recovered.min_physical_offset, recovered.max_physical_offset, recovered.records_walked
        took_ms = monotonic_ms() - began_ms
        log.info("recovered: offsets %d to %d, %d records looked at, in %d ms", *extent, took_ms)
        self._change.begin(recovered.max_physical_offset)
        self._keep_topics(recovered.queue_offsets)
        flushed_mark.begin(self._directory, recovered.max_physical_offset)
        self._make_regions(recovered)
        into = self._running_counters().directory
        if before is None or not dead_run.hand_on(before, recovered.max_physical_offset, into):
            file_io.unlink(self._directory.pointer)  # a killed broker's: the mark tells of this run now
        if not (self._is_warm or is_carried()):
            from engine.warm import warm_up  # where code is carried no start loads this

            warm_up(self._config)
        self._is_warm = True  # whatever role comes next: all of them are loaded
        return Children(self._running_counters(), self._failures_there(), self._config.affinity)

    def _start(self, children: Children, wake_read: int) -> None:
        self._directory.mark_running()
        self._children = children
        for name, open_role in self._chosen_roles():
            children.add(name, open_role)
        gc.collect()
        gc.freeze()  # what is loaded by now lives on: no child's collector looks at it again, or copies its pages
        if not self._stop():
            children.start_all()
        if not self._only or "ha_listener" in self._only:
            self._await_ready(wake_read)
        counters = self._running_counters()
        waiting.publish(counters.broker_state, BrokerState.RUNNING)
        self._directory.write_pointer(regions.pointer(self._config, counters.directory, counters.ha_listen_port.read()))
        starting.remove(self._directory.root)
        regions.remove_leftovers(self._config, counters.directory)  # the next start finds us

    def _keep_topics(self, queues: Iterable[tuple[str, int]]) -> None:
        """A slave's topics, and what a killed writer did not come to."""
        keeper = TopicKeeper(self._config)
        keeper.note(queues)
        keeper.save(wall_ms())

    def _make_regions(self, recovered: Recovered) -> None:
        directory = self._regions = regions.create(self._config)
        counters = self._counters = BrokerCounters.create(directory / COUNTERS_FILE)
        waiting.publish(counters.broker_state, BrokerState.STARTING)
        end = recovered.max_physical_offset
        # An empty slave does not know yet where its master's log starts; -1: no segment is asked for.
        unknown = self._config.broker_role is BrokerRole.SLAVE and recovered.min_physical_offset == end == 0
        for cursor, offset in (
            (counters.min_physical_offset, recovered.min_physical_offset),
            (counters.max_physical_offset, end),
            (counters.flushed_offset, end),
            (counters.reput_from_offset, recovered.reput_from_offset),
            (counters.segment_request_offset, -1 if unknown else end),
            (counters.recovered_offset, end),
            (counters.own_broker_id, self._change.of_file.broker_id),
        ):
            waiting.publish(cursor, offset)
        self._change.publish(counters, self._config, self._only)
        log_lines.THRESHOLD.set(self._config.log_level, counters.log_level.read)
        self._failures = Failures.create(directory)
        TopicTable.create(directory)
        QueueEnds.create(directory, recovered.queue_offsets).close()
        exchange.create(directory, self._config.front_processes)
        self._bells = exchange.Bells.make(self._config.front_processes)
        create_latencies(directory, self._config.rings)
        is_slave = self._config.broker_role is BrokerRole.SLAVE
        self._sampler = Sampler(directory, counters, monotonic_ms(), wall_ms(), is_slave=is_slave)
        if not is_slave:
            QueueTable.create(directory, recovered.queue_offsets).close()
            create_journal(directory, self._config.rings, end)
            ring.create_rings(directory, self._config.rings).close()
            DelayTable.create(directory, len(levels_ms(self._config.message_delay_level)))

    def _roles(self) -> list[tuple[str, Callable[[], Role]]]:
        config, counters = self._config, self._running_counters()
        directory, is_slave = counters.directory, config.broker_role is BrokerRole.SLAVE
        open_dispatcher = partial(dispatcher.open_role, config, counters, directory)
        shared: list[tuple[str, Callable[[], Role]]] = [
            ("housekeeper", partial(housekeeper.open_role, config, counters)),
            ("allocator", partial(allocator.open_role, config, counters)),
            ("flusher", partial(flusher.open_role, config, counters)),
            ("dispatcher", partial(_yielding, open_dispatcher) if is_slave else open_dispatcher),
        ]
        if is_slave:
            shared.append(("receiver", partial(receiver.open_role, config, counters, self._tls)))
        else:
            shared.append(("group_transfer", partial(group_transfer.open_role, config, counters)))
            shared.append(("writer", partial(writer.open_role, config, counters, directory)))
        bells = self._bells
        assert bells is not None
        file = self._reload.file if self._reload is not None else ""
        end = self._change.tables_from, file, self._change.asking_id
        shared.append(("clients", partial(clients.open_role, config, counters, bells, self._tls, *end)))
        for number in range(config.front_processes):
            shared.append((f"front.{number}", partial(front.open_role, config, counters, number, bells, self._tls)))
        if not is_slave:
            promoted = bool(self._change.tables_from)
            shared.append(("delay", partial(delay.open_role, config, counters, has_predecessor=promoted)))
            shared.append(("transactions", partial(transactions.open_role, config, counters, bells)))
        failures = self._failures_there()
        open_listener = partial(ha_listener.open_role, config, counters, failures, sender.open_role, self._tls)
        if config.columnar_sidecar and self._sidecar is not None:
            shared.append(("sidecar", partial(self._sidecar, config, counters)))
        return [*shared, ("ha_listener", open_listener)]

    def _chosen_roles(self) -> list[tuple[str, Callable[[], Role]]]:
        roles = self._roles()
        known = [name for name, _ in roles]
        if unknown := sorted(set(self._only) - set(known)):
            why = f"brokerRole={self._config.broker_role} has no such role"
            raise StartRefused(f"--only {unknown[0]}", why, f"give one of: {', '.join(known)}")
        return [(name, open_role) for name, open_role in roles if not self._only or name in self._only]

    def _await_ready(self, wake_read: int) -> None:
        """Until the HA port is bound, so that the ready line can name it, and clients are served. Raises StartRefused
        where a role cannot: for the HA port, or for want of shared memory."""
        counters, children, deadline_ms = (
            self._running_counters(),
            self._children_there(),
            monotonic_ms() + READY_DEADLINE_MS,
        )
        while not self._stop():
            is_bound, is_late = counters.ha_listen_port.read() > 0, monotonic_ms() > deadline_ms
            for role, error in children.failed(START_DEATHS_MAX):
                if not is_bound or error.startswith(RegionNoSpace.code):
                    raise StartRefused(role, error, f"it died {START_DEATHS_MAX} times")
            if is_bound and (is_late or not self._are_roles_on_their_way()):
                break
            if is_late:
                why = "the acceptor did not come up"
                raise StartRefused(f"HA port {self._config.ha_listen_port}", why, "see above; is the port in use?")
            self._turn(wake_read, READY_LOOK_MS)

    def _are_roles_on_their_way(self) -> bool:
        """Whether a role has not turned yet, or clients are not served by all fronts, at both ports. What has another
        program's port, or dies again and again, does not keep the log from its work."""
        wanted = Serving.ALL if not self._only or "clients" in self._only else Serving.PORTS
        fronts = enumerate(self._running_counters().fronts[: self._config.front_processes])
        begun = [words for number, words in fronts if not self._only or f"front.{number}" in self._only]
        are_serving = all(words.serving.read() >= wanted or words.listen_errno.read() for words in begun)
        children = self._children_there()
        return not (are_serving and children.have_turned()) and not children.failed(START_DEATHS_MAX)

    # serving

    def _turn(self, wake_read: int, timeout_ms: int) -> None:
        """Wait for a death or a signal; restart what is due."""
        if self._on_turn is not None:
            self._on_turn()
        if self._sampler is not None:
            self._sampler.take(monotonic_ms())
        poller = select.poll()
        poller.register(wake_read, select.POLLIN)
        ready = {fd for fd, _event in poller.poll(self._children_there().watch(poller, timeout_ms))}
        if wake_read in ready:
            os.read(wake_read, 512)
        if not self._stop():
            self._children_there().tend(ready)

    def _rests(self) -> bool:
        """Whether nothing is under way that is worth two looks."""
        has_work = self._reload is not None and self._reload.has_work
        return self._sampler is not None and self._sampler.rests and not has_work

    def _look_at_file(self) -> None:
        if self._reload is not None and self._reload.has_work:
            has_clients = any(child.name == "clients" and not child.is_given_up for child in self._children_there())
            known = self._change.of_file
            self._change.of_file = self._reload.turn(self._running_counters(), known, has_clients=has_clients)

    # stop

    def _shut_down(self) -> int:
        """Stop in order. Raises StopIncomplete when something was lost, or may have been."""
        counters = self._running_counters()
        waiting.publish(counters.broker_state, BrokerState.STOPPING)
        outcomes = {name: self._children_there().stop(name) for name in STOP_ORDER}
        wrong = [what for name, what in outcomes.items() if what and name not in HOLD_NOTHING]
        self._keep_topics(queue[:2] for queue in queue_directories(self._directory.consumequeue))
        end, flushed = counters.max_physical_offset.read(), counters.flushed_offset.read()
        if number := counters.flush_errno.read():
            wrong.append(f"the disk failed ({errno_text(number)})")
        if flushed < end:
            wrong.append(f"the log is on disk only up to offset {flushed}; it ends at {end}")
        if not wrong and counters.reput_from_offset.read() == end:
            self._directory.mark_stopped()
        if wrong:
            raise StopIncomplete(str(self._directory.root), wrong)
        return 0

    # regions

    def _remove_leftovers(self, last: last_run.LastRun) -> dead_run.DeadRun | None:
        """The regions of a supervisor that was killed; its processes died with it. What they say that files do not."""
        broker = pointer.read(self._directory.root)
        if broker is not None and broker.is_alive:
            says = f"process {broker.pid} is already the broker of this store"
            raise StartRefused(str(self._directory.root), says, "stop it first")
        before = dead_run.read(self._directory) if last.written_to is not None else None
        regions.remove_leftovers(self._config, before.regions if before else None, dead_run.READ)
        return before

    def _remove_regions(self) -> None:
        log_lines.THRESHOLD.set(self._change.of_file.log_level)
        starting.remove(self._directory.root)
        self._directory.remove_pointer()
        if self._regions is not None:
            regions.remove(self._regions)
        if self._bells is not None:
            self._bells.close()
            self._bells = None

    def _running_counters(self) -> BrokerCounters:
        assert self._counters is not None
        return self._counters

    def _failures_there(self) -> Failures:
        assert self._failures is not None
        return self._failures

    def _children_there(self) -> Children:
        assert self._children is not None
        return self._children


def _yielding(open_role: Callable[[], Role]) -> Role:
    """A role for the CPU time that the others leave: a slave has its master's bytes first, then builds from them."""
    os.nice(YIELDING_NICENESS)
    return open_role()


def run_broker(
    config: BrokerConfig,
    directory: StoreDirectory,
    *,
    only: Collection[str] = (),
    on_ready: Callable[[], None] | None = None,
    on_turn: Callable[[], None] | None = None,
    reload: Reload | None = None,
    sidecar: OpenSidecar | None = None,
) -> int:
    """Run a broker in this process and its children until a signal to stop; return the exit code.

    `directory` is the store's, made and locked; it is given back at the end. With `only` these roles are started and no
    others, to be looked at: what the others keep stays as recovery left it. `reload` reads its file again at SIGHUP.
    `sidecar` opens the role of that name, which is made of more than this package, where columnarSidecar asks for it.
    """
    return Supervisor(config, directory, only, reload, sidecar).run(on_ready, on_turn)
