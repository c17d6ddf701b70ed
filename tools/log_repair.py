"""`slipstream log repair`: takes what is damaged in a log from another store that has it."""

from __future__ import annotations

from pathlib import Path

import click

from store.directory import StoreDirectory
from store.errors import NotAStore
from store.log_reader import open_log, store_directory
from store.rebuild import locked, rebuild_index, rebuild_queues
from store.repair import Repair
from store.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.verify import Verification
from tools.log_options import EPILOG, FOUND, STORE, NotReadable, store_command
from tools.progress import OPTION, progress

QUEUE_CODES = ("QUEUE_ENTRY", "QUEUE_FILES", "NOT_IN_QUEUE")
INDEX_CODES = ("INDEX_FILE", "INDEX_HEADER", "INDEX_ENTRY", "INDEX_SLOT", "NOT_IN_INDEX")


@click.command(epilog=EPILOG)
@STORE
@click.option("--from", "other", required=True, type=click.Path(path_type=Path), help="A replica's store.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@OPTION
@store_command
def repair(store: Path, other: Path, dry_run: bool, shown: bool | None) -> int:
    """Repair the damaged ranges of STORE's log from a replica's store, which may be in use.

    A range is taken over only where the other store's records are sound and a neighbouring record is equal in both. No
    broker may run on STORE. Ends with 1 when something damaged is left.
    """
    directory = store_directory(store)
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
    return FOUND if left or (dry_run and repaired) else 0


def _queues_again(directory: StoreDirectory, shown: bool | None) -> None:
    """Build queues and index again where they do not fit the repaired log."""
    codes = {finding.code for finding in Verification(directory.root).findings()}
    if codes & set(QUEUE_CODES):
        with progress("rebuild queue", shown) as update:
            click.echo(f"{len(rebuild_queues(directory, update).replaced)} queues built again")
    if codes & set(INDEX_CODES):
        with progress("rebuild index", shown) as update:
            click.echo(f"{len(rebuild_index(directory, update).replaced)} index files built again")
