"""The map of all counters: what each means, who writes it and who follows it. The page to read first.

A log offset is always an end: the first byte not yet done. One process writes a word, named below as its owner; the two
exceptions are bells (`writer_bell`, `ack_bell`), which many ring and one waits on: they carry no information.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from engine.protocol.ha.wire import CloseReason
from ipc.counters import Counters, Cursor
from store.files.pointer import COUNTERS_FILE

HA_CONNECTIONS_MAX = 8

STARTING, RUNNING, STOPPING = 0, 1, 2


class HaSlotState(IntEnum):
    """What the slot of a slave is; `ha.N.state`."""

    FREE = 0
    CONNECTED = 1  # nothing reported yet
    TRANSFER = 2


# label, kind, owner; the meaning stands in ARCHITECTURE.md's cursor table
COMMON = (
    ("broker_state", "gauge", "supervisor"),
    ("min_physical_offset", "cursor", "housekeeper"),
    ("segment_request_offset", "gauge", "writer|receiver"),
    ("allocated_offset", "cursor", "allocator"),
    ("allocation_errno", "gauge", "allocator"),
    ("max_physical_offset", "cursor", "writer|receiver"),
    ("recovered_offset", "gauge", "supervisor"),
    ("flushed_offset", "cursor", "flusher"),
    ("flush_errno", "gauge", "flusher"),
    ("log_flushes", "tally", "flusher"),
    ("reput_from_offset", "cursor", "dispatcher"),
    ("disk_state", "gauge", "housekeeper"),  # engine.protocol.store.retention.DiskState
    ("disk_used_percent", "gauge", "housekeeper"),
    ("running_flags", "gauge", "housekeeper"),
    ("deleted_segments", "tally", "housekeeper"),
    ("confirm_offset", "gauge", "group_transfer"),
    ("in_sync_slaves", "gauge", "group_transfer"),
    ("put_messages", "tally", "writer"),
    ("put_bytes", "tally", "writer"),
    ("put_refused", "tally", "writer"),
    ("store_timestamp_ms", "gauge", "writer|receiver"),
    ("ha_listen_port", "gauge", "ha_listener"),
    ("listen_port", "gauge", "remoting"),
    # engine.board.addresses: where a slave's name server says its master sends the log from
    ("ha_server_address", "gauge", "remoting"),
    ("ha_server_address.high", "gauge", "remoting"),
    ("ha_server_address.low", "gauge", "remoting"),
    ("metrics_port", "gauge", "remoting"),
    # engine.board.live_settings: as the file says, until an administrator changes them
    ("broker_permission", "gauge", "remoting"),
    ("topics_changes", "tally", "remoting"),  # what topics.json says, or a setting, may be another since
    ("register_name_server_period_ms", "gauge", "remoting"),
    ("delete_when_hours", "gauge", "remoting"),  # a bit an hour
    ("file_reserved_hours", "gauge", "remoting"),
    ("disk_max_used_space_percent", "gauge", "remoting"),
    ("ha_acks_rejected", "tally", "ha_listener"),  # of connections that have ended
    ("writer_bell", "gauge", "producers"),
    ("ack_bell", "gauge", "senders|flusher"),
)
PER_HA_CONNECTION = (
    "state",  # HaSlotState
    "slave_request_offset",
    "next_transfer_offset",
    "slave_ack_offset",
    "held_offset",  # what of it counts for confirm_offset
    "transferred_bytes",
    "acks_rejected",
    "last_read_ms",
    "connected_at_ms",
    "peer",  # engine.board.addresses
    "peer.high",
    "peer.low",
    "wake",
    "reason",  # engine.protocol.ha.wire.CloseReason: why the slot's last connection ended
    "ended_at_ms",
)
HA_CLIENT = (
    "state", "last_read_ms", "last_write_ms", "transferred_bytes", "master", "master.high", "master.low", "reason",
    "ended_at_ms",
)  # fmt: skip
# How far the log is held by so many replicas, the master counted; moved with enableAutoInSyncReplicas only.
CONFIRM_OFFSETS = {count: f"confirm_offset.{count}" for count in range(2, HA_CONNECTIONS_MAX + 2)}
# How often a connection ended for which reason, on either side.
ENDED = {CloseReason(reason): f"ha_ended.{reason.name}" for reason in CloseReason if reason}
CLIENT_ENDED = {reason: label.replace("ha_ended", "ha_client_ended") for reason, label in ENDED.items()}
ROLES = (
    "writer", "allocator", "flusher", "dispatcher", "ha_listener", "group_transfer", "receiver", "housekeeper",
    "remoting",
)  # fmt: skip
# How often a role died in a row by its own failure at one place; not started again.
ROLE_TROUBLE = ("stuck", "given_up")
SENDERS = tuple(f"sender.{slot}" for slot in range(HA_CONNECTIONS_MAX))


class AddressCursors(NamedTuple):
    """The three words of an address: `engine.board.addresses`."""

    word: Cursor
    high: Cursor
    low: Cursor


class HaConnectionCursors:
    """The words of one slave's connection; all written by its sender."""

    def __init__(self, counters: Counters, slot: int) -> None:
        def cursor(name: str) -> Cursor:
            return counters.cursor(f"ha.{slot}.{name}")

        self.slot = slot
        self.state = cursor("state")
        self.slave_request_offset = cursor("slave_request_offset")
        self.next_transfer_offset = cursor("next_transfer_offset")
        self.slave_ack_offset = cursor("slave_ack_offset")
        self.held_offset = cursor("held_offset")
        self.transferred_bytes = cursor("transferred_bytes")
        self.acks_rejected = cursor("acks_rejected")
        self.last_read_ms = cursor("last_read_ms")
        self.connected_at_ms = cursor("connected_at_ms")
        self.peer = cursor("peer")
        self.peer_address = AddressCursors(self.peer, cursor("peer.high"), cursor("peer.low"))
        self.wake = cursor("wake")
        self.reason = cursor("reason")
        self.ended_at_ms = cursor("ended_at_ms")


