"""Delivers delayed messages: reads each level's queue in order, puts what is due where it belongs.

Implements: ScheduleMessageService (spec: store-formats, section 8)
Follows:    reput_from_offset, then the ends of the levels' queues; the clock, its ring's head
Publishes:  the levels' offsets (engine.shared_memory.delay_table), its counters
A level's offset moves once its puts are in the log, so that a death loses nothing; what the ring of a dead one holds is
known by number, so that nothing of it is put twice. A message that can be put nowhere (it is damaged, or names a queue
that there cannot be) is passed over and logged: it would hold up its level for ever.
"""

from __future__ import annotations

import logging
import time

import numpy as np

from engine.net.log_lines import Seldom
from engine.protocol.services.delay import NEVER_MS, Level
from engine.protocol.store.retention import DiskState
from engine.services import delivered_before
from engine.services.delay_puts import DelayPuts
from engine.services.deliver_kernel import Row
from engine.services.due_rows import DueRows, due_rows, is_refused
from engine.services.facts import facts_of
from engine.services.queue_entries import FollowedQueue, QueueEntries
from engine.services.records import Records
from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters, BrokerState
from engine.shared_memory.delay_table import OFFSET_BITS, OFFSET_MASK, DelayTable, entry_of
from engine.shared_memory.queue_ends import NO_SLOT, QueueEnds, await_more
from ipc import waiting
from ipc.arrays import Words
from ipc.clock import monotonic_ms, wall_ms
from ipc.compiled import atomics
from ipc.ring import ControlWord
from store.errors import InvalidMessage, StoreError
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.message.delay import SCHEDULE_TOPIC, levels_ms
from store.message.record import MAX_TOPIC_BYTES_V2, store_timestamp_of
from store.put.draft import draft_of
from store.put.request import to_log
from store.put.resend import delivered
from store.queues.consume_queue import file_bytes_of

log = logging.getLogger("slipstream.delay")

SCHEDULE_QUEUES = SCHEDULE_TOPIC.encode()
BATCH = 2048  # of one level in a turn
AHEAD_MS, AHEAD_MAX = 500, 256  # how long before messages are due, and of how many, the queues' slots are asked for
HELD_UP_MS, UNDER_WAY_MS, LOOK_MS = 100, 5, 1000
NO_FILE_MS = 100  # between two looks at a queue whose end is known and whose file is not there
DISPATCHED_MS = 60_000  # a dispatcher that cannot go on is no reason to deliver nothing at all
PREDECESSOR_MS = 5000  # the clients role asks the master before for no longer


