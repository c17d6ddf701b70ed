"""What keeps a broker from its place among its replicas: a log that has parted, a master that is gone, a newer epoch.

Each line ends with the command to type.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.board import address_cursors
from engine.board.addresses import NOWHERE, host_and_port, split
from engine.board.cursors import Board
from engine.figures.finding import Finding, Verdict
from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.wire import ADVICE, CODES, TRIED_SOON, CloseReason, ReasonCode
from store.errors import OwnFileDamaged
from store.files import divergence, epochs
from store.files.divergence import Divergence
from store.files.epochs import SaidRole


def of_the_pair(board: Board, store: str, role: str) -> Iterator[Finding]:
    """Of the broker on that store with that brokerRole; none when all is well."""
    try:
        parted, known = divergence.read(store), epochs.read(store)
    except OwnFileDamaged as damaged:
        yield Finding(damaged.code, str(damaged), f"`slipstream doctor {store}`", (str(damaged),))
        return
    if parted is not None:
        what = f"this log and its master's ({parted.master}) differ: nothing is copied"
        look = f"`slipstream ha status {store}`"
        yield Finding(ReasonCode.DIVERGED, what, look, (divergence_line(store, parted),), Verdict.NOT_READY)
    follows = board.ha_client.state.read() == HaClientState.TRANSFER
    newer = known.fenced_by if known.is_fenced and known.role is not SaidRole.SLAVE else None
    if newer is not None and not follows:
        who, demote = newer.broker or "another broker", f"`slipstream demote {store} --master HOST:PORT`"
        yield Finding(
            ReasonCode.FENCED, f"{who} is the newer master: this one takes no messages", demote, (
                f"{who} is the master of epoch {newer.epoch}, and this log's epoch is {known.last_epoch}: this broker"
                f" takes no messages. {demote} (the HA port) has it follow that one, `slipstream promote {store}`"
                " makes it the master again",
            ), Verdict.NOT_READY,
        )  # fmt: skip
    if role == "SLAVE" and parted is None and not follows:
        yield from _of_the_master(board, store)


def _of_the_master(board: Board, store: str) -> Iterator[Finding]:
    """Why a slave does not follow."""
    reason, code = CloseReason(board.ha_client.reason.read()), connection_code(board)
    if reason in TRIED_SOON:
        at = address_cursors.text_of(board.ha_client.master_address)
        short, long = ("its master", "its master") if at == NOWHERE else (f"the master {at}", at)
        then = f"`slipstream doctor {store}`, or promote"
        yield Finding(
            CODES[reason], f"{short} does not answer", then, (
                f"{long} does not answer. If it stays gone, `slipstream promote {store}` makes this broker the"
                " master; docs/operations.md says what becomes of the old one",
            ), Verdict.NOT_READY,
        )  # fmt: skip
    elif code not in (ReasonCode.OK, ReasonCode.DISK):
        why = "its address is not known" if reason is CloseReason.NONE else ADVICE[reason]
        then = f"`slipstream doctor {store}`"
        yield Finding(code, f"does not follow its master: {why}", then, verdict=Verdict.NOT_READY)


def connection_code(board: Board) -> ReasonCode:
    """What a slave's connection to its master is held up by."""
    reason = CloseReason(board.ha_client.reason.read())
    if board.allocation_errno.read():
        return ReasonCode.DISK
    if board.ha_client.state.read() == HaClientState.TRANSFER:
        return ReasonCode.OK
    return ReasonCode.NO_ADDRESS if reason is CloseReason.NONE else CODES[reason]


def epoch_of(store: str) -> int:
    """The epoch of the log's last bytes; 0 where its file cannot be read, which is a problem of its own."""
    try:
        return epochs.read(store).last_epoch
    except OwnFileDamaged:
        return 0


def divergence_line(store: str, parted: Divergence) -> str:
    """The note, and how the two logs become one again."""
    host, port = split(parted.master)
    listening = host_and_port(host, int(port) - 1) if port.isascii() and port.isdecimal() else "HOST:PORT"
    return (
        f"{parted.text()}. Nothing is copied until this is decided: stop this broker, then `slipstream replica rewind"
        f" {store} --with {listening}` (the master's listenPort) gives up what only this log has, and keeps it beside"
    )
