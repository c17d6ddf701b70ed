"""`slipstream promote` and `demote`, at work: a role is asked for, and waited for."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from engine.monitoring.pair import divergence_line, tables_missing_seconds, tables_text
from engine.protocol.ha.client import HaClientState
from engine.remoting.peers.fencing import Master
from engine.shared_memory.addresses import host_and_port, split
from engine.shared_memory.cursors import BrokerCounters, BrokerState, Reign
from engine.shared_memory.failures import is_unreadable
from engine.shared_memory.region_directory import role_request
from engine.shared_memory.region_directory.role_request import ROLE_SIGNAL, RoleRequest
from ipc.descriptors import closing_fd
from ipc.errors import IpcError
from ipc.process import is_alive, namespace
from store.errors import StoreError, StoreLocked
from store.files.directory import StoreDirectory, store_directory
from store.notes import divergence, epochs
from store.reading.extent import Running, running
from store.repair.rebuild import locked
from tools.common.exit_codes import ExitCode
from tools.common.output_form import json_text
from tools.replica import succession
from tools.replica.succession import LOOK_SECONDS, RoleRefused, Slave
from tools.replica.undelivered import undelivered

SLAVE = "SLAVE"
FOLLOW_SECONDS = 10.0  # until the new slave's first connection is expected to stand, or to have ended


def promote(store: Path, force: bool, switch: bool, master: str | None, timeout: float, as_json: bool) -> int:
    """Make the broker on STORE the master."""
    directory, until = store_directory(store), time.monotonic() + timeout
    if (parted := divergence.read(store)) is not None:
        remedy = f"decide which log counts: `slipstream replica check {store} --with {parted.master}` shows details"
        raise RoleRefused(store, parted.text(), remedy)
    broker = running(store)
    if broker is None:
        return _promote_stopped(directory, force, master, as_json)
    with _alone(store, broker), closing(BrokerCounters.attach(broker.region_directory)) as counters:
        slave = Slave(store, broker, counters)
        _require_slave(store, broker, slave.counters)
        old = succession.master_of(slave, master)
        epoch = max(old.extent.next_epoch, epochs.read(store).next_epoch) if old else 0
        if switch:
            succession.switch(slave, old, epoch, until)
        elif not force:
            succession.refuse_beside_master(slave, master)
        fences = slave.can_ask and slave.said_remoting is not None
        if (seconds := tables_missing_seconds(slave.counters)) is not None:
            click.echo(tables_text(seconds), err=True)
        wanted = RoleRequest(to_master=True, tables_from=old.address if old else "", epoch=epoch)
        now = _ask(broker, wanted, store, until, lambda role: role != SLAVE)
    _tell_promoted(store, now, old, as_json, is_switched=switch, fences=fences)
    return 0


def _tell_promoted(
    store: Path, now: Running, old: Master | None, as_json: bool, *, is_switched: bool, fences: bool
) -> None:
    """Print what the broker is now, and what becomes of the master before it: fenced only where that fences itself."""
    begun, own_ha = epochs.read(store).entries[-1], _ha_address(now)
    lines = [
        f"{now.settings['brokerRole']}: {begun.broker} is the master of epoch {begun.epoch}, from offset"
        f" {begun.start_offset} on; it accepts messages"
    ]
    if is_switched and old is not None:
        lines.append(f"{old.address} is now its slave")
    elif fences:
        lines.append(
            "the old master is fenced: once it runs, it asks every second for the present master, and becomes its slave"
            " as soon as it has an answer"
        )
    else:
        lines.append(
            "NOT FENCED: nothing prevents the old master from accepting messages when it comes back. On its host,"
            f" before it starts: `slipstream demote STORE --master {own_ha}` (for a RocketMQ broker: brokerRole=SLAVE"
            " in its file)"
        )
    lost = undelivered(store)
    lines += lost.lines()
    fields = {
        "running": True,
        "role": str(now.settings["brokerRole"]),
        "broker": begun.broker,
        "epoch": begun.epoch,
        "startOffset": begun.start_offset,
        "oldMaster": old and old.address,
        "steppedDown": is_switched,
        "fenced": is_switched or fences,
        "pendingTimers": lost.timers,
        "popped": lost.popped,
    }
    _say("promote", fields, lines, as_json)


def _ha_address(broker: Running) -> str:
    """Return where it sends its log from, for the command that another broker follows it by."""
    host, _port = split(str(broker.settings["storeHost"]))
    return host_and_port(host, int(broker.settings["haListenPort"]))


@contextmanager
def _alone(store: Path, broker: Running) -> Iterator[None]:
    """Keep other commands from changing this broker's role in the block. Raises RoleRefused."""
    lock = broker.region_directory / role_request.LOCK
    with closing_fd(os.open(lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            why = "another `slipstream promote` or `demote` of this store is running"
            raise RoleRefused(store, why, f"wait until it has ended, then see `slipstream ha status {store}`") from None
        yield


def _promote_stopped(directory: StoreDirectory, force: bool, master: str | None, as_json: bool) -> int:
    try:
        with locked(directory):
            if not force:
                succession.require_no_living(directory.root, master)
            epochs.write(directory.root, epochs.read(directory.root).promoting(is_forced=force))
    except StoreLocked as taken:
        why = f"its broker starts, stops or changes its role just now ({taken})"
        raise RoleRefused(directory.root, why, f"see `slipstream ha status {directory.root}`, then try again") from None
    fields: dict[str, Any] = dict.fromkeys(("role", "broker", "epoch", "startOffset", "oldMaster"))
    line = "no broker runs on this store; its next start makes it a master, whatever its file says"
    line += "" if force else "; that start is refused while another master answers"
    lost = undelivered(directory.root)
    fields |= {"steppedDown": False, "fenced": False, "pendingTimers": lost.timers, "popped": lost.popped}
    _say("promote", {"running": False, **fields}, [line, *lost.lines()], as_json)
    return 0


def _say(schema: str, fields: dict[str, Any], lines: list[str], as_json: bool) -> None:
    for line in [json_text(schema, fields)] if as_json else lines:
        click.echo(line)


def _require_slave(store: Path, broker: Running, counters: BrokerCounters) -> None:
    if broker.settings["brokerRole"] != SLAVE:
        raise RoleRefused(store, "this broker is already a master", "check the others: `slipstream ha status STORE`")
    if is_unreadable(counters) or counters.flush_errno.read():
        why = "its log is incomplete: it cannot read what it received, or cannot flush it to disk"
        raise RoleRefused(store, why, f"`slipstream status {store}` says what is wrong")


def demote(store: Path, master: str | None, timeout: float, as_json: bool) -> int:
    """Make the broker on STORE a slave."""
    directory, until = store_directory(store), time.monotonic() + timeout
    broker = running(store)
    if broker is None:
        with locked(directory):
            epochs.write(directory.root, epochs.read(directory.root).demoted(master or ""))
        line = "no broker runs on this store; its next start makes it a slave, whatever its file says"
        fields = {"running": False, "role": None, "brokerId": None, "master": master, "diverged": None}
        _say("demote", fields, [line], as_json)
        return 0
    if master is None and not broker.settings.get("namesrvAddr"):
        raise RoleRefused(store, "no name server knows its master", "give its master's HA port with --master HOST:PORT")
    wanted = RoleRequest(to_master=False, master=master or "")
    with _alone(store, broker):
        now = _ask(broker, wanted, store, until, lambda role: role == SLAVE)
    number = now.settings["brokerId"]
    if not as_json:
        click.echo(f"{SLAVE}: id {number}, follows {master or 'the master that its name servers name'}")
    parted = _divergence_told(store, now)
    now_it_is = {"running": True, "role": SLAVE, "brokerId": int(number), "master": master, "diverged": parted}
    _say("demote", now_it_is, [f"{parted}; then start it again"] if parted else [], as_json)
    return ExitCode.FOUND if parted else 0


def _divergence_told(store: Path, broker: Running) -> str | None:
    """Wait for the first word of its master: what to type where the logs have parted, None where they have not."""
    until = time.monotonic() + FOLLOW_SECONDS
    with closing(BrokerCounters.attach(broker.region_directory)) as counters:
        while time.monotonic() < until:
            if (parted := divergence.read(store)) is not None:
                return divergence_line(str(store), parted)
            if (
                counters.ha_client.state.read() == HaClientState.TRANSFER
                and counters.ha_client.transferred_bytes.read()
            ):
                break
            time.sleep(LOOK_SECONDS)
    return None


def _is_near(broker: Running) -> bool:
    """Whether its pid means the same process here: not in another PID namespace."""
    fields = StoreDirectory(broker.store_root).read_pointer() or {}
    return bool(fields.get("namespace") == namespace() and fields.get("pid") == broker.pid)


def _ask(broker: Running, request: RoleRequest, store: Path, until: float, is_so: Callable[[str], bool]) -> Running:
    """Ask for a role and wait for it: the broker that serves in it. Raises RoleRefused, OSError."""
    is_near = _is_near(broker)
    role_request.write(broker.region_directory, request)
    if is_near and is_alive(broker.pid, broker.start_time):
        with suppress(ProcessLookupError):
            os.kill(broker.pid, ROLE_SIGNAL)  # else its supervisor looks within a second
    return _await_role(store, broker, until, is_so, is_near=is_near)


def _await_role(store: Path, before: Running, until: float, is_so: Callable[[str], bool], *, is_near: bool) -> Running:
    """The broker in its new role, serving. Raises RoleRefused."""
    while time.monotonic() < until:
        if why := role_request.refusal(Path(before.said)):
            raise RoleRefused(store, f"its role was not changed: {why}", "correct that, then run the command again")
        now = running(store)
        if now is not None and now.token != before.token and _serves(now):
            if is_so(str(now.settings["brokerRole"])):
                return now
            _refuse_outrun(store)
            break
        if now is None and is_near and not is_alive(before.pid, before.start_time):
            remedy = "start it again, then check its role: `slipstream status STORE`"
            raise RoleRefused(store, "its broker ended during the change of its role", remedy)
        time.sleep(LOOK_SECONDS)
    raise RoleRefused(store, "the broker did not come up in its new role", "its log says why")


def _refuse_outrun(store: Path) -> None:
    """Raise RoleRefused where another broker has become the master meanwhile."""
    known = epochs.read(store)
    if known.is_fenced and known.fenced_by is not None:
        newer = known.fenced_by
        why = f"{newer.broker} was also promoted and is the master of epoch {newer.epoch}: this broker is its slave"
        raise RoleRefused(store, why, f"check both: `slipstream ha status {store}`")


def _serves(broker: Running) -> bool:
    try:
        counters = BrokerCounters.attach(broker.region_directory)
    except (IpcError, StoreError):
        return False
    with closing(counters):
        return counters.broker_state.read() == BrokerState.RUNNING and counters.reign.read() != Reign.ASKS
