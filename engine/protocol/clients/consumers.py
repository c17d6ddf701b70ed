"""Who consumes: the members of every group, its subscriptions, and the members to notify when they change.

Implements: ConsumerManager, ConsumerGroupInfo (spec: remoting, 13 broker pushes)
Time is passed in, monotonic. What is to be done is left in `notices` (40 to these channels, in order), `hang_ups` and
`take_altered` (groups whose subscriptions fronts must hear of).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.protocol.clients.client_tables import A_STEP, Member, Scan, TooMany
from engine.protocol.clients.heartbeat import BROADCASTING, GROUPS_MAX, ConsumerData, Subscription
from store.compat import GroupRules

ALL_GROUPS_MAX, MEMBERS_MAX, WEIGHT_MAX = 50_000, 1_000_000, 128 << 20  # of all groups; weight: bytes, about
MEMBER_WEIGHT = 200
BACK_AFTER_MS = 35_000  # heartbeatBrokerInterval of clients, and a little

Json = dict[str, Any]


@dataclass(slots=True)
class Group:
    """A consumer group, like Java's ConsumerGroupInfo."""

    name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)  # by topic
    members: dict[int, Member] = field(default_factory=dict)  # by channel
    fingerprint: int | None = None  # 5.x: of the last heartbeat of anybody
    weight: int = 0  # of the subscriptions

    @property
    def client_ids(self) -> list[str]:
        """Return the client ids of the members."""
        return [member.client_id for member in self.members.values()]

    def member_of(self, client_id: str) -> Member | None:
        """The member of that name."""
        return next((member for member in self.members.values() if member.client_id == client_id), None)

    def value(self) -> Json:
        """Return what fronts need to know of the group."""
        return {
            "consumeType": self.consume_type,
            "messageModel": self.message_model,
            "consumeFromWhere": self.consume_from_where,
            "consumers": len(self.members),
            "topics": {topic: one.value() for topic, one in self.subscriptions.items()},
        }

    def put(self, member: Member, data: ConsumerData) -> bool:
        """updateChannel: whether it is new."""
        self.consume_type, self.message_model = data.consume_type, data.message_model
        self.consume_from_where = data.consume_from_where
        before = self.members.get(member.channel)
        if before is not None and before.client_id == member.client_id:
            before.heard_ms = member.heard_ms
            return False
        self.members[member.channel] = member
        return before is None

    def subscribe(self, wanted: tuple[Subscription, ...]) -> tuple[bool, bool]:
        """updateSubscription: whether a topic came or went, and whether anything changed."""
        came_or_went = changed = False
        for one in wanted:
            before = self.subscriptions.get(one.topic)
            if before is None or one.sub_version > before.sub_version:
                self.subscriptions[one.topic] = one
                came_or_went |= before is None
                changed = True
        gone = self.subscriptions.keys() - {one.topic for one in wanted}
        for topic in gone:
            del self.subscriptions[topic]
        if changed or gone:
            self.weight = sum(_weight(one) for one in self.subscriptions.values())
        return came_or_went or bool(gone), changed or bool(gone)


def _weight(one: Subscription) -> int:
    """Return about how many bytes a subscription costs."""
    return MEMBER_WEIGHT + len(one.sub_string or "") + 40 * len(one.codes) + sum(60 + len(tag) for tag in one.tags)


