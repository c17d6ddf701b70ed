"""`slipstream doctor`, at work: asks, looks, prints."""

from __future__ import annotations

from pathlib import Path

import click

from engine.net.printable import one_line
from engine.protocol.ha.wire import ReasonCode
from store.files.directory import store_directory
from store.reading import extent
from tools.common.exit_codes import ExitCode
from tools.common.how_many import how_many
from tools.common.output_form import in_colour, json_text
from tools.common.tls import tls_of
from tools.doctor import certificate, clients, disk, group, memory, name_server, names, ports
from tools.doctor.node import Asking, Node, of_address, of_store
from tools.doctor.rows import Level, Row, is_well, ok, wrong

COLOURS = {Level.OK: "green", Level.OPEN: "yellow", Level.UNKNOWN: "cyan", Level.WRONG: "red"}


def examine(target: str, name_servers: str, strict: bool, timeout: float, tls_config: str | None, as_json: bool) -> int:
    """Run all checks of one broker, and print them."""
    rows = rows_of(target, name_servers, Asking(timeout, tls_of(tls_config)))
    well = is_well(rows, strict=strict)
    if as_json:
        click.echo(json_text("doctor", {"target": target, "ok": well, "rows": [row.to_json() for row in rows]}))
    else:
        _show(rows)
    return 0 if well else ExitCode.FOUND


def rows_of(target: str, name_servers: str, asking: Asking) -> list[Row]:
    """Return the rows of a store's directory, or of what listens at an address."""
    if Path(target).is_dir():
        store_directory(target)  # refuses what is no store
        running = extent.running(target)
        if running is None:
            next_step = f"start it with `slipstream broker -c FILE`; `slipstream log stat {target}` works without it"
            stopped = wrong("broker", ReasonCode.STOPPED, f"no broker runs on {target}", next_step)
            return [stopped, *memory.rows_of_stopped(Path(target))]
        return _all(of_store(running, asking), name_servers, asking)
    node = of_address(target, asking)
    if "figures" in node.silence:
        known = names.asked([target], asking)[target]
        if not isinstance(known, str):
            return name_server.rows(target, known, _addresses(name_servers), asking)
        next_step = f"`slipstream doctor STORE` on {node.host}"
        return [wrong("broker", ReasonCode.UNREACHABLE, node.silence["figures"], next_step)]
    return _all(node, name_servers, asking)


def _all(node: Node, name_servers: str, asking: Asking) -> list[Row]:
    members = names.asked(_addresses(f"{name_servers};{node.setting('namesrvAddr')}"), asking)
    return [
        _broker(node),
        *ports.rows(node, asking.timeout),
        *ports.administrators(node),
        *clients.rows(node),
        *certificate.rows(node, asking),
        *names.rows(node, members),
        *names.damage(members, asking),
        *group.own_rows(node),
        *disk.rows(node),
        *memory.rows(node),
        group.clock_row(node),
        *group.member_rows(node, names.others(node, members), asking),
    ]


def _addresses(text: str) -> list[str]:
    return list(dict.fromkeys(address.strip() for address in text.split(";") if address.strip()))


def _broker(node: Node) -> Row:
    role = node.setting("brokerRole") or "a broker"
    version = node.runtime.get("brokerVersionDesc", "")
    if "figures" in node.silence:
        next_step = f"`slipstream status {node.target}`"
        return wrong("broker", ReasonCode.NO_LISTENER, f"{role} does not answer: {node.silence['figures']}", next_step)
    kind = "Slipstream" if node.is_ours else "RocketMQ"
    return ok("broker", f"{role} {node.setting('brokerName')}:{node.setting('brokerId')}, {kind}, as {version}")


def _show(rows: list[Row]) -> None:
    """A line a row, and below it what to type."""
    width = max(len(row.check) for row in rows)
    for row in rows:
        level = in_colour(f"{row.level.value:<7}", COLOURS[row.level])
        click.echo(f"{level}  {row.check:<{width}}  {row.reason:<12}  {one_line(row.what)}")
        if row.next:
            click.echo(f"{'':<9}{'':<{width}}  next: {one_line(row.next)}")
    wrongs, opens = (sum(row.level is level for row in rows) for level in (Level.WRONG, Level.OPEN))
    click.echo(f"{how_many(len(rows), 'check')}: {wrongs} wrong, {opens} left open")
