"""How far every group has pulled in every queue, which may be farther than it has consumed: since this process began.

Implements: ConsumerOffsetManager.pullOffsetTable, of 5.x, which no file has either
"""

from __future__ import annotations

QUEUES_MAX = 1 << 20

Key = tuple[str, str]  # topic, group


class PullOffsets:
    """The table; of what pulls say, no more than QUEUES_MAX is kept."""

    def __init__(self) -> None:
        self._table: dict[Key, dict[int, int]] = {}
        self._queues = 0

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """commitPullOffset: what the group pulls next."""
        of_key = self._table.get((topic, group))
        if of_key is None or queue_id not in of_key:
            if self._queues >= QUEUES_MAX:
                return
            self._queues += 1
            of_key = self._table.setdefault((topic, group), {})
        of_key[queue_id] = offset

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset that the group pulls next; None where it has not pulled."""
        return self._table.get((topic, group), {}).get(queue_id)

    def clear(self, group: str, topic: str) -> None:
        """Forget a group's pull offsets in a topic, like clearPullOffset."""
        self._queues -= len(self._table.pop((topic, group), {}))
