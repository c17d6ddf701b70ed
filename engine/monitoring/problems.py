"""What keeps a broker from its work, the worst first: of its disk, its roles, its clients, its pair. No questions.

At length, `problems`, it is what `ha status` and `/metrics` show; `findings` has it in a line each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.monitoring.client_status import SERVICES, client_findings
from engine.monitoring.finding import Finding, Verdict, lines_of, stalled
from engine.monitoring.pair import of_the_pair
from engine.protocol.ha.next_steps import STORE
from engine.protocol.ha.wire import ReasonCode
from engine.protocol.store.retention import DiskState
from engine.shared_memory.cursors import FRONTS, SENDERS, SPARE_ROLES, BrokerCounters, BrokerState
from engine.shared_memory.failures import FILES_GONE, Failing, errno_text, failing, is_unreadable
from store.files import set_aside
from store.names import AUDIT, CONFIG

REMEDIES = {
    "dispatcher": "`slipstream log verify STORE` lists the damage, `slipstream log repair` repairs it from a replica",
}
STUCK, FILES_REMOVED, TABLE, UNSERVED = "STUCK", "FILES_REMOVED", "TABLE", "UNSERVED"


def problems(counters: BrokerCounters, store: str, role: str) -> list[str]:
    """Return the findings as lines; an empty list when all is well. Raises RegionMissing."""
    return lines_of(what_stops(counters, store, role))


def what_stops(counters: BrokerCounters, store: str, role: str) -> Iterator[Finding]:
    """Yield what is wrong with the broker on that store, with that brokerRole. Raises RegionMissing."""
    yield from of_the_disk(counters, store, is_slave=role == "SLAVE")
    for one in failing(counters, counters.directory):
        yield of_a_role(one, store, mute=role == "SLAVE" and is_unreadable(counters))
    for name, seconds in stalled(counters).items():
        if name not in (*FRONTS, *SERVICES):  # which `client_findings` has
            what = f"the {name} role has not moved for {seconds} s"
            look = f"the broker's log; process {counters.pids[name].read()}"
            yield Finding(STUCK, what, look, verdict=_of_one_that_rests(name))
    yield from _of_ports(counters)
    yield from of_the_tables(counters, store)
    yield from client_findings(counters, store)
    yield from of_the_pair(counters, store, role)


def _of_one_that_rests(role: str) -> Verdict:
    """Return the verdict for a role that stopped or is given up: senders and spare roles only degrade a broker."""
    return Verdict.DEGRADED if role in (*SENDERS, *SPARE_ROLES) else Verdict.NOT_READY


def _of_ports(counters: BrokerCounters) -> Iterator[Finding]:
    """Yield a finding for each port that a running role has not bound, unless a front's own findings say why."""
    if counters.broker_state.read() != BrokerState.RUNNING:
        return
    is_told = any(words.listen_errno.read() for words in counters.fronts)
    for port, name, role in (
        (counters.listen_port, "listenPort", "front.0"),
        (counters.ha_listen_port, "haListenPort", "ha_listener"),
    ):
        if counters.pids[role].read() > 0 and not port.read() and not (is_told and role in FRONTS):
            what = f"{name} is not bound yet"
            yield Finding(ReasonCode.NO_LISTENER, what, "the broker's log says why", verdict=Verdict.NOT_READY)


def of_the_tables(counters: BrokerCounters, store: str) -> Iterator[Finding]:
    """Tables that cannot be written, or ask for what is not done; and those whose files were damaged, as long as these
    lie beside them."""
    if errno := counters.tables_errno.read():
        config = Path(store) / CONFIG
        what = f"topics, groups or offsets cannot be written ({errno_text(errno)}): a restart would lose the changes"
        look = f"the broker's log names the file; check `df -h {config}` and permissions; it retries each second"
        yield Finding(TABLE, what, look, (f"{what}; {look}",))
    if count := counters.unserved_topics.read():
        topics = "topic has an attribute" if count == 1 else "topics have an attribute"
        what = f"{count:,} {topics} that this broker does not obey: COMPACTION keeps no newest message of a key"
        look = "the broker's log names them; serve them with RocketMQ 5, or `slipstream admin deleteTopic`"
        yield Finding(UNSERVED, what, look, (f"{what}; {look}",))
    for aside in set_aside.all_in(Path(store) / CONFIG):
        table = set_aside.name_of(aside)
        what = f"{table} was damaged and renamed to {aside.name}; entries may be missing or old"
        look = f"the broker's log says what it used instead; restore what is missing, then remove {aside}"
        yield Finding(TABLE, what, look, (f"{what}; {look}",))


