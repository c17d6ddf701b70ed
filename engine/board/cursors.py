"""The map of all counters: what each means, who writes it and who follows it. The page to read first.

Each is declared here and nowhere else; docs/counters.md is written from it (`python -m engine.board.counter_map`).
A log offset is always an end: the first byte not yet done. One process writes a word, named below as its owner, after
the supervisor set some before it forked. Where two are named, it is one in a master and another in a slave, or the
parent once its child is dead. Several at a time write only the two bells, which carry no information, and
`confirm_offset`, which is raised by an atomic maximum.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

from engine.board.declarations import Address, Counter, Family, Group, One
from engine.board.service_cursors import DelayCursors, SidecarCursors, TransactionCursors
from engine.protocol.ha.wire import CloseReason
from engine.settings.client_keys import FRONTS_MAX
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
    "writer", "allocator", "flusher", "dispatcher", "ha_listener", "group_transfer", "receiver", "housekeeper",
    "clients", *FRONTS, "delay", "transactions", "sidecar",
)  # fmt: skip
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
    slave_request_offset = One("gauge", "sender.{}", "status", "what the slave reported first")
    next_transfer_offset = One("gauge", "sender.{}", "status", "sent up to here; <= max_physical_offset")
    slave_ack_offset = One(
        "gauge", "sender.{}", "group_transfer, ha_listener, status",
        "what the slave reported last; <= next_transfer_offset; never falls, or the connection ends",
    )  # fmt: skip
    held_offset = One(
        "gauge", "sender.{}", "group_transfer", "what of slave_ack_offset the slave is shown to hold: what is confirmed"
    )
    transferred_bytes = One("gauge", "sender.{}", "status", "bytes of the log sent on this connection")
    acks_rejected = One("gauge", "sender.{}|ha_listener", "status", "reports that could not be true")
    last_read_ms = One("gauge", "sender.{}", "status, ha_listener", "when the slave was last heard")
    connected_at_ms = One("gauge", "sender.{}", "status", "since when it is connected")
    peer_address = Address("gauge", "sender.{}", "group_transfer, status", "where the slave is", label="peer")
    identity = One("gauge", "sender.{}", "group_transfer, status", "the number of who it says to be; 0: it did not say")
    identity_state = One("gauge", "sender.{}", "group_transfer, status", "an IdentityState")
    broker_id = One("gauge", "sender.{}", "status", "its brokerId; -1: it did not say")
    flushed_offset = One("gauge", "sender.{}", "status", "what it has on disk; -1: it is not asked")
    remoting = Address("gauge", "sender.{}", "clients", "where the slave answers clients, if it said so")
    wake = One("gauge", "sender.{}", "its sender's other half", "moved when the half that writes is to look again")
    reason = One("gauge", "sender.{}|ha_listener", "status", "the CloseReason of the slot's last connection")
    ended_at_ms = One("gauge", "sender.{}|ha_listener", "status", "when that ended")

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
    last_read_ms = One("gauge", "receiver", "status", "when the master was last heard")
    last_write_ms = One("gauge", "receiver", "status", "when it was last reported to")
    transferred_bytes = One("gauge", "receiver", "status", "bytes of the log received")
    master_address = Address("gauge", "receiver", "status", "where the master sends from", label="master")
    remoting = Address("gauge", "receiver", "clients", "where the master answers clients, if it said so")
    reason = One("gauge", "receiver", "status", "the CloseReason of the last connection")
    ended_at_ms = One("gauge", "receiver", "status", "when that ended")

    def __init__(self, counters: Counters, ended: dict[CloseReason, Cursor]) -> None:
        super().__init__(counters)
        self.ended = ended


class FrontCursors(Group):
    """The words of one front: what its connections ask for, and what of it is under way."""

    prefix = "front.{}."
    connections = One("gauge", "front.{}", "status", "connections to both remoting ports")
    listen_errno = One("gauge", "front.{}", "supervisor, status", "0, or why a remoting port cannot be bound")
    serving = One("gauge", "front.{}", "supervisor", "0, 1: both ports are bound, 2: and it knows topics and groups")
    sends = One("tally", "front.{}", "status", "messages that clients sent and the log took")
    sends_refused = One("tally", "front.{}", "status", "answered SYSTEM_BUSY: flow control, or too long in the queue")
    sends_in_flight = One("gauge", "front.{}", "status", "sends without an answer")
    send_wait_ms = One("gauge", "front.{}", "status", "how long the oldest of them waits")
    ends_in_flight = One("gauge", "front.{}", "clients", "of them, ends of transactions")
    writer_wait_ms = One("gauge", "front.{}", "clients", "for how long the writer has taken nothing that waits")
    pulls = One("tally", "front.{}", "status", "pulls answered")
    pulled_messages = One("tally", "front.{}", "status", "messages in their answers")
    pulled_bytes = One("tally", "front.{}", "status", "and their bytes")
    pull_longest_ms = One("gauge", "front.{}", "clients", "how long the longest look into a queue took")
    pulls_held = One("gauge", "front.{}", "status", "pulls that wait for a message")
    tls_outcomes = Family(
        {outcome: outcome.name for outcome in TlsOutcome}, "OUTCOME", "tally", "front.{{}}", "status",
        "connections by what became of their first byte", label="tls.{}",
    )  # fmt: skip
    bytes_in_flight = One("gauge", "front.{}", "status", "of requests without an answer, and of answers not taken")


class Board(Group):
    """All counters of one broker, each under the name of its label."""

    broker_state = One("gauge", "supervisor", "producers, status", "0 starting, 1 running, 2 stopping")
    min_physical_offset = One(
        "cursor", "housekeeper", "readers, senders, dispatcher, Spark; allocator of an empty slave",
        "where the log begins; moved before the file below it goes",
    )  # fmt: skip
    segment_request_offset = One(
        "gauge", "writer|receiver", "allocator", "in which segment room is needed; -1: nobody has asked yet"
    )
    allocated_offset = One("cursor", "allocator", "writer, receiver", "every block below it is reserved")
    allocation_errno = One("gauge", "allocator", "writer, receiver", "0, or why no segment can be made")
    max_physical_offset = One(
        "cursor", "writer|receiver", "all",
        "where the log ends; bytes below it never change; a slave's is the receiver's",
    )  # fmt: skip
    recovered_offset = One(
        "gauge", "supervisor", "senders, fronts, transactions",
        "the log's end when this broker started: no put of it waits for what lies below, no table of it tells of it",
    )  # fmt: skip
    flushed_offset = One(
        "cursor", "flusher", "producers, checkpoint", "<= max_physical_offset; moved only after fdatasync succeeded"
    )
    flush_errno = One(
        "gauge", "flusher|supervisor", "producers, writer",
        "0, or why a flush failed, which is final; the supervisor's once it gave the flusher up",
    )  # fmt: skip
    flush_at_once = One(
        "gauge", "receiver", "flusher", "1: puts at this slave's master wait until what comes is on this disk"
    )
    log_flushes = One("tally", "flusher", "status", "how often the log was brought to disk")
    reput_from_offset = One(
        "cursor", "dispatcher", "Spark, queue flush", "queues and index hold all below; <= max, on a record's boundary"
    )
    dispatch_errno = One("gauge", "dispatcher", "status", "0, or why queues and index wait: there is no room for them")
    disk_state = One("gauge", "housekeeper", "producers, status", "0 normal, 1 warning, 2 read-only, 3 full")
    disk_used_percent = One("gauge", "housekeeper", "status", "how full the fullest of its disks is")
    running_flags = One("gauge", "housekeeper", "status", "RocketMQ's bit for a full disk")
    deletion_requests = One(
        "tally", "clients", "housekeeper", "how often an administrator asked to delete what is expired"
    )  # fmt: skip
    deleted_segments = One("tally", "housekeeper", "status", "segments that expired")
    vanished_files = One(
        "tally", "housekeeper", "status", "files of log, queues and index that somebody else removed, and the audit saw"
    )  # fmt: skip
    confirm_offset = One(
        "gauge", "group_transfer|senders", "producers",
        "held by as many as are asked for; whoever knows raises it, by an atomic maximum; never falls",
    )  # fmt: skip
    in_sync_slaves = One("gauge", "group_transfer", "producers", "distinct slaves that are not too far behind")
    put_messages = One("tally", "writer", "status", "messages appended")
    put_bytes = One("tally", "writer", "status", "their bytes")
    put_refused = One("tally", "writer", "status", "messages that could not be appended")
    store_timestamp_ms = One("gauge", "writer|receiver", "status", "when the last record was stored")
    ha_listen_port = One("gauge", "ha_listener", "status", "0: slaves are not served yet")
    own_broker_id = One("gauge", "supervisor", "status", "brokerId of the broker's own file: a promotion leaves it")
    listen_port = One("gauge", "front.0", "status", "0: the port is not served yet")
    ha_server_address = Address(
        "gauge", "clients", "receiver", "where a slave's name server says its master sends the log from"
    )
    metrics_port = One("gauge", "clients", "status", "0: /metrics is not served")
    # engine.board.live_settings: as the file says, which the supervisor noted before it forked, or as set since
    broker_permission = One("gauge", "clients", "producers, fronts, clients", "brokerPermission")
    topics_changes = One(
        "tally", "clients", "producers", "what topics.json or brokerPermission says may be another since"
    )
    register_name_server_period_ms = One("gauge", "clients", "clients", "registerNameServerPeriod")
    delete_when_hours = One("gauge", "clients", "housekeeper", "deleteWhen, a bit an hour")
    file_reserved_hours = One("gauge", "clients", "housekeeper", "fileReservedTime")
    disk_max_used_space_percent = One("gauge", "clients", "housekeeper", "diskMaxUsedSpaceRatio")
    ha_flow_control_enable = One("gauge", "clients", "senders", "haFlowControlEnable")
    max_ha_transfer_byte_in_second = One("gauge", "clients", "senders", "maxHaTransferByteInSecond")
    max_ha_catch_up_byte_in_second = One("gauge", "clients", "senders", "maxHaCatchUpByteInSecond; 0: no bound")
    log_level = One("gauge", "clients", "all", "logLevel, as the standard library numbers them")
    fenced_by_epoch = One(
        "gauge", "senders|clients", "supervisor, status",
        "0, or the epoch of a newer master that has proved it; raised by an atomic maximum",
    )  # fmt: skip
    reign = One("gauge", "supervisor|clients", "clients, supervisor", "a Reign: whether a promoted master has asked")
    writer_held_ms = One(
        "gauge", "writer", "clients", "since when the writer, which had stood still, waits until others are asked; or 0"
    )
    rivals_asked_ms = One(
        "gauge", "clients", "writer", "when the last question who else is a master began, of those that are answered"
    )
    tables_taken_ms = One(
        "gauge", "clients", "status", "when a slave last had all tables of its master; below 0: none since that moment"
    )
    tables_errno = One("gauge", "clients", "status", "why a table could not be written, an error number; 0: all are")
    written_base = One("gauge", "writer|receiver", "flusher", "the segment that bytes go into; -1: another, soon")
    written_inode = One("gauge", "writer|receiver", "flusher", "the inode of its file; 0: not known")
    unserved_topics = One("gauge", "clients", "status", "topics with an attribute that asks for what this broker lacks")
    ha_acks_rejected = One("tally", "ha_listener", "status", "acks_rejected of the connections that have ended")
    writer_bell = One("gauge", "producers", "writer", "a bell: rung after the ring's head was moved")
    ack_bell = One(
        "gauge", "many", "group_transfer",
        "a bell: rung by senders and flusher after what they announce, by their parents where they died",
    )  # fmt: skip
    confirm_offsets = Family(
        {count: str(count) for count in range(2, HA_CONNECTIONS_MAX + 2)}, "COUNT", "gauge", "group_transfer",
        "producers", "as confirm_offset, for so many replicas; moved with enableAutoInSyncReplicas only",
        label="confirm_offset.{}",
    )  # fmt: skip
    ha_ended = Family(
        REASONS, "REASON", "tally", "ha_listener", "status", "how many slaves' connections ended for that reason",
        label="ha_ended.{}",
    )  # fmt: skip
    ha_client_ended = Family(
        REASONS, "REASON", "tally", "receiver", "status", "how many connections to the master ended for that reason",
        label="ha_client_ended.{}",
    )  # fmt: skip
    heartbeats = Family(
        _BY_PROCESS, "ROLE", "heartbeat", "{}", "supervisor, status",
        "when its loop turned last, in ms; a stuck one stops", label="heartbeat.{}",
    )  # fmt: skip
    pids = Family(_BY_PROCESS, "ROLE", "gauge", _parent_of, "status", "0: it does not run", label="pid.{}")
    deaths = Family(
        _BY_PROCESS, "ROLE", "gauge", _parent_of, "receiver, status", "how often it died within the last minute",
        label="deaths.{}",
    )  # fmt: skip
    restarts = Family(
        _BY_ROLE, "ROLE", "tally", "supervisor", "status", "how often it was started again", label="restarts.{}"
    )
    stuck = Family(
        _BY_ROLE, "ROLE", "gauge", "supervisor", "receiver, status",
        "how often it died in a row by its own failure at one place", label="stuck.{}",
    )  # fmt: skip
    given_up = Family(
        _BY_ROLE, "ROLE", "gauge", "supervisor", "receiver, status", "1: it is not started again", label="given_up.{}"
    )

    def __init__(self, counters: Counters) -> None:
        super().__init__(counters)
        self.counters = counters
        self.confirm_offsets[1] = self.max_physical_offset
        self.ha = [HaConnectionCursors(counters, slot) for slot in range(HA_CONNECTIONS_MAX)]
        self.ha_client = HaClientCursors(counters, self.ha_client_ended)
        self.fronts = [FrontCursors(counters, number) for number in range(FRONTS_MAX)]
        self.delay, self.transactions = DelayCursors(counters), TransactionCursors(counters)
        self.sidecar = SidecarCursors(counters)

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
    def create(cls, path: Path) -> Board:
        """Make the counters region of a new broker; only the supervisor does."""
        declared = cls.every()
        counters = Counters.create(path, len(declared))
        for counter in declared:
            counters.allocate(counter.label, kind=counter.kind, owner=counter.owner)
        return cls(counters)

    @property
    def directory(self) -> Path:
        """The region directory that the board lies in, with all of the broker's other regions."""
        return self.counters.path.parent

    @classmethod
    def attach(cls, region_directory: Path, writable: bool = False) -> Board:
        """The counters of a running broker. Raises RegionMissing, RegionMismatch."""
        return cls(Counters.attach(region_directory / COUNTERS_FILE, writable))
