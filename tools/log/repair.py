"""`slipstream log repair`: takes what is damaged in a log from another store that has it."""

from __future__ import annotations

from pathlib import Path

import click

from store.errors import NotAStore
from store.files.directory import StoreDirectory, store_directory
from store.files.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.reading.log_reader import open_log
from store.recovery import lost_log
from store.repair import interrupted
from store.repair.cut import LogCut
from store.repair.forgotten import forget_missing as forget_missing_files
from store.repair.interrupted import Finished
from store.repair.rebuild import locked, rebuild_index, rebuild_queues
from store.repair.repair import Outcome, Repair
from store.verify.verification import Verification
from tools.common.exit_codes import ExitCode
from tools.common.output_form import json_text
from tools.common.progress import progress, working
from tools.log.options import NotReadable

QUEUE_CODES = ("QUEUE_ENTRY", "QUEUE_FILES", "NOT_IN_QUEUE")
INDEX_CODES = ("INDEX_FILE", "INDEX_HEADER", "INDEX_ENTRY", "INDEX_SLOT", "NOT_IN_INDEX")


def repair(
    store: Path,
    other: Path | None,
    cut_at: int | None,
    forget_missing: bool,
    dry_run: bool,
    shown: bool | None,
    as_json: bool,
) -> int:
    """Repair the damaged ranges of STORE's log from a replica's store, which may be in use; or cut it."""
    directory = store_directory(store)
    if forget_missing:
        return _forget(directory, dry_run, as_json)
    if other is None:
        assert cut_at is not None
        return _cut(directory, cut_at, dry_run, shown, as_json)
    return _repair_from(directory, store, other, dry_run, shown, as_json)


def _cut(directory: StoreDirectory, offset: int, dry_run: bool, shown: bool | None, as_json: bool) -> int:
    with locked(directory):
        files = SegmentFiles(directory.commitlog, segment_bytes_of(directory.commitlog))
        work = LogCut(directory, files)
        with working("repair", shown):
            finished = _finished(directory, files, dry_run, as_json).cut_at
        with working("repair", shown):
            going = work.going(offset)
            if going is None:
                why = "no record begins or ends there; `log verify` names valid offsets"
                raise NotReadable(f"offset {offset}: {why}")
            if not dry_run:
                work.cut(offset)
        done = "would go" if dry_run else "gone"
        fields = {"dryRun": dry_run, "finished": finished, **going._asdict()}
        text = f"{done}: offsets {going.offset} to {going.end}, with {going.records} whole records"
        click.echo(json_text("log.repair.cut", fields) if as_json else text)
    return 0


def _forget(directory: StoreDirectory, dry_run: bool, as_json: bool) -> int:
    with locked(directory):
        bases = [base for base, size in named_files(directory.commitlog) if size]
        if not (why := lost_log.missing(directory, bases)):
            raise NotReadable(f"{directory.commitlog}: no file of the log is missing; nothing was changed")
        removed = [] if dry_run else forget_missing_files(directory, bases)
    fields = {"dryRun": dry_run, "missing": why, "removed": removed}
    done = "would be given up" if dry_run else f"given up, and {len(removed)} files and directories removed"
    click.echo(json_text("log.repair.forget", fields) if as_json else f"files of the log are missing: {why}; {done}")
    return 0


def _repair_from(
    directory: StoreDirectory, store: Path, other: Path, dry_run: bool, shown: bool | None, as_json: bool
) -> int:
    if not any(size for _, size in named_files(directory.commitlog)):
        raise NotAStore(str(store), "it has no commit log to repair; copy the other store")
    left = repaired = 0
    again: dict[str, int] = {}
    with locked(directory):
        files = SegmentFiles(directory.commitlog, segment_bytes_of(directory.commitlog))
        work = Repair(directory, files, open_log(other))
        finished = _finished(directory, files, dry_run, as_json).repaired
        with progress("repair", shown) as update:
            for outcome in work.run(dry_run=dry_run, on_progress=update):
                click.echo(_range_json(outcome) if as_json else _range_text(outcome, dry_run))
                left, repaired = left + bool(outcome.refused), repaired + (not outcome.refused)
        if repaired and not dry_run and not left:
            again = _queues_again(directory, shown, as_json)
    fields = {
        "dryRun": dry_run,
        "repaired": repaired,
        "left": left,
        "finished": finished and {"start": finished.start, "end": finished.end},
        "queuesBuiltAgain": again.get("queues"),
        "indexFilesBuiltAgain": again.get("index files"),
    }
    text = f"{repaired} ranges {'repairable' if dry_run else 'repaired'}, {left} left as they are"
    click.echo(json_text("log.repair", fields) if as_json else text)
    return ExitCode.FOUND if left or (dry_run and repaired) else 0


def _finished(directory: StoreDirectory, files: SegmentFiles, dry_run: bool, as_json: bool) -> Finished:
    """Finish what was interrupted before; nothing with `dry_run`."""
    finished = Finished() if dry_run else interrupted.finish(directory, files)
    for text in finished.texts():
        click.echo(text, err=as_json)
    return finished


def _range_json(outcome: Outcome) -> str:
    return json_text("log.repair.range", {**outcome.damaged._asdict(), "refused": outcome.refused or None})


def _range_text(outcome: Outcome, dry_run: bool) -> str:
    damaged, done = outcome.damaged, "would be repaired" if dry_run else "repaired"
    return (
        f"{'not repaired' if outcome.refused else done}: offsets {damaged.start} to {damaged.end} ({damaged.reason})"
        + (f": {outcome.refused}" if outcome.refused else "")
    )


def _queues_again(directory: StoreDirectory, shown: bool | None, as_json: bool) -> dict[str, int]:
    """Build queues and index again where they do not fit the repaired log; how many of each."""
    verification, again = Verification(directory.root), dict[str, int]()
    with progress("verify", shown) as update:
        verification.on_progress = lambda: update(verification.bytes_checked, verification.bytes_total)
        codes = {finding.code for finding in verification.findings()}
    for what, title, of_it, build in (
        ("queues", "rebuild queue", QUEUE_CODES, rebuild_queues),
        ("index files", "rebuild index", INDEX_CODES, rebuild_index),
    ):
        if codes & set(of_it):
            with progress(title, shown) as update:
                again[what] = len(build(directory, update).replaced)
            if not as_json:
                click.echo(f"{again[what]} {what} rebuilt")
    return again
