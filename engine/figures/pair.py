"""What keeps a broker from its place among its replicas: a log that has parted, a master that is gone, a newer epoch.

Each line ends with the command to type.
"""

from __future__ import annotations

from engine.board import address_cursors
from engine.board.addresses import host_and_port, split
from engine.board.cursors import Board
from engine.protocol.ha.client import HaClientState
from engine.protocol.ha.wire import TRIED_SOON, CloseReason
from store.errors import OwnFileDamaged
from store.files import divergence, epochs
from store.files.divergence import Divergence
from store.files.epochs import SaidRole


def pair_problems(board: Board, store: str, role: str) -> list[str]:
    """Of the broker on that store with that brokerRole; none when all is well."""
    try:
        parted, known = divergence.read(store), epochs.read(store)
    except OwnFileDamaged as damaged:
        return [str(damaged)]
    lines = [] if parted is None else [divergence_line(store, parted)]
    words = board.ha_client
    follows = words.state.read() == HaClientState.TRANSFER
    newer = known.fenced_by if known.is_fenced and known.role is not SaidRole.SLAVE else None
    if newer is not None and not follows:
        lines.append(
            f"{newer.broker or 'another broker'} is the master of epoch {newer.epoch}, and this log's epoch is"
            f" {known.last_epoch}: this broker takes no messages. `slipstream demote {store} --master HOST:PORT` (the"
            f" HA port) has it follow that one, `slipstream promote {store}` makes it the master again"
        )
    if role != "SLAVE":
        return lines
    if parted is None and not follows and CloseReason(words.reason.read()) in TRIED_SOON:
        master = address_cursors.text_of(words.master_address) or "its master"
        lines.append(
            f"{master} does not answer. If it stays gone, `slipstream promote {store}` makes this broker the master;"
            " docs/operations.md says what becomes of the old one"
        )
    return lines


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
