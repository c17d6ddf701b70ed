"""One snapshot of a broker's replication: each replica's state, reason, lag, rate; why connections ended. No questions.

Implements: HARuntimeInfo, and what RocketMQ has no word for (spec: ha-protocol, 10 runtime info)
Lag in seconds is the age difference between the newest message and the first one that a slave has not acknowledged.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.monitoring.finding import Finding, Verdict, lines_of, verdict_of
from engine.monitoring.findings import findings_of
from engine.monitoring.pair import connection_code, epoch_of
from engine.protocol.ha.group_transfer import SlaveAck, push2_slave_max_offset
from engine.protocol.ha.next_steps import STORE, advice_of
from engine.protocol.ha.policy import put_policy, replicas_needed
from engine.protocol.ha.rates import HaSample, catch_up_seconds, received_rate, replica_rate
from engine.protocol.ha.wire import CODES, CloseReason, ReasonCode
from engine.settings import replication
from engine.shared_memory import address_cursors
from engine.shared_memory.cursors import (
    HA_CONNECTIONS_MAX,
    BrokerCounters,
    BrokerState,
    HaConnectionCursors,
    HaSlotState,
    IdentityState,
)
from engine.shared_memory.ha_samples import read_ha_samples, sample_now
from ipc.clock import monotonic_ms
from store.files.segment_files import SegmentFiles
from store.message.record import FIXED_BYTES, Kind, decode, inspect
from store.reading import extent
from store.reading.history import History, held

CONNECTION_STATES = {int(state): state.name for state in HaSlotState}
CLIENT_STATES = {0: "READY", 1: "HANDSHAKE", 2: "TRANSFER", 3: "SUSPEND", 4: "SHUTDOWN"}
BROKER_STATES = {int(state): state.name for state in BrokerState}
BY_ADDRESS = "address"
KNOWN_BY = {
    int(IdentityState.BY_ADDRESS): BY_ADDRESS,
    int(IdentityState.CLAIMED): "claim",
    int(IdentityState.SIGNED): "signature",
}
NO_MASTER = "the master's address is not known yet: set haMasterAddress or namesrvAddr"
LAG_SCAN_BYTES = 1 << 20


@dataclass(frozen=True)
class ConnectionStatus:
    """A slave's connection, on its master. Offsets and lag in bytes; None: not known yet, or never.

    `replica` is who it says to be, brokerName:brokerId, or its address without the port of the day; `known_by` says how
    that is known.
    """

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
    reason: str = ReasonCode.OK.value
    in_sync: bool = True
    sent_bytes_per_second: float | None = None
    acked_bytes_per_second: float | None = None
    catch_up_seconds: float | None = None
    replica: str = ""
    known_by: str = BY_ADDRESS
    flushed_offset: int | None = None


@dataclass(frozen=True)
class EndedStatus:
    """A slot's last connection, which has ended."""

    peer: str
    reason: str
    close_reason: str
    advice: str
    slave_ack_offset: int
    ended_seconds: float


@dataclass(frozen=True)
class ClientStatus:
    """The connection of a slave to its master; `reason` is the CloseReason of the last one that ended."""

    state: str
    master: str
    transferred_bytes: int
    silent_seconds: float | None
    reason: int
    reason_code: str = ReasonCode.OK.value
    advice: str = ""
    received_bytes_per_second: float | None = None


@dataclass(frozen=True)
class HaStatus:
    """Snapshot of replication that `slipstream ha status` prints."""

    store: str
    cluster: str
    broker_name: str
    role: str
    compat: str
    state: str
    max_physical_offset: int
    confirm_offset: int
    push2_slave_max_offset: int
    in_sync_slaves: int
    replicas_needed: int
    acks_rejected: int
    replicas: list[ConnectionStatus] = field(default_factory=list)
    gone: list[EndedStatus] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=dict)
    client: ClientStatus | None = None
    client_ended: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    history: History | None = None
    epoch: int = 0  # of the log's last bytes; 0 before the first promotion
    findings: list[Finding] = field(default_factory=list)
    verdict: str = Verdict.WELL.name

    def to_json(self) -> dict[str, Any]:
        """Return the snapshot as plain values for json.dumps."""
        return {**asdict(self), "findings": [one.to_json() for one in self.findings]}


