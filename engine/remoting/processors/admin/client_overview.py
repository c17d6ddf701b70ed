"""All clients and groups at once, for `slipstream clients` and `slipstream groups`: a request of our own.

GET_CLIENTS  nothing, or group -> JSON: clients (who, since when silent, of which groups), groups (members,
subscriptions, how far in each queue). RocketMQ's brokers answer it with "not supported".
"""

from __future__ import annotations

from engine.protocol.remoting.answers import Json, Refused, body_of, given
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.processors.admin.admin_part import QUEUES_MAX, AdminPart, AdminShared
from engine.remoting.processors.admin.online import Member
from engine.remoting.processors.parts import PartContext

CLIENTS_MAX = 20_000
At = tuple[str, int, int]  # topic, queue id, how far the group is


class ClientOverview(AdminPart):
    """Handler of the request GET_CLIENTS."""

    def __init__(self, context: PartContext, shared: AdminShared) -> None:
        super().__init__(context, shared)
        self.later = {RequestCode.GET_CLIENTS: self._clients}

    async def _clients(self, request: RemotingCommand, _channel: int, now_ms: int) -> RemotingCommand:
        wanted = given(request, "group")
        names = {group for _topic, group in self.metadata.offsets} | set(self.online.groups())
        groups = sorted(name for name in names if wanted is None or name == wanted)
        places = {group: self._places(group) for group in groups}
        if sum(map(len, places.values())) > QUEUES_MAX:
            raise Refused(ResponseCode.SYSTEM_ERROR, "too many queues for one answer: name one group")
        listed = [self._group(group) for group in groups]
        queues = await self.pool.run(lambda: {group: self._read(at, now_ms) for group, at in places.items()})
        body = {"clients": self._all(now_ms), "groups": [{**one, "queues": queues[one["group"]]} for one in listed]}
        return self.answered(request, body=body_of(body, bare_keys=False))

    def _places(self, group: str) -> list[At]:
        return sorted(
            (topic, queue_id, offset)
            for topic in self.topics_of(group)
            for queue_id, offset in self.metadata.offsets[topic, group].items()
        )

    def _group(self, group: str) -> Json:
        online = self.online.group(group)
        if online is None:
            return {"group": group, "members": [], "messageModel": "", "consumeType": "", "topics": {}}
        return {
            "group": group,
            "members": sorted(member.client.client_id for member in online.members),
            "messageModel": online.message_model,
            "consumeType": online.consume_type,
            "topics": {topic: of.get("subString") for topic, of in sorted(online.subscriptions.items())},
        }

    def _read(self, places: list[At], now_ms: int) -> list[Json]:
        rows = []
        for topic, queue_id, offset in places:
            view = self.store.queues.view(topic, queue_id)
            lag = max(0, view.max_offset - offset)
            stored_ms = view.stored_ms(max(offset, view.min_offset)) if lag else -1
            seconds = max(0, now_ms - stored_ms) / 1000 if stored_ms > 0 else 0.0
            rows.append({
                "topic": topic, "queueId": queue_id, "offset": offset, "end": view.max_offset, "lag": lag,
                "lagSeconds": seconds,
            })  # fmt: skip
        return rows

    def _all(self, now_ms: int) -> list[Json]:
        """Return every connection that said who it is, once."""
        clients: dict[tuple[int, str], Json] = {}

        def note(member: Member, kind: str, group: str) -> None:
            key = member.channel, member.client.client_id
            if key not in clients and len(clients) >= CLIENTS_MAX:
                return
            of = clients.setdefault(key, {
                "clientId": member.client.client_id, "address": member.client.address,
                "language": member.client.language, "version": member.client.version, "producerOf": [],
                "consumerOf": [], "silentSeconds": max(0, now_ms - member.client.last_update_ms) / 1000,
            })  # fmt: skip
            of[kind].append(group)

        for group, members in self.online.producers().items():
            for member in members:
                note(member, "producerOf", group)
        for group in self.online.groups():
            online = self.online.group(group)
            for member in online.members if online is not None else ():
                note(member, "consumerOf", group)
        return sorted(clients.values(), key=lambda one: str(one["clientId"]))
