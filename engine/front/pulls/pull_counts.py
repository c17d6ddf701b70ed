"""What groups took of topics and how far they pulled, noted in a front and said to the clients role once a second.

Implements: the fronts' half of ConsumerOffsetManager.commitPullOffset
"""

from __future__ import annotations

from engine.front.connections.relay import Relay

SAID_EACH_MS = 1000
KEYS_MAX = 1000  # between two; what comes beyond them is said at the next chance
AGAIN_MS = 30_000  # to a clients role that may be another process by now
KNOWN_MAX = 100_000


class PullCounts:
    """The counts of what groups took through one front since the last report."""

    def __init__(self, relay: Relay) -> None:
        self._relay, self._said_at_ms, self._forget_at_ms = relay, 0, 0
        self._taken: dict[str, list[int]] = {}  # by topic@group: messages, bytes, pulls
        self._offsets: dict[tuple[str, str, int], tuple[int, int]] = {}  # topic, group, queue id: and how far behind
        self._known: dict[tuple[str, str, int], int] = {}  # what was said

    def add(self, topic: str, group: str, messages: int, size: int, pulls: int = 1) -> None:
        """Count answered pulls of a group: messages, bytes and pulls."""
        counts = self._taken.get(key := f"{topic}@{group}")
        if counts is None:
            if len(self._taken) >= KEYS_MAX:
                self._say()
            counts = self._taken[key] = [0, 0, 0]
        counts[0] += messages
        counts[1] += size
        counts[2] += pulls

    def pulled(self, topic: str, group: str, queue_id: int, next_offset: int, behind_bytes: int) -> None:
        """Note the offset at which a group continues and how many bytes it is behind the log's end."""
        key = topic, group, queue_id
        if self._known.get(key) == next_offset:
            return
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[key], self._offsets[key] = next_offset, (next_offset, behind_bytes)
        if len(self._offsets) >= KEYS_MAX:
            self._say()

    def turn(self, now_ms: int) -> None:
        """Send the counts to the clients role when they are due, and forget known offsets now and then."""
        if now_ms >= self._forget_at_ms:
            self._forget_at_ms = now_ms + AGAIN_MS
            self._known.clear()
        if (self._taken or self._offsets) and now_ms - self._said_at_ms >= SAID_EACH_MS:
            self._said_at_ms = now_ms
            self._say()

    def _say(self) -> None:
        taken, self._taken = self._taken, {}
        offsets, self._offsets = self._offsets, {}
        said = [[*key, *where] for key, where in offsets.items()]
        self._relay.tell("pulled", {"pulled": taken, "offsets": said})
