"""The supervisor: recovers the store, makes the regions, starts the processes, keeps them running, stops them in order.

Implements: BrokerController and DefaultMessageStore, their start and shutdown
It imports everything once and stays single-threaded, so that a child is forked in milliseconds. Children die with it
(PR_SET_PDEATHSIG) and are watched by pidfd. A child that dies is started again, at once the first time, then with a
back-off of at most a second; it goes on from its own cursor.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import shutil
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engine import (
    affinity,
    allocator,
    broker_server,
    dispatcher,
    flusher,
    group_transfer,
    ha_listener,
    housekeeper,
    live_settings,
    queue_table,
    receiver,
    regions,
    sender,
    writer,
)
from engine.config import BrokerConfig, BrokerRole
from engine.cursors import COUNTERS_FILE, RUNNING, STARTING, STOPPING, Board
from engine.errors import StartRefused
from engine.index_of import index_of
from engine.journal import create_journal
from engine.kinds_of import kinds_of
from engine.latencies import create_latencies
from engine.role import Role, StopFlag, enter_child, run_role, wall_clock_ms
from engine.sampler import Sampler
from engine.topic_keeper import TopicKeeper
from engine.topic_table import TopicTable
from engine.warm import warm_up
from ipc import ring, waiting
from ipc.process import boot_id, is_alive
from store.consume_queue import queue_directories
from store.directory import StoreDirectory
from store.recovery import Recovered, recover

log = logging.getLogger("slipstream")

BACK_OFF_MS = (0, 50, 100, 200, 400, 800)  # by the number of deaths within BACK_OFF_WINDOW_MS
BACK_OFF_WINDOW_MS = 10_000
READY_DEADLINE_MS = 10_000
STOP_DEADLINE_MS = 15_000
POLL_MS = 1000
START_DEATHS_MAX = 3
YIELDING_NICENESS = 10
# The order of the stop: who makes new bytes first, who keeps them safe last.
STOP_ORDER = (
    "remoting", "writer", "receiver", "dispatcher", "ha_listener", "group_transfer", "housekeeper", "flusher",
    "allocator",
)  # fmt: skip


@dataclass
class Child:
    """One role's process, or the wish for one."""

    name: str
    open_role: Callable[[], Role]
    pid: int = 0
    pidfd: int = -1
    start_at_ms: int = 0
    deaths: tuple[int, ...] = ()


