"""A broker's processes: forked, watched by pidfd, started again when they die, given up, stopped in order.

A role that dies is started again, at once the first time, then with a back-off; it goes on from its own cursor.
One that dies STUCK_MAX times by its own failure, its cursor where it was, would die by the same bytes for ever: it is
given up, with its error in `status`. What passes by itself (a full disk) is tried for as long as it lasts.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.role import Role, enter_child, run_role
from engine.settings import cpus
from engine.shared_memory.cursors import FRONTS, SPARE_ROLES, BrokerCounters, BrokerState
from engine.shared_memory.failures import STUCK_MAX, Failures, exit_text, first_line, is_passing, needs_no_traceback
from ipc import descriptors, waiting
from ipc.clock import monotonic_ms
from ipc.counters import Cursor
from ipc.stop_signals import STOP_SIGNALS

log = logging.getLogger("slipstream")

BACK_OFF_MS = (0, 50, 100, 200, 400, 800)  # by the number of deaths within BACK_OFF_WINDOW_MS
BACK_OFF_WINDOW_MS = 10_000
STUCK_BACK_OFF_MS = 5000  # for what passes by itself and has not for so long
DEATHS_WINDOW_MS = 60_000
DEATHS_KEPT = 1000
STOP_POLL_MS, STOP_LOOK_MS_MAX = 100, 1000  # more between two looks: the machine stood still, and the role with it
# A role that was asked to stop is killed when its heartbeat has not moved for so long.
STALL_MS = 15_000
# One fdatasync; senders that wait for their slaves; who has nothing to lose.
STALL_MS_OF = {"flusher": 60_000, "ha_listener": 30_000, **dict.fromkeys(SPARE_ROLES, 2000)}
FAILED, PASSES = 1, os.EX_TEMPFAIL  # exit codes


@dataclass
class Child:
    """One role's process, or the wish for one."""

    name: str
    open_role: Callable[[], Role]
    pid: int = 0
    pidfd: int = -1
    start_at_ms: int = 0
    started_ms: int = 0
    deaths: tuple[int, ...] = ()
    same_place: int = 0  # deaths in a row by its own failure, its cursors where they were
    is_given_up: bool = False
    reached: tuple[int, ...] = ()  # its cursors when it died


