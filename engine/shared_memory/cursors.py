"""The map of all counters: what each means, who writes it and who follows it. The page to read first.

Each is declared here and nowhere else; docs/counters.md is written from it (`python -m
engine.shared_memory.counter_map`). A log offset is always an end: the first byte not yet done. One process writes a
word, named below as its owner, after the supervisor set some before it forked. Where two are named, it is one in a
master and another in a slave, or the parent once its child is dead. Several at a time write only the two bells, which
carry no information, and `confirm_offset`, which is raised by an atomic maximum.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from pathlib import Path

from engine.protocol.ha.wire import CloseReason
from engine.settings.client_keys import FRONTS_MAX
from engine.shared_memory.declarations import Address, Counter, Family, Group, One
from engine.shared_memory.service_cursors import DelayCursors, SidecarCursors, TransactionCursors
from ipc.counters import Counters, Cursor
from store.files.pointer import COUNTERS_FILE

HA_CONNECTIONS_MAX = 8


class BrokerState(IntEnum):
    """States of a broker, in the word `broker_state`."""

    STARTING = 0
    RUNNING = 1
    STOPPING = 2


class Serving(IntEnum):
    """The progress of a starting front; values of the word `serving`."""

    NOTHING = 0
    PORTS = 1  # both take connections
    ALL = 2  # and it knows topics and groups: no client is refused because it has just begun


class TlsOutcome(IntEnum):
    """Outcomes of a connection to a remoting port that spoke TLS, or should have."""

    SERVED = 0
    FAILED = 1
    PLAINTEXT_REFUSED = 2
    TLS_REFUSED = 3


class HaSlotState(IntEnum):
    """States of a slave's slot; the word `ha.N.state`."""

    FREE = 0
    CONNECTED = 1  # nothing reported yet
    TRANSFER = 2


class Reign(IntEnum):
    """The progress of a promoted master; values of the word `reign`."""

    SERVES = 0  # any other broker: nothing is asked before it takes messages
    ASKS = 1  # it takes no messages before it has asked who else is the master
    CONFIRMED = 2  # it has asked


class IdentityState(IntEnum):
    """The way in which a slave's identity is known; values of the word `ha.N.identity_state`."""

    BY_ADDRESS = 0
    CLAIMED = 1  # it said so
    SIGNED = 2  # and proved that it knows the secret


# How often a connection ended for which reason, on either side.
REASONS = {CloseReason(reason): reason.name for reason in CloseReason if reason}
FRONTS = tuple(f"front.{number}" for number in range(FRONTS_MAX))
ROLES = (
    "writer",
    "allocator",
    "flusher",
    "dispatcher",
    "ha_listener",
    "group_transfer",
    "receiver",
    "housekeeper",
    "clients",
    *FRONTS,
    "delay",
    "transactions",
    "sidecar",
)
SPARE_ROLES = ("sidecar",)  # clients are served without them: their end is reported, and no more
SENDERS = tuple(f"sender.{slot}" for slot in range(HA_CONNECTIONS_MAX))
_BY_ROLE = {role: role for role in ROLES}
_BY_PROCESS = {role: role for role in (*ROLES, *SENDERS)}


def _parent_of(process: str) -> str:
    return "ha_listener" if process in SENDERS else "supervisor"


class HaConnectionCursors(Group):
    """The words of one slave's connection. Its sender writes them; the ha_listener where no sender has the slot."""

    prefix = "ha.{}."
    state = One("gauge", "sender.{}|ha_listener", "group_transfer, status", "a HaSlotState")
    slave_request_offset = One("gauge", "sender.{}", "status", "offset of the slave's first report")
    next_transfer_offset = One("gauge", "sender.{}", "status", "end of what was sent; <= max_physical_offset")
    slave_ack_offset = One(
        "gauge",
        "sender.{}",
        "group_transfer, ha_listener, status",
        "offset of the slave's last report; <= next_transfer_offset; a lower one ends the connection",
    )
    held_offset = One(
        "gauge", "sender.{}", "group_transfer", "end of the bytes that this slave is known to have received"
    )
    transferred_bytes = One("gauge", "sender.{}", "status", "bytes of the log sent on this connection")
    acks_rejected = One("gauge", "sender.{}|ha_listener", "status", "impossible reports")
    last_read_ms = One("gauge", "sender.{}", "status, ha_listener", "time of the slave's last bytes")
    connected_at_ms = One("gauge", "sender.{}", "status", "start of the connection")
    peer_address = Address("gauge", "sender.{}", "group_transfer, status", "address of the slave", label="peer")
    identity = One("gauge", "sender.{}", "group_transfer, status", "number of its claimed identity; 0: none claimed")
    identity_state = One("gauge", "sender.{}", "group_transfer, status", "an IdentityState")
    broker_id = One("gauge", "sender.{}", "status", "its brokerId; -1: not sent")
    flushed_offset = One("gauge", "sender.{}", "status", "end of what it has on disk; -1: not requested")
    remoting = Address("gauge", "sender.{}", "clients", "the slave's address for clients, if it sent one")
    wake = One("gauge", "sender.{}", "its sender's other half", "changed to wake the half that writes")
    reason = One("gauge", "sender.{}|ha_listener", "status", "CloseReason of the slot's last connection")
    ended_at_ms = One("gauge", "sender.{}|ha_listener", "status", "end of the slot's last connection")

    def __init__(self, counters: Counters, slot: int) -> None:
        super().__init__(counters, slot)
        self.slot = slot

    @property
    def peer(self) -> Cursor:
        """The first word of the slave's address: for IPv4 all of it."""
        return self.peer_address.word