def ha_status(store_root: str | os.PathLike[str]) -> HaStatus:
    """Return the replication status of the broker that runs on this store. Raises NoBroker."""
    running = extent.require_running(os.fspath(store_root))
    with closing(BrokerCounters.attach(running.region_directory)) as counters:
        return of_running(running, counters, os.fspath(store_root))


def of_running(running: extent.Running, counters: BrokerCounters, store: str) -> HaStatus:
    """The same with its counters attached already."""
    status = of_counters(counters, read_ha_samples(running.region_directory), store, running.settings)
    findings = findings_of(counters, status)
    return replace(
        status, problems=lines_of(findings), epoch=epoch_of(store), findings=findings, verdict=verdict_of(findings).name
    )


def of_counters(
    counters: BrokerCounters, samples: Sequence[HaSample], store: str, settings: dict[str, Any]
) -> HaStatus:
    """Return what the counters alone show of replication, without problems of other kinds."""
    asked = replication.of_running(settings)
    files = SegmentFiles(Path(settings["storePathCommitLog"]), int(settings["mappedFileSizeCommitLog"]))
    replicas = connections(counters, files, samples, asked.ha_slave_fallbehind_max_bytes, str(settings["brokerName"]))
    acks = [SlaveAck(one.slot, one.slave_ack_offset) for one in replicas if one.state == HaSlotState.TRANSFER.name]
    in_sync = counters.in_sync_slaves.read()
    return HaStatus(
        store=store,
        cluster=str(settings["brokerClusterName"]),
        broker_name=str(settings["brokerName"]),
        role=asked.broker_role,
        compat=asked.compat,
        state=BROKER_STATES.get(counters.broker_state.read(), "UNKNOWN"),
        max_physical_offset=counters.max_physical_offset.read(),
        confirm_offset=counters.confirm_offset.read(),
        push2_slave_max_offset=push2_slave_max_offset(acks),
        in_sync_slaves=in_sync,
        replicas_needed=replicas_needed(put_policy(asked), in_sync),
        acks_rejected=counters.ha_acks_rejected.read() + sum(one.acks_rejected for one in replicas),
        replicas=replicas,
        gone=_gone(counters, store),
        ended={reason.name: count for reason, at in counters.ha_ended.items() if (count := at.read())},
        client=client(counters, samples, store) if asked.broker_role == "SLAVE" else None,
        client_ended={reason.name: count for reason, at in counters.ha_client.ended.items() if (count := at.read())},
        history=held(files, counters.min_physical_offset.read(), counters.max_physical_offset.read()),
    )


def connections(
    counters: BrokerCounters,
    files: SegmentFiles,
    samples: Sequence[HaSample],
    fallbehind_bytes_max: int,
    broker_name: str,
) -> list[ConnectionStatus]:
    """Return the status of each slave that is connected now."""
    now, rows = sample_now(counters, monotonic_ms()), []
    end = now.max_physical_offset
    for slot in range(HA_CONNECTIONS_MAX):
        words = counters.ha[slot]
        state = words.state.read()
        if state == HaSlotState.FREE:
            continue
        ack = words.slave_ack_offset.read()
        lag, rate = max(0, end - ack), replica_rate(samples, now, slot)
        follows = state == HaSlotState.TRANSFER
        in_sync = follows and end - ack < fallbehind_bytes_max
        flushed = words.flushed_offset.read()
        reason = ReasonCode.OK if in_sync else ReasonCode.BEHIND if follows else ReasonCode.NO_REPORT
        rows.append(
            ConnectionStatus(
                slot=slot,
                peer=address_cursors.text_of(words.peer_address),
                state=CONNECTION_STATES.get(state, "UNKNOWN"),
                slave_request_offset=words.slave_request_offset.read(),
                next_transfer_offset=words.next_transfer_offset.read(),
                slave_ack_offset=ack,
                lag_bytes=lag,
                lag_seconds=_lag_seconds(counters, files, ack, end) if follows else None,
                transferred_bytes=words.transferred_bytes.read(),
                acks_rejected=words.acks_rejected.read(),
                connected_seconds=max(0.0, (now.time_ms - words.connected_at_ms.read()) / 1000),
                silent_seconds=max(0.0, (now.time_ms - words.last_read_ms.read()) / 1000),
                reason=reason.value,
                in_sync=in_sync,
                sent_bytes_per_second=rate.sent if rate else None,
                acked_bytes_per_second=rate.acknowledged if rate else None,
                catch_up_seconds=catch_up_seconds(lag, rate) if follows else None,
                replica=_replica(words, broker_name),
                known_by=KNOWN_BY.get(words.identity_state.read(), BY_ADDRESS),
                flushed_offset=None if flushed < 0 else flushed,
            )
        )
    return rows


