"""What an acknowledgement means, in words, for given settings: pure text, for `slipstream ha explain`.

spec: ha-protocol, 5 timers, 6 put path and acks, 7 status mapping
The words follow from the same policy that answers the puts, so they cannot say anything else than the broker does.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.protocol.ha.ha_settings import HaSettings
from engine.protocol.ha.policy import (
    HA_POLICIES,
    SYNC_MASTER,
    PutPolicy,
    may_append,
    put_policy,
    replicas_needed,
)

SLAVE = "SLAVE"
DISTINCT = (
    "RocketMQ slaves are distinguished by address (on loopback by port). Slipstream slaves are also distinguished by"
    " name, so that one slave with two addresses counts once; if haSecretFile proves the name, by name only, so that"
    " two slaves on one host count twice"
)
FLUSHED = "haAckFlushed: a RocketMQ slave cannot report what is on its disk, so no put waits for it"


class Row(NamedTuple):
    """A name and what is said about it."""

    name: str
    meaning: str


class Explanation(NamedTuple):
    """The page: `now` is empty where no broker runs."""

    title: str
    answers: list[Row]
    survives: list[Row]
    timers: list[Row]
    notes: list[str]
    now: str


def explain(settings: HaSettings, in_sync_slaves: int | None = None) -> Explanation:
    """The explanation; `in_sync_slaves` are those of the running broker."""
    policy = put_policy(settings)
    return Explanation(
        f"{settings.broker_role}, {settings.flush_disk_type}, compat {settings.compat}"
        f" (as RocketMQ {HA_POLICIES[settings.compat].version})",
        _answers(settings, policy),
        _survives(settings, policy),
        _timers(settings, policy),
        _notes(settings, policy),
        "" if in_sync_slaves is None else _now(settings, policy, in_sync_slaves),
    )


def _slaves(count: int) -> str:
    return "one slave" if count == 1 else f"{count} distinct slaves"


def _held_by(settings: HaSettings, policy: PutPolicy) -> str:
    """Say where the message is besides the master; empty where no slave needs to have it."""
    least, most = policy.replicas_least - 1, policy.in_sync_replicas - 1
    if most == 0:
        return ""
    where = "on the disks of" if settings.ha_ack_flushed else "in the logs of"
    if not policy.replicas_min:
        return f"{where} {_slaves(most)}"
    return f"{where} as many slaves as were in sync at the put: at least {least}, at most {most}"


def _answers(settings: HaSettings, policy: PutPolicy) -> list[Row]:
    if settings.broker_role == SLAVE:
        return [Row("no puts", "a slave copies its master's log and refuses messages")]
    disk = "on the master's disk (fdatasync)" if policy.wait_for_flush else "in the master's log, not yet on its disk"
    held = _held_by(settings, policy)
    appended = ", appended there, not yet on their disks" if held and not settings.ha_ack_flushed else ""
    rows = [Row("PUT_OK", f"{disk}; {held or 'the put waits for no slave'}{appended}")]
    rows.append(Row("FLUSH_DISK_TIMEOUT", _late_disk(settings, policy)))
    if held:
        late = f"stored, but not confirmed by them within slaveTimeout ({settings.slave_timeout_ms} ms)"
        rows.append(Row("FLUSH_SLAVE_TIMEOUT", late))
    if held and policy.refuse_without_slave:
        gap = f"{HA_POLICIES[settings.compat].gap_key} ({settings.ha_slave_fallbehind_max_bytes} bytes)"
        rows.append(Row("SLAVE_NOT_AVAILABLE", f"stored, at once, if too few slaves are less than {gap} behind"))
    if policy.check_before_append:
        few = "not stored: fewer replicas are in sync than the put must wait for"
        rows.append(Row("IN_SYNC_REPLICAS_NOT_ENOUGH", few))
    rows.append(Row("SERVICE_NOT_AVAILABLE", "not stored: the disk is too full, or this broker is a slave"))
    rows.append(Row("PUT_OK with WAIT=false", "in the master's log: the put waits for neither disk nor slaves"))
    return rows


def _late_disk(settings: HaSettings, policy: PutPolicy) -> str:
    failed = "stored, but an fsync of the master failed: it may be lost"
    if not policy.wait_for_flush:
        return failed
    return f"stored, but not on disk within syncFlushTimeout ({settings.sync_flush_timeout_ms} ms); or {failed}"


def _survives(settings: HaSettings, policy: PutPolicy) -> list[Row]:
    """Return what happens to a message that was answered with PUT_OK."""
    if settings.broker_role == SLAVE:
        return []
    always_held = policy.replicas_least > 1
    until = f"until the next flush (flushIntervalCommitLog, {settings.flush_interval_commit_log_ms} ms, or later)"
    lost = "lost if no slave has fetched it yet"
    kept = "kept by the slaves; promote one of them, or copy its log back"
    alone = "kept on its disk" if policy.wait_for_flush else f"{until} it may be {lost}"
    disks = ["the master's disk"] * policy.wait_for_flush + ["the slaves' disks"] * (
        always_held and settings.ha_ack_flushed
    )
    return [
        Row("a process of the broker is killed", "kept: the log is in the page cache, which outlives processes"),
        Row("the master's host loses power", kept if always_held and not policy.wait_for_flush else alone),
        Row("the master's host or disk is lost", kept if always_held else lost),
        Row(
            "all hosts lose power at once",
            f"kept on {' and on '.join(disks)}" if disks else f"{until} it may be lost everywhere",
        ),
    ]


def _timers(settings: HaSettings, policy: PutPolicy) -> list[Row]:
    rows = [
        Row(
            f"haSendHeartbeatInterval = {settings.ha_send_heartbeat_interval_ms} ms",
            "a side that sent nothing for this long sends an empty frame",
        ),
        Row(
            f"haHousekeepingInterval = {settings.ha_housekeeping_interval_ms} ms",
            "a side that received nothing for this long disconnects; a dead slave counts as connected until then",
        ),
        Row(
            f"haReconnectInterval = {settings.ha_reconnect_interval_ms} ms",
            "longest time until a slave connects again; after a connection that worked it connects at once",
        ),
        Row(f"haTransferBatchSize = {settings.ha_transfer_batch_bytes} bytes", "the longest frame"),
    ]
    if settings.ha_flow_control_enable:
        limit = f"maxHaTransferByteInSecond = {settings.max_ha_transfer_byte_in_second} bytes/s"
        rows.append(Row(limit, "limit for each slave, even while it catches up"))
    if policy.in_sync_replicas > 1:
        rows.append(Row(f"slaveTimeout = {settings.slave_timeout_ms} ms", "the longest wait of a put for slaves"))
    if policy.wait_for_flush:
        rows.append(Row(f"syncFlushTimeout = {settings.sync_flush_timeout_ms} ms", "the longest wait for the disk"))
    return rows


def _notes(settings: HaSettings, policy: PutPolicy) -> list[str]:
    rules, notes = HA_POLICIES[settings.compat], []
    if settings.broker_role == SYNC_MASTER:
        own = rules.own_replicas - 1
        notes.append(
            f"RocketMQ {rules.version} itself waits for {_slaves(own) if own else 'no slave'} when inSyncReplicas"
            " is not written; Slipstream waits for one slave unless inSyncReplicas=1 is written"
        )
        notes.append(DISTINCT)
        if not rules.waits_for_several and settings.in_sync_replicas > 2:
            asked = "Slipstream waits for all of them"
            notes.append(f"{settings.compat} has no inSyncReplicas and waits for one slave; {asked}")
    if settings.broker_role == SYNC_MASTER and policy.in_sync_replicas == 1:
        notes.append("inSyncReplicas=1: this SYNC_MASTER acknowledges as an ASYNC_MASTER does")
    if settings.ha_ack_flushed:
        notes.append(FLUSHED if policy.in_sync_replicas > 1 else "haAckFlushed has no effect: puts wait for no slave")
    if policy.replicas_min == 1 and policy.in_sync_replicas > 1:
        notes.append("minInSyncReplicas=1: without a slave in sync the master acknowledges alone")
    if settings.enable_auto_in_sync_replicas and not policy.replicas_min:
        takes = "compat=5, brokerRole=SYNC_MASTER and enableSlaveActingMaster=true"
        notes.append(f"enableAutoInSyncReplicas has no effect: it needs {takes}")
    return notes


def _now(settings: HaSettings, policy: PutPolicy, in_sync_slaves: int) -> str:
    if settings.broker_role == SLAVE:
        return ""
    needed = replicas_needed(policy, in_sync_slaves)
    there = f"{in_sync_slaves} slave(s) in sync"
    if not may_append(policy, in_sync_slaves):
        return f"{there}: a put is refused now with IN_SYNC_REPLICAS_NOT_ENOUGH, {needed} replicas are needed"
    if needed == 1:
        return f"{there}: a put waits for no slave now"
    if in_sync_slaves >= needed - 1:
        return f"{there}: a put waits for {_slaves(needed - 1)} now"
    if policy.refuse_without_slave:
        return f"{there}: a put is stored and answered SLAVE_NOT_AVAILABLE now, {needed - 1} needed"
    late = f"a put waits {settings.slave_timeout_ms} ms now, then returns FLUSH_SLAVE_TIMEOUT"
    return f"{there}: {late}; {needed - 1} needed"
