"""Who produces: the channels of every producer group, and which channel a client speaks over.

Implements: ProducerManager
Time is passed in, monotonic.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.protocol.clients.client_tables import A_STEP, Member, Scan, TooMany
from engine.protocol.clients.heartbeat import GROUPS_MAX

ALL_GROUPS_MAX, MEMBERS_MAX = 50_000, 1_000_000


class ProducerManager:
    """Producer groups with a member, and their members."""

    def __init__(self, expires_after_ms: int) -> None:
        self._expires_after_ms = expires_after_ms
        self.groups: dict[str, dict[int, Member]] = {}  # members by channel
        self.hang_ups: list[int] = []
        self._channels: dict[str, int] = {}  # by client id
        self._groups_of: dict[int, set[str]] = {}  # by channel
        self._members = 0
        self._turn = 0
        self.scan = Scan(self._scanned)

    def register(self, group: str, member: Member) -> None:
        """A heartbeat's word. Raises TooMany."""
        members = self.groups.get(group)
        known = members.get(member.channel) if members is not None else None
        if known is not None:
            known.heard_ms = member.heard_ms
            return
        if members is None and len(self.groups) >= ALL_GROUPS_MAX:
            raise TooMany("producer groups", ALL_GROUPS_MAX)
        if self._members >= MEMBERS_MAX or len(self._groups_of.get(member.channel, ())) >= GROUPS_MAX:
            raise TooMany("producers, or groups of one client", GROUPS_MAX)
        self.groups.setdefault(group, {})[member.channel] = member
        self._groups_of.setdefault(member.channel, set()).add(group)
        self._channels[member.client_id] = member.channel
        self._members += 1

    def unregister(self, group: str, channel: int) -> bool:
        """A producer says goodbye; whether it was there."""
        member = self.groups.get(group, {}).get(channel)
        if member is None:
            return False
        self._remove(group, member)
        return True

    def channel_left(self, channel: int) -> None:
        """Remove a closed connection from its groups."""
        for group in sorted(self._groups_of.get(channel, ())):
            self._remove(group, self.groups[group][channel])

    def _remove(self, group: str, member: Member) -> None:
        del self.groups[group][member.channel]
        if not self.groups[group]:
            del self.groups[group]
        of_channel = self._groups_of[member.channel]
        of_channel.discard(group)
        if not of_channel:
            del self._groups_of[member.channel]
            if self._channels.get(member.client_id) == member.channel:
                del self._channels[member.client_id]
        self._members -= 1

    def channel_of(self, client_id: str) -> int | None:
        """Over which channel a client speaks that produces."""
        return self._channels.get(client_id)

    def available_channel(self, group: str) -> int | None:
        """Return the channel of one of a group's members, another one each time; None without members."""
        members = self.groups.get(group)
        if not members:
            return None
        self._turn += 1
        return list(members)[self._turn % len(members)]

    def _scanned(self, now_ms: int) -> Iterator[None]:
        """Remove producers not heard of for too long, in steps, and have their connections closed."""
        seen = 0
        for group in list(self.groups):
            members = self.groups.get(group, {})
            seen += 1 + len(members)
            for member in [one for one in members.values() if now_ms - one.heard_ms > self._expires_after_ms]:
                self._remove(group, member)
                self.hang_ups.append(member.channel)
            if seen >= A_STEP:
                seen = 0
                yield
