"""Which groups read so slowly that they are read from the disk, behind everybody else: they are to be stopped.

Implements: BrokerController.protectBroker, MomentStatsItemSet (GROUP_GET_FALL_SIZE)
Unlike there, a group that was stopped once is judged anew by what it pulls when an administrator lets it again.
"""

from __future__ import annotations

QUEUES_MAX = 100_000
EVERY_MS = 180_000

Queue = tuple[str, int]  # topic, queue id


class SlowGroups:
    """The distance of each group to the log's end in each queue, by its last message."""

    def __init__(self) -> None:
        self._behind: dict[str, dict[Queue, int]] = {}
        self._queues = 0

    def note(self, group: str, topic: str, queue_id: int, behind_bytes: int) -> None:
        """Note how far a group is behind in a queue, like recordDiskFallBehindSize."""
        of_group = self._behind.get(group)
        if of_group is None or (topic, queue_id) not in of_group:
            if self._queues >= QUEUES_MAX:
                return
            self._queues += 1
            of_group = self._behind.setdefault(group, {})
        of_group[topic, queue_id] = behind_bytes

    def take(self, threshold_bytes: int) -> list[tuple[str, int]]:
        """The groups that are too far behind somewhere, and how far; they are forgotten."""
        worst = {group: max(of_group.values()) for group, of_group in self._behind.items()}
        slow = [(group, behind) for group, behind in sorted(worst.items()) if behind > threshold_bytes]
        for group, _behind in slow:
            self._queues -= len(self._behind.pop(group))
        return slow
