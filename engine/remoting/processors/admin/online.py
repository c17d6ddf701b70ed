"""Who is connected, as administrators ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.protocol.broker.admin_bodies import Connected
from engine.protocol.clients import client_tables
from engine.protocol.remoting.answers import Json
from engine.remoting.links.front_links import FrontLinks
from engine.remoting.processors.parts import SharedClients
from ipc.clock import wall_of


class Member(NamedTuple):
    """A client of a group."""

    channel: int
    client: Connected


class OnlineGroup(NamedTuple):
    """A group of consumers of which somebody is there."""

    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: Mapping[str, Json]
    members: list[Member]


class Online:
    """Asks the tables of consumers and producers."""

    def __init__(self, clients: SharedClients, links: FrontLinks) -> None:
        self._clients, self._links = clients, links

    def group(self, group: str) -> OnlineGroup | None:
        """Return a consumer group with its members; None where nobody of it is connected."""
        known = self._clients.consumers.groups.get(group)
        if known is None:
            return None
        subscriptions = {topic: one.value() for topic, one in known.subscriptions.items()}
        return OnlineGroup(
            known.consume_type or "",
            known.message_model or "",
            known.consume_from_where or "",
            subscriptions,
            [self._member(member) for member in known.members.values()],
        )

    def _member(self, member: client_tables.Member) -> Member:
        address = str(self._links.channels.get(member.channel, ""))
        heard_ms = wall_of(member.heard_ms)
        client = Connected(member.client_id, address, member.language, member.version, heard_ms)
        return Member(member.channel, client)

    def groups(self) -> list[str]:
        """Return the names of all connected consumer groups."""
        return list(self._clients.consumers.groups)

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the groups that subscribe to a topic."""
        return self._clients.consumers.groups_of_topic(topic)

    def producers(self) -> Mapping[str, list[Member]]:
        """Return the connected producers by group."""
        groups = self._clients.producers.groups
        return {group: [self._member(member) for member in of.values()] for group, of in groups.items()}

    def subscription(self, group: str, topic: str) -> Json | None:
        """Return a group's subscription to a topic, like findSubscriptionData; None without one."""
        known = self._clients.consumers.subscription(group, topic)
        return None if known is None else known.value()

    def is_unsubscribed(self, group: str, topic: str) -> bool:
        """Whether the group is there and subscribes to other topics, but not to this one."""
        known = self._clients.consumers.groups.get(group)
        return known is not None and bool(known.subscriptions) and topic not in known.subscriptions

    def member(self, group: str, client_id: str) -> Member | None:
        """Return a group's member with this client id, like findChannel; None without one."""
        known = self._clients.consumers.groups.get(group)
        member = None if known is None else known.member_of(client_id)
        return None if member is None else self._member(member)
