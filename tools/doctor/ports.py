"""A node's ports: whether they are open, on which addresses they listen, and who may come in by the settings."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import NamedTuple

from engine.net.listeners import is_loopback
from engine.protocol.ha.wire import ReasonCode
from tools.doctor.node import EVERYWHERE, Node, counters_of
from tools.doctor.rows import Row, left_open, ok, unknown, wrong

PORT_OF_TABLES = 2  # how far below listenPort slaves ask for tables
ENFORCING = "enforcing"
IN_FILE = "in the broker's properties file, then restart it"


class Port(NamedTuple):
    """One of them; `number` is 0 where the port is not bound."""

    check: str
    number: int
    list_key: str
    guard_key: str  # the setting that keeps others from reading along, or from lying; "": there is none
    guarded: bool
    unguarded: str


def rows(node: Node, timeout: float) -> list[Row]:
    """Check all ports of a node."""
    return [row for port in _ports(node) for row in _of_port(node, port, timeout)]


def _ports(node: Node) -> list[Port]:
    tls = "tls.server.mode", node.setting("tls.server.mode") == ENFORCING, "plaintext is also accepted"
    ha_port, metrics_port = _live_ports(node)
    ha = "haTlsMode", node.setting("haTlsMode") == ENFORCING, "in plaintext, and slaves need not prove their identity"
    ports = [
        Port("listenPort", node.port, "remotingAllowList", *tls),
        Port("listenPort - 2", node.port - PORT_OF_TABLES, "remotingAllowList", *tls),
    ]
    if ha_port is not None:
        ports.append(Port("haListenPort", ha_port, "haAllowList", *ha))
    if metrics_port:
        ports.append(Port("metricsPromExporterPort", metrics_port, "metricsAllowList", "", True, ""))
    return ports


def _live_ports(node: Node) -> tuple[int | None, int | None]:
    """HA and metrics; None where that is not known."""
    if node.running is not None:
        with closing(counters_of(node.running)) as counters:
            return counters.ha_listen_port.read(), counters.metrics_port.read()
    text = node.extent.ha_address.rpartition(":")[2] if node.extent else node.setting("haListenPort")
    return int(text) if text.isdecimal() and int(text) < 1 << 16 else None, None


def _of_port(node: Node, port: Port, timeout: float) -> list[Row]:
    name = f"port {port.check}"
    if not port.number:
        next_step = f"`slipstream status {node.target}`; the broker's log says why"
        return [wrong(name, ReasonCode.NO_LISTENER, "the port is not bound", next_step)]
    addresses = node.listening.get(port.number, [])
    if not addresses and (why := _not_reached(node.host, port.number, timeout)):
        next_step = f"check its process and firewalls: `ss -ltn 'sport = {port.number}'` on its host"
        return [wrong(name, ReasonCode.NO_LISTENER, f"{node.host}:{port.number}: {why}", next_step)]
    where = f"listens on {', '.join(map(_shown, addresses))}" if addresses else f"answers at {node.host}"
    what = f"{port.number} {where}"
    if addresses and all(map(_is_this_host, addresses)):
        return [ok(name, f"{what}: only this host")]
    if not node.settings:
        why = node.silence.get("settings", "it does not answer")
        return [unknown(name, f"{what}; who may connect cannot be read from here: {why}", "run this on its own host")]
    return [_who_comes_in(name, what, node, port)]


def _who_comes_in(name: str, what: str, node: Node, port: Port) -> Row:
    listed = node.setting(port.list_key)
    who = f"this host and {listed} may connect" if listed else f"every host may connect (no {port.list_key})"
    line = f"{what}: {who}" + (f"; {port.unguarded} ({port.guard_key})" if not port.guarded else "")
    if not listed:
        return left_open(name, line, f"set {port.list_key}=ADDRESSES {IN_FILE}")
    if not port.guarded:
        return left_open(name, line, f"set {port.guard_key} {IN_FILE}: docs/security.md")
    return ok(name, line)


def administrators(node: Node) -> list[Row]:
    """Check from where topics, groups and settings may be changed."""
    if not node.settings:
        return []
    listed = node.setting("adminAllowList")
    if not node.is_ours:
        what = "a RocketMQ broker accepts changes from every host that reaches it, unless its ACL is on"
        return [left_open("administrators", what, "turn on its ACL")]
    who = f"this host and {listed} may change and delete" if listed else "only its own host may change and delete"
    if any(network in listed.split(";") for network in ("0.0.0.0/0", "::/0")):
        return [left_open("administrators", who, f"narrow adminAllowList {IN_FILE}")]
    return [ok("administrators", who)]


def _not_reached(host: str, port: int, timeout: float) -> str:
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _is_this_host(address: str) -> bool:
    return address not in EVERYWHERE and is_loopback(address)


def _shown(address: str) -> str:
    return {"0.0.0.0": "every IPv4 address", "::": "every address"}.get(address, address)
