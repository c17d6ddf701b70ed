"""Says how far the log is held by the replicas asked for: what every waiting put compares with its own end.

Implements: GroupTransferService (spec: ha-protocol, 6 put path and acks); its decisions: protocol/group_transfer.py
Follows:    slave_ack_offset of every connection and max_physical_offset, through one bell, `ack_bell`
Publishes:  confirm_offset, in_sync_slaves
It holds no requests: producers wait on `confirm_offset` themselves, so a kill of this process loses nothing but time.
"""

from __future__ import annotations

from engine.config import BrokerConfig, BrokerRole
from engine.cursors import Board
from engine.protocol import group_transfer
from engine.protocol.group_transfer import SlaveAck
from ipc import waiting

TRANSFER = 2


class GroupTransfer:
    """The process that turns acknowledgements into `confirm_offset`."""

    name = "group_transfer"

    def __init__(self, board: Board, in_sync_replicas: int, fallbehind_bytes_max: int) -> None:
        self._board = board
        self._in_sync_replicas = in_sync_replicas
        self._fallbehind_bytes_max = fallbehind_bytes_max
        self._bell_seen = 0
        # A bell counts only while somebody is registered. We are, for life: a ring between our look at the
        # acknowledgements and our sleep would be lost otherwise. One that a kill left costs a system call a ring.
        bell = board.ack_bell
        bell.words[bell.index + 1] += 1

    def do_work(self, _now_ms: int) -> int:
        """Compare all acknowledgements; 1 when that changed something."""
        board = self._board
        self._bell_seen = board.ack_bell.read()
        acks = [
            SlaveAck(group_transfer.slave_identity(words.peer.read()), words.slave_ack_offset.read())
            for words in board.ha
            if words.state.read() == TRANSFER
        ]
        end = board.max_physical_offset.read()
        in_sync = group_transfer.in_sync_slaves(acks, end, self._fallbehind_bytes_max)
        if in_sync != board.in_sync_slaves.read():
            waiting.publish(board.in_sync_slaves, in_sync)
        # What was confirmed once was held by that many: it stays confirmed when they go.
        confirmed = group_transfer.confirm_offset(acks, self._in_sync_replicas, end)
        if confirmed <= board.confirm_offset.read():
            return 0
        waiting.publish(board.confirm_offset, confirmed)
        return 1

    def idle(self, timeout_ms: int) -> None:
        """Sleep until a sender or the flusher rings."""
        waiting.await_change(self._board.ack_bell, self._bell_seen, timeout_ms)

    def close(self) -> None:
        """No longer registered at the bell."""
        bell = self._board.ack_bell
        bell.words[bell.index + 1] -= 1


def open_role(config: BrokerConfig, board: Board) -> GroupTransfer:
    """The group transfer of this broker; on an ASYNC_MASTER it confirms what is in the log."""
    replicas = config.in_sync_replicas if config.broker_role is BrokerRole.SYNC_MASTER else 1
    return GroupTransfer(board, replicas, config.ha_slave_fallbehind_max_bytes)
