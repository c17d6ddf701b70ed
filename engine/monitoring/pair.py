"""What keeps a broker from its place among its replicas: a log that has parted, a master that is gone, a newer epoch.

Each line ends with the command to type.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.monitoring.finding import Finding, Verdict
from engine.protocol.ha import reign
from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.wire import ADVICE, CODES, TRIED_SOON, CloseReason, ReasonCode
from engine.shared_memory import address_cursors
from engine.shared_memory.addresses import NOWHERE, host_and_port, split
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.region_directory import rival_note
from ipc.clock import monotonic_ms
from store.errors import OwnFileDamaged
from store.notes import divergence, epochs
from store.notes.divergence import Divergence
from store.notes.epochs import Epochs, SaidRole

TWO_MASTERS, NO_TABLES, COPY = "TWO_MASTERS", "NO_TABLES", "COPY"
TABLES_FIRST_MS, TABLES_OLD_MS = 20_000, 60_000  # until they are missed: since a slave's start, since the last ones


def of_the_pair(counters: BrokerCounters, store: str, role: str) -> Iterator[Finding]:
    """Yield what is wrong between the broker on that store, with that brokerRole, and its replicas."""
    try:
        parted, known = divergence.read(store), epochs.read(store)
    except OwnFileDamaged as damaged:
        yield Finding(damaged.code, str(damaged), f"`slipstream doctor {store}`", (str(damaged),))
        return
    if parted is not None:
        what = f"this log and its master's ({parted.master}) differ: nothing is copied"
        look = f"`slipstream ha status {store}`"
        yield Finding(ReasonCode.DIVERGED, what, look, (divergence_line(store, parted),), Verdict.NOT_READY)
    yield from _of_rivals(counters, store)
    follows = counters.ha_client.state.read() == HaClientState.TRANSFER
    if not follows and role == "SLAVE" and known.is_copy_of(_own_name(known, counters)):
        what = f"this store is a copy of the store of the master of epoch {known.last_epoch}, so this broker is a slave"
        promote = f"`slipstream promote {store}`, if the original will never run again"
        yield Finding(COPY, what, promote)
    newer = known.fenced_by if known.is_fenced and known.role is not SaidRole.SLAVE else None
    if newer is not None and not follows:
        who, demote = newer.broker or "another broker", f"`slipstream demote {store} --master HOST:PORT`"
        yield Finding(
            ReasonCode.FENCED,
            f"{who} is the newer master: this broker accepts no messages",
            demote,
            (
                f"{who} is the master of epoch {newer.epoch}, and this log's epoch is {known.last_epoch}: this broker"
                f" accepts no messages. {demote} (its HA port) makes it a slave of that, `slipstream promote {store}`"
                " makes this broker the master again",
            ),
            Verdict.NOT_READY,
        )
    if role == "SLAVE" and parted is None and not follows:
        yield from _of_the_master(counters, store)
    if role == "SLAVE" and follows and (seconds := tables_missing_seconds(counters)) is not None:
        yield Finding(
            NO_TABLES,
            f"no tables of the master for {seconds} s",
            _name_tables(store),
            (
                f"{tables_text(seconds)}: after a promotion, consumers would begin at wrong offsets and delayed"
                f" messages would be delivered again. {_name_tables(store)}",
            ),
        )


def _own_name(known: Epochs, counters: BrokerCounters) -> str:
    """NAME:ID of this broker, whose name is that of all in its epochs."""
    name = known.entries[-1].broker.rpartition(":")[0] if known.entries else ""
    return f"{name}:{counters.own_broker_id.read()}"


def _of_rivals(counters: BrokerCounters, store: str) -> Iterator[Finding]:
    """Other masters of its name, as this master has seen them last: each acknowledges what the others do not have."""
    for one in rival_note.read(counters.directory):
        here = f"here `slipstream demote {store} --master {one.ha_address}`"
        demote = "`slipstream demote STORE --master HOST:PORT` (the HA port of the other one)"
        there = "there `slipstream demote STORE --master HOST:PORT` (the HA port of this one)"
        who = f"{one.broker} at {one.address}"
        long, then = {
            reign.Verdict.OLDER: (f"{who} is also a master, of the older epoch {one.epoch}", there),
            reign.Verdict.EQUAL: (f"{who} claims to be this master, of epoch {one.epoch}: a copy?", "stop one"),
            reign.Verdict.YIELD: (f"{who} is the newer master, of epoch {one.epoch}", here),
            reign.Verdict.UNREACHED: (
                f"a name server calls {one.address} the master of this name, too, and it does not answer this one, so"
                " that both are NOT FENCED",
                f"compare both epochs by `slipstream ha status STORE`; on the one with the older epoch {demote}",
            ),
        }.get(
            reign.Verdict(one.verdict) if one.verdict in tuple(reign.Verdict) else reign.Verdict.NOBODY,
            (f"{who} claims to be the newer master, of epoch {one.epoch}, without proof", f"if so, {here}"),
        )
        line = f"two masters accept messages: {long}. Only one of the two logs can be kept: {then}"
        is_outrun = one.verdict == reign.Verdict.YIELD
        how = Verdict.NOT_READY if is_outrun else Verdict.DEGRADED
        yield Finding(TWO_MASTERS, f"two masters: {long}", then, (line,), how)


def tables_missing_seconds(counters: BrokerCounters) -> int | None:
    """Return for how long a slave has lacked its master's topics, groups and offsets; None while it has them."""
    taken_ms, now_ms = counters.tables_taken_ms.read(), monotonic_ms()
    age_ms = now_ms - abs(taken_ms)
    is_late = age_ms > (TABLES_OLD_MS if taken_ms > 0 else TABLES_FIRST_MS)
    return age_ms // 1000 if taken_ms and is_late else None


