"""One snapshot of a running broker, from its counters alone: no process is asked. All views show this.

Lag in seconds is the age difference between the newest message and the first one that a slave has not acknowledged.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from engine import addresses
from engine.cursors import COMMON, HA_CONNECTIONS_MAX, ROLES, SENDERS, Board
from engine.protocol.retention import DiskState
from engine.role import wall_clock_ms
from engine.store_stats import stats
from store import published
from store.record import FIXED_BYTES, Kind, decode, inspect
from store.segment_files import SegmentFiles

CONNECTION_STATES = {0: "FREE", 1: "CONNECTED", 2: "TRANSFER"}
CLIENT_STATES = {0: "READY", 1: "HANDSHAKE", 2: "TRANSFER", 3: "SUSPEND", 4: "SHUTDOWN"}
BROKER_STATES = {0: "STARTING", 1: "RUNNING", 2: "STOPPING"}
CPU_SAMPLE_SECONDS = 0.2
LAG_SCAN_BYTES = 1 << 20


@dataclass(frozen=True)
class ConnectionStatus:
    """A slave's connection, on its master. Offsets and lag in bytes."""

    slot: int
    peer: str
    state: str
    slave_request_offset: int
    next_transfer_offset: int
    slave_ack_offset: int
    lag_bytes: int
    lag_seconds: float | None
    transferred_bytes: int
    acks_rejected: int
    connected_seconds: float
    silent_seconds: float


@dataclass(frozen=True)
class ClientStatus:
    """The connection of a slave to its master."""

    state: str
    master: str
    transferred_bytes: int
    silent_seconds: float | None
    reason: int


@dataclass(frozen=True)
class ProcessStatus:
    """One process of the broker; memory in bytes, CPU in percent of one core."""

    role: str
    pid: int
    restarts: int
    heartbeat_age_seconds: float | None
    cpu_percent: float
    rss_bytes: int
    pss_bytes: int


@dataclass(frozen=True)
class PutStatus:
    """The short form of `slipstream stats`: messages a second over the windows, how long the answered puts took."""

    messages: int
    messages_per_second: dict[str, float]
    p50_us: int
    p99_us: int