class HaClientCursors(Group):
    """The words of a slave's connection to its master."""

    prefix = "ha_client."
    state = One("gauge", "receiver", "status", "an HaClientState")
    last_read_ms = One("gauge", "receiver", "status", "time of the master's last bytes")
    last_write_ms = One("gauge", "receiver", "status", "time of the last report")
    transferred_bytes = One("gauge", "receiver", "status", "bytes of the log received")
    master_address = Address("gauge", "receiver", "status", "the master's HA address", label="master")
    remoting = Address("gauge", "receiver", "clients", "the master's address for clients, if it sent one")
    reason = One("gauge", "receiver", "status", "CloseReason of the last connection")
    ended_at_ms = One("gauge", "receiver", "status", "end of the last connection")

    def __init__(self, counters: Counters, ended: dict[CloseReason, Cursor]) -> None:
        super().__init__(counters)
        self.ended = ended


class FrontCursors(Group):
    """The words of one front: what its connections ask for, and what of it is under way."""

    prefix = "front.{}."
    connections = One("gauge", "front.{}", "status", "connections to both remoting ports")
    listen_errno = One("gauge", "front.{}", "supervisor, status", "0, or the error number of an unbound remoting port")
    serving = One("gauge", "front.{}", "supervisor", "0; 1: both ports are bound; 2: topics and groups are also known")
    sends = One("tally", "front.{}", "status", "messages of clients that were appended")
    sends_refused = One("tally", "front.{}", "status", "sends answered SYSTEM_BUSY: flow control, or waited too long")
    sends_in_flight = One("gauge", "front.{}", "status", "unanswered sends")
    send_wait_ms = One("gauge", "front.{}", "status", "waiting time of the oldest unanswered send")
    ends_in_flight = One("gauge", "front.{}", "clients", "ends of transactions without an answer")
    writer_wait_ms = One("gauge", "front.{}", "clients", "time since the writer took a message while some wait")
    pulls = One("tally", "front.{}", "status", "pulls answered")
    pulled_messages = One("tally", "front.{}", "status", "messages in answers to pulls")
    pulled_bytes = One("tally", "front.{}", "status", "bytes of messages in answers to pulls")
    pull_longest_ms = One("gauge", "front.{}", "clients", "longest time to read a queue")
    pulls_held = One("gauge", "front.{}", "status", "held pulls")
    tls_outcomes = Family(
        {outcome: outcome.name for outcome in TlsOutcome},
        "OUTCOME",
        "tally",
        "front.{{}}",
        "status",
        "connections by the outcome of their first byte",
        label="tls.{}",
    )
    bytes_in_flight = One("gauge", "front.{}", "status", "bytes of unanswered requests and unread answers")