class Children:
    """All roles of one broker. Only its supervisor has one."""

    def __init__(
        self, counters: BrokerCounters, failures: Failures, cpus: str, clock_ms: Callable[[], int] | None = None
    ) -> None:
        self._counters, self._failures, self._cpus = counters, failures, cpus
        self._clock_ms = clock_ms or monotonic_ms
        self._all: list[Child] = []
        self._progress = _progress_of(counters)

    def add(self, name: str, open_role: Callable[[], Role]) -> None:
        """Add a role, which `start_all` starts."""
        self._all.append(Child(name, open_role))

    def start_all(self) -> None:
        """Fork those that were added."""
        for child in self._all:
            self._fork(child)

    def __iter__(self) -> Iterator[Child]:
        return iter(self._all)

    def failed(self, times: int) -> list[tuple[str, str]]:
        """(role, its error) of those that died so often, and without which not all are served."""
        needed = self._needed()
        return [(one.name, self._failures.text_of(one.name)) for one in needed if len(one.deaths) >= times]

    def have_turned(self) -> bool:
        """Whether each of those without which not all are served has what it works with, and has begun to work."""
        return all(self._counters.heartbeats[one.name].read() for one in self._needed())

    def _needed(self) -> list[Child]:
        return [one for one in self._all if one.name not in SPARE_ROLES]

    # while they run

    def watch(self, poller: select.poll, timeout_ms: int) -> int:
        """Register the deaths to wake the poller; return how long it may sleep at most."""
        for child in self._all:
            if child.pidfd >= 0:
                poller.register(child.pidfd, select.POLLIN)
            elif not child.is_given_up:
                timeout_ms = max(0, min(timeout_ms, child.start_at_ms - self._clock_ms()))
        return timeout_ms

    def tend(self, ready: set[int]) -> None:
        """Bury who has died, start who is due, forget what is over."""
        for child in self._all:
            if child.pidfd in ready:
                self._bury(child)
        for child in self._all:
            if child.pidfd >= 0 and not child.deaths:
                continue
            now_ms = self._clock_ms()
            if child.pidfd < 0 and not child.is_given_up and now_ms >= child.start_at_ms:
                waiting.add(self._counters.restarts[child.name], 1)
                self._fork(child)
            if child.deaths:
                self._forget(child, now_ms)

    def _fork(self, child: Child) -> None:
        parent = os.getpid()
        # A signal before the child has its own handlers would be lost in its copy of the parent's.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                os._exit(self._run(child, parent))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        child.pid, child.pidfd, child.started_ms = pid, os.pidfd_open(pid), self._clock_ms()
        waiting.publish(self._counters.pids[child.name], pid)

    def _run(self, child: Child, parent: int) -> int:
        """Do all that a forked child does; return its exit code."""
        try:
            stopping = enter_child(child.name, parent)
            cpus.hold_to_cpus(self._cpus, child.name)
            cpus.ask_for_short_slices(child.name)
            role = child.open_role()
            log.debug("%s serves", child.name)
            run_role(role, self._counters.heartbeats[child.name], stopping)
            log.debug("%s has ended", child.name)
            return 0
        except BaseException as error:
            said, before = first_line(error), self._failures.text_of(child.name)
            self._failures.note(child.name, said)
            if said != before and not needs_no_traceback(error):
                log.exception("%s failed", child.name)
            return PASSES if is_passing(error) else FAILED

    def _bury(self, child: Child) -> None:
        """Note how it died; start it again later, or give it up."""
        status = _reap(child)
        now_ms = self._clock_ms()
        recent = sum(now_ms - death < BACK_OFF_WINDOW_MS for death in child.deaths)
        child.deaths = (*child.deaths, now_ms)[-DEATHS_KEPT:]
        how, by_itself, passes = exit_text(status), _is_failure(status), _is_code(status, PASSES)
        if not (os.WIFEXITED(status) and os.WEXITSTATUS(status) in (FAILED, PASSES)):
            self._failures.note(child.name, how)
        reached = self._reached(child)
        is_same = reached == child.reached and now_ms - child.started_ms < DEATHS_WINDOW_MS
        child.same_place = (child.same_place + 1 if is_same else 1) if by_itself else child.same_place * is_same
        child.reached = reached
        waiting.publish(self._counters.pids[child.name], 0)
        waiting.publish(self._counters.stuck[child.name], 0 if passes else child.same_place)
        waiting.publish(self._counters.deaths[child.name], self._lately(child, now_ms))
        if child.same_place >= STUCK_MAX and by_itself and not passes:
            self._give_up(child)
            return
        back_off_ms = BACK_OFF_MS[min(recent, len(BACK_OFF_MS) - 1)]
        if child.same_place >= STUCK_MAX:
            back_off_ms = STUCK_BACK_OFF_MS
        child.start_at_ms = now_ms + back_off_ms
        why = self._failures.text_of(child.name) if by_itself else how
        if self._counters.broker_state.read() != BrokerState.STARTING:  # else the start is refused, with the same words
            log.warning("%s ended: %s; restarting it in %d ms", child.name, why, back_off_ms)

    def _give_up(self, child: Child) -> None:
        child.is_given_up = True
        if child.name == "flusher":  # nothing is brought to disk any more, so nothing may be acknowledged
            waiting.publish(self._counters.flush_errno, self._counters.flush_errno.read() or errno.EIO)
            waiting.ring(self._counters.ack_bell)
        waiting.publish(self._counters.given_up[child.name], 1)
        log.critical(
            "%s died %d times at the same place and will not be restarted: %s; see `slipstream status STORE`",
            child.name,
            child.same_place,
            self._failures.text_of(child.name),
        )

    def _forget(self, child: Child, now_ms: int) -> None:
        """Deaths of long ago; and all that were at one place, once its cursors have left that."""
        waiting.note(self._counters.deaths[child.name], self._lately(child, now_ms))
        if child.same_place and not child.is_given_up and child.pidfd >= 0:
            is_old = now_ms - child.started_ms >= DEATHS_WINDOW_MS
            if is_old or (self._progress[child.name] and self._reached(child) != child.reached):
                child.same_place = 0
                waiting.publish(self._counters.stuck[child.name], 0)

    def _reached(self, child: Child) -> tuple[int, ...]:
        return tuple(cursor.read() for cursor in self._progress[child.name])

    @staticmethod
    def _lately(child: Child, now_ms: int) -> int:
        return sum(now_ms - death < DEATHS_WINDOW_MS for death in child.deaths)

    # the stop

    def stop(self, name: str) -> str | None:
        """Stop one role in order; return None when it ended well, else what became of it."""
        child = next((one for one in self._all if one.name == name), None)
        if child is None:
            return None
        if child.is_given_up:
            return f"{name} had been given up: {self._failures.text_of(name)}"
        if child.pidfd >= 0 and descriptors.await_readable(child.pidfd, timeout_ms=0):
            _reap(child)  # it died just before
        if child.pidfd < 0:
            self._fork(child)
        signal.pidfd_send_signal(child.pidfd, signal.SIGTERM)
        if self._await_end(child):
            status = _reap(child)
            if status == 0:
                return None
            why = self._failures.text_of(name) if os.WIFEXITED(status) else exit_text(status)
            return f"{name} failed as it stopped: {why}"
        stalled_ms = STALL_MS_OF.get(name, STALL_MS)
        log.warning("%s (process %d) has not moved for %d ms and is killed", name, child.pid, stalled_ms)
        signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        _reap(child)
        return f"{name} did not move for {stalled_ms} ms and was killed"

    def _await_end(self, child: Child) -> bool:
        """Whether it ends before it stands still for too long."""
        heartbeat = self._counters.heartbeats[child.name]
        seen, looked_ms, still_ms = heartbeat.read(), self._clock_ms(), 0
        while not descriptors.await_readable(child.pidfd, timeout_ms=STOP_POLL_MS):
            beat, now_ms = heartbeat.read(), self._clock_ms()
            still_ms = 0 if beat != seen else still_ms + min(now_ms - looked_ms, STOP_LOOK_MS_MAX)
            seen, looked_ms = beat, now_ms
            if still_ms >= STALL_MS_OF.get(child.name, STALL_MS):
                return False
        return True

    def kill_all(self) -> None:
        """Kill what is left after a failed start or stop."""
        for child in self._all:
            if child.pidfd >= 0:
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
                _reap(child)


def _progress_of(counters: BrokerCounters) -> dict[str, tuple[Cursor, ...]]:
    """The cursors that a role moves by its work; none where its work is to answer others."""
    return {
        "writer": (counters.max_physical_offset, counters.put_refused),
        "receiver": (counters.max_physical_offset,),
        "allocator": (counters.allocated_offset,),
        "flusher": (counters.flushed_offset,),
        "dispatcher": (counters.reput_from_offset,),
        "group_transfer": (counters.confirm_offset,),
        "housekeeper": (counters.min_physical_offset,),
        "sidecar": (counters.sidecar.done_offset,),
        "ha_listener": (),
        "clients": (),
        **dict.fromkeys((*FRONTS, "delay", "transactions"), ()),
    }


def _reap(child: Child) -> int:
    _pid, status = os.waitpid(child.pid, 0)
    os.close(child.pidfd)
    child.pid, child.pidfd = 0, -1
    return status


def _is_code(status: int, code: int) -> bool:
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) == code


def _is_failure(status: int) -> bool:
    """Whether it died of what it did, and not because somebody outside wanted that: a kill, or a lack of memory."""
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) not in (signal.SIGKILL, *STOP_SIGNALS)
    return True