class Supervisor:
    """One running broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
        self._regions = regions.directory_of(config)
        self._stop = StopFlag()
        self._children: list[Child] = []
        self._board: Board | None = None
        self._sampler: Sampler | None = None

    def run(self, on_ready: Callable[[], None] | None = None) -> int:
        """Start, serve until SIGTERM or SIGINT, stop. 0 after a clean stop.

        Raises StoreLocked, StartRefused, and what recovery finds.
        """
        self._directory.create()
        self._directory.lock()
        previous = {number: signal.signal(number, self._stop.on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        previous_wakeup = signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        try:
            self._start(wake_read)
            if on_ready is not None:
                on_ready()
            while not self._stop():
                self._turn(wake_read, POLL_MS)
            return self._shut_down(wake_read)
        finally:
            self._kill_all()
            self._remove_regions()
            signal.set_wakeup_fd(previous_wakeup)
            for number, handler in previous.items():
                signal.signal(number, handler)
            for fd in (wake_read, wake_write):
                os.close(fd)
            self._directory.unlock()

    # start

    def _start(self, wake_read: int) -> None:
        same_boot = self._remove_leftovers()
        began_ms = wall_clock_ms()
        recovered = recover(
            self._directory, self._config.mapped_file_size_commit_log_bytes,
            self._config.mapped_file_size_consume_queue_bytes, check_crc=self._config.check_crc_on_recover,
            index=index_of(self._config), kinds=kinds_of(self._config), same_boot=same_boot,
        )  # fmt: skip
        for finding in recovered.findings:
            log.warning("recovery: %s", finding)
        log.info(
            "recovered: offsets %d to %d, %d records looked at, in %d ms",
            recovered.min_physical_offset, recovered.max_physical_offset, recovered.records_walked,
            wall_clock_ms() - began_ms,
        )  # fmt: skip
        self._keep_topics(recovered.queue_offsets)
        self._directory.mark_running()
        self._make_regions(recovered)
        warm_up(self._config)
        for name, open_role in self._roles():
            self._children.append(Child(name, open_role))
        gc.collect()
        gc.freeze()  # what is loaded by now lives on: no child's collector looks at it again, or copies its pages
        for child in self._children:
            self._fork(child)
        self._await_ready(wake_read)
        board = self._running_board()
        waiting.publish(board.broker_state, RUNNING)
        self._directory.write_pointer(regions.pointer(self._config, self._regions, board.ha_listen_port.read()))

    def _keep_topics(self, queues: Iterable[tuple[str, int]]) -> None:
        """A slave's topics, and what a killed writer did not come to."""
        keeper = TopicKeeper(self._config)
        keeper.note(queues)
        keeper.save(wall_clock_ms())

    def _make_regions(self, recovered: Recovered) -> None:
        self._regions.mkdir(mode=0o700)
        board = self._board = Board.create(self._regions / COUNTERS_FILE)
        waiting.publish(board.broker_state, STARTING)
        end = recovered.max_physical_offset
        # An empty slave does not know yet where its master's log starts; -1: no segment is asked for.
        unknown = self._config.broker_role is BrokerRole.SLAVE and recovered.min_physical_offset == end == 0
        for cursor, offset in (
            (board.min_physical_offset, recovered.min_physical_offset), (board.max_physical_offset, end),
            (board.flushed_offset, end), (board.reput_from_offset, recovered.reput_from_offset),
            (board.segment_request_offset, -1 if unknown else end),
        ):  # fmt: skip
            waiting.publish(cursor, offset)
        live_settings.publish(board, self._config)
        TopicTable.create(self._regions)
        create_latencies(self._regions, self._config.producers_max)
        is_slave = self._config.broker_role is BrokerRole.SLAVE
        self._sampler = Sampler(self._regions, board, wall_clock_ms(), is_slave=is_slave)
        if not is_slave:
            queue_table.QueueTable.create(self._regions, recovered.queue_offsets).close()
            create_journal(self._regions, self._config.producers_max, end)
            ring.create_rings(self._regions, self._config.producers_max).close()

    def _roles(self) -> list[tuple[str, Callable[[], Role]]]:
        config, board = self._config, self._running_board()
        is_slave = config.broker_role is BrokerRole.SLAVE
        open_dispatcher = partial(dispatcher.open_role, config, board, self._regions)
        shared: list[tuple[str, Callable[[], Role]]] = [
            ("housekeeper", partial(housekeeper.open_role, config, board)),
            ("allocator", partial(allocator.open_role, config, board)),
            ("flusher", partial(flusher.open_role, config, board)),
            ("dispatcher", partial(_yielding, open_dispatcher) if is_slave else open_dispatcher),
        ]
        if is_slave:
            shared.append(("receiver", partial(receiver.open_role, config, board)))
        else:
            shared.append(("group_transfer", partial(group_transfer.open_role, config, board)))
            shared.append(("writer", partial(writer.open_role, config, board, self._regions)))
        shared.append(("remoting", partial(broker_server.open_role, config, board)))
        return [*shared, ("ha_listener", partial(ha_listener.open_role, config, board, sender.open_role))]

    def _await_ready(self, wake_read: int) -> None:
        """Until the HA port is bound, so that the ready line can name it."""
        board, deadline_ms = self._running_board(), wall_clock_ms() + READY_DEADLINE_MS
        while board.ha_listen_port.read() == 0 and not self._stop():
            failing = [child.name for child in self._children if len(child.deaths) >= START_DEATHS_MAX]
            if failing:
                raise StartRefused(
                    ", ".join(failing), f"ended {START_DEATHS_MAX} times while starting", "see the lines above"
                )
            if wall_clock_ms() > deadline_ms:
                raise StartRefused(
                    f"HA port {self._config.ha_listen_port}", "the acceptor did not come up",
                    "see the lines above; is the port in use?",
                )  # fmt: skip
            self._turn(wake_read, 20)

    # serving

    def _fork(self, child: Child) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os._exit(_child_main(child, parent, self._running_board(), self._config.affinity))
        child.pid, child.pidfd = pid, os.pidfd_open(pid)
        waiting.publish(self._running_board().pids[child.name], pid)

    def _turn(self, wake_read: int, timeout_ms: int) -> None:
        """Wait for a death or a signal; restart what is due."""
        now_ms = wall_clock_ms()
        if self._sampler is not None:
            self._sampler.take(now_ms)
        poller = select.poll()
        poller.register(wake_read, select.POLLIN)
        for child in self._children:
            if child.pidfd >= 0:
                poller.register(child.pidfd, select.POLLIN)
            else:
                timeout_ms = max(0, min(timeout_ms, child.start_at_ms - now_ms))
        ready = {fd for fd, _event in poller.poll(timeout_ms)}
        if wake_read in ready:
            os.read(wake_read, 512)
        for child in self._children:
            if child.pidfd in ready:
                self._bury(child)
        for child in self._children:
            if child.pidfd < 0 and not self._stop() and wall_clock_ms() >= child.start_at_ms:
                waiting.add(self._running_board().restarts[child.name], 1)
                self._fork(child)

    def _bury(self, child: Child) -> None:
        _pid, status = os.waitpid(child.pid, 0)
        os.close(child.pidfd)
        now_ms = wall_clock_ms()
        recent = tuple(death for death in child.deaths if now_ms - death < BACK_OFF_WINDOW_MS)
        child.deaths = (*recent, now_ms)[-len(BACK_OFF_MS) :]
        back_off_ms = BACK_OFF_MS[min(len(recent), len(BACK_OFF_MS) - 1)]
        log.warning(
            "%s (process %d) ended: %s; it is started again in %d ms",
            child.name, child.pid, _told(status), back_off_ms,
        )  # fmt: skip
        child.pid, child.pidfd, child.start_at_ms = 0, -1, now_ms + back_off_ms
        waiting.publish(self._running_board().pids[child.name], 0)

    # stop

    def _shut_down(self, wake_read: int) -> int:
        board = self._running_board()
        waiting.publish(board.broker_state, STOPPING)
        for name in STOP_ORDER:
            for child in self._children:
                if child.name == name:
                    self._stop_child(child)
        self._keep_topics((topic, queue_id) for topic, queue_id, _ in queue_directories(self._directory.consumequeue))
        end = board.max_physical_offset.read()
        clean = not board.flush_errno.read() and board.flushed_offset.read() == board.reput_from_offset.read() == end
        if clean:
            self._directory.mark_stopped()
        else:
            log.warning("not everything is on disk and in the queues: the next start recovers")
        return 0

    def _stop_child(self, child: Child) -> None:
        """SIGTERM, wait, SIGKILL past the deadline."""
        if child.pidfd < 0:
            return
        signal.pidfd_send_signal(child.pidfd, signal.SIGTERM)
        if not select.select([child.pidfd], [], [], STOP_DEADLINE_MS / 1000)[0]:
            log.warning(
                "%s (process %d) did not stop within %d ms and is killed", child.name, child.pid, STOP_DEADLINE_MS
            )
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        os.close(child.pidfd)
        child.pid, child.pidfd = 0, -1

    def _kill_all(self) -> None:
        """What is left after a failed start or stop."""
        for child in self._children:
            if child.pidfd >= 0:
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
                os.waitpid(child.pid, 0)
                os.close(child.pidfd)
                child.pid, child.pidfd = 0, -1

    # regions

    def _remove_leftovers(self) -> bool:
        """The regions of a supervisor that was killed; its processes died with it. Whether that was since the boot."""
        found = self._directory.read_pointer()
        if found is not None:
            if is_alive(int(found["pid"]), int(found["start_time"])):
                raise StartRefused(
                    str(self._directory.root),
                    f"process {found['pid']} says that it is this store's broker",
                    "stop it first",
                )
            shutil.rmtree(Path(found["region_directory"]), ignore_errors=True)
        shutil.rmtree(self._regions, ignore_errors=True)
        return found is not None and found.get("boot_id") == boot_id()

    def _remove_regions(self) -> None:
        self._directory.remove_pointer()
        shutil.rmtree(self._regions, ignore_errors=True)

    def _running_board(self) -> Board:
        assert self._board is not None
        return self._board


def _told(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.WEXITSTATUS(status)}"


def _yielding(open_role: Callable[[], Role]) -> Role:
    """A role for the CPU time that the others leave: a slave has its master's bytes first, then builds from them."""
    os.nice(YIELDING_NICENESS)
    return open_role()


def _child_main(child: Child, parent: int, board: Board, cpus: str) -> int:
    """All that a forked child does; its exit code."""
    try:
        stopping = enter_child(child.name, parent)
        affinity.apply(cpus, child.name)
        run_role(child.open_role(), board.heartbeats[child.name], stopping)
        return 0
    except BaseException:
        log.exception("%s failed", child.name)
        return 1


def run_broker(config: BrokerConfig, *, on_ready: Callable[[], None] | None = None) -> int:
    """Run a broker in this process and its children until it is told to stop; the exit code."""
    return Supervisor(config).run(on_ready)
