"""Which brokers there are, which topics they have, and who has not been heard of for too long: no more than that.

Implements: RouteInfoManager of the name server, 4.9.7 and 5.3.3 (spec: remoting, 5 name server)
Whatever is listed comes in the order in which Java lists it. Time is passed in. A connection is a number that its shell
gives; the broker that registered on it is gone when it ends.
Every table is bounded, so that its list fits one frame; a broker that finds no room gets an error, and leaves nothing.

Unlike there, a write permission that an administrator has removed stays removed when the name server starts again, if
the broker comes back with the same topics. It is given back as there: by an order, by a change of topics, or when the
broker goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from engine.protocol.tables.register_body import Member, RegisterBody, TopicConfig
from store.compat import Line
from store.tables.tables import DataVersion, hash_map_order, java_order

MASTER_ID = 0
PERM_WRITE, PERM_READ_WRITE = 2, 6
EXPIRY_MS = 120_000  # for a broker that names no heartbeatTimeoutMillis
BROKERS_MAX = 4096  # masters and slaves; also pairs of a cluster and a name
BROKERS_OF_A_CONNECTION_MAX = 256
QUEUES_MAX = 500_000  # pairs of a topic and a broker's name
LIST_BYTES_MAX = 12 * 1024 * 1024  # of all topics' names, as a list of them is written
FILTER_SERVERS_MAX = 4096
UNIT_FLAG, UNIT_SUB_FLAG = 1, 2
SYNC_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"

TOPICS_CAPACITY, BROKERS_CAPACITY, CLUSTERS_CAPACITY = 1024, 128, 32  # of RocketMQ's maps

Address = tuple[str, str]  # cluster (in 4.9 there is none), ip:port


@dataclass(frozen=True, slots=True)
class QueueData:
    """One topic's queues on the brokers of one name."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int


@dataclass(slots=True)
class BrokerData:
    """The brokers of one name: a master (id 0) and its slaves."""

    cluster: str
    broker_name: str
    addresses: dict[int, str] = field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None


@dataclass(slots=True)
class Live:
    """The facts of one broker at its last registration or heartbeat."""

    updated_ms: int
    timeout_ms: int
    data_version: DataVersion
    connection: int
    ha_server_address: str


@dataclass(frozen=True, slots=True)
class Registration(Member):
    """A broker that registers, with its wishes."""

    timeout_ms: int | None = None
    enable_acting_master: bool | None = None  # None: a 4.x broker, which does not say
    zone_name: str | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """Answer to a slave's registration: its master's addresses, if the master is alive."""

    ha_server_address: str | None = None
    master_address: str | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """Queues and brokers of one topic."""

    queues: list[QueueData]
    brokers: list[BrokerData]
    filter_servers: dict[str, tuple[str, ...]]


