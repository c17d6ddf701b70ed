"""`slipstream promote` and `demote`, at work: a role is asked for, and waited for."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from engine.board import address_cursors, role_request
from engine.board.addresses import host_and_port, split
from engine.board.cursors import Board, BrokerState
from engine.board.failures import is_unreadable
from engine.board.role_request import ROLE_SIGNAL, RoleRequest
from engine.errors import EngineError
from engine.figures.pair import divergence_line
from engine.protocol.broker.log_requests import Extent
from engine.protocol.ha.client import HaClientState
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.peers import fencing
from engine.remoting.peers.log_peer import NotOurs, asked_extent
from engine.remoting.sockets.client import RemotingClient
from ipc.clock import monotonic_ms
from ipc.errors import IpcError
from ipc.process import is_alive, namespace
from store.errors import StoreError
from store.files import divergence, epochs
from store.files.directory import StoreDirectory, store_directory
from store.reading.extent import Running, running
from store.repair.rebuild import locked
from tools.common.exit_codes import ExitCode
from tools.common.output_form import json_text
from tools.common.tls import tls_of

SLAVE = "SLAVE"
ALIVE_MS = 20_000  # haHousekeepingInterval: a connection that was silent for longer ends
ANSWER_SECONDS, GRACE_SECONDS, LOOK_SECONDS = 5.0, 2.0, 0.05
FOLLOW_SECONDS = 10.0  # until the new slave's first connection is expected to stand, or to have ended


class RoleRefused(EngineError):
    """Raised where a role must not be changed, or was not.

    Next: do what the message ends with; `slipstream ha status STORE` shows both sides.
    """

    code = "ROLE_REFUSED"

    def __init__(self, store: Path, why: str, remedy: str) -> None:
        super().__init__(f"{store}: {why}; {remedy}")


def promote(store: Path, force: bool, switch: bool, master: str | None, timeout: float, as_json: bool) -> int:
    """Make the broker on STORE the master."""
    directory, until = store_directory(store), time.monotonic() + timeout
    if (parted := divergence.read(store)) is not None:
        remedy = f"decide which log counts: `slipstream replica check {store} --with {parted.master}` says more"
        raise RoleRefused(store, parted.text(), remedy)
    broker = running(store)
    if broker is None:
        return _promote_stopped(directory, as_json)
    board = Board.attach(broker.region_directory)
    try:
        _require_slave(store, broker, board)
        old = _master_there(broker, board, master)
        epoch = max(old.extent.next_epoch, epochs.read(store).next_epoch) if old else 0
        if switch:
            _switch(store, broker, board, old, epoch, until)
        elif not force:
            _refuse_beside_master(store, board, lambda: _master_there(broker, board, master))
    finally:
        board.counters.close()
    wanted = RoleRequest(to_master=True, tables_from=old.address if old else "", epoch=epoch)
    now = _ask(broker, wanted, store, until, lambda role: role != SLAVE)
    begun = epochs.read(store).entries[-1]
    lines = [
        f"{now.settings['brokerRole']}: {begun.broker} is the master of epoch {begun.epoch}, from offset"
        f" {begun.start_offset} on; it takes messages"
    ]
    if switch and old is not None:
        lines.append(f"{old.address} is its slave now")
    elif old is None:
        lines.append("the old master is fenced when it comes back: it starts as a slave, or refuses in words")
    fields = {
        "running": True, "role": str(now.settings["brokerRole"]), "broker": begun.broker, "epoch": begun.epoch,
        "startOffset": begun.start_offset, "oldMaster": old and old.address, "steppedDown": switch,
    }  # fmt: skip
    _say("promote", fields, lines, as_json)
    return 0


def _promote_stopped(directory: StoreDirectory, as_json: bool) -> int:
    with locked(directory):
        epochs.write(directory.root, epochs.read(directory.root).promoting())
    fields = dict.fromkeys(("role", "broker", "epoch", "startOffset", "oldMaster"))
    line = "no broker runs on this store; its next start is that of a master, whatever its file says"
    _say("promote", {"running": False, **fields, "steppedDown": False}, [line], as_json)
    return 0


def _say(schema: str, fields: dict[str, Any], lines: list[str], as_json: bool) -> None:
    for line in [json_text(schema, fields)] if as_json else lines:
        click.echo(line)


def _require_slave(store: Path, broker: Running, board: Board) -> None:
    if broker.settings["brokerRole"] != SLAVE:
        raise RoleRefused(store, "this broker is a master already", "look at the others: `slipstream ha status STORE`")
    if is_unreadable(board) or board.flush_errno.read():
        why = "its log is not whole: what it received it cannot read, or not bring to disk"
        raise RoleRefused(store, why, f"`slipstream status {store}` says what is wrong")


def _master_there(broker: Running, board: Board, given: str | None) -> fencing.Master | None:
    """The present master where it answers; `given` is its listenPort's address, else it is looked for."""
    settings = broker.settings
    cluster, name = str(settings["brokerClusterName"]), str(settings["brokerName"])
    if given is None:
        servers = tuple(filter(None, str(settings.get("namesrvAddr", "")).split(";")))
        other = fencing.other_master(servers, cluster, name, str(settings["storeHost"]), tls_of())
        if other is not None:
            return other
        host, port = split(address_cursors.text_of(board.ha_client.master_address) or ":")
        given = host_and_port(host, int(port) - 1) if host and port.isdecimal() and int(port) > 1 else None
    if given is None:
        return None
    try:
        with RemotingClient(given, ANSWER_SECONDS, tls_of()) as client:
            extent = asked_extent(client)
    except (EngineError, StoreError):
        return None
    return fencing.Master(given, extent) if (extent.cluster, extent.broker_name) == (cluster, name) else None


