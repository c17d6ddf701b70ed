"""`slipstream replica rewind` and `forget`, at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from store.errors import NotAStore, StoreError
from store.files.directory import store_directory
from store.files.segment_files import SegmentFiles, named_files, segment_bytes_of
from store.message.record import Message
from store.notes import divergence, epochs
from store.notes.epochs import SaidRole
from store.reading.log_reader import open_log
from store.reading.replicas import LocalLog, LogView, Relation, State, relation
from store.repair import interrupted
from store.repair.rebuild import locked
from store.repair.rewind import Rewind
from tools.common.exit_codes import ExitCode
from tools.common.moments import time_text
from tools.common.output_form import json_text
from tools.common.progress import progress
from tools.replica.other_log import epoch_of, open_other

# `slipstream replica check`, at work.

WELL = (State.IDENTICAL, State.BEHIND)
OF_THE_OTHER = {  # what to do where STORE's is the newer reign: nothing of it may go
    State.AHEAD: "OTHER continues at its end, as a slave: there `slipstream demote OTHER --master HOST:PORT`",
    State.DIVERGED: "OTHER gives up what only it has: there `slipstream replica rewind OTHER --with HOST:PORT`",
    State.NO_COMMON_HISTORY: "OTHER begins anew: there `mv OTHER OTHER.old`; then start its broker as a slave",
}


def check(store: Path, other: str, shown: bool | None, as_json: bool) -> int:
    """Compare the two logs, and print the outcome; return the exit code."""
    own = LocalLog(open_log(store))
    with open_other(other) as its, progress("compare", shown) as update:
        outcome = relation(own, its, update)
    next_step, its_epoch = advice(str(store), other, own, its, outcome), epoch_of(its)
    why = newer(epochs.read(store).last_epoch, its_epoch)
    if why and outcome.state in OF_THE_OTHER:
        next_step = f"{why}: {OF_THE_OTHER[outcome.state]}"
    if as_json:
        click.echo(json_text("replica.check", _fields(own, its, outcome, next_step)))
    else:
        for line in _lines(own, its, outcome):
            click.echo(line)
        click.echo(f"next: {next_step}")
    return 0 if outcome.state in WELL else ExitCode.FOUND


def newer(own_epoch: int, its_epoch: int) -> str:
    """Why nothing of STORE's log may go; "" where it may."""
    return f"STORE's epoch is the newer one ({own_epoch}, OTHER's is {its_epoch})" if own_epoch > its_epoch else ""


def advice(store: str, other: str, own: LocalLog, its: LogView, outcome: Relation) -> str:
    """Return what to do next, with the command to type."""
    rewind = f"slipstream replica rewind {store} --with {other}"
    match outcome.state:
        case State.IDENTICAL:
            return "nothing to do"
        case State.BEHIND:
            return f"start STORE's broker as a slave, or let it run; it continues at offset {own.max_offset}"
        case State.AHEAD:
            return (
                f"keep what only STORE has with `slipstream promote {store}`, or give it up with `{rewind}` (its broker"
                " stopped)"
            )
        case State.DIVERGED:
            return f"`{rewind}` (its broker stopped): cuts STORE at offset {outcome.common_end}; what it cuts is kept"
        case State.OTHER_SEGMENT_SIZE:
            return (
                f"set mappedFileSizeCommitLog={its.segment_bytes} in the file of STORE's broker, `mv {store}"
                f" {store}.old`, and start it: a slave fetches the whole history"
            )
        case State.NO_COMMON_HISTORY:
            return (
                "make sure that OTHER is of the same pair (cluster, brokerName, haMasterAddress); then"
                f" `mv {store} {store}.old` and start STORE's broker: a slave fetches the whole history"
            )


def _lines(own: LocalLog, its: LogView, outcome: Relation) -> list[str]:
    lines = [str(outcome.state)]
    for log in (own, its):
        lines.append(f"{log.name}: offsets {log.min_offset} to {log.max_offset}, segments of {log.segment_bytes} bytes")
    if outcome.differs_at is not None:
        lines.append(f"first difference: offset {outcome.differs_at}")
    lines.append(f"last common record: {_record_text(outcome.last) if outcome.last else 'none'}")
    if outcome.common_end is not None:
        own_bytes, its_bytes = own.max_offset - outcome.common_end, its.max_offset - outcome.common_end
        lines.append(f"common up to offset {outcome.common_end}; after it {own_bytes} bytes here, {its_bytes} there")
    return lines


def _record_text(message: Message) -> str:
    where = f"{message.topic}/{message.queue_id}#{message.queue_offset}"
    return f"{where}, stored {time_text(message.store_timestamp_ms)}, at offset {message.physical_offset}"


