"""`slipstream replica check`, at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from store.message.record import Message
from store.notes import epochs
from store.reading.log_reader import open_log
from store.reading.replicas import LocalLog, LogView, Relation, State, relation
from tools.common.exit_codes import ExitCode
from tools.common.moments import time_text
from tools.common.output_form import json_text
from tools.common.progress import progress
from tools.replica.other_log import epoch_of, open_other

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
