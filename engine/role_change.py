"""When a broker's role changes while its file stays as it is, and to what: asked for, heard of, or found at its start.

The supervisor asks. What an operator or another broker wants comes as a request beside the regions; a newer master is
heard of through the name servers when a master starts. The store's file of epochs remembers it; only the supervisor
writes that file while no receiver runs.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from engine.board import role_request
from engine.board.cursors import Board
from engine.board.role_request import RoleRequest
from engine.errors import StartRefused
from engine.remoting.peers import fencing
from engine.settings import role_now
from engine.settings.config import BrokerConfig, BrokerRole
from ipc.clock import wall_ms
from store.files import epochs
from store.files.epochs import Epochs, Fence, SaidRole

log = logging.getLogger("slipstream")


class RoleChange:
    """The roles of one broker, one after the other. `of_file` is what its file says."""

    def __init__(self, of_file: BrokerConfig) -> None:
        self.of_file, self._root = of_file, of_file.store_path_root_dir
        self.identity = role_now.identity_of(of_file)
        self._promoting, self._epoch_min, self._has_served = False, 0, False
        self._epoch, self._is_master = 0, False  # of the role that runs
        self.tables_from = ""  # of the role that begins: the old master, where it may still answer

    def config_now(self) -> BrokerConfig:
        """The settings of the role that begins. Raises StartRefused, OwnFileDamaged, OSError."""
        config = self._config_now()
        self._is_master = config.broker_role is not BrokerRole.SLAVE
        return config

    def _config_now(self) -> BrokerConfig:
        known = epochs.read(self._root)
        self._epoch = known.last_epoch
        if self._promoting:
            return role_now.effective(self.of_file, known.promoting())
        if known.role is not SaidRole.PROMOTE and role_now.is_master(self.of_file, known) and self.of_file.name_servers:
            fence = fencing.newer_master(self.of_file, known)
            if fence is not None:
                known = known.fenced(fence)
                epochs.write(self._root, known)
        config = role_now.effective(self.of_file, known)
        if config.broker_role is BrokerRole.SLAVE and self.of_file.broker_role is not BrokerRole.SLAVE:
            self._tell_slave(config, known)
        return config

    def _tell_slave(self, config: BrokerConfig, known: Epochs) -> None:
        """A master by its file that is none. Raises StartRefused where it could follow nobody, but in the middle of a
        run: then it goes on without one, refuses messages, and `status` says why."""
        newer = known.fenced_by if known.is_fenced else None
        why = "an operator demoted it" if known.role is SaidRole.SLAVE else "another broker's epoch is newer"
        if newer is not None:
            who = newer.broker or "another broker"
            why = f"{who} is the master of epoch {newer.epoch}, and this log's epoch is {known.last_epoch}"
        if not role_now.knows_master(config) and not self._has_served:
            remedy = (
                f"say whom it follows: `slipstream demote {self._root} --master HOST:PORT` (the HA port); or make it"
                f" the master again: `slipstream promote {self._root}`"
            )
            what = f"brokerRole={self.of_file.broker_role}"
            raise StartRefused(what, f"this broker must be no master: {why}", remedy)
        log.warning("starts as a slave (id %d) although its file says master: %s", config.broker_id, why)

    def is_asked(self, board: Board) -> bool:
        """Whether another role is wanted of the one that runs: by a request, or a slave knows a newer master."""
        return role_request.is_there(board.directory) or self._is_outdated_by(board) > 0

    def _is_outdated_by(self, board: Board) -> int:
        """The epoch of a newer master that a slave of this one has proved; 0 without one, and for a slave of slaves."""
        newer = board.fenced_by_epoch.read()
        return newer if self._is_master and newer > self._epoch else 0

    def take(self, board: Board) -> RoleRequest | None:
        """What is wanted, once the role before it has stopped; remembered where it must not be forgotten."""
        request, newer = role_request.read(board.directory), self._is_outdated_by(board)
        if request is None and newer:
            request = RoleRequest(to_master=False, epoch=newer)
        self._has_served = True
        self._promoting, self.tables_from = False, ""
        if request is None:
            return None
        if request.to_master:
            self._promoting, self._epoch_min, self.tables_from = True, request.epoch, request.tables_from
            return request
        known = epochs.read(self._root)
        if request.master or not request.epoch:
            known = known.demoted(request.master)
        if request.epoch:
            known = known.fenced(Fence(request.epoch, request.broker, request.master, wall_ms()))
        epochs.write(self._root, known)
        return request

    def begin(self, end_offset: int) -> None:
        """The log is whole and ends there: a promotion begins its epoch, durably. Raises OSError."""
        known = epochs.read(self._root)
        if self._promoting or known.role is SaidRole.PROMOTE:
            known = replace(known, seen_epoch=max(known.seen_epoch, self._epoch_min - 1))
            known = known.promoted(self.identity, end_offset, wall_ms())
            epochs.write(self._root, known)
            self._epoch = known.last_epoch
            log.warning("%s is the master of epoch %d, from offset %d on", self.identity, known.last_epoch, end_offset)
        self._promoting, self._epoch_min = False, 0

    def was_slave(self) -> bool:
        """Whether what wrote to the log last may have been a receiver, whatever the role is now."""
        return self.of_file.broker_role is BrokerRole.SLAVE or epochs.read(self._root) != Epochs()