def _replica(words: HaConnectionCursors, broker_name: str) -> str:
    """Return a slot's slave: its number in this broker's group if it sent one, else its address."""
    peer = address_cursors.text_of(words.peer_address)
    if words.identity_state.read() == IdentityState.BY_ADDRESS:
        return peer.rpartition(":")[0].strip("[]") or peer
    return f"{broker_name}:{words.broker_id.read()}"


def _gone(counters: BrokerCounters, store: str) -> list[EndedStatus]:
    """The last connection of each slot that is free now; a slave that is back sits in its slot again, mostly."""
    now_ms, rows = monotonic_ms(), []
    for words in counters.ha:
        reason = CloseReason(words.reason.read())
        if words.state.read() != HaSlotState.FREE or reason is CloseReason.NONE:
            continue
        rows.append(
            EndedStatus(
                address_cursors.text_of(words.peer_address),
                CODES[reason].value,
                reason.name,
                advice_of(reason, store),
                words.slave_ack_offset.read(),
                max(0.0, (now_ms - words.ended_at_ms.read()) / 1000),
            )
        )
    return rows


def _lag_seconds(counters: BrokerCounters, files: SegmentFiles, ack: int, end: int) -> float | None:
    """Return seconds between the newest message and the oldest one not acknowledged; None where they are unknown."""
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
        inspection = inspect(window, start, ack + start, check_body_crc=False)
        if len(window) - start >= FIXED_BYTES and inspection.kind is Kind.MESSAGE:
            oldest_ms = decode(window, start, check_body_crc=False).store_timestamp_ms
            return max(0.0, (counters.store_timestamp_ms.read() - oldest_ms) / 1000)
        at = window.find(b"\xda\xa3\x20", at + 1)
    return None


def client(counters: BrokerCounters, samples: Sequence[HaSample], store: str = STORE) -> ClientStatus:
    """A slave's connection to its master."""
    words, now_ms = counters.ha_client, monotonic_ms()
    last_read_ms, reason = words.last_read_ms.read(), CloseReason(words.reason.read())
    state = CLIENT_STATES.get(words.state.read(), "UNKNOWN")
    code, advice = connection_code(counters), advice_of(reason, store)
    if counters.allocation_errno.read():
        advice = f"no room for the next segment; next: `df -h {store}`"
    elif code is ReasonCode.OK:
        advice = ""
    elif reason is CloseReason.NONE:
        advice = f"{NO_MASTER}; next: `slipstream doctor {store}`"
    return ClientStatus(
        state=state,
        master=address_cursors.text_of(words.master_address),
        transferred_bytes=words.transferred_bytes.read(),
        silent_seconds=max(0.0, (now_ms - last_read_ms) / 1000) if last_read_ms else None,
        reason=int(reason),
        reason_code=code.value,
        advice=advice,
        received_bytes_per_second=received_rate(samples, sample_now(counters, now_ms)),
    )
