"""Retention without files or clocks: days of rounds in virtual time, both versions' rules, held files, disk states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.store.retention import (
    DISK_FULL_BIT,
    FIRST_ROUND_MS,
    HOUR_MS,
    HYSTERESIS_PERCENT,
    Bounds,
    DiskState,
    LogCleaner,
    LogFile,
    Policy,
    Trigger,
    Usage,
    Verdict,
    disk_state,
    expired_count,
    running_flags,
)
from store.compat import LINES, Line

SIZE = 1000
DAY_MS = 24 * HOUR_MS
ROUND_MS, FILE_MS, FORCIBLY_MS, REDELETE_MS = 10_000, 100, 120_000, 120_000
CALM = Usage(40, 40)
DEFAULTS = Policy(
    rules=LINES["4.9"].retention,
    delete_when_hours=frozenset({4}),
    reserved_ms=72 * HOUR_MS,
    max_used_percent=75,
    warning_percent=90,
    forcibly_percent=85,
    clean_forcibly=True,
    batch_max=10,
    round_interval_ms=ROUND_MS,
    file_interval_ms=FILE_MS,
    destroy_forcibly_ms=FORCIBLY_MS,
    redelete_ms=REDELETE_MS,
)


class Done(NamedTuple):
    """A verdict, and when it came."""

    at_ms: int
    verdict: Verdict


class Disk:
    """A log in virtual time, which does what the cleaner says. It is written up to the end of its last file but one."""

    def __init__(self, policy: Policy, modified_ms: list[int], now_ms: int = 0) -> None:
        self.files = [LogFile(number * SIZE, SIZE, at) for number, at in enumerate(modified_ms)]
        self.cleaner = LogCleaner(policy, now_ms)
        self.now_ms, self.min_offset, self.usage = now_ms, 0, CALM
        self.held: int | None = None
        self.kept: int | None = None
        self.no_room = False

    def run(self, until_ms: int) -> Iterator[Done]:
        while self.now_ms <= until_ms:
            verdict = self.cleaner.next(
                self.now_ms,
                self.now_ms // HOUR_MS % 24,
                self.usage,
                self.files,
                Bounds(self.min_offset, self.files[-1].base_offset, self.held, self.kept),
                self.no_room,
            )
            if verdict is not None:
                assert verdict.base_offset == self.files[0].base_offset, "the oldest first"
                self.min_offset = verdict.min_physical_offset
                if verdict.delete:
                    self.files.pop(0)
                yield Done(self.now_ms, verdict)
            self.now_ms += max(1, self.cleaner.wait_ms(self.now_ms))

    def deleted(self, until_ms: int) -> list[int]:
        return [done.verdict.base_offset // SIZE for done in self.run(until_ms) if done.verdict.delete]


def test_a_week_with_a_segment_an_hour_keeps_three_days_and_deletes_at_four() -> None:
    disk = Disk(DEFAULTS, [number * HOUR_MS for number in range(7 * 24)])
    found = list(disk.run(7 * DAY_MS))
    assert {done.at_ms // HOUR_MS % 24 for done in found} == {4}
    assert [done.verdict.base_offset for done in found] == [number * SIZE for number in range(len(found))]
    for done in found:
        assert done.at_ms >= done.verdict.base_offset // SIZE * HOUR_MS + 72 * HOUR_MS
        assert not done.verdict.forced and "deleteWhen, hour 04" in done.verdict.reason
    # at 04:59:50 of day 6 the last round of that hour has deleted what was 72 hours old by then
    assert disk.files[0].modified_ms > 6 * DAY_MS + 5 * HOUR_MS - 72 * HOUR_MS - ROUND_MS


def test_the_first_round_is_after_a_minute_and_deletes_ten_a_tenth_of_a_second_apart() -> None:
    disk = Disk(DEFAULTS, [0] * 26, now_ms=4 * HOUR_MS + 5 * DAY_MS)
    start_ms = disk.now_ms
    found = [done.at_ms - start_ms for done in disk.run(start_ms + 20 * ROUND_MS)]
    rounds = [[FIRST_ROUND_MS + turn * ROUND_MS + step * FILE_MS for step in range(10)] for turn in range(3)]
    assert found == [at for times in rounds for at in times][:25], "and the last file stays"
    assert len(disk.files) == 1


@pytest.mark.parametrize("hours, expected", [({4}, [4]), ({0, 13, 23}, [0, 13, 23]), (set(), [])])
def test_delete_when_names_hours_of_the_day(hours: set[int], expected: list[int]) -> None:
    policy = DEFAULTS._replace(delete_when_hours=frozenset(hours), batch_max=1)
    disk = Disk(policy, [-100 * HOUR_MS] * 20_000, now_ms=0)
    found = {done.at_ms // HOUR_MS % 24 for done in disk.run(2 * DAY_MS)}
    assert sorted(found) == expected


def test_a_younger_file_protects_the_older_ones_behind_it() -> None:
    now_ms = 4 * HOUR_MS + 10 * DAY_MS
    disk = Disk(DEFAULTS, [0, 0, now_ms, 0, 0, 0], now_ms)
    assert disk.deleted(now_ms + 30 * ROUND_MS) == [0, 1]


def test_a_file_is_deleted_in_the_millisecond_in_which_its_time_ends() -> None:
    policy = DEFAULTS._replace(delete_when_hours=frozenset(range(24)), round_interval_ms=1, file_interval_ms=0)
    due_ms = 5 + 72 * HOUR_MS
    disk = Disk(policy, [5, 5, 5], due_ms - FIRST_ROUND_MS - 20)
    assert [done.at_ms for done in disk.run(due_ms + 20)] == [due_ms, due_ms + 1]


SPACE = [
    # commit log, queues -> 4.9: reason, at once; 5.x: reason, at once
    (CALM, (False, False), (False, False)),
    (Usage(75, 75), (False, False), (False, False)),
    (Usage(76, 10), (True, False), (True, False)),
    (Usage(10, 76), (True, False), (True, False)),
    (Usage(85, 85), (True, False), (True, False)),
    (Usage(86, 10), (True, True), (True, True)),
    (Usage(10, 86), (True, True), (True, True)),
    (Usage(91, 10), (True, True), (True, True)),
    (Usage(76, 91), (True, False), (True, True)),  # 4.9 stops at the first disk above diskMaxUsedSpaceRatio
    (Usage(-1, 10), (True, False), (True, False)),
    (Usage(10, -1), (True, False), (True, False)),
]


@pytest.mark.parametrize("usage, four, five", SPACE)
def test_the_usage_of_the_disks_decides_whether_files_are_deleted_at_once(
    usage: Usage, four: tuple[bool, bool], five: tuple[bool, bool]
) -> None:
    for policy, expected in ((DEFAULTS, four), (DEFAULTS._replace(rules=LINES["5"].retention), five)):
        trigger = policy.trigger(12, usage, no_room=False)
        assert (bool(trigger.reason), trigger.at_once) == expected


def test_above_the_forced_level_4_9_still_waits_for_disk_max_used_space_ratio() -> None:
    policy = DEFAULTS._replace(max_used_percent=95)
    assert policy.trigger(12, Usage(88, 10), no_room=False) == Trigger("", True)
    assert policy.trigger(4, Usage(88, 10), no_room=False) == Trigger("deleteWhen, hour 04", True)
    assert policy._replace(rules=LINES["5"].retention).trigger(12, Usage(88, 10), no_room=False).reason


def test_clean_file_forcibly_enable_off_respects_the_time() -> None:
    now_ms = 12 * HOUR_MS
    for clean_forcibly, expected in ((True, [0, 1, 2]), (False, [])):
        disk = Disk(DEFAULTS._replace(clean_forcibly=clean_forcibly), [now_ms] * 4, now_ms)
        disk.usage = Usage(86, 0)
        assert disk.deleted(now_ms + 10 * ROUND_MS) == expected


def test_a_segment_without_room_is_reason_enough() -> None:
    disk = Disk(DEFAULTS, [0] * 4)
    disk.no_room = True
    assert disk.deleted(FIRST_ROUND_MS) == [0]


def test_levels_are_clamped() -> None:
    five = DEFAULTS._replace(rules=LINES["5"].retention)
    wild = five._replace(max_used_percent=0, warning_percent=100, forcibly_percent=100).clamped()
    assert (wild.max_used_percent, wild.warning_percent, wild.forcibly_percent) == (10, 90, 85)
    wild = five._replace(max_used_percent=1000, warning_percent=0, forcibly_percent=0).clamped()
    assert (wild.max_used_percent, wild.warning_percent, wild.forcibly_percent) == (95, 35, 30)
    assert LogCleaner(wild._replace(warning_percent=99), 0).policy.warning_percent == 90
    jvm_properties = DEFAULTS._replace(max_used_percent=99, warning_percent=99, forcibly_percent=3)
    assert jvm_properties.clamped() == jvm_properties._replace(max_used_percent=95)


HELD_AT = 4 * HOUR_MS + 10 * DAY_MS


def test_a_held_file_stays_in_the_log_and_is_forced_after_the_interval() -> None:
    disk = Disk(DEFAULTS, [0] * 4, HELD_AT)
    disk.held = SIZE - 1
    found = list(disk.run(HELD_AT + 31 * ROUND_MS))
    first, forced, next_one, next_forced = found
    assert not first.verdict.delete and first.verdict.min_physical_offset == 0, "who holds it may plan with it"
    assert f"held from offset {SIZE - 1}" in first.verdict.reason
    assert forced.verdict.base_offset == 0 and forced.verdict.delete and forced.verdict.forced
    assert forced.at_ms - first.at_ms == FORCIBLY_MS and "forced" in forced.verdict.reason
    assert not next_one.verdict.delete and next_one.verdict.base_offset == SIZE, "it needs the next one just as well"
    assert next_forced.verdict.forced and 0 <= next_forced.at_ms - next_one.at_ms - FORCIBLY_MS < ROUND_MS
    disk.held = 3 * SIZE
    assert not next(disk.run(disk.now_ms + 2 * ROUND_MS)).verdict.forced, "its bytes lie below the lease"


def test_a_held_file_goes_as_soon_as_it_is_released() -> None:
    disk = Disk(DEFAULTS, [0] * 3, HELD_AT)
    disk.held = 0
    rounds = disk.run(HELD_AT + 20 * ROUND_MS)
    condemned = next(rounds)
    disk.held = None
    deleted = next(rounds)
    assert deleted.at_ms == condemned.at_ms + ROUND_MS and deleted.verdict.delete and not deleted.verdict.forced


def test_a_condemned_file_is_tried_again_out_of_hours_each_redelete_interval() -> None:
    last_minute = HELD_AT + HOUR_MS - FIRST_ROUND_MS - 1  # its only round in that hour
    disk = Disk(DEFAULTS, [0] * 3, last_minute)
    disk.held = 0
    found = list(disk.run(last_minute + HOUR_MS))
    assert [done.verdict.delete for done in found] == [False, True]
    assert found[1].verdict.forced and "retried" in found[1].verdict.reason
    waited_ms = found[1].at_ms - found[0].at_ms
    assert FORCIBLY_MS <= waited_ms <= FORCIBLY_MS + REDELETE_MS + 2 * ROUND_MS
    assert len(disk.files) == 2, "the others are not due at this hour"


def test_a_file_that_cannot_be_deleted_is_tried_again() -> None:
    disk = Disk(DEFAULTS, [0] * 3, HELD_AT)
    first = next(disk.run(HELD_AT + 10 * ROUND_MS))
    disk.files.insert(0, LogFile(0, SIZE, 0))
    disk.cleaner.hung(0, first.at_ms)
    assert disk.deleted(HELD_AT + 20 * ROUND_MS) == [0, 1]


def test_a_restarted_cleaner_gives_a_condemned_file_the_whole_time_again() -> None:
    disk = Disk(DEFAULTS, [0] * 3, HELD_AT)
    disk.held, disk.min_offset = 0, SIZE
    found = list(disk.run(HELD_AT + 40 * ROUND_MS))
    assert found[0].verdict.forced and found[0].at_ms >= HELD_AT + FORCIBLY_MS


def test_a_clock_that_is_put_back_does_not_stop_the_rounds() -> None:
    disk = Disk(DEFAULTS, [0] * 3, 30 * DAY_MS + 4 * HOUR_MS)
    disk.now_ms = 20 * DAY_MS + 4 * HOUR_MS
    assert disk.deleted(disk.now_ms + FIRST_ROUND_MS + ROUND_MS) == [0, 1]


def test_a_clock_far_ahead_makes_one_round_not_all_the_missed_ones() -> None:
    cleaner = LogCleaner(DEFAULTS, 0)
    cleaner.next(9 * DAY_MS, 0, CALM, [], Bounds(0, 0, None))
    assert cleaner.wait_ms(9 * DAY_MS) == ROUND_MS


@given(
    ages=st.lists(st.integers(0, 200), min_size=1, max_size=30),
    held=st.none() | st.integers(0, 30 * SIZE),
    usage=st.builds(Usage, st.integers(-1, 100), st.integers(-1, 100)),
    line=st.sampled_from(list(LINES.values())),
)
def test_whatever_happens_the_oldest_go_first_and_the_last_never(
    ages: list[int], held: int | None, usage: Usage, line: Line
) -> None:
    now_ms = 1000 * HOUR_MS
    disk = Disk(DEFAULTS._replace(rules=line.retention), [now_ms - age * HOUR_MS for age in ages], now_ms)
    disk.held, disk.usage = held, usage
    count = len(disk.files)
    for done in disk.run(now_ms + 20 * ROUND_MS):
        assert done.verdict.min_physical_offset <= (count - 1) * SIZE
        assert disk.min_offset >= disk.files[0].base_offset
    assert disk.files


def test_expired_count() -> None:
    assert expired_count([], 100) == 0
    assert expired_count([0, 99, 100, 5], 100) == 2, "it stops at the first that stays"
    assert expired_count([100], 100) == 0


def states(levels: list[int], **more: bool) -> list[DiskState]:
    state, found = DiskState.NORMAL, []
    for percent in levels:
        no_room, waits = more.get("no_room", False), more.get("writer_waits", False)
        state = disk_state(state, Usage(percent, 3), DEFAULTS, no_room=no_room, writer_waits=waits)
        found.append(state)
    return found


def test_states_come_at_their_level_and_go_a_little_below() -> None:
    normal, warning, read_only = DiskState.NORMAL, DiskState.WARNING, DiskState.READ_ONLY
    assert states([50, 85, 86, 90, 91, 90, 89, 88, 84, 83, 86, 100, 10]) == [
        normal, normal, warning, warning, read_only, read_only, read_only, warning, warning, normal, warning,
        read_only, normal,
    ]  # fmt: skip
    assert HYSTERESIS_PERCENT == 2


def test_no_room_is_full_once_the_writer_waits_or_the_disk_is_read_only() -> None:
    assert states([50], no_room=True) == [DiskState.WARNING]
    assert states([50], no_room=True, writer_waits=True) == [DiskState.FULL]
    assert states([95], no_room=True) == [DiskState.FULL]
    assert states([95], writer_waits=True) == [DiskState.READ_ONLY]


def test_a_full_disk_returns_to_normal_by_itself() -> None:
    after = disk_state(DiskState.FULL, Usage(89, 1), DEFAULTS, no_room=False, writer_waits=True)
    assert after is DiskState.READ_ONLY
    assert disk_state(after, Usage(80, 1), DEFAULTS, no_room=False, writer_waits=False) is DiskState.NORMAL


def test_the_queues_disk_counts_as_much() -> None:
    state = disk_state(DiskState.NORMAL, Usage(3, 95), DEFAULTS, no_room=False, writer_waits=False)
    assert state is DiskState.READ_ONLY


def test_running_flags() -> None:
    assert [running_flags(state) for state in DiskState] == [0, 0, DISK_FULL_BIT, DISK_FULL_BIT]


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_snapshot_keeps_what_is_old_until_it_goes_and_gives_way_to_a_disk_that_is_nearly_full(line: Line) -> None:
    policy = DEFAULTS._replace(rules=line.retention)
    disk = Disk(policy, [number * HOUR_MS for number in range(10)])
    disk.kept = SIZE + 1
    found = list(disk.run(9 * DAY_MS))
    assert [done.verdict.base_offset // SIZE for done in found if done.verdict.delete] == [0], "nothing below it is"
    (told,) = (done.verdict for done in found if not done.verdict.delete)
    assert told.kept and told.base_offset == SIZE and "a snapshot keeps the log from offset 1001 on" in told.reason
    disk.usage = Usage(80, 40)  # it wants room; the broker takes messages
    assert disk.deleted(disk.now_ms + DAY_MS) == []
    disk.held = SIZE + 1
    assert disk.deleted(disk.now_ms + DAY_MS) == [], "who only reads it, too, is no reason to force it"
    disk.held, disk.usage = None, Usage(86, 40)
    begun = disk.now_ms
    forced = [done for done in disk.run(begun + 40 * ROUND_MS) if done.verdict.delete]
    assert forced[0].verdict.forced and forced[0].at_ms - begun >= FORCIBLY_MS
    disk.usage = CALM
    left = [file.base_offset // SIZE for file in disk.files]
    assert disk.deleted(disk.now_ms + DAY_MS) == [] and len(left) > 1
    disk.kept = None
    assert disk.deleted(disk.now_ms + DAY_MS) == left[:-1]


def test_a_snapshot_gives_way_where_a_segment_finds_no_room_and_keeps_nothing_below_the_logs_beginning() -> None:
    disk = Disk(DEFAULTS, [0] * 5)
    disk.kept, disk.no_room = 0, True
    assert disk.deleted(10 * FORCIBLY_MS)[:1] == [0]
    disk = Disk(DEFAULTS, [0] * 5)
    disk.kept, disk.min_offset = 0, SIZE  # the cleaner was killed before it could delete the first
    assert disk.deleted(9 * DAY_MS) == [0]