def _refuse_beside_master(store: Path, board: Board, ask: Callable[[], fencing.Master | None]) -> None:
    """Raises RoleRefused while the master lives: two masters would write two histories. One that dies may do so."""
    until = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < until:
        old = ask()
        if not (old is not None and old.extent.is_master) and not _sends(board):
            return
        time.sleep(LOOK_SECONDS)
    who = old.address if old else address_cursors.text_of(board.ha_client.master_address)
    remedy = (
        f"let it step down without a loss: `slipstream promote {store} --switch` (a Slipstream master that allows this"
        " host by adminAllowList); or stop it first; or --force, if nobody will ever write there again"
    )
    raise RoleRefused(store, f"its master {who} is alive, and both would take messages", remedy)


def _sends(board: Board) -> bool:
    """Whether somebody sends us a log: it was heard of late, and its HA port still takes connections."""
    words = board.ha_client
    is_late = monotonic_ms() - words.last_read_ms.read() >= ALIVE_MS
    if words.state.read() != HaClientState.TRANSFER or is_late:
        return False
    host, port = split(address_cursors.text_of(words.master_address))
    try:
        socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def _switch(
    store: Path, broker: Running, board: Board, old: fencing.Master | None, epoch: int, until: float
) -> None:
    """Have the master become our slave, and wait until we have all that it has. Raises RoleRefused."""
    if old is None:
        why = "no Slipstream master answers for it to step down"
        raise RoleRefused(store, why, "give its listenPort's address by --master HOST:PORT; or stop it, then promote")
    with RemotingClient(str(broker.settings["storeHost"]), ANSWER_SECONDS, tls_of()) as client:
        own = asked_extent(client)
    successor = {"epoch": str(epoch), "broker": own.identity, "master": own.ha_address}
    with RemotingClient(old.address, ANSWER_SECONDS, tls_of()) as client:
        if old.extent.is_master:
            client.ask(RequestCode.STEP_DOWN, successor)
    extent = _await_extent(store, old.address, until, lambda extent: not extent.is_master)
    while board.max_physical_offset.read() < extent.max_offset:
        if time.monotonic() > until:
            why = f"it has the log up to {board.max_physical_offset.read()} of {extent.max_offset}, and time is over"
            raise RoleRefused(store, why, f"nothing is lost: again, `slipstream promote {store} --switch`")
        time.sleep(LOOK_SECONDS)


def _await_extent(store: Path, address: str, until: float, is_so: Callable[[Extent], bool]) -> Extent:
    """What that broker says of itself once it is as wanted. Raises RoleRefused."""
    why = "it does not answer"
    while time.monotonic() < until:
        try:
            with RemotingClient(address, ANSWER_SECONDS, tls_of()) as client:
                extent = asked_extent(client)
            if is_so(extent):
                return extent
            why = "it is still the master"
        except NotOurs:
            raise
        except EngineError as error:
            why = str(error)
        time.sleep(LOOK_SECONDS)
    raise RoleRefused(store, f"the old master at {address}: {why}", "look at its log, then promote again")


def demote(store: Path, master: str | None, timeout: float, as_json: bool) -> int:
    """Make the broker on STORE a slave."""
    directory, until = store_directory(store), time.monotonic() + timeout
    broker = running(store)
    if broker is None:
        with locked(directory):
            epochs.write(directory.root, epochs.read(directory.root).demoted(master or ""))
        line = "no broker runs on this store; its next start is that of a slave, whatever its file says"
        fields = {"running": False, "role": None, "brokerId": None, "master": master, "diverged": None}
        _say("demote", fields, [line], as_json)
        return 0
    if master is None and not broker.settings.get("namesrvAddr"):
        raise RoleRefused(store, "no name server tells its master", "say where that sends its log: --master HOST:PORT")
    wanted = RoleRequest(to_master=False, master=master or "")
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
    board = Board.attach(broker.region_directory)
    try:
        while time.monotonic() < until:
            if (parted := divergence.read(store)) is not None:
                return divergence_line(str(store), parted)
            if board.ha_client.state.read() == HaClientState.TRANSFER and board.ha_client.transferred_bytes.read():
                break
            time.sleep(LOOK_SECONDS)
    finally:
        board.counters.close()
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


def _await_role(
    store: Path, before: Running, until: float, is_so: Callable[[str], bool], *, is_near: bool
) -> Running:  # fmt: skip
    """The broker in its new role, serving. Raises RoleRefused."""
    while time.monotonic() < until:
        now = running(store)
        if now is not None and now.token != before.token and _serves(now):
            if is_so(str(now.settings["brokerRole"])):
                return now
            break
        if now is None and is_near and not is_alive(before.pid, before.start_time):
            remedy = "start it again, and look at its role: `slipstream status STORE`"
            raise RoleRefused(store, "its broker ended while it changed its role", remedy)
        time.sleep(LOOK_SECONDS)
    raise RoleRefused(store, "the broker did not come up in its new role", "its log says why")


def _serves(broker: Running) -> bool:
    try:
        board = Board.attach(broker.region_directory)
    except (IpcError, StoreError):
        return False
    try:
        return board.broker_state.read() == BrokerState.RUNNING
    finally:
        board.counters.close()