class BrokerCounters(Group):
    """All counters of one broker, each under the name of its label."""

    broker_state = One("gauge", "supervisor", "producers, status", "0 starting, 1 running, 2 stopping")
    min_physical_offset = One(
        "cursor",
        "housekeeper",
        "readers, senders, dispatcher, Spark; allocator of an empty slave",
        "beginning of the log; raised before a file below it is deleted",
    )
    segment_request_offset = One(
        "gauge", "writer|receiver", "allocator", "offset in the segment that is needed next; -1: no request yet"
    )
    allocated_offset = One("cursor", "allocator", "writer, receiver", "every block below it is reserved")
    allocation_errno = One("gauge", "allocator", "writer, housekeeper", "0, or the error number of a failed allocation")
    max_physical_offset = One(
        "cursor",
        "writer|receiver",
        "all",
        "end of the log; bytes below it never change",
    )
    recovered_offset = One(
        "gauge",
        "supervisor",
        "senders, fronts, transactions",
        "end of the log when this broker started; no put of this run is below it",
    )
    flushed_offset = One(
        "cursor", "flusher", "producers, checkpoint", "<= max_physical_offset; moved only after fdatasync succeeded"
    )
    flush_errno = One(
        "gauge",
        "flusher|supervisor",
        "producers, writer",
        "0, or the error number of a failed flush, which is final",
    )
    flush_at_once = One("gauge", "receiver", "flusher", "1: puts at this slave's master wait for this slave's disk")
    log_flushes = One("tally", "flusher", "status", "flushes of the log")
    reput_from_offset = One(
        "cursor", "dispatcher", "Spark, queue flush", "queues and index reach up to it; <= max, on a record's end"
    )
    dispatch_errno = One("gauge", "dispatcher", "status", "0, or the error number that stops queues and index")
    disk_state = One("gauge", "housekeeper", "producers, status", "0 normal, 1 warning, 2 read-only, 3 full")
    disk_used_percent = One("gauge", "housekeeper", "status", "usage of its fullest disk")
    running_flags = One("gauge", "housekeeper", "status", "RocketMQ's bit for a full disk")
    deletion_requests = One("tally", "clients", "housekeeper", "requests of administrators to delete expired files")
    deleted_segments = One("tally", "housekeeper", "status", "expired segments that were deleted")
    vanished_files = One(
        "tally", "housekeeper", "status", "files of log, queues and index that another program removed"
    )
    confirm_offset = One(
        "gauge",
        "group_transfer|senders",
        "producers",
        "end of what the required number of replicas has; raised by an atomic maximum, never falls",
    )
    in_sync_slaves = One("gauge", "group_transfer", "producers", "distinct slaves in sync")
    put_messages = One("tally", "writer", "status", "messages appended")
    put_bytes = One("tally", "writer", "status", "their bytes")
    put_refused = One("tally", "writer", "status", "messages that could not be appended")
    store_timestamp_ms = One("gauge", "writer|receiver", "status", "store time of the last record")
    ha_listen_port = One("gauge", "ha_listener", "status", "0: slaves are not served yet")
    own_broker_id = One("gauge", "supervisor", "status", "brokerId in the broker's file; no promotion changes it")
    listen_port = One("gauge", "front.0", "status", "0: the port is not served yet")
    ha_server_address = Address(
        "gauge", "clients", "receiver", "for a slave: the master's HA address according to the name server"
    )
    metrics_port = One("gauge", "clients", "status", "0: /metrics is not served")
    # engine.shared_memory.live_settings: as the file says, which the supervisor noted before it forked, or as set since
    broker_permission = One("gauge", "clients", "producers, fronts, clients", "brokerPermission")
    topics_changes = One("tally", "clients", "producers", "changes of topics.json or brokerPermission")
    register_name_server_period_ms = One("gauge", "clients", "clients", "registerNameServerPeriod")
    delete_when_hours = One("gauge", "clients", "housekeeper", "deleteWhen, one bit per hour")
    file_reserved_hours = One("gauge", "clients", "housekeeper", "fileReservedTime")
    disk_max_used_space_percent = One("gauge", "clients", "housekeeper", "diskMaxUsedSpaceRatio")
    ha_flow_control_enable = One("gauge", "clients", "senders", "haFlowControlEnable")
    max_ha_transfer_byte_in_second = One("gauge", "clients", "senders", "maxHaTransferByteInSecond")
    max_ha_catch_up_byte_in_second = One("gauge", "clients", "senders", "maxHaCatchUpByteInSecond; 0: no limit")
    log_level = One("gauge", "clients", "all", "logLevel, as a number of the module logging")
    fenced_by_epoch = One(
        "gauge",
        "senders|clients",
        "supervisor, status",
        "0, or the proven epoch of a newer master; raised by an atomic maximum",
    )
    reign = One("gauge", "supervisor|clients", "clients, supervisor", "a Reign: whether a promoted master has asked")
    writer_held_ms = One(
        "gauge", "writer", "clients", "since when the resumed writer waits for other brokers; 0: it does not"
    )
    rivals_asked_ms = One("gauge", "clients", "writer", "start of the last answered question for other masters")
    tables_taken_ms = One(
        "gauge", "clients", "status", "time of a slave's last copy of its master's tables; negative: no copy since then"
    )
    tables_errno = One("gauge", "clients", "status", "0, or the error number of a table that cannot be written")
    written_base = One("gauge", "writer|receiver", "flusher", "segment that is being written; -1: about to change")
    written_inode = One("gauge", "writer|receiver", "flusher", "inode of that segment's file; 0: unknown")
    unserved_topics = One("gauge", "clients", "status", "topics with an attribute that this broker does not support")
    ha_acks_rejected = One("tally", "ha_listener", "status", "acks_rejected of ended connections")
    writer_bell = One("gauge", "producers", "writer", "a bell, rung after a ring's head was moved")
    ack_bell = One(
        "gauge",
        "many",
        "group_transfer",
        "a bell, rung by senders and flusher after they publish, or by their parents if they died",
    )
    confirm_offsets = Family(
        {count: str(count) for count in range(2, HA_CONNECTIONS_MAX + 2)},
        "COUNT",
        "gauge",
        "group_transfer",
        "producers",
        "confirm_offset for COUNT replicas; used only with enableAutoInSyncReplicas",
        label="confirm_offset.{}",
    )
    ha_ended = Family(
        REASONS,
        "REASON",
        "tally",
        "ha_listener",
        "status",
        "connections of slaves that ended for this reason",
        label="ha_ended.{}",
    )
    ha_client_ended = Family(
        REASONS,
        "REASON",
        "tally",
        "receiver",
        "status",
        "connections to the master that ended for this reason",
        label="ha_client_ended.{}",
    )
    heartbeats = Family(
        _BY_PROCESS,
        "ROLE",
        "heartbeat",
        "{}",
        "supervisor, status",
        "time of its last loop, in ms; stops if the role is stuck",
        label="heartbeat.{}",
    )
    pids = Family(_BY_PROCESS, "ROLE", "gauge", _parent_of, "status", "process id; 0: not running", label="pid.{}")
    deaths = Family(
        _BY_PROCESS,
        "ROLE",
        "gauge",
        _parent_of,
        "receiver, status",
        "deaths within the last minute",
        label="deaths.{}",
    )
    restarts = Family(_BY_ROLE, "ROLE", "tally", "supervisor", "status", "restarts", label="restarts.{}")
    stuck = Family(
        _BY_ROLE,
        "ROLE",
        "gauge",
        "supervisor",
        "receiver, status",
        "consecutive deaths by its own failure at one place",
        label="stuck.{}",
    )
    given_up = Family(
        _BY_ROLE, "ROLE", "gauge", "supervisor", "receiver, status", "1: it will not be restarted", label="given_up.{}"
    )

    def __init__(self, region: Counters) -> None:
        super().__init__(region)
        self.region = region
        self.confirm_offsets[1] = self.max_physical_offset
        self.ha = [HaConnectionCursors(region, slot) for slot in range(HA_CONNECTIONS_MAX)]
        self.ha_client = HaClientCursors(region, self.ha_client_ended)
        self.fronts = [FrontCursors(region, number) for number in range(FRONTS_MAX)]
        self.delay, self.transactions = DelayCursors(region), TransactionCursors(region)
        self.sidecar = SidecarCursors(region)

    @classmethod
    def every(cls) -> list[Counter]:
        """Return all counters of a broker, in the order of the region."""
        slots = [counter for slot in range(HA_CONNECTIONS_MAX) for counter in HaConnectionCursors.declared(slot)]
        fronts = [counter for number in range(FRONTS_MAX) for counter in FrontCursors.declared(number)]
        services = [*DelayCursors.declared(), *TransactionCursors.declared(), *SidecarCursors.declared()]
        return [*cls.declared(), *slots, *HaClientCursors.declared(), *fronts, *services]

    @classmethod
    def plain(cls) -> list[Counter]:
        """Return the counters that exist once in a broker."""
        return [of for _name, line in cls._declarations() if not isinstance(line, Family) for of in line.counters()]

    @classmethod
    def create(cls, path: Path) -> BrokerCounters:
        """Make the counters region of a new broker; only the supervisor does."""
        declared = cls.every()
        region = Counters.create(path, len(declared))
        for counter in declared:
            region.allocate(counter.label, kind=counter.kind, owner=counter.owner)
        return cls(region)

    @cached_property
    def directory(self) -> Path:
        """The region directory that they lie in, with all of the broker's other regions."""
        return self.region.path.parent

    @classmethod
    def attach(cls, region_directory: Path, writable: bool = False) -> BrokerCounters:
        """The counters of a running broker. Raises RegionMissing, RegionMismatch."""
        return cls(Counters.attach(region_directory / COUNTERS_FILE, writable))

    def close(self) -> None:
        """Unmap the counters, which are not to be read from then on."""
        self.region.close()
