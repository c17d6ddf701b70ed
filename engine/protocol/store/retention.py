"""Which files may go, and how full the disk is said to be: files, clock, usage and leases in, decisions out.

Implements: DefaultMessageStore.CleanCommitLogService, CleanConsumeQueueService;
MappedFileQueue.deleteExpiredFileByTime, deleteExpiredFileByOffset, retryDeleteFirstFile; ReferenceResource.shutdown
spec: store-formats, section 22

A round begins each cleanResourceInterval. It goes through the files from the oldest on, one decision at a time, and
ends at the first that may not go: too young, held by a reader, or needed. A file that is held is condemned: it stays
part of the log, so that who holds it may read on with ever new plans, for destroyMapedFileIntervalForcibly at most. The
log begins behind a file before that is deleted. 4.9 and 5.x differ in `Policy.rules`. A file that a named snapshot
keeps is not even condemned while the disk has room and is used up to diskSpaceCleanForciblyRatio; beyond that it
is a reader as any other, so no snapshot keeps a broker from taking messages.
Unlike RocketMQ's, a file stays as long as it, or what the queues have of it, is not on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from store.compat import RetentionRules

FIRST_ROUND_MS, FIRST_ROUND_INTERVALS = 60_000, 6  # a broker with a shorter cleanResourceInterval begins sooner
HYSTERESIS_PERCENT = 2
HOUR_MS = 3_600_000
DISK_FULL_BIT = 1 << 4  # of RocketMQ's RunningFlags


class DiskState(IntEnum):
    """The fullness of the disk, as published. From READ_ONLY on puts are refused; queues are still built."""

    NORMAL = 0
    WARNING = 1  # above diskSpaceCleanForciblyRatio: files go before their time
    READ_ONLY = 2  # above diskSpaceWarningLevelRatio
    FULL = 3  # the next segment finds no room


class Usage(NamedTuple):
    """Percent used of the two file systems, rounded up; -1: unknown."""

    commit_log: int
    queues: int


class LogFile(NamedTuple):
    """A segment's file; `modified_ms` is its mtime."""

    base_offset: int
    size_bytes: int
    modified_ms: int


class Trigger(NamedTuple):
    """Reason why a round deletes files, empty when it does not; `at_once`: also files that are not old enough."""

    reason: str
    at_once: bool


class Policy(NamedTuple):
    """The configuration's part in it."""

    rules: RetentionRules
    delete_when_hours: frozenset[int]
    reserved_ms: int
    max_used_percent: int
    warning_percent: int
    forcibly_percent: int
    clean_forcibly: bool
    batch_max: int
    round_interval_ms: int
    file_interval_ms: int
    destroy_forcibly_ms: int
    redelete_ms: int

    def clamped(self) -> Policy:
        """Return the policy with its percentages in range: diskMaxUsedSpaceRatio, and by its rules both levels."""
        clamped = self._replace(max_used_percent=min(max(self.max_used_percent, 10), 95))
        if not self.rules.clamps_levels:
            return clamped
        return clamped._replace(
            warning_percent=min(max(self.warning_percent, 35), 90),
            forcibly_percent=min(max(self.forcibly_percent, 30), 85),
        )

    def space_trigger(self, usage: Usage) -> Trigger:
        """Whether the disk asks for room. It may be enough that it may clean at once, else only
        diskMaxUsedSpaceRatio counts; either way it stops at the first disk that asks."""
        at_once, forcibly_is_enough = False, self.rules.forcibly_is_enough
        forcibly_percent = min(self.forcibly_percent, self.warning_percent)
        for disk, percent in (("commit log", usage.commit_log), ("queues", usage.queues)):
            over = percent > forcibly_percent
            at_once = at_once or over
            if over and forcibly_is_enough:
                return Trigger(f"the disk of the {disk} is used to {percent} %, above {forcibly_percent} %", True)
            if not forcibly_is_enough and (percent < 0 or percent > self.max_used_percent):
                return Trigger(self._usage_text(disk, percent), at_once)
        if forcibly_is_enough:
            for disk, percent in (("commit log", usage.commit_log), ("queues", usage.queues)):
                if percent < 0 or percent > self.max_used_percent:
                    return Trigger(self._usage_text(disk, percent), False)
        return Trigger("", at_once)

    def _usage_text(self, disk: str, percent: int) -> str:
        if percent < 0:
            return f"the usage of the disk of the {disk} is unknown"
        return f"the disk of the {disk} is used to {percent} %, above diskMaxUsedSpaceRatio {self.max_used_percent} %"

    def trigger(self, local_hour: int, usage: Usage, no_room: bool) -> Trigger:
        """Return why a round that begins now deletes. `no_room`: a segment could not be reserved."""
        space = self.space_trigger(usage)
        at_once = self.clean_forcibly and (space.at_once or no_room)
        if no_room:
            return Trigger("the disk has no room for a segment", at_once)
        if space.reason:
            return Trigger(space.reason, at_once)
        if local_hour in self.delete_when_hours:
            return Trigger(f"deleteWhen, hour {local_hour:02d}", at_once)
        return Trigger("", at_once)


