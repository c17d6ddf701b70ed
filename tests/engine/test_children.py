"""Roles that die: started again, given up when the same bytes kill them, told about, stopped in order."""

from __future__ import annotations

import errno
import faulthandler
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.children import STALL_MS, Children
from engine.monitoring.problems import problems
from engine.remoting.loop.role_loop import RoleLoop
from engine.role import Role
from engine.shared_memory.cursors import BrokerCounters, BrokerState
from engine.shared_memory.failures import LOOPING_DEATHS, STUCK_MAX, Failures, failing, first_line
from ipc import waiting
from ipc.descriptors import await_readable
from store.errors import CorruptRecord
from store.files.pointer import COUNTERS_FILE

DEADLINE_SECONDS = 120


class Bench:
    """One role under a clock of our own: a back-off is over as soon as it is looked at.

    It stands still while the role runs: how long a process takes to die says how busy the machine is.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.now_ms = directory, 1_000_000
        self.counters = BrokerCounters.create(directory / COUNTERS_FILE)
        waiting.publish(self.counters.broker_state, BrokerState.RUNNING)
        self.children = Children(self.counters, Failures.create(directory), "", lambda: self.now_ms)

    def start(self, name: str, role: Callable[[], Role]) -> None:
        self.name = name
        self.children.add(name, role)
        self.children.start_all()

    def tend_until(self, is_reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_reached():
            assert time.monotonic() < deadline
            poller = select.poll()
            self.children.watch(poller, 100)
            self.children.tend({fd for fd, _ in poller.poll(20)})
            if not all(child.pid for child in self.children):
                self.now_ms += 500

    def restarts(self) -> int:
        return self.counters.restarts[self.name].read()

    def given_up(self) -> bool:
        return self.counters.given_up[self.name].read() != 0

    def pid(self) -> int:
        return self.counters.pids[self.name].read()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.children.kill_all()


class Idle:
    """A role that lives; `end` is what its close does."""

    name = "idle"

    def __init__(self, counters: BrokerCounters, end: Callable[[], None] = lambda: None) -> None:
        self._counters, self._end = counters, end

    def do_work(self, _now_ms: int) -> int:
        return 0

    def idle(self, timeout_ms: int) -> None:
        waiting.await_change(self._counters.ack_bell, self._counters.ack_bell.read(), min(timeout_ms, 50))

    def close(self) -> None:
        self._end()


class InLoop(Idle):
    """A role whose event loop calls its turns, long after each other but for the first."""

    def __init__(self, counters: BrokerCounters, second: Callable[[], None] = lambda: None) -> None:
        super().__init__(counters)
        self._turns, self._second, self._turned = RoleLoop(), second, 0

    def do_work(self, _now_ms: int) -> int:
        self._turned += 1
        if self._turned > 1:
            self._second()
        return 0

    def serve(self, turn: Callable[[], int], stopping: Callable[[], bool]) -> None:
        self._turns.serve(turn, stopping, lambda: 1 if self._turned == 1 else 10 * STALL_MS)


def dies(error: BaseException) -> Callable[[], Role]:
    def open_role() -> Role:
        raise error

    return open_role


DAMAGED = CorruptRecord("/store/commitlog/0", 4711, "no record begins here")


def test_a_role_that_the_same_bytes_kill_is_given_up_and_its_error_shown(bench: Bench) -> None:
    bench.start("dispatcher", dies(DAMAGED))
    bench.tend_until(bench.given_up)
    assert bench.restarts() == STUCK_MAX - 1
    bench.now_ms += 10_000_000
    poller = select.poll()
    bench.children.watch(poller, 100)
    bench.children.tend(set())
    assert bench.restarts() == STUCK_MAX - 1 and bench.pid() == 0, "not for ever"
    (found,) = failing(bench.counters, bench.directory)
    assert found.error == first_line(DAMAGED) and "4711" in found.error and "CORRUPT_RECORD" in found.error
    told = problems(bench.counters, str(bench.directory), "ASYNC_MASTER")
    assert len(told) == 1 and "dispatcher" in told[0] and "4711" in told[0] and "log verify" in told[0]
    told = problems(bench.counters, str(bench.directory), "SLAVE")
    assert len(told) == 2 and "does not acknowledge" in told[1]
    assert "4711" in str(bench.children.stop("dispatcher")), "and such a broker did not stop in order"


def test_a_turn_that_fails_in_an_event_loop_ends_its_role(bench: Bench) -> None:
    def fail() -> None:
        raise DAMAGED

    bench.start("clients", lambda: InLoop(bench.counters, fail))
    bench.tend_until(bench.given_up)
    assert bench.restarts() == STUCK_MAX - 1
    assert failing(bench.counters, bench.directory)[0].error == first_line(DAMAGED)


def test_a_role_that_waits_in_its_event_loop_beats_and_stops_when_it_is_asked(bench: Bench) -> None:
    turned, tells = os.pipe()
    bench.start("clients", lambda: InLoop(bench.counters, lambda: os.write(tells, b".") and None))
    assert await_readable(turned, timeout_ms=DEADLINE_SECONDS * 1000)
    assert bench.counters.heartbeats["clients"].read() and bench.children.stop("clients") is None
    for fd in (turned, tells):
        os.close(fd)


def test_three_deaths_are_a_problem_already(bench: Bench) -> None:
    bench.start("dispatcher", dies(DAMAGED))
    bench.tend_until(lambda: bench.restarts() == LOOPING_DEATHS - 1)
    bench.tend_until(lambda: bench.counters.deaths["dispatcher"].read() >= LOOPING_DEATHS)
    assert not bench.given_up()
    assert "again and again" in problems(bench.counters, str(bench.directory), "ASYNC_MASTER")[0]


def test_progress_between_deaths_is_no_standstill(bench: Bench) -> None:
    def one_step_then_death() -> Role:
        waiting.add(bench.counters.reput_from_offset, 100)
        raise DAMAGED

    bench.start("dispatcher", one_step_then_death)
    bench.tend_until(lambda: bench.restarts() == 2 * STUCK_MAX)
    assert not bench.given_up()
    assert failing(bench.counters, bench.directory)[0].error == first_line(DAMAGED), "but it is told"


def test_a_role_whose_cursor_left_the_place_is_forgiven(bench: Bench) -> None:
    def until_it_is_mended() -> Role:
        if bench.counters.listen_port.read() == 0:
            raise DAMAGED
        waiting.publish(bench.counters.reput_from_offset, 500)
        return Idle(bench.counters)

    bench.start("dispatcher", until_it_is_mended)
    bench.tend_until(lambda: bench.counters.stuck["dispatcher"].read() >= LOOPING_DEATHS)
    waiting.publish(bench.counters.listen_port, 1)
    bench.tend_until(lambda: bench.counters.stuck["dispatcher"].read() == 0)
    bench.now_ms += 60_000
    bench.tend_until(lambda: bench.counters.deaths["dispatcher"].read() == 0)
    assert failing(bench.counters, bench.directory) == []


def test_what_passes_by_itself_is_tried_for_as_long_as_it_lasts(bench: Bench) -> None:
    bench.start("dispatcher", dies(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/store/consumequeue")))
    bench.tend_until(lambda: bench.restarts() == 2 * STUCK_MAX)
    assert not bench.given_up()
    assert "No space left" in problems(bench.counters, str(bench.directory), "SLAVE")[0]
    assert bench.counters.stuck["dispatcher"].read() == 0, "a full disk is no unreadable log"


def test_a_role_killed_from_outside_is_not_given_up(bench: Bench) -> None:
    bench.start("dispatcher", lambda: Idle(bench.counters))
    for killed in range(STUCK_MAX + 3):
        os.kill(bench.pid(), signal.SIGKILL)
        bench.tend_until(lambda killed=killed: bench.restarts() == killed + 1)
    assert not bench.given_up() and bench.counters.stuck["dispatcher"].read() == 0
    assert "SIGKILL" in problems(bench.counters, str(bench.directory), "ASYNC_MASTER")[0], "though it is a problem"


def test_a_role_that_crashes_natively_is_given_up(bench: Bench) -> None:
    def crash() -> Role:
        faulthandler.disable()  # else it fills the test's output with our stack
        os.abort()

    bench.start("dispatcher", crash)
    bench.tend_until(bench.given_up)
    assert "SIGABRT" in failing(bench.counters, bench.directory)[0].error


def test_without_a_flusher_nothing_is_acknowledged(bench: Bench) -> None:
    bench.start("flusher", dies(DAMAGED))
    bench.tend_until(bench.given_up)
    assert bench.counters.flush_errno.read() == errno.EIO


def test_a_stop_waits_while_the_heartbeat_moves(bench: Bench) -> None:
    def long_end() -> None:
        for beat in range(20):
            waiting.note(bench.counters.heartbeats["housekeeper"], beat + 1)
            waiting.await_change(bench.counters.ack_bell, bench.counters.ack_bell.read(), 200)
        waiting.publish(bench.counters.min_physical_offset, 77)

    beats = bench.counters.heartbeats["housekeeper"]
    bench.start("housekeeper", lambda: Idle(bench.counters, long_end))
    bench.tend_until(lambda: beats.read() > 0)
    waiting.note(beats, 0)
    bench.children._clock_ms = lambda: beats.read() * STALL_MS // 8  # in all far more than one may stand still
    assert bench.children.stop("housekeeper") is None
    assert bench.counters.min_physical_offset.read() == 77, "it came to its end"


def test_a_stalled_role_is_killed_and_that_is_logged(bench: Bench) -> None:
    def jumping() -> int:
        bench.now_ms += STALL_MS
        return bench.now_ms

    bench.start("housekeeper", lambda: Idle(bench.counters))
    bench.tend_until(lambda: bench.counters.heartbeats["housekeeper"].read() > 0)
    os.kill(bench.pid(), signal.SIGSTOP)
    bench.children._clock_ms = jumping
    assert "was killed" in str(bench.children.stop("housekeeper"))


def test_a_machine_that_stood_still_is_no_role_that_does(bench: Bench) -> None:
    looked = bench.counters.ha_listen_port  # how often, as the role sees it

    def short_end() -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while looked.read() < 4 and time.monotonic() < deadline:  # some looks, without a beat
            waiting.await_change(looked, looked.read(), 100)
        waiting.publish(bench.counters.min_physical_offset, 9)

    looks: list[int] = []

    def held() -> int:
        looks.append(0)
        waiting.publish(looked, len(looks))
        return bench.now_ms if len(looks) < 2 else bench.now_ms + 10 * STALL_MS

    bench.start("housekeeper", lambda: Idle(bench.counters, short_end))
    bench.tend_until(lambda: bench.counters.heartbeats["housekeeper"].read() > 0)
    bench.children._clock_ms = held
    assert bench.children.stop("housekeeper") is None
    assert bench.counters.min_physical_offset.read() == 9 and len(looks) > 1


def test_a_stop_finds_a_dead_role_and_has_its_work_done(bench: Bench) -> None:
    """As when the flusher was killed a moment before: the stop still brings everything to disk."""
    bench.start(
        "housekeeper", lambda: Idle(bench.counters, lambda: waiting.publish(bench.counters.min_physical_offset, 5))
    )
    bench.tend_until(lambda: bench.counters.heartbeats["housekeeper"].read() > 0)
    pidfd = os.pidfd_open(bench.pid())
    os.kill(bench.pid(), signal.SIGKILL)
    assert await_readable(pidfd, timeout_ms=DEADLINE_SECONDS * 1000)
    os.close(pidfd)
    assert bench.children.stop("housekeeper") is None
    assert bench.counters.min_physical_offset.read() == 5


def test_a_failure_at_the_end_is_reported(bench: Bench) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/store/checkpoint")

    bench.start("housekeeper", lambda: Idle(bench.counters, fail))
    bench.tend_until(lambda: bench.counters.heartbeats["housekeeper"].read() > 0)
    assert bench.children.stop("housekeeper") == (
        "housekeeper failed as it stopped: IO: /store/checkpoint: Input/output error"
    )


def test_a_signal_right_after_the_fork_is_not_lost(bench: Bench) -> None:
    bench.start("housekeeper", lambda: Idle(bench.counters))
    assert bench.children.stop("housekeeper") is None