@dataclass(frozen=True)
class Status:
    """What `slipstream status` shows."""

    store: str
    broker_name: str
    role: str
    flush_disk_type: str
    state: str
    pid: int
    ha_listen_port: int
    cursors: dict[str, int]
    connections: list[ConnectionStatus] = field(default_factory=list)
    client: ClientStatus | None = None
    processes: list[ProcessStatus] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    puts: PutStatus | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, for json.dumps."""
        return asdict(self)


def snapshot(store_root: str | os.PathLike[str], *, cpu_sample_seconds: float = CPU_SAMPLE_SECONDS) -> Status:
    """The broker that runs on this store, now. Raises NoBroker."""
    running = published.require_running(os.fspath(store_root))
    board = Board.attach(running.region_directory)
    settings = running.settings
    files = SegmentFiles(Path(settings["storePathCommitLog"]), int(settings["mappedFileSizeCommitLog"]))
    slave = settings["brokerRole"] == "SLAVE"
    try:
        return Status(
            store=os.fspath(store_root),
            broker_name=str(settings["brokerName"]),
            role=str(settings["brokerRole"]),
            flush_disk_type=str(settings["flushDiskType"]),
            state=BROKER_STATES.get(board.broker_state.read(), "UNKNOWN"),
            pid=running.pid,
            ha_listen_port=board.ha_listen_port.read(),
            cursors={label: board.counters.cursor(label).read() for label, _kind, _owner in COMMON},
            connections=_connections(board, files),
            client=_client(board) if slave else None,
            processes=_processes(board, running.pid, cpu_sample_seconds),
            problems=_problems(board),
            puts=_puts(store_root),
        )
    finally:
        board.counters.close()


def _puts(store_root: str | os.PathLike[str]) -> PutStatus:
    found = stats(store_root)
    rates = {window: found_rate.messages for window, found_rate in found.rates.items()}
    percentiles = found.latency.percentiles_us
    return PutStatus(found.put_messages, rates, percentiles["50"], percentiles["99"])


def _problems(board: Board) -> list[str]:
    """What keeps the broker from its work, in words; nothing when all is well."""
    problems = []
    flush_errno, allocation_errno = board.flush_errno.read(), board.allocation_errno.read()
    if flush_errno:
        flushed = board.flushed_offset.read()
        problems.append(
            f"the disk failed ({_reason(flush_errno)}): what lies above offset {flushed:,} may be lost, and no message"
            " is acknowledged any more. Check the disk, then restart the broker: it recovers what is there"
        )
    disk_state = DiskState(board.disk_state.read())
    if disk_state > DiskState.NORMAL:
        refused = "messages are refused" if disk_state >= DiskState.READ_ONLY else "files go before their time"
        problems.append(
            f"the disk is {disk_state.name} (used to {board.disk_used_percent.read()} %): {refused}."
            " Free space, or keep messages for less long (fileReservedTime): it is looked at each second"
        )
    if allocation_errno:
        problems.append(
            f"no new segment can be made ({_reason(allocation_errno)}): messages are refused once the last one is full."
            " Free space on the store's file system: it is tried again each second"
        )
    return problems


def _reason(number: int) -> str:
    return os.strerror(number) if number > 0 else "unknown error"


def _connections(board: Board, files: SegmentFiles) -> list[ConnectionStatus]:
    now_ms, end = wall_clock_ms(), board.max_physical_offset.read()
    found = []
    for slot in range(HA_CONNECTIONS_MAX):
        words = board.ha[slot]
        state = words.state.read()
        if state == 0:
            continue
        ack = words.slave_ack_offset.read()
        found.append(
            ConnectionStatus(
                slot=slot,
                peer=addresses.text_of(words.peer_address),
                state=CONNECTION_STATES.get(state, "UNKNOWN"),
                slave_request_offset=words.slave_request_offset.read(),
                next_transfer_offset=words.next_transfer_offset.read(),
                slave_ack_offset=ack,
                lag_bytes=max(0, end - ack),
                lag_seconds=_lag_seconds(board, files, ack, end) if state == 2 else None,
                transferred_bytes=words.transferred_bytes.read(),
                acks_rejected=words.acks_rejected.read(),
                connected_seconds=max(0.0, (now_ms - words.connected_at_ms.read()) / 1000),
                silent_seconds=max(0.0, (now_ms - words.last_read_ms.read()) / 1000),
            )
        )
    return found


def _lag_seconds(board: Board, files: SegmentFiles, ack: int, end: int) -> float | None:
    """Seconds between the newest message and the oldest one not acknowledged; None when that cannot be told."""
    if ack >= end:
        return 0.0
    try:
        with files.open(files.base_of(ack)) as segment:
            begin = ack - segment.base_offset
            window = bytes(segment.view[begin : min(begin + LAG_SCAN_BYTES, end - segment.base_offset)])
    except FileNotFoundError:
        return None
    at = window.find(b"\xda\xa3\x20", 4)
    while at >= 0:
        start = at - 4
        found = inspect(window, start, ack + start, check_body_crc=False)
        if len(window) - start >= FIXED_BYTES and found.kind is Kind.MESSAGE:
            oldest_ms = decode(window, start, check_body_crc=False).store_timestamp_ms
            return max(0.0, (board.store_timestamp_ms.read() - oldest_ms) / 1000)
        at = window.find(b"\xda\xa3\x20", at + 1)
    return None


def _client(board: Board) -> ClientStatus:
    words = board.ha_client
    last_read_ms = words.last_read_ms.read()
    return ClientStatus(
        state=CLIENT_STATES.get(words.state.read(), "UNKNOWN"),
        master=addresses.text_of(words.master_address),
        transferred_bytes=words.transferred_bytes.read(),
        silent_seconds=max(0.0, (wall_clock_ms() - last_read_ms) / 1000) if last_read_ms else None,
        reason=words.reason.read(),
    )


def _processes(board: Board, supervisor_pid: int, cpu_sample_seconds: float) -> list[ProcessStatus]:
    pids = {"supervisor": supervisor_pid}
    pids.update({role: board.pids[role].read() for role in (*ROLES, *SENDERS) if board.pids[role].read() > 0})
    handles = {}
    for role, pid in pids.items():
        try:
            handles[role] = psutil.Process(pid)
            handles[role].cpu_percent()
        except psutil.NoSuchProcess:
            continue
    psutil.cpu_percent(interval=cpu_sample_seconds)
    now_ms = wall_clock_ms()
    found = []
    for role, handle in handles.items():
        beat_ms = board.heartbeats[role].read() if role in board.heartbeats else 0
        try:
            memory = handle.memory_full_info()
            found.append(
                ProcessStatus(
                    role=role,
                    pid=handle.pid,
                    restarts=board.restarts[role].read() if role in board.restarts else 0,
                    heartbeat_age_seconds=max(0.0, (now_ms - beat_ms) / 1000) if beat_ms else None,
                    cpu_percent=handle.cpu_percent(),
                    rss_bytes=memory.rss,
                    pss_bytes=memory.pss,
                )
            )
        except psutil.NoSuchProcess:
            continue
    return found