class Verdict(NamedTuple):
    """The decision on the oldest file: publish `min_physical_offset` and delete it, or only say that it is held.

    `kept`: by a snapshot, and nothing follows from that.
    """

    base_offset: int
    min_physical_offset: int
    delete: bool
    forced: bool
    reason: str
    kept: bool = False


class _Needed(NamedTuple):
    """From which offsets on the log is needed: by readers, who are waited for a while, and by snapshots."""

    held_from: int | None
    kept_from: int | None


class _Round(NamedTuple):
    trigger: Trigger
    deleted: int
    due_ms: int


class Bounds(NamedTuple):
    """Offsets that decide which of the log's files may be deleted."""

    min_physical_offset: int
    deletable_end: int  # where the last file ends that is neither written any more nor unflushed
    held_from: int | None  # the lowest offset that some reader still needs
    kept_from: int | None = None  # the lowest offset that a snapshot names


class LogCleaner:
    """Rounds over the commit log's files. One verdict at a time: the caller does it before it asks again."""

    def __init__(self, policy: Policy, now_ms: int) -> None:
        self.policy = policy.clamped()
        self.round_at_ms = now_ms + min(FIRST_ROUND_MS, FIRST_ROUND_INTERVALS * policy.round_interval_ms)
        self._round: _Round | None = None
        self._condemned: tuple[int, int] | None = None  # the oldest file, and since when, while it is held
        self._kept_base: int | None = None  # of the oldest file, once it is said that a snapshot keeps it
        self._redeleted_ms = 0
        self._is_asked = False

    def ask(self, now_ms: int) -> None:
        """executeDeleteFilesManually: what is expired is to go now, whatever deleteWhen says."""
        self._is_asked = True
        self.round_at_ms = min(self.round_at_ms, now_ms)

    @property
    def is_in_round(self) -> bool:
        """Whether the round that began is still going on."""
        return self._round is not None

    def wait_ms(self, now_ms: int) -> int:
        """Return how long nothing is due."""
        return max(0, (self.round_at_ms if self._round is None else self._round.due_ms) - now_ms)

    def next(
        self,
        now_ms: int,
        local_hour: int,
        usage: Usage,
        files: Sequence[LogFile],
        bounds: Bounds,
        no_room: bool = False,
    ) -> Verdict | None:
        """Return the next decision, None when there is none now; `files` are in ascending order."""
        min_physical_offset, deletable_end, held_from, kept_from = bounds
        first = files[0] if len(files) > 1 and files[0].base_offset + files[0].size_bytes <= deletable_end else None
        if first is not None and first.base_offset < min_physical_offset and self._condemned is None:
            self._condemned = first.base_offset, now_ms  # its cleaner was killed before it could delete it
        interval_ms = self.policy.round_interval_ms
        self.round_at_ms = min(self.round_at_ms, now_ms + max(interval_ms, FIRST_ROUND_MS))  # the clock was put back
        if self._round is None and now_ms >= self.round_at_ms:
            next_ms = self.round_at_ms + interval_ms
            self.round_at_ms = next_ms if next_ms > now_ms else now_ms + interval_ms
            trigger = self.policy.trigger(local_hour, usage, no_room)
            if self._is_asked and not trigger.reason:
                trigger = trigger._replace(reason="an administrator asked for it")
            self._is_asked, self._round = False, _Round(trigger, 0, now_ms)
        if self._round is None or now_ms < self._round.due_ms:
            return None
        needed = _Needed(held_from, kept_from)
        if kept_from is not None and (no_room or self.policy.space_trigger(usage).at_once):
            needed = _Needed(kept_from if held_from is None else min(held_from, kept_from), None)
        elif first is not None and first.base_offset < min_physical_offset:  # it is no part of the log any more
            needed = _Needed(held_from, None)
        verdict = self._of_round(self._round, first, now_ms, needed)
        return verdict if verdict is not None else self._again(first, now_ms, needed)

    def hung(self, base_offset: int, now_ms: int) -> None:
        """The file could not be deleted; it is tried again like one that is held."""
        self._condemned, self._round = (base_offset, now_ms), None

    def _of_round(self, going: _Round, first: LogFile | None, now_ms: int, needed: _Needed) -> Verdict | None:
        self._round = None
        trigger = going.trigger
        if first is None or not trigger.reason:
            return None
        age_ms = now_ms - first.modified_ms
        if age_ms < self.policy.reserved_ms and not trigger.at_once:
            return None
        reserved = f"fileReservedTime {_hours(self.policy.reserved_ms)}"
        relation = "older than" if age_ms >= self.policy.reserved_ms else "at once, younger than"
        reason = f"{trigger.reason}; {_hours(age_ms)} old, {relation} {reserved}"
        verdict = self._destroy(first, now_ms, needed, reason)
        deleted = going.deleted + 1
        if verdict is not None and verdict.delete and deleted < self.policy.batch_max:
            self._round = _Round(trigger, deleted, now_ms + self.policy.file_interval_ms)
        return verdict

    def _again(self, first: LogFile | None, now_ms: int, needed: _Needed) -> Verdict | None:
        """The file that a round before had to leave, at the pace of redeleteHangedFileInterval."""
        if now_ms - self._redeleted_ms <= self.policy.redelete_ms:
            return None
        self._redeleted_ms = now_ms
        if first is None or self._condemned is None or self._condemned[0] != first.base_offset:
            return None
        return self._destroy(first, now_ms, needed, "left by an earlier round, retried")

    def _destroy(self, first: LogFile, now_ms: int, needed: _Needed, reason: str) -> Verdict | None:
        """Condemn the file, or delete it; None when nothing changes for one that is held."""
        end, held_from, kept_from = first.base_offset + first.size_bytes, *needed
        if kept_from is not None and kept_from < end:
            if self._kept_base == first.base_offset:
                return None
            self._kept_base = first.base_offset
            kept = f"{reason}; a snapshot keeps the log from offset {kept_from} on"
            return Verdict(first.base_offset, first.base_offset, False, False, kept, kept=True)
        held = held_from is not None and held_from < end
        if not held:
            self._condemned = None
            return Verdict(first.base_offset, end, True, False, reason)
        if self._condemned is None or self._condemned[0] != first.base_offset:
            self._condemned = first.base_offset, now_ms
            held_reason = f"{reason}; held from offset {held_from}"
            return Verdict(first.base_offset, first.base_offset, False, False, held_reason)
        if now_ms - self._condemned[1] < self.policy.destroy_forcibly_ms:
            return None
        self._condemned = None
        waited = f"forced: held from offset {held_from} for destroyMapedFileIntervalForcibly"
        return Verdict(first.base_offset, end, True, True, f"{reason}; {waited} {self.policy.destroy_forcibly_ms} ms")