def tables_text(seconds: int) -> str:
    """Return the line that says what is missing, and since when."""
    return f"NO_TABLES: topics, groups and offsets of the master were not copied for {seconds} s"


def _name_tables(store: str) -> str:
    return f"set namesrvAddr (a RocketMQ master does not send its own address), or run `slipstream doctor {store}`"


def _of_the_master(counters: BrokerCounters, store: str) -> Iterator[Finding]:
    """Yield why a slave does not follow its master."""
    reason, code = CloseReason(counters.ha_client.reason.read()), connection_code(counters)
    if reason in TRIED_SOON:
        at = address_cursors.text_of(counters.ha_client.master_address)
        short, long = ("its master", "its master") if at == NOWHERE else (f"the master {at}", at)
        then = f"`slipstream doctor {store}`, or promote"
        yield Finding(
            CODES[reason],
            f"{short} does not answer",
            then,
            (
                f"{long} does not answer. If it will not come back, `slipstream promote {store}` makes this broker the"
                " master; docs/operations.md describes what to do with the old one",
            ),
            Verdict.NOT_READY,
        )
    elif code not in (ReasonCode.OK, ReasonCode.DISK):
        why = "its address is not known" if reason is CloseReason.NONE else ADVICE[reason]
        then = f"`slipstream doctor {store}`"
        yield Finding(code, f"does not follow its master: {why}", then, verdict=Verdict.NOT_READY)


def connection_code(counters: BrokerCounters) -> ReasonCode:
    """Return the code of what holds up a slave's connection to its master."""
    reason = CloseReason(counters.ha_client.reason.read())
    if counters.allocation_errno.read():
        return ReasonCode.DISK
    if counters.ha_client.state.read() == HaClientState.TRANSFER:
        return ReasonCode.OK
    return ReasonCode.NO_ADDRESS if reason is CloseReason.NONE else CODES[reason]


def epoch_of(store: str) -> int:
    """The epoch of the log's last bytes; 0 where its file cannot be read, which is a problem of its own."""
    try:
        return epochs.read(store).last_epoch
    except OwnFileDamaged:
        return 0


def divergence_line(store: str, parted: Divergence) -> str:
    """The note, and how the two logs become one again."""
    host, port = split(parted.master)
    listening = host_and_port(host, int(port) - 1) if port.isascii() and port.isdecimal() else "HOST:PORT"
    return (
        f"{parted.text()}. Nothing is copied until you decide: stop this broker; then `slipstream replica rewind"
        f" {store} --with {listening}` (the master's listenPort) cuts off what only this log has, and keeps a copy"
    )