def of_a_role(one: Failing, store: str = STORE, *, mute: bool = False) -> Finding:
    """Return the finding about a failing role; `mute`: a slave that does not acknowledge because of it."""
    is_log = one.role == "dispatcher"
    look = f"`slipstream log verify {store}`" if is_log else "the broker's log, then restart it"
    if one.is_given_up:
        code = ReasonCode.UNREADABLE if is_log else ReasonCode.KILLED
        why = one.error or "see the broker's log"
        remedy = REMEDIES.get(one.role, "see the broker's log for details")
        what = f"the {one.role} died repeatedly at the same place and was given up"
        long = f"{what}: {why}. {remedy}; then restart the broker"
        death = "was given up"
    else:
        code, death = ReasonCode.KILLED, f"died {one.deaths} times within a minute"
        why = one.error or "see the broker's log"
        long = f"the {one.role} dies again and again, {one.deaths} times within the last minute: {why}"
    consequence = (
        "this slave does not acknowledge: it cannot read what it received (see the dispatcher's error). It has closed"
        " the connection to its master, which counts it as not in sync",
    )
    lines = (long, *consequence) if is_log and mute else (long,)
    verdict = _of_one_that_rests(one.role)
    if one.is_given_up and verdict is Verdict.NOT_READY:
        verdict = Verdict.DEAD
    return Finding(code, f"the {one.role} {death}: {one.error or 'see the log'}", look, lines, verdict)


def _of_a_failed_flush(counters: BrokerCounters, errno: int) -> Finding:
    why, flushed = errno_text(errno), counters.flushed_offset.read()
    is_gone = errno == FILES_GONE
    remedy = "put the files back or restore them from a replica" if is_gone else "check the disk"
    return Finding(
        ReasonCode.DISK,
        f"flush failed ({why}): nothing is acknowledged above {flushed:,}",
        f"{remedy}, then restart the broker",
        (
            f"the disk failed ({why}): messages above offset {flushed:,} may be lost, and no message is"
            f" acknowledged any more. {remedy.capitalize()}, then restart the broker: it recovers what is on disk",
        ),
        Verdict.DEAD,
    )


def of_the_disk(counters: BrokerCounters, store: str = STORE, *, is_slave: bool = False) -> Iterator[Finding]:
    """Yield what is wrong with the disk. A slave goes on copying where a master takes no more messages."""
    df, disk = f"free space: `df -h {store}`", ReasonCode.DISK
    if errno := counters.flush_errno.read():
        yield _of_a_failed_flush(counters, errno)
    state = DiskState(counters.disk_state.read())
    if state > DiskState.NORMAL:
        used = f"used to {counters.disk_used_percent.read()} %"
        is_closed = state >= DiskState.READ_ONLY
        effect = "messages are refused" if is_closed else "files are deleted early"
        yield Finding(
            disk,
            f"{used} ({state.name}): {effect}",
            df,
            (
                f"the disk is {state.name} ({used}): {effect}. Free some space, or keep messages for a shorter time"
                " (fileReservedTime); the broker checks each second",
            ),
            Verdict.NOT_READY if is_closed and not is_slave else Verdict.DEGRADED,
        )
    if errno := counters.allocation_errno.read():
        what = f"no new segment can be created ({errno_text(errno)})"
        yield Finding(
            disk,
            what,
            df,
            (
                f"{what}: messages are refused once the last one is full. Free some space on the store's file system;"
                " the broker retries each second",
            ),
            Verdict.NOT_READY if is_slave else Verdict.DEGRADED,
        )
    if vanished := counters.vanished_files.read():
        what = f"{vanished} files of log, queues or index were deleted under the running broker (`vanish` in {AUDIT})"
        yield Finding(
            FILES_REMOVED,
            what,
            "restart the broker",
            (
                f"{what}: messages in them cannot be read. Restart the broker, which rebuilds queues and index from"
                " the log; restore segments from a replica",
            ),
        )
    if errno := counters.dispatch_errno.read():
        lag = counters.max_physical_offset.read() - counters.reput_from_offset.read()
        what = f"queues and index wait for disk space ({errno_text(errno)}): {lag:,} bytes of log are not in them yet"
        yield Finding(
            disk,
            what,
            df,
            (
                f"{what}, so consumers cannot pull them. Free some space on the store's file system; the broker retries"
                " each second, and nothing is lost",
            ),
        )
