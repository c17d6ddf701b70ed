"""`slipstream log plan`: what a read of a store would touch, from the planner itself; Spark is not needed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ipc.extras import require_arrow
from tools.common.how_many import how_many
from tools.common.output_form import json_text

if TYPE_CHECKING:
    from spark_bridge.plan.explanation import ReadPlan, StorePlan

SHOWN_MAX = 20  # queues and ranges, for people
OWN_OPTIONS = ("path", "paths", "nameserver", "topic", "where")


def plan(
    store: Path | str, topics: tuple[str, ...], where: str | None, options: tuple[tuple[str, str], ...], as_json: bool
) -> int:
    """The plan of a batch read with these options, as it would be made now."""
    require_arrow("log plan")
    from spark_bridge.options.read import parse_options
    from spark_bridge.options.values import InvalidOption
    from spark_bridge.registry.errors import RegistryError

    try:
        parsed = parse_options(_asked(store, topics, where, options))
        from spark_bridge.flight.explaining import explain  # loads Arrow, which wrong options do not need

        made = explain(parsed)
    except InvalidOption as error:
        raise click.UsageError(str(error)) from error
    except RegistryError as error:
        raise click.ClickException(f"{error.code}: {error}") from error
    (part,) = made.stores or (None,)
    if part is None:
        raise click.UsageError("table: a metadata table reads no messages, so there is no plan")
    if as_json:
        click.echo(json_text("log.plan", fields_of(made, part)))
    else:
        click.echo("\n".join(_lines(part)))
    return 0


def _asked(
    store: Path | str, topics: tuple[str, ...], where: str | None, options: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    asked = dict(options)
    named = [name for name, _value in options if name.lower() in OWN_OPTIONS]
    if named:
        raise click.UsageError(f"--option {named[0]}: use STORE, --topic or --where instead")
    if len({name.lower() for name in asked}) < len(options):
        raise click.UsageError("an option is given twice")
    if topics:
        asked["topic"] = ",".join(topics)
    if where is not None:
        asked["where"] = where
    return {**asked, "path": store if isinstance(store, str) else str(store.absolute())}


def fields_of(made: ReadPlan, part: StorePlan) -> dict[str, Any]:
    """The plan as its JSON schema has it."""
    log_bytes = part.end_offset - part.begin_offset
    return {
        "store": part.path,
        "brokerName": part.broker_name,
        "live": part.is_running,
        "splits": made.splits,
        "bytes": made.bytes,
        "logBytes": log_bytes,
        "leftOutBytes": max(0, log_bytes - made.bytes),
        "beginOffset": part.begin_offset,
        "dispatchedOffset": part.dispatched_offset,
        "endOffset": part.end_offset,
        "queues": part.queues,
        "ranges": [{"start": start, "end": end} for start, end in part.ranges],
        "records": part.records,
    }


def _lines(part: StorePlan) -> list[str]:
    log_bytes = part.end_offset - part.begin_offset
    share = f" ({part.bytes / log_bytes:.1%} of it)" if log_bytes else ""
    splits = how_many(part.splits, "split")
    lines = [
        f"{splits} read about {part.bytes:,} of {log_bytes:,} bytes of log{share}",
        f"log: {part.begin_offset:,} to {part.end_offset:,}, in queues up to {part.dispatched_offset:,};"
        f" {'a broker runs' if part.is_running else 'no broker runs'}",
    ]
    if part.queues:
        lines.append(f"by {how_many(len(part.queues), 'queue')}, {how_many(sum(part.queues.values()), 'message')}:")
        lines += _listed([f"{name}  {entries:,}" for name, entries in part.queues.items()])
    if part.ranges:
        lines.append(f"by the log itself, {sum(end - start for start, end in part.ranges):,} bytes:")
        lines += _listed([f"{start:,} to {end:,}" for start, end in part.ranges])
    if part.records:
        lines.append(f"by the index: {how_many(part.records, 'record')}")
    return lines


def _listed(items: list[str]) -> list[str]:
    width = max(20, shutil.get_terminal_size().columns - 2)
    more = [f"and {len(items) - SHOWN_MAX:,} more"] if len(items) > SHOWN_MAX else []
    return ["  " + item[:width] for item in [*items[:SHOWN_MAX], *more]]