def _hours(milliseconds: int) -> str:
    return f"{milliseconds / HOUR_MS:.1f} h"


def expired_count(last_offsets: Iterable[int], min_physical_offset: int) -> int:
    """Return how many files go, from the oldest on: those whose last entry's record lies below the log's first byte.

    `last_offsets`: of every file but the newest, which always stays. An entry that points nowhere has offset 0.
    """
    count = 0
    for offset in last_offsets:
        if offset >= min_physical_offset:
            break
        count += 1
    return count


def disk_state(before: DiskState, usage: Usage, policy: Policy, *, no_room: bool, writer_waits: bool) -> DiskState:
    """The state now. A level is entered above its percentage, left at `HYSTERESIS_PERCENT` below it.

    `no_room`: the allocator found no room for a segment. That alone is a warning while the segment in use has some.
    """
    used = max(usage)

    def over(percent: int, state: DiskState) -> bool:
        return used > (percent - HYSTERESIS_PERCENT if before >= state else percent)

    read_only = over(policy.warning_percent, DiskState.READ_ONLY)
    if no_room and (writer_waits or read_only):
        return DiskState.FULL
    if read_only:
        return DiskState.READ_ONLY
    if no_room or over(min(policy.forcibly_percent, policy.warning_percent), DiskState.WARNING):
        return DiskState.WARNING
    return DiskState.NORMAL


def running_flags(state: DiskState) -> int:
    """The bits of RocketMQ's RunningFlags that the disk sets."""
    return DISK_FULL_BIT if state >= DiskState.READ_ONLY else 0