class ConsumerManager:
    """Consumer groups with a member, and their members."""

    def __init__(self, rules: GroupRules, expires_after_ms: int) -> None:
        self._rules, self._expires_after_ms = rules, expires_after_ms
        self.groups: dict[str, Group] = {}
        self.notices: list[tuple[str, list[int]]] = []
        self.hang_ups: list[int] = []
        self._groups_of: dict[int, set[str]] = {}  # by channel
        self._lost: dict[int, int] = {}  # channels whose front died: until when their clients may come back
        self._altered: set[str] = set()
        self._members = self._weight = 0
        self.scan = Scan(self._scanned)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """Return a group's subscription to a topic; None without consumers."""
        known = self.groups.get(group)
        return None if known is None else known.subscriptions.get(topic)

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the groups that subscribe to a topic, like queryTopicConsumeByWho of 4.9."""
        return [name for name, group in self.groups.items() if topic in group.subscriptions]

    def take_altered(self) -> list[str]:
        """The groups whose subscriptions, or number of consumers, are other than when this was asked last."""
        altered, self._altered = sorted(self._altered), set()
        return altered

    def take_notices(self) -> list[tuple[str, list[int]]]:
        """Return and clear the changed groups, each with the channels to notify."""
        notices, self.notices = self.notices, []
        return notices

    # members

    def register(self, member: Member, data: ConsumerData, *, notifies: bool, with_subscriptions: bool = True) -> bool:
        """A heartbeat's word for one group; whether anything changed that the others must know. Raises TooMany."""
        group = self._group(data.group, member.channel)
        before = group.consume_type, group.message_model, group.consume_from_where
        is_back = self._take_lost(group, member.client_id)
        is_new = group.put(member, data)
        if is_new:
            self._members += 1
            self._groups_of.setdefault(member.channel, set()).add(data.group)
        came_or_went = changed = False
        if with_subscriptions:
            self._weight -= group.weight
            came_or_went, changed = group.subscribe(data.subscriptions)
            self._weight += group.weight
        if is_new or changed or before != (group.consume_type, group.message_model, group.consume_from_where):
            self._altered.add(data.group)
        is_news = is_new and not is_back
        if (is_news or came_or_went) and notifies and not self._is_silent(group):
            self._notify(group)
        return is_news or came_or_went

    def _group(self, name: str, channel: int) -> Group:
        """The group, a new one for its first member. Raises TooMany."""
        group = self.groups.get(name)
        if group is None or channel not in group.members:
            if group is None and len(self.groups) >= ALL_GROUPS_MAX:
                raise TooMany("groups with consumers", ALL_GROUPS_MAX)
            if self._members >= MEMBERS_MAX:
                raise TooMany("consumers", MEMBERS_MAX)
            if len(self._groups_of.get(channel, ())) >= GROUPS_MAX:
                raise TooMany("groups of one client", GROUPS_MAX)
        if self._weight > WEIGHT_MAX:
            raise TooMany("bytes of subscriptions", WEIGHT_MAX)
        if group is None:
            group = self.groups[name] = Group(name)
        return group

    def unregister(self, name: str, channel: int, client_id: str, *, notifies: bool) -> bool:
        """A member says goodbye to one group; whether there is such a group."""
        group = self.groups.get(name)
        if group is None:
            return False
        self._take_lost(group, client_id)
        self._remove(group, channel)
        if notifies and not self._is_silent(group):
            self._notify(group)
        return True

    def channel_left(self, channel: int) -> None:
        """A connection is gone: its groups' other members hear of it, whatever their group says."""
        for name in sorted(self._groups_of.get(channel, ())):
            group = self.groups[name]
            self._remove(group, channel)
            if not self._is_silent(group):
                self._notify(group)

    def channel_lost(self, channel: int, now_ms: int) -> None:
        """Keep the member of a connection that ended because a process of this broker did: its client comes back.

        RocketMQ would be dead as a whole. Were the member removed, the others would take its queues, from offsets that
        it has passed already, while it goes on with them.
        """
        if channel in self._groups_of:
            self._lost[channel] = now_ms + BACK_AFTER_MS

    def take_overdue(self, now_ms: int) -> None:
        """Remove members whose clients did not come back in time."""
        for channel in [channel for channel, until_ms in self._lost.items() if now_ms >= until_ms]:
            self.channel_left(channel)
            self._lost.pop(channel, None)

    def _take_lost(self, group: Group, client_id: str) -> bool:
        """A client speaks for itself again: whether it was a member over a connection that was lost."""
        for channel in self._lost.keys() & group.members.keys() if self._lost else ():
            if group.members[channel].client_id == client_id:
                self._drop(group, channel)
                return True
        return False

    def _remove(self, group: Group, channel: int) -> None:
        self._drop(group, channel)
        if not group.members and self.groups.pop(group.name, None) is not None:
            self._weight -= group.weight
            self._altered.add(group.name)

    def _drop(self, group: Group, channel: int) -> None:
        if group.members.pop(channel, None) is not None:
            self._members -= 1
            self._altered.add(group.name)
            of_channel = self._groups_of[channel]
            of_channel.discard(group.name)
            if not of_channel:
                del self._groups_of[channel]
                self._lost.pop(channel, None)

    def _notify(self, group: Group) -> None:
        if group.members:
            self.notices.append((group.name, list(group.members)))

    def _is_silent(self, group: Group) -> bool:
        return self._rules.silent_broadcasts and group.message_model == BROADCASTING

    def notify_all(self) -> None:
        """Notify every member of every group once."""
        for group in self.groups.values():
            if not self._is_silent(group):
                self._notify(group)

    def _scanned(self, now_ms: int) -> Iterator[None]:
        """Remove members not heard of for too long, in steps; as in RocketMQ, the other members are not notified."""
        seen = 0
        for name in list(self.groups):
            group = self.groups.get(name)
            if group is None:
                continue
            seen += 1 + len(group.members)
            for member in [one for one in group.members.values() if now_ms - one.heard_ms > self._expires_after_ms]:
                self._remove(group, member.channel)
                self.hang_ups.append(member.channel)
            if seen >= A_STEP:
                seen = 0
                yield
