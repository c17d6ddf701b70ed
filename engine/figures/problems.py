"""What keeps a broker from its work, in words: the problems that `status`, `ha status` and `/metrics` show."""

from __future__ import annotations

import os
from pathlib import Path

from engine.board.cursors import Board
from engine.board.failures import Failing, failing, is_unreadable
from engine.protocol.store.retention import DiskState

REMEDIES = {
    "dispatcher": "`slipstream log verify STORE` says what is damaged, `slipstream log repair` mends it from a replica",
}


def problems(board: Board, directory: Path, role: str) -> list[str]:
    """Of the broker with these regions and that brokerRole; none when all is well. Raises RegionMissing."""
    lines = of_the_disk(board)
    for one in failing(board, directory):
        lines.append(problem_line(one))
        if one.role == "dispatcher" and role == "SLAVE" and is_unreadable(board):
            lines.append(
                "this slave does not acknowledge: what it received it cannot read (see the dispatcher's error). It has"
                " hung up on its master, which counts it as not in sync"
            )
    return lines


def problem_line(one: Failing) -> str:
    """One failing role in a line."""
    why = one.error or "see the broker's log"
    if not one.is_given_up:
        return f"the {one.role} dies again and again, {one.deaths} times within the last minute: {why}"
    remedy = REMEDIES.get(one.role, "the broker's log tells the rest")
    return f"the {one.role} died at the same place until it was given up: {why}. {remedy}; then restart the broker"


def of_the_disk(board: Board) -> list[str]:
    """What is wrong with it; nothing when all is well."""
    lines = []
    flush_errno, allocation_errno = board.flush_errno.read(), board.allocation_errno.read()
    if flush_errno:
        flushed = board.flushed_offset.read()
        lines.append(
            f"the disk failed ({errno_text(flush_errno)}): what lies above offset {flushed:,} may be lost, and no"
            " message is acknowledged any more. Check the disk, then restart the broker: it recovers what is there"
        )
    disk_state = DiskState(board.disk_state.read())
    if disk_state > DiskState.NORMAL:
        refused = effect_text(disk_state)
        lines.append(
            f"the disk is {disk_state.name} (used to {board.disk_used_percent.read()} %): {refused}."
            " Free space, or keep messages for less long (fileReservedTime): it is looked at each second"
        )
    if allocation_errno:
        lines.append(
            f"no new segment can be made ({errno_text(allocation_errno)}): messages are refused once the last one is"
            " full. Free space on the store's file system: it is tried again each second"
        )
    return lines


def errno_text(number: int) -> str:
    """Why the disk refused something."""
    return os.strerror(number) if number > 0 else "unknown error"


def effect_text(state: DiskState) -> str:
    """What a disk that is not NORMAL means."""
    return "messages are refused" if state >= DiskState.READ_ONLY else "files go before their time"