def _fields(own: LocalLog, its: LogView, outcome: Relation, next_step: str) -> dict[str, Any]:
    last = outcome.last
    return {
        "state": outcome.state.value,
        **{
            side: {"name": log.name, "minOffset": log.min_offset, "maxOffset": log.max_offset,
                   "segmentBytes": log.segment_bytes}
            for side, log in (("store", own), ("other", its))
        },
        "firstDifference": outcome.differs_at, "commonEnd": outcome.common_end,
        "lastCommonRecord": None if last is None else {
            "topic": last.topic, "queueId": last.queue_id, "queueOffset": last.queue_offset,
            "storeTimestamp": last.store_timestamp_ms, "physicalOffset": last.physical_offset,
        },
        "next": next_step,
    }  # fmt: skip


GIVE_UP = "--give-up-newer"


class NewerEpoch(StoreError):
    """Raised where the log of the newest master would be cut: of two histories its is the one that goes on.

    Next: cut the other store; the text says how. `--give-up-newer` cuts this one all the same.
    """

    code = "NEWER_EPOCH"

    def __init__(self, store: Path, why: str, remedy: str) -> None:
        super().__init__(f"{store}: nothing was cut; {why}; {remedy}; to give up its messages anyway, add {GIVE_UP}")


def rewind(
    store: Path,
    to: int | None,
    other: str | None,
    discard: bool,
    give_up_newer: bool,
    dry_run: bool,
    shown: bool | None,
    as_json: bool,
) -> int:
    """Cut STORE's log back, to an offset or to its last record in common with another one."""
    directory = store_directory(store)
    with locked(directory):
        if not any(size for _, size in named_files(directory.commitlog)):
            raise NotAStore(str(store), "its log is empty; there is nothing to rewind")
        if other is None and not give_up_newer:
            _require_no_reign(store)
        files = SegmentFiles(directory.commitlog, segment_bytes_of(directory.commitlog))
        work = Rewind(directory, files)
        for text in () if dry_run else interrupted.finish(directory, files).texts():
            click.echo(text, err=True)
        offset, refused = (to, "") if other is None else _last_common(store, other, give_up_newer, shown)
        if refused:
            click.echo(refused, err=True)
            return ExitCode.FOUND
        if offset is None:
            was_noted = not dry_run and divergence.remove(store)
            _say(as_json, {"offset": None, "endBefore": None, "records": 0, "kept": None}, _nothing(was_noted))
            return 0
        going = work.going(offset)
        file = None if dry_run else work.to(offset, discard=discard).file
    fields = {"offset": offset, "endBefore": going.end, "records": going.records, "kept": file and str(file)}
    done = "would go" if dry_run else "gone"
    text = f"{done}: offsets {offset} to {going.end}, with {going.records} whole records"
    _say(as_json, fields, text + (f"; kept in {file}: `slipstream log cat {file}`" if file else ""))
    return 0


def forget(store: Path, as_json: bool) -> int:
    """Remove the note of a divergence."""
    directory = store_directory(store)
    with locked(directory):
        was_noted = divergence.remove(directory.root)
    text = "the note of the divergence is removed" if was_noted else "no divergence was noted"
    click.echo(json_text("replica.forget", {"wasNoted": was_noted}) if as_json else text)
    return 0


def _require_no_reign(store: Path) -> None:
    """Raise NewerEpoch for the store of a promoted master that has heard of no newer one."""
    known = epochs.read(store)
    if known.is_here and known.role is SaidRole.MASTER and not known.is_fenced:
        why = f"its broker was promoted, and is the master of epoch {known.last_epoch}, the newest known here"
        raise NewerEpoch(store, why, "cut its slaves' logs instead: there `slipstream replica rewind OTHER --with ...`")


def _last_common(store: Path, other: str, give_up_newer: bool, shown: bool | None) -> tuple[int | None, str]:
    """Return where to cut, None where nothing is to be cut; or why that is unknown. Raises NewerEpoch."""
    own = LocalLog(open_log(store))
    with open_other(other) as its, progress("compare", shown) as update:
        outcome, its_epoch = relation(own, its, update), epoch_of(its)
    if outcome.state in (State.IDENTICAL, State.BEHIND):
        return None, ""
    if (why := newer(epochs.read(store).last_epoch, its_epoch)) and not give_up_newer:
        raise NewerEpoch(store, why, OF_THE_OTHER.get(outcome.state, "cut OTHER"))
    if outcome.common_end is None:
        return None, f"{outcome.state}: nothing was changed; {advice(str(store), other, own, its, outcome)}"
    return outcome.common_end, ""


def _nothing(was_noted: bool) -> str:
    forgotten = "; the note of the divergence is removed" if was_noted else ""
    return f"nothing to remove: the other log has all of this log{forgotten}"


def _say(as_json: bool, fields: dict[str, Any], text: str) -> None:
    click.echo(json_text("replica.rewind", fields) if as_json else text)