class Delay:
    """The role of the delay service."""

    name = "delay"

    def __init__(self, config: BrokerConfig, counters: BrokerCounters, *, has_predecessor: bool = False) -> None:
        self._config, self._counters, self._words = config, counters, counters.delay
        self._table = DelayTable.attach(counters.directory, writable=True)
        self._begin_by_ms = monotonic_ms() + (PREDECESSOR_MS if has_predecessor else 0)
        self._dispatched_by_ms = monotonic_ms() + DISPATCHED_MS
        self._puts = DelayPuts(config, counters, self._table)
        self._facts, self._seldom = facts_of(config, counters), Seldom(log)
        files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
        self._directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
        self._records = Records(files, counters)
        below = self._directory.consumequeue / SCHEDULE_TOPIC
        file_bytes = file_bytes_of(config.mapped_file_size_consume_queue_bytes)
        self._delays = levels_ms(config.message_delay_level)
        self._queues = [FollowedQueue(below / str(number), file_bytes) for number in range(len(self._delays))]
        self._levels: list[Level] = []  # none before what a process before left is settled
        self._ends = QueueEnds.attach(counters.directory)
        self._slots = self._find_slots()
        self._in_vain = [(-1, 0)] * len(self._delays)  # of a level: reput_from_offset then, and when to look again
        self._seen = -1  # reput_from_offset in this turn
        self._rest = False  # whether more is due than a turn took
        waiting.note(self._words.under_way, 0)

    # the beginning

    def _waits_for_predecessor(self) -> bool:
        """The master before says how far it was: what a slave copied is some seconds old."""
        return not (self._table.is_begun or self._table.is_taken or monotonic_ms() >= self._begin_by_ms)

    @property
    def _waits_for_dispatch(self) -> bool:
        """Return whether messages delivered before the start are not in queues and index yet."""
        waits = not self._table.is_begun and monotonic_ms() < self._dispatched_by_ms
        return waits and self._counters.reput_from_offset.read() < self._counters.recovered_offset.read()

    def _begin(self) -> None:
        """Find where each level goes on: from shared memory, or from the file, as far as the queues agree."""
        entries, lost = self._puts.settle()
        waiting.add(self._words.repeated, lost)
        if not self._table.is_begun:
            self._levels = self._from_file()
            self._table.begin(level.offset for level in self._levels)
            return
        self._levels = [Level(level, self._delays[level - 1], at) for level, at in self._table.current().items()]
        for level in self._levels:
            done = set((entries[entries >> OFFSET_BITS == level.number] & OFFSET_MASK).tolist())
            end = max(done, default=-1) + 1
            if end > level.offset:
                level.resume((), (at for at in range(level.offset, end) if at not in done), end)

    def _from_file(self) -> list[Level]:
        said, before = delivered_before.said_offsets(self._directory.config), None
        levels = [
            Level(number, delay, max(said.get(number, 0), self._table.taken(number)))
            for number, delay in enumerate(self._delays, 1)
        ]
        for level in levels:
            self._correct(level)
            if level.number not in said and not self._table.taken(level.number) and self._config.message_index_enable:
                before = before or delivered_before.DeliveredBefore(self._config, self._counters, self._records)
                before.resume(level, self._queues[level.number - 1])
        return levels

    def _correct(self, level: Level) -> None:
        """An offset that is not in the queue."""
        bounds = self._queues[level.number - 1].bounds(self._counters.reput_from_offset.read())
        if bounds is None:
            return
        was = level.correct(*bounds)
        if was is not None:
            log.warning(
                "level %d: offset %d is not in its queue (%d to %d): continuing at %d",
                level.number,
                was,
                *bounds,
                level.next_offset,
            )

    # turns

    def do_work(self, _now_ms: int) -> int:
        """Take answers, put what is due; how many messages moved."""
        if not self._levels:
            if not self._puts.is_drained or self._waits_for_predecessor() or self._waits_for_dispatch:
                return 0
            self._begin()
        moved = self._take_answers()
        if self._counters.broker_state.read() == BrokerState.STOPPING:
            return self._stopping(moved)
        self._rest = False
        if self._may_put():
            moved += self._put_due()
        self._publish()
        return moved

    def _stopping(self, moved: int) -> int:
        """Take no new messages; those under way must be answered, or they would be put again after the next start."""
        if self._puts.puts and not moved:
            head = self._puts.head
            atomics.await_change(self._puts.control, int(ControlWord.HEAD), head, HELD_UP_MS * waiting.NS_PER_MS)
        self._publish()
        return self._puts.puts

    def _may_put(self) -> bool:
        counters = self._counters
        return counters.broker_state.read() == BrokerState.RUNNING and counters.disk_state.read() < DiskState.READ_ONLY

    def _take_answers(self) -> int:
        answers = self._puts.answers(time.monotonic_ns())
        for entries, comes_again in ((answers.in_log, False), (answers.illegal, False), (answers.refused, True)):
            if not len(entries):
                continue
            of, offsets = entries >> OFFSET_BITS, entries & OFFSET_MASK
            for number in sorted(set(of.tolist())):
                level, answered = self._levels[number - 1], offsets[of == number].tolist()
                if comes_again:
                    level.refused(answered, monotonic_ms())
                else:
                    level.acknowledged(answered)
        for entry in answers.illegal.tolist():
            self._drop(self._levels[(entry >> OFFSET_BITS) - 1], entry & OFFSET_MASK, "the log cannot hold it")
        waiting.add(self._words.delivered, len(answers.in_log))
        waiting.add(self._words.refused, len(answers.refused))
        return sum(map(len, answers))

    def _publish(self) -> None:
        offsets = self._table.offsets
        for level in self._levels:
            if offsets[level.number - 1] != level.offset:
                self._table.publish(level.number, level.offset)
        waiting.note(self._words.under_way, self._puts.puts)

    def _put_due(self) -> int:
        reput, now_ms, moved = self._counters.reput_from_offset.read(), wall_ms(), 0
        self._seen = reput
        if self._ends.has_news:
            self._slots = self._find_slots()
        for level in self._levels:
            if (slot := self._slots[level.number - 1]) != NO_SLOT:
                level.arrivals.note(int(self._ends.next_offsets[slot]), monotonic_ms())
            if level.is_held_up:
                moved += self._put_again(level)
            elif self._look_in_ms(level, now_ms) == 0:
                moved += self._put_next(level, reput, now_ms)
        return moved

    def _look_in_ms(self, level: Level, now_ms: int) -> int:
        """Return in how many ms the level's queue has to be read, if nothing happens meanwhile."""
        if level.look_at_ms != NEVER_MS or level.is_held_up:
            return level.wait_ms(now_ms, monotonic_ms())
        if self._end_of(level) <= level.next_offset:
            return NEVER_MS
        reput, again_ms = self._in_vain[level.number - 1]
        return max(0, again_ms - monotonic_ms()) if reput != self._seen else NEVER_MS

    def _find_slots(self) -> list[int]:
        return [self._ends.find(SCHEDULE_QUEUES, number) for number in range(len(self._delays))]

    def _end_of(self, level: Level) -> int:
        """Return where its queue ends, as the dispatcher shows it; what lies before may not be below `_seen` yet.

        Of one that is not shown, for which there may be no room, one is looked for behind each end of the log."""
        slot = self._slots[level.number - 1]
        return level.next_offset + 1 if slot == NO_SLOT else int(self._ends.next_offsets[slot])

    def _put_next(self, level: Level, reput: int, now_ms: int) -> int:
        """The next entries of a level that are due, as many as there is room for."""
        entries = self._queues[level.number - 1].read(level.next_offset, BATCH, reput)
        if entries is None or (len(entries) and entries.physical_offsets[0] < 0):
            self._correct(level)
            level.look_at_ms = NEVER_MS if entries is None else 0
            self._in_vain[level.number - 1] = reput, monotonic_ms() + NO_FILE_MS
            return 0
        level.arrivals.note(level.next_offset + len(entries), monotonic_ms())
        count = level.take(self._deliver_times(level, entries), now_ms, monotonic_ms())
        self._in_vain[level.number - 1] = (-1, 0) if len(entries) else (reput, 0)
        if not count and level.look_at_ms - now_ms <= AHEAD_MS:
            self._ask_ahead(entries)
        elif not count and level.look_at_ms != NEVER_MS:
            level.look_at_ms -= AHEAD_MS
        put = 0
        while put < count and (step := self._put_neighbours(level, entries, put, count)):
            put += step
        if put < count or count == BATCH:
            level.look_at_ms, self._rest = 0, True
        return put

    def _deliver_times(self, level: Level, entries: QueueEntries) -> Words:
        """Return due times from the entries; one that points into the extension is due by its message's store time."""
        times = entries.tags_codes
        for at in np.flatnonzero(times < 0).tolist():
            segment = self._records.segment(self._records.base_of(int(entries.physical_offsets[at])))
            position = int(entries.physical_offsets[at]) - (segment.base_offset if segment else 0)
            stored_ms = None if segment is None else store_timestamp_of(segment.view, position)
            times[at] = 0 if stored_ms is None else stored_ms + level.delay_ms
        return times

    def _ask_ahead(self, entries: QueueEntries) -> None:
        """Have the writer asked for the slots of queues that these go to soon: when they are due it takes too long."""
        due = due_rows(self._records, self._facts.current(), entries, 0, AHEAD_MAX, 0)
        for queue in due.queues() if due is not None else ():
            if queue is not None and self._puts.slots.missing(queue) is not None and not is_refused(queue[0]):
                self._puts.slots.ask(queue)

    def _put_neighbours(self, level: Level, entries: QueueEntries, first: int, until: int) -> int:
        """Put the entries from `first` on that are in one segment; return how many are done with."""
        due = due_rows(self._records, self._facts.current(), entries, first, until, level.next_offset)
        if due is None:
            places = entries.physical_offsets[first:until]
            count = int(np.count_nonzero(places == places[0])) if places[0] < 0 else 1
            self._drop(level, level.next_offset, "its part of the log has expired")
            level.passed(count)
            return count
        return self._put_rows(level, due)

    def _put_rows(self, level: Level, due: DueRows) -> int:
        segment, rows = due
        done = 0
        while done < len(rows) and self._puts.has_room:
            until = self._fast_until(due, done)
            if until is None:
                break  # the writer is asked for a slot
            if until > done:
                reached = self._puts.deliver(segment.array, rows, done, until, level.number, time.monotonic_ns())
                level.put(range(level.next_offset, level.next_offset + reached - done))
                level.passed(reached - done)
                if reached < until:
                    return reached
                done = reached
                continue
            self._put_plain(level, segment.base_offset + int(rows[done, Row.POSITION]), level.next_offset)
            level.passed(1)
            done += 1
        return done

    def _fast_until(self, due: DueRows, first: int) -> int | None:
        """The end of the fast rows whose slots are known; None where the first one's is not yet."""
        slots, at = self._puts.slots, first
        for queue in due.queues(first):
            if queue is None:
                break
            if slots.missing(queue) is not None:
                if is_refused(queue[0]):
                    break
                if at == first:
                    slots.ask(queue)
                    return None
                break
            if (slot := slots.slot_of(queue)) < 0:
                break
            due.rows[at, Row.SLOT] = slot
            at += 1
        return at

    def _put_again(self, level: Level) -> int:
        """Refused ones, one by one."""
        put = 0
        for queue_offset in level.to_put_again(monotonic_ms()):
            if not self._puts.has_room:
                self._rest = True
                break
            entries = self._queues[level.number - 1].read(queue_offset, 1, self._counters.reput_from_offset.read())
            if entries is None or not len(entries) or entries.physical_offsets[0] < 0:
                self._drop(level, queue_offset, "its entry was deleted")
                level.dropped(queue_offset)
            else:
                self._put_plain(level, int(entries.physical_offsets[0]), queue_offset)
            put += 1
        return put

    def _put_plain(self, level: Level, physical_offset: int, queue_offset: int) -> None:
        """Put one message, whatever it is like; count it as under way, or drop it."""
        facts = self._facts.current()
        try:
            message = self._records.message(physical_offset)
            if message is None:
                self._drop(level, queue_offset, "its part of the log has expired")
                level.dropped(queue_offset)
                return
            draft = draft_of(to_log(delivered(message, facts), facts), facts)
            named = (draft.topic, *(other[0] for other in draft.others if other is not None))
            if refused := next(filter(is_refused, named), None):
                raise InvalidMessage("topic", f"no delayed message is delivered to {refused[:MAX_TOPIC_BYTES_V2]!r}")
        except StoreError as error:
            self._drop(level, queue_offset, str(error))
            level.dropped(queue_offset)
            return
        level.put((queue_offset,))
        self._puts.slots.forget((draft.topic, draft.queue_id))
        self._puts.put(draft, waits=False, token=entry_of(level.number, queue_offset))

    def _drop(self, level: Level, queue_offset: int, why: str) -> None:
        waiting.add(self._words.dropped, 1)
        self._seldom.tell("level %d: message %d was not delivered: %s", level.number, queue_offset, why)

    # waiting

    def idle(self, timeout_ms: int) -> None:
        """Sleep until something is due, dispatched or answered."""
        wait_ms = self._wait_ms(timeout_ms)
        if self._puts.puts or self._puts.slots.is_asking:
            control, head = self._puts.control, self._puts.head
            if self._puts.tail > head or not self._puts.slots.is_asking:
                atomics.await_change(control, int(ControlWord.HEAD), head, wait_ms * waiting.NS_PER_MS)
                return
            answered = int(control[ControlWord.ANSWERED])
            if answered != int(control[ControlWord.ASKED]):
                atomics.await_change(control, int(ControlWord.ANSWERED), answered, wait_ms * waiting.NS_PER_MS)
            return
        self._await_more(wait_ms)

    def _await_more(self, wait_ms: int) -> None:
        """Sleep until a level without messages gets one; other messages do not wake this."""
        named = [
            (slot, level.next_offset)
            for slot, level in zip(self._slots, self._levels, strict=False)
            if slot != NO_SLOT and level.look_at_ms == NEVER_MS
        ]
        slots, ends = np.array(named, np.int64).reshape(-1, 2).T.copy()
        reput = self._counters.reput_from_offset
        await_more(
            reput.words,
            int(reput.index),
            self._seen,
            self._ends.words,
            len(self._ends),
            slots,
            ends,
            wait_ms * waiting.NS_PER_MS,
        )

    def _wait_ms(self, timeout_ms: int) -> int:
        if not self._levels or not self._may_put():
            return min(timeout_ms, UNDER_WAY_MS if not self._levels else HELD_UP_MS)
        busy = self._puts.puts or self._puts.slots.is_asking or self._rest
        now_ms = wall_ms()
        next_ms = min(self._look_in_ms(level, now_ms) for level in self._levels)
        longest = UNDER_WAY_MS if busy else LOOK_MS if next_ms != NEVER_MS else timeout_ms  # the wall clock may be set
        return max(1, min(timeout_ms, longest, next_ms))

    def close(self) -> None:
        """Give everything back; how far the levels are is in shared memory."""
        for queue in self._queues:
            queue.close()
        self._records.close()
        self._puts.close()
        self._table.close()
        self._ends.close()


def open_role(config: BrokerConfig, counters: BrokerCounters, *, has_predecessor: bool = False) -> Delay:
    """The delay role of a master; `has_predecessor`: it was promoted, and the master before it may answer."""
    return Delay(config, counters, has_predecessor=has_predecessor)