class HaClientCursors:
    """The words of a slave's connection to its master; all written by the receiver."""

    def __init__(self, counters: Counters) -> None:
        def cursor(name: str) -> Cursor:
            return counters.cursor(f"ha_client.{name}")

        self.state = cursor("state")
        self.last_read_ms = cursor("last_read_ms")
        self.last_write_ms = cursor("last_write_ms")
        self.transferred_bytes = cursor("transferred_bytes")
        self.master = cursor("master")
        self.master_address = AddressCursors(self.master, cursor("master.high"), cursor("master.low"))
        self.reason = cursor("reason")
        self.ended_at_ms = cursor("ended_at_ms")
        self.ended = {reason: counters.cursor(label) for reason, label in CLIENT_ENDED.items()}


class Board:
    """All counters of one broker, each under the name of its label."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        cursor = counters.cursor
        self.broker_state = cursor("broker_state")
        self.min_physical_offset = cursor("min_physical_offset")
        self.segment_request_offset = cursor("segment_request_offset")
        self.allocated_offset = cursor("allocated_offset")
        self.allocation_errno = cursor("allocation_errno")
        self.max_physical_offset = cursor("max_physical_offset")
        self.recovered_offset = cursor("recovered_offset")
        self.flushed_offset = cursor("flushed_offset")
        self.flush_errno = cursor("flush_errno")
        self.log_flushes = cursor("log_flushes")
        self.reput_from_offset = cursor("reput_from_offset")
        self.disk_state = cursor("disk_state")
        self.disk_used_percent = cursor("disk_used_percent")
        self.running_flags = cursor("running_flags")
        self.deleted_segments = cursor("deleted_segments")
        self.confirm_offset = cursor("confirm_offset")
        self.confirm_offsets = {count: cursor(label) for count, label in CONFIRM_OFFSETS.items()}
        self.confirm_offsets[1] = self.max_physical_offset
        self.in_sync_slaves = cursor("in_sync_slaves")
        self.put_messages = cursor("put_messages")
        self.put_bytes = cursor("put_bytes")
        self.put_refused = cursor("put_refused")
        self.store_timestamp_ms = cursor("store_timestamp_ms")
        self.ha_listen_port = cursor("ha_listen_port")
        self.listen_port = cursor("listen_port")
        self.ha_server_address = AddressCursors(
            cursor("ha_server_address"), cursor("ha_server_address.high"), cursor("ha_server_address.low")
        )
        self.metrics_port = cursor("metrics_port")
        self.broker_permission = cursor("broker_permission")
        self.topics_changes = cursor("topics_changes")
        self.register_name_server_period_ms = cursor("register_name_server_period_ms")
        self.delete_when_hours = cursor("delete_when_hours")
        self.file_reserved_hours = cursor("file_reserved_hours")
        self.disk_max_used_space_percent = cursor("disk_max_used_space_percent")
        self.ha_acks_rejected = cursor("ha_acks_rejected")
        self.ha_ended = {reason: cursor(label) for reason, label in ENDED.items()}
        self.writer_bell = cursor("writer_bell")
        self.ack_bell = cursor("ack_bell")
        self.ha = [HaConnectionCursors(counters, slot) for slot in range(HA_CONNECTIONS_MAX)]
        self.ha_client = HaClientCursors(counters)
        self.heartbeats = {role: cursor(f"heartbeat.{role}") for role in (*ROLES, *SENDERS)}
        self.pids = {role: cursor(f"pid.{role}") for role in (*ROLES, *SENDERS)}
        self.restarts = {role: cursor(f"restarts.{role}") for role in ROLES}
        self.deaths = {role: cursor(f"deaths.{role}") for role in (*ROLES, *SENDERS)}  # within the last minute
        self.stuck, self.given_up = ({role: cursor(f"{name}.{role}") for role in ROLES} for name in ROLE_TROUBLE)

    @classmethod
    def create(cls, path: Path) -> Board:
        """Make the counters region of a new broker; only the supervisor does."""
        per_connection = len(PER_HA_CONNECTION) * HA_CONNECTIONS_MAX
        roles = len(ROLES) * (4 + len(ROLE_TROUBLE)) + len(SENDERS) * 3
        reasons = len(ENDED) + len(CLIENT_ENDED) + len(CONFIRM_OFFSETS)
        counters = Counters.create(path, len(COMMON) + per_connection + len(HA_CLIENT) + reasons + roles)
        for label, kind, owner in COMMON:
            counters.allocate(label, kind=kind, owner=owner)
        for label in CONFIRM_OFFSETS.values():
            counters.allocate(label, kind="gauge", owner="group_transfer")
        for slot in range(HA_CONNECTIONS_MAX):
            for name in PER_HA_CONNECTION:
                counters.allocate(f"ha.{slot}.{name}", kind="gauge", owner=f"sender.{slot}")
        for name in HA_CLIENT:
            counters.allocate(f"ha_client.{name}", kind="gauge", owner="receiver")
        for labels, owner in ((ENDED, "ha_listener"), (CLIENT_ENDED, "receiver")):
            for label in labels.values():
                counters.allocate(label, kind="tally", owner=owner)
        for role in (*ROLES, *SENDERS):
            counters.allocate(f"heartbeat.{role}", kind="heartbeat", owner=role)
            parent = "ha_listener" if role in SENDERS else "supervisor"
            counters.allocate(f"pid.{role}", kind="gauge", owner=parent)
            counters.allocate(f"deaths.{role}", kind="gauge", owner=parent)
        for role in ROLES:
            counters.allocate(f"restarts.{role}", kind="tally", owner="supervisor")
            for name in ROLE_TROUBLE:
                counters.allocate(f"{name}.{role}", kind="gauge", owner="supervisor")
        return cls(counters)

    @property
    def directory(self) -> Path:
        """The region directory that the board lies in, with all of the broker's other regions."""
        return self.counters.path.parent

    @classmethod
    def attach(cls, region_directory: Path, writable: bool = False) -> Board:
        """The counters of a running broker. Raises RegionMissing, RegionMismatch."""
        return cls(Counters.attach(region_directory / COUNTERS_FILE, writable))