class RouteTable:
    """All brokers and topics that are registered."""

    def __init__(
        self, line: Line, *, support_acting_master: bool = False, wiped: dict[str, DataVersion] | None = None
    ) -> None:
        self._rules, self._support_acting_master = line.naming, support_acting_master
        self.wiped = {} if wiped is None else wiped  # brokers' names: the version of the topics at that time
        self.wiped_changes = 0  # of `wiped`, each of them to be saved
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.brokers: dict[str, BrokerData] = {}
        self.clusters: dict[str, dict[str, None]] = {}  # ordered sets
        self.live: dict[Address, Live] = {}
        self._filter_servers: dict[Address, tuple[str, ...]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}  # a broker's name: the topics in whose entry it is
        self._queues = self._list_bytes = 0
        self._listing: list[str] | None = None  # all topics, until one comes or goes
        self._registrars: set[int] = set()  # connections on which a broker registered

    def _key(self, cluster: str, address: str) -> Address:
        return cluster if self._rules.addresses_have_clusters else "", address

    # in Java's order

    def _listed(self, names: Iterable[str], capacity: int) -> list[str]:
        """The keys of one of the maps: concurrent ones or not."""
        concurrent = self._rules.concurrent_maps
        return java_order(names, capacity) if concurrent else hash_map_order(names, capacity)

    def list_of(self, names: Iterable[str]) -> list[str]:
        """Names as Java's TopicList has them."""
        return self._listed(names, self._rules.topic_list_capacity)

    def all_topics(self) -> list[str]:
        """Return the names of all topics."""
        if self._listing is None:
            self._listing = self._listed(self.topics, TOPICS_CAPACITY)
        return self._listing

    def all_brokers(self) -> list[BrokerData]:
        """The brokers of every name."""
        return [self.brokers[name] for name in self._listed(self.brokers, BROKERS_CAPACITY)]

    def all_clusters(self) -> dict[str, list[str]]:
        """The names of the brokers of every cluster."""
        names = self._listed(self.clusters, CLUSTERS_CAPACITY)
        return {cluster: hash_map_order(self.clusters[cluster]) for cluster in names}

    # brokers come

    def no_room_for(self, who: Registration, body: RegisterBody, connection: int) -> str | None:
        """Return why a broker cannot be taken in; None if it can."""
        known = self.brokers.get(who.broker_name)
        is_new = known is None or who.broker_id not in known.addresses
        is_unheard = self._key(who.cluster, who.address) not in self.live  # a known broker at a new address, too
        if is_new and sum(len(broker.addresses) for broker in self.brokers.values()) >= BROKERS_MAX:
            return f"there are {BROKERS_MAX} brokers"
        if is_unheard and len(self.live) >= BROKERS_MAX:
            return f"there are {BROKERS_MAX} addresses of brokers"
        of_connection = sum(live.connection == connection for live in self.live.values()) if is_unheard or is_new else 0
        if of_connection >= BROKERS_OF_A_CONNECTION_MAX:
            return f"its connection has registered {BROKERS_OF_A_CONNECTION_MAX} brokers"
        is_new_name = who.broker_name not in self.clusters.get(who.cluster, ())
        if is_new_name and sum(map(len, self.clusters.values())) >= BROKERS_MAX:
            return f"there are {BROKERS_MAX} names in clusters"
        if body.filter_servers and sum(map(len, self._filter_servers.values())) >= FILTER_SERVERS_MAX:
            return f"there are {FILTER_SERVERS_MAX} filter servers"
        return self._no_room_for_topics([config.topic for config in body.topics.values()], who.broker_name)

    def _no_room_for_topics(self, topics: Iterable[str], broker_name: str) -> str | None:
        new = [topic for topic in topics if broker_name not in self.topics.get(topic, ())]
        if self._queues + len(new) > QUEUES_MAX:
            return f"there are {self._queues} entries of topics, and {QUEUES_MAX} at most"
        if self._list_bytes + sum(_listed_bytes(topic) for topic in new if topic not in self.topics) > LIST_BYTES_MAX:
            return f"the names of all topics have {self._list_bytes} bytes, and {LIST_BYTES_MAX} at most"
        return None

    def register(self, who: Registration, body: RegisterBody, connection: int, now_ms: int) -> Registered | None:
        """Take a broker's word for itself, if there is room; None when it may not register."""
        known = self.brokers.get(who.broker_name)
        is_unknown = known is None or who.broker_id not in known.addresses
        if self._rules.fences_old_masters and len(body.topics) == 1 and is_unknown:
            return None  # the registration of a single topic comes after the one of all of them
        self.clusters.setdefault(who.cluster, {})[who.broker_name] = None
        broker = known or self.brokers.setdefault(who.broker_name, BrokerData(who.cluster, who.broker_name))
        broker.enable_acting_master, broker.zone_name = bool(who.enable_acting_master), who.zone_name
        for broker_id, address in list(broker.addresses.items()):
            if address == who.address and broker_id != who.broker_id:  # a slave became master: one address, one id
                del broker.addresses[broker_id]
        if self._is_outdated(who, broker, body.data_version):
            self.live.pop(self._key(who.cluster, who.address), None)
            return Registered()
        is_first = known is None or not broker.addresses.get(who.broker_id)
        broker.addresses[who.broker_id] = who.address
        self._take_topics(who, broker, body, is_first)
        key = self._key(who.cluster, who.address)
        timeout_ms = EXPIRY_MS if who.timeout_ms is None else who.timeout_ms
        self.live[key] = Live(now_ms, timeout_ms, body.data_version, connection, who.ha_server_address)
        self._registrars.add(connection)
        self._filter_servers.pop(key, None)
        if body.filter_servers:
            self._filter_servers[key] = body.filter_servers
        return self._master_of(who, broker)

    def _is_outdated(self, who: Registration, broker: BrokerData, version: DataVersion) -> bool:
        """Return whether another address holds this id with a newer state: after a switch the old master is ignored."""
        holder = broker.addresses.get(who.broker_id)
        if not self._rules.fences_old_masters or holder is None or holder == who.address:
            return False
        live = self.live.get(self._key(who.cluster, holder))
        return live is not None and (live.data_version.state_version or 0) > (version.state_version or 0)

    def _take_topics(self, who: Registration, broker: BrokerData, body: RegisterBody, is_first: bool) -> None:
        is_prime_slave = (
            self._rules.prime_slaves
            and who.enable_acting_master is not None
            and who.broker_id != MASTER_ID
            and who.broker_id == min(broker.addresses)
        )
        if who.broker_id != MASTER_ID and not is_prime_slave:
            return
        is_changed = is_first or self.is_changed(who.cluster, who.address, body.data_version)
        for config in body.topics.values():
            is_missing = who.broker_name not in self.topics.get(config.topic, {})
            if is_changed or (is_missing and self._rules.adds_missing_topics):
                acting = is_prime_slave and broker.enable_acting_master
                perm = config.perm & ~PERM_WRITE if acting else config.perm
                self._put(config.topic, _queues(who.broker_name, config, perm))
        if is_changed and who.broker_name in self.wiped:
            if self.wiped[who.broker_name] == body.data_version:
                self._make_read_only(who.broker_name)
            else:
                self._forget_wiped(who.broker_name)

    def _put(self, topic: str, queue: QueueData) -> None:
        of_topic = self.topics.get(topic)
        if of_topic is None:
            of_topic = self.topics[topic] = {}
            self._list_bytes, self._listing = self._list_bytes + _listed_bytes(topic), None
        if queue.broker_name not in of_topic:
            self._topics_of.setdefault(queue.broker_name, {})[topic] = None
            self._queues += 1
        of_topic[queue.broker_name] = queue

    def _drop(self, topic: str, broker_name: str) -> None:
        of_topic = self.topics.get(topic, {})
        if of_topic.pop(broker_name, None) is None:
            return
        self._queues -= 1
        del self._topics_of[broker_name][topic]
        if not self._topics_of[broker_name]:
            del self._topics_of[broker_name]
        if not of_topic:
            del self.topics[topic]
            self._list_bytes, self._listing = self._list_bytes - _listed_bytes(topic), None

    def _master_of(self, who: Registration, broker: BrokerData) -> Registered:
        master = broker.addresses.get(MASTER_ID)
        live = self.live.get(self._key(who.cluster, master)) if master and who.broker_id != MASTER_ID else None
        return Registered() if live is None else Registered(live.ha_server_address, master)

    def is_changed(self, cluster: str, address: str, version: DataVersion) -> bool:
        """Whether that broker's topics are not those of `version`."""
        live = self.live.get(self._key(cluster, address))
        return live is None or live.data_version != version

    def heard_of(self, cluster: str, address: str, now_ms: int) -> None:
        """Note a broker's sign of life."""
        live = self.live.get(self._key(cluster, address))
        if live is not None:
            live.updated_ms = now_ms

    def version_of(self, cluster: str, address: str) -> DataVersion | None:
        """The version registered; None for a broker that is not known."""
        live = self.live.get(self._key(cluster, address))
        return None if live is None else live.data_version

    # brokers go

    def unregister(self, cluster: str, address: str, broker_name: str, broker_id: int | None = None) -> None:
        """Forget a broker; its name and topics with the last one of that name. Some go by the id, if one is given."""
        self.live.pop(self._key(cluster, address), None)
        self._filter_servers.pop(self._key(cluster, address), None)
        broker = self.brokers.get(broker_name)
        if broker is None:
            return
        by_id = broker_id is not None and self._rules.unregisters_by_id
        for known_id in [n for n, at in broker.addresses.items() if (n == broker_id if by_id else at == address)]:
            del broker.addresses[known_id]
            if known_id == MASTER_ID:
                self._forget_wiped(broker_name)
        if not broker.addresses:
            self._forget_name(broker_name)
        elif broker.enable_acting_master and min(broker.addresses) > MASTER_ID:
            self._make_read_only(broker_name)

    def _forget_name(self, broker_name: str) -> None:
        del self.brokers[broker_name]
        for cluster, names in list(self.clusters.items()):
            names.pop(broker_name, None)
            if not names:
                del self.clusters[cluster]
        for topic in list(self._topics_of.get(broker_name, ())):
            self._drop(topic, broker_name)

    def expire(self, now_ms: int) -> list[int]:
        """Forget who was not heard of within its time; the connections that are to be closed."""
        gone = [(address, live) for address, live in self.live.items() if live.updated_ms + live.timeout_ms < now_ms]
        for (cluster, address), _live in gone:
            self._unregister_address(cluster, address)
        return [live.connection for _address, live in gone]

    def connection_closed(self, connection: int) -> None:
        """A connection ended: the broker that registered on it is gone with it."""
        if connection not in self._registrars:
            return
        self._registrars.discard(connection)
        for (cluster, address), live in list(self.live.items()):
            if live.connection == connection:
                self._unregister_address(cluster, address)

    def is_registrar(self, connection: int) -> bool:
        """Whether a broker registered on it."""
        return connection in self._registrars

    def _unregister_address(self, cluster: str, address: str) -> None:
        names = [name for name, broker in self.brokers.items() if address in broker.addresses.values()]
        for name in names or [""]:
            self.unregister(cluster, address, name)

    # topics

    def route(self, topic: str) -> Route | None:
        """Return where a topic lies; None when no broker of it is known."""
        queues = self.topics.get(topic)
        if not queues:
            return None
        known = [self.brokers[name] for name in hash_map_order(hash_map_order(queues)) if name in self.brokers]
        brokers = [replace(broker, addresses=dict(broker.addresses)) for broker in known]
        if not brokers:
            return None
        servers = {
            at: self._filter_servers[key]
            for broker in brokers
            for at in broker.addresses.values()
            if (key := self._key(broker.cluster, at)) in self._filter_servers
        }
        if self._support_acting_master and not topic.startswith(SYNC_GROUP_PREFIX):
            for broker in brokers:
                _let_act(broker, queues[broker.broker_name])
        return Route([queues[name] for name in hash_map_order(queues)], brokers, servers)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic, on the brokers of one cluster or on all; brokers that still have it register it again."""
        for name in list(self.topics.get(topic, ()) if not cluster else self.clusters.get(cluster, ())):
            self._drop(topic, name)

    def register_topic(self, topic: str, queues: list[QueueData]) -> None:
        """Add a topic by hand; nothing when one of its brokers is not known, or when there is no room."""
        names = [queue.broker_name for queue in queues]
        if all(name in self.brokers and self._no_room_for_topics([topic], name) is None for name in names):
            for queue in queues:
                self._put(topic, queue)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics of one cluster's brokers."""
        names = self.clusters.get(cluster, {})
        return self.list_of(topic for topic in self.all_topics() if names.keys() & self.topics[topic].keys())

    def topics_with_flags(self, wanted: int, unwanted: int) -> list[str]:
        """Topics whose system flag has these bits and lacks those."""
        flags = {topic: queues[_first(queues)].topic_sys_flag for topic, queues in self.topics.items()}
        topics = (topic for topic in self.all_topics() if flags[topic] & wanted and not flags[topic] & unwanted)
        return self.list_of(topics)

    def support_acting_master(self, value: bool) -> None:
        """Whether routes name a slave that acts as its master, from now on."""
        self._support_acting_master = value

    def wipe_write_permission(self, broker_name: str) -> int:
        """Remove write permission from a broker's topics; return how many changed."""
        broker = self.brokers.get(broker_name)
        address = broker.addresses.get(MASTER_ID) if broker else None
        if broker and address and (version := self.version_of(broker.cluster, address)):
            while len(self.wiped) >= BROKERS_MAX:
                self._forget_wiped(next(iter(self.wiped)))
            self.wiped[broker_name] = version
            self.wiped_changes += 1
        return self._make_read_only(broker_name)

    def add_write_permission(self, broker_name: str) -> int:
        """Make all topics of a broker readable and writable; return how many they are."""
        self._forget_wiped(broker_name)
        return self._change_perm(broker_name, lambda _perm: PERM_READ_WRITE)

    def _forget_wiped(self, broker_name: str) -> None:
        if self.wiped.pop(broker_name, None) is not None:
            self.wiped_changes += 1

    def _make_read_only(self, broker_name: str) -> int:
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        topics = self._topics_of.get(broker_name, {})
        for topic in topics:
            queues = self.topics[topic]
            queues[broker_name] = replace(queues[broker_name], perm=change(queues[broker_name].perm))
        return len(topics)


def _listed_bytes(topic: str) -> int:
    """Return what a name takes in a list of names: its quotes, what they make of it, a comma."""
    return len(topic.encode()) + topic.count('"') + topic.count("\\") + len('"",')


def _first(queues: dict[str, QueueData]) -> str:
    """The broker that Java's HashMap lists first."""
    return next(iter(queues)) if len(queues) == 1 else hash_map_order(queues)[0]


def _queues(broker_name: str, config: TopicConfig, perm: int) -> QueueData:
    return QueueData(broker_name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag)


def _let_act(broker: BrokerData, queue: QueueData) -> None:
    """Without a master, the slave with the smallest id stands in for reading, where the brokers want that."""
    has_master = not broker.addresses or MASTER_ID in broker.addresses
    if broker.enable_acting_master and not has_master and not queue.perm & PERM_WRITE:
        broker.addresses[MASTER_ID] = broker.addresses.pop(min(broker.addresses))
