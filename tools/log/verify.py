"""`slipstream log verify`: says for each thing that is wrong in a store what it is, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from store.files.directory import store_directory
from store.reading.extent import running
from store.verify.protection import open_spans
from store.verify.verification import Coverage, Finding, Verification
from tools.common.exit_codes import ExitCode
from tools.common.how_many import how_many
from tools.common.output_form import json_text
from tools.common.progress import progress
from tools.log.delays import delays_of


def verify(
    store: Path,
    as_objects: bool,
    coverage: bool,
    unprotected: bool,
    delay_levels: str | None,
    digests: bool,
    shown: bool | None,
) -> int:
    """Check every record of STORE, its queues and index against the records, and every record against them."""
    if unprotected:
        return _list_unprotected(store, as_objects)
    verification = verification_on(store)
    verification.compare_digests = digests
    verification.delays_ms = delays_of(delay_levels, store)
    count = 0
    for finding in _with_progress(verification, shown):
        count += 1
        click.echo(json_text("log.verify.finding", finding._asdict()) if as_objects else str(finding))
    covered = verification.coverage
    if as_objects:
        click.echo(json_text("log.verify", {**sums_of(verification, count), "bytes": vars(covered)}))
    else:
        click.echo(verdict_of(verification, count))
        if coverage:
            click.echo(_coverage_line(covered))
    return ExitCode.FOUND if count else ExitCode.WELL


def _list_unprotected(store: Path, as_objects: bool) -> int:
    for path, start, end, protection, what in open_spans(store):
        if as_objects:
            kind = {"file": str(path), "start": start, "end": end, "protection": protection.value, "what": what}
            click.echo(json_text("log.verify.span", kind))
        else:
            click.echo(f"{path} {start} {end} {protection.value}: {what}")
    return 0


def verification_on(store: Path) -> Verification:
    """A check within a running broker's limits, of everything without one."""
    store_directory(store)
    broker = running(store)
    if broker is None:
        return Verification(store)
    counters = broker.counters()
    try:
        dispatched = counters.cursor("reput_from_offset").read()
        return Verification(store, counters.cursor("max_physical_offset").read(), dispatched)
    finally:
        counters.close()


def sums_of(verification: Verification, count: int) -> dict[str, int]:
    """Return how much was checked, by the names of the JSON form."""
    return {
        "records": verification.records, "entries": verification.entries, "queues": verification.queues,
        "indexEntries": verification.index_entries, "digests": verification.digests,
        "maxOffset": verification.max_offset, "notYetInQueues": verification.not_yet_in_queues, "findings": count,
    }  # fmt: skip


def verdict_of(verification: Verification, count: int) -> str:
    """The same in a line."""
    behind = verification.not_yet_in_queues
    later = f"; {how_many(behind, 'record')} to be added to the queues at the broker's next start" if behind else ""
    indexed = verification.index_entries
    index = f", {how_many(indexed, 'index entry', 'index entries')}" if indexed else ""
    digests = f", {how_many(verification.digests, 'digest')}" if verification.digests else ""
    return (
        f"{how_many(verification.records, 'record')} up to offset {verification.max_offset:,},"
        f" {how_many(verification.entries, 'entry', 'entries')} in {how_many(verification.queues, 'queue')}"
        f"{index}{digests}: " + (how_many(count, "finding") if count else "no findings") + later
    )


def _coverage_line(covered: Coverage) -> str:
    """Say which bytes of the log the format leaves unprotected, in numbers."""
    data = max(covered.crc + covered.structure + covered.unprotected, 1)
    shares = [f"{part:,} ({part / data:.1%})" for part in (covered.crc, covered.structure, covered.unprotected)]
    line = (
        f"of {data:,} bytes of records {shares[0]} are under a CRC, {shares[1]} are checked by structure or against"
        f" queues, {shares[2]} are protected only by a digest (`slipstream log digest`): flags, times, hosts,"
        f" other properties; {covered.unused:,} bytes hold no data"
    )
    if covered.digest:
        line += f"; digests cover {covered.digest:,} bytes of sealed segments"
    return line


def _with_progress(verification: Verification, shown: bool | None) -> Iterator[Finding]:
    with progress("verify", shown) as update:
        verification.on_progress = lambda: update(verification.bytes_checked, verification.bytes_total)
        yield from verification.findings()
