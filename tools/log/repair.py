"""`slipstream log repair`: takes what is damaged in a log from another store that has it."""

from __future__ import annotations

from pathlib import Path

import click

from store.errors import NotAStore
from store.files.directory import StoreDirectory, store_directory
from store.files.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.reading.log_reader import open_log
from store.repair.cut import LogCut
from store.repair.rebuild import locked, rebuild_index, rebuild_queues
from store.repair.repair import Repair
from store.verify.verification import Verification
from tools.common.exit_codes import ExitCode
from tools.common.progress import progress
from tools.log.options import NotReadable

QUEUE_CODES = ("QUEUE_ENTRY", "QUEUE_FILES", "NOT_IN_QUEUE")
INDEX_CODES = ("INDEX_FILE", "INDEX_HEADER", "INDEX_ENTRY", "INDEX_SLOT", "NOT_IN_INDEX")


def repair(store: Path, other: Path | None, cut_at: int | None, dry_run: bool, shown: bool | None) -> int:
    """Repair the damaged ranges of STORE's log from a replica's store, which may be in use; or cut it."""
    if (other is None) == (cut_at is None):
        raise NotReadable("give either --from, a replica's store, or --cut, the offset from which on all of it goes")
    directory = store_directory(store)
    if other is None:
        assert cut_at is not None
        return _cut(directory, cut_at, dry_run)
    return _repair_from(directory, store, other, dry_run, shown)


def _cut(directory: StoreDirectory, offset: int, dry_run: bool) -> int:
    with locked(directory):
        work = LogCut(directory, SegmentFiles(directory.commitlog, segment_bytes_of(directory.commitlog)))
        if not dry_run and (finished := work.finish()) is not None:
            click.echo(f"finished an interrupted cut at offset {finished}")
        going = work.going(offset)
        if going is None:
            raise NotReadable(f"offset {offset}: no record begins or ends there; `log verify` names offsets that do")
        if not dry_run:
            work.cut(offset)
        done = "would go" if dry_run else "gone"
        click.echo(f"{done}: offsets {going.offset} to {going.end}, with {going.records} whole records")
    return 0


def _repair_from(directory: StoreDirectory, store: Path, other: Path, dry_run: bool, shown: bool | None) -> int:
    if other.exists() and other.resolve() == store.resolve():
        raise NotReadable("--from names the store itself")
    if not any(size for _, size in named_files(directory.commitlog)):
        raise NotAStore(str(store), "no commit log is there to be repaired; copy the other store")
    left = repaired = 0
    with locked(directory):
        files = SegmentFiles(directory.commitlog, segment_bytes_of(directory.commitlog))
        work = Repair(directory, files, open_log(other))
        if not dry_run and (finished := work.finish()) is not None:
            click.echo(f"finished an interrupted repair: offsets {finished.start} to {finished.end}")
        with progress("repair", shown) as update:
            for outcome in work.run(dry_run=dry_run, on_progress=update):
                damaged = outcome.damaged
                done = "would be repaired" if dry_run else "repaired"
                click.echo(
                    f"{'not repaired' if outcome.refused else done}: offsets {damaged.start} to {damaged.end}"
                    f" ({damaged.reason})" + (f": {outcome.refused}" if outcome.refused else "")
                )
                left, repaired = left + bool(outcome.refused), repaired + (not outcome.refused)
        if repaired and not dry_run and not left:
            _queues_again(directory, shown)
    click.echo(f"{repaired} ranges {'repairable' if dry_run else 'repaired'}, {left} left as they are")
    return ExitCode.FOUND if left or (dry_run and repaired) else 0


def _queues_again(directory: StoreDirectory, shown: bool | None) -> None:
    """Build queues and index again where they do not fit the repaired log."""
    codes = {finding.code for finding in Verification(directory.root).findings()}
    if codes & set(QUEUE_CODES):
        with progress("rebuild queue", shown) as update:
            click.echo(f"{len(rebuild_queues(directory, update).replaced)} queues built again")
    if codes & set(INDEX_CODES):
        with progress("rebuild index", shown) as update:
            click.echo(f"{len(rebuild_index(directory, update).replaced)} index files built again")
