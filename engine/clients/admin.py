"""What an administrator asks name servers and brokers, as values: clusters, topics, groups, offsets, lag, settings.

Implements: DefaultMQAdminExt, the part that `slipstream admin` and Python programs need (spec: remoting, 5 and 8)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from engine.clients.access import Credentials, signed
from engine.clients.cluster import Place
from engine.clients.names import tls_of
from engine.errors import EngineError
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.remoting.places import places_in
from engine.remoting.sockets.client import PeerRefused, PeerUnreachable, RemotingClient
from store.message.topics import AUTO_CREATE_TOPIC
from store.tables import fastjson

if TYPE_CHECKING:
    from engine.net.tls import RenewedContext

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
Table = dict[str, Any]


class AdminError(EngineError):
    """Raised when a named cluster or broker does not exist, or no name server is given.

    Next: `slipstream admin clusterList -n NAMESRV` lists clusters and brokers.
    """

    code = "ADMIN"


class Member(NamedTuple):
    """One broker as the name server knows it."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str


class GroupOffset(NamedTuple):
    """The offset up to which a group has consumed a queue, and the offset behind the queue's last message."""

    consumed: int
    end: int

    @property
    def lag(self) -> int:
        """Return how many messages the group has not consumed."""
        return max(0, self.end - self.consumed)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of a topic that `updateTopic` sends."""

    topic: str
    read_queue_nums: int = 8
    write_queue_nums: int = 8
    perm: int = 6
    topic_sys_flag: int = 0
    order: bool = False
    attributes: str | None = None

    def as_fields(self) -> dict[str, str]:
        """Return the header of UPDATE_AND_CREATE_TOPIC for these settings."""
        fields = {
            "topic": self.topic, "defaultTopic": AUTO_CREATE_TOPIC, "readQueueNums": str(self.read_queue_nums),
            "writeQueueNums": str(self.write_queue_nums), "perm": str(self.perm), "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": str(self.topic_sys_flag), "order": str(self.order).lower(),
        }  # fmt: skip
        return fields if self.attributes is None else {**fields, "attributes": self.attributes}


class AdminClient:
    """Connections to name servers (`a:9876;b:9876`) and to whatever brokers are asked.

    `tls_config` is a tls.properties file, `credentials` sign requests where brokers ask for it.
    Calls raise PeerUnreachable, PeerRefused, AdminError and MalformedJson. Not for two threads at once.
    """

    def __init__(
        self,
        name_servers: str,
        timeout: float = 5.0,
        how: RenewedContext | None = None,
        credentials: Credentials | None = None,
        tls_config: str | os.PathLike[str] | None = None,
    ) -> None:
        self._credentials = credentials
        how = tls_of(tls_config) if how is None else how
        self._name_servers = [address.strip() for address in name_servers.split(";") if address.strip()]
        self._timeout, self._how = timeout, how
        self._clients: dict[str, RemotingClient] = {}

    def close(self) -> None:
        """Close the connections to all peers."""
        for client in self._clients.values():
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _to(self, address: str) -> RemotingClient:
        return self._clients.setdefault(address, RemotingClient(address, self._timeout, self._how))

    def _ask(
        self, address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """The answer of a broker or name server, signed for if there are credentials."""
        if self._credentials is not None:
            fields = signed(fields, body, self._credentials)
        return self._to(address).ask(code, fields, body)

    def _ask_name_server(self, code: int, ext: Mapping[str, str] | None = None) -> Any:
        """Ask name servers until one answers; return the value of the body."""
        failed: PeerUnreachable | None = None
        for address in self._name_servers:
            try:
                answer = self._ask(address, code, ext)
            except PeerUnreachable as unreachable:
                failed = unreachable
                continue
            return fastjson.loads(answer.body, f"answer of {address}") if len(answer.body) else answer.ext_fields or {}
        raise failed or AdminError("no name server: give -n host:port, or set NAMESRV_ADDR")

    def _tell_name_servers(self, code: int, ext: Mapping[str, str]) -> None:
        if not self._name_servers:
            raise AdminError("no name server: give -n host:port, or set NAMESRV_ADDR")
        for address in self._name_servers:
            self._ask(address, code, ext)

    # clusters and topics

    def members(self, cluster: str | None = None) -> list[Member]:
        """Return all brokers, or those of a cluster, by cluster, name and id. Raises AdminError for an unknown one."""
        info = self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        clusters: Table = info.get("clusterAddrTable") or {}
        if cluster is not None and cluster not in clusters:
            raise AdminError(f"no cluster {cluster!r} at {';'.join(self._name_servers)}; known: {sorted(clusters)}")
        return sorted(
            Member(name, broker, int(broker_id), address)
            for name in ([cluster] if cluster is not None else clusters)
            for broker in clusters[name]
            for broker_id, address in info["brokerAddrTable"].get(broker, {}).get("brokerAddrs", {}).items()
        )

    def masters(self, cluster: str) -> list[Member]:
        """The masters of a cluster. Raises AdminError when it has none."""
        members = [member for member in self.members(cluster) if member.broker_id == 0]
        if not members:
            raise AdminError(f"cluster {cluster!r} has no master")
        return members

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).get("topicList") or ())

    def topics_by_cluster(self) -> Iterator[tuple[str, str, list[str]]]:
        """(cluster, topic, consumer groups that the topic's masters know)."""
        members = self.members()
        for cluster in sorted({member.cluster for member in members}):
            for topic in sorted(
                self._ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster}).get("topicList") or ()
            ):
                masters = [one.address for one in members if one.cluster == cluster and one.broker_id == 0]
                yield cluster, topic, sorted({group for at in masters for group in self._groups(at, topic)})

    def _groups(self, address: str, topic: str) -> list[str]:
        try:
            body = self._ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic}).body
        except (PeerRefused, PeerUnreachable):
            return []
        return list(fastjson.loads(body).get("groupList") or ())

    def route(self, topic: str) -> Table:
        """Return a topic's route, as RocketMQ's TopicRouteData."""
        table: Table = self._ask_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
        )
        return table

    def create_topic(self, address: str, settings: TopicSettings) -> None:
        """Create a topic on a broker, or change it."""
        self._ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, settings.as_fields())

    def delete_topic(self, topic: str, cluster: str) -> list[str]:
        """Delete a topic on all brokers of a cluster and at all name servers; the brokers' addresses."""
        addresses = [member.address for member in self.members(cluster)]
        for address in addresses:
            self._ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        self._tell_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic, "clusterName": cluster})
        return addresses

    def set_order(self, topic: str, masters: list[Member], queues: int) -> str:
        """Note at the name servers that the topic is ordered on these brokers; the whole note."""
        try:
            old = self._ask_name_server(RequestCode.GET_KV_CONFIG, {"namespace": ORDER_TOPICS, "key": topic})["value"]
        except PeerRefused as refused:
            if refused.response_code != ResponseCode.QUERY_NOT_FOUND:
                raise
            old = ""
        noted = dict(part.rsplit(":", 1) for part in str(old).split(";") if ":" in part)
        noted |= {member.broker_name: str(queues) for member in masters}
        value = ";".join(f"{name}:{count}" for name, count in noted.items())
        self._tell_name_servers(RequestCode.PUT_KV_CONFIG, {"namespace": ORDER_TOPICS, "key": topic, "value": value})
        return value

    # queues and groups

    def queues(self, topic: str) -> dict[Place, tuple[int, int]]:
        """Return the first offset of each queue of a topic and the offset behind its last message, by its masters."""
        ends: dict[Place, tuple[int, int]] = {}
        for address in self._masters_of(topic):
            body = self._ask(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}).body
            table = places_in(body, "offsetTable")
            ends |= {place: (int(one["minOffset"]), int(one["maxOffset"])) for place, one in table.items()}
        return dict(sorted(ends.items()))

    def groups(self) -> list[str]:
        """Return the names of all consumer groups that the masters know, sorted."""
        names: set[str] = set()
        for member in self.members():
            if member.broker_id == 0:
                body = self._ask(member.address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
                names |= set(fastjson.loads(body, "the groups").get("subscriptionGroupTable") or ())
        return sorted(names)

    def offsets(self, group: str, topic: str) -> dict[Place, GroupOffset]:
        """Return how far a group is in each queue of a topic. A queue that it never consumed has 0."""
        offsets: dict[Place, GroupOffset] = {}
        for address in self._masters_of(topic):
            fields = {"consumerGroup": group, "topic": topic}
            try:
                table = places_in(self._ask(address, RequestCode.GET_CONSUME_STATS, fields).body, "offsetTable")
            except PeerRefused as refused:
                if refused.response_code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                continue
            for place, one in table.items():
                offsets[place] = GroupOffset(int(one["consumerOffset"]), int(one["brokerOffset"]))
        return dict(sorted(offsets.items()))

    def reset_offsets(self, group: str, topic: str, to_ms: int) -> None:
        """Have a group go on at a time, in ms since 1970; -1: behind the last message. Its members do it when they run.

        RocketMQ and `compat=4.9` need a member that runs.
        """
        for address in self._masters_of(topic):
            fields = {"topic": topic, "group": group, "timestamp": str(to_ms), "isForce": "true"}
            self._ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)

    def group_members(self, group: str) -> list[str]:
        """Return the client ids of a group's members, sorted."""
        ids: set[str] = set()
        for member in self.members():
            if member.broker_id == 0:
                with suppress(PeerRefused):  # nobody is there
                    fields = {"consumerGroup": group}
                    body = self._ask(member.address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields).body
                    ids |= set(fastjson.loads(body, "members").get("consumerIdList") or ())
        return sorted(ids)

    def _masters_of(self, topic: str) -> list[str]:
        brokers = self.route(topic).get("brokerDatas") or ()
        return [str(one["brokerAddrs"]["0"]) for one in brokers if "0" in one["brokerAddrs"]]

    # brokers

    def broker_name_of(self, address: str) -> Member:
        """The broker at an address. Raises AdminError when the name server knows none."""
        for member in self.members():
            if member.address == address:
                return member
        raise AdminError(f"no broker is registered with the address {address}")

    def runtime(self, address: str) -> dict[str, str]:
        """Return a broker's runtime figures by name."""
        body = self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO).body
        table: dict[str, str] = fastjson.loads(body, f"answer of {address}")["table"]
        return table

    def config(self, address: str, code: int = RequestCode.GET_BROKER_CONFIG) -> dict[str, str]:
        """Return a broker's settings by key, sorted; with GET_NAMESRV_CONFIG those of a name server."""
        lines = bytes(self._ask(address, code).body).decode().splitlines()
        return dict(sorted((key, value) for key, _is, value in (line.partition("=") for line in lines) if _is))

    def update_config(self, address: str, key: str, value: str) -> None:
        """Change one setting of a running broker."""
        self._ask(address, RequestCode.UPDATE_BROKER_CONFIG, None, f"{key}={value}\n".encode())

    def ha_status(self, address: str) -> Table:
        """A broker's replication, as RocketMQ 5's HARuntimeInfo."""
        body = self._ask(address, RequestCode.GET_BROKER_HA_STATUS).body
        status: Table = fastjson.loads(body, f"answer of {address}")
        return status
