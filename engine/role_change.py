"""When a broker's role changes while its file stays as it is, and to what: asked for, heard of, or found at its start.

The supervisor asks. What an operator or another broker wants comes as a request beside the regions; who else is a
master is asked when a master starts, and while it runs by `engine.remoting.processors.rivals`. The store's file of
epochs remembers it; only the supervisor writes that file while no receiver runs.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress

from engine.errors import StartRefused
from engine.net import tls
from engine.protocol.ha.reign import Standing, Verdict
from engine.protocol.sending.checks import PERM_WRITE
from engine.remoting.peers import fencing
from engine.remoting.peers.fencing import Circle
from engine.settings import role_now
from engine.settings.config import BrokerConfig, BrokerRole
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters, Reign
from engine.shared_memory.region_directory import role_request
from engine.shared_memory.region_directory.role_request import RoleRequest
from ipc import waiting
from ipc.clock import wall_ms
from store.files import room
from store.notes import epochs
from store.notes.epochs import Epochs, Fence, SaidRole

log = logging.getLogger("slipstream")


class RoleChange:
    """The roles of one broker, one after the other. `of_file` is what its file says."""

    def __init__(self, of_file: BrokerConfig) -> None:
        self.of_file, self._root = of_file, of_file.store_path_root_dir
        self.identity = role_now.identity_of(of_file)
        self._promoting, self._epoch_min, self._has_served = False, 0, False
        self._epoch, self._is_master = 0, False  # of the role that runs
        self._asks_first = False
        self.asking_id = of_file.broker_id  # that of the slave that this broker was last
        self.tables_from = ""  # of the role that begins: the old master, where it may still answer

    def config_now(self) -> BrokerConfig:
        """The settings of the role that begins. Raises StartRefused, OwnFileDamaged, OSError."""
        config = self._config_now()
        self._is_master = config.broker_role is not BrokerRole.SLAVE
        if not self._is_master:
            self.asking_id = config.broker_id
        return config

    def _config_now(self) -> BrokerConfig:
        known = epochs.read(self._root)
        self._epoch = known.last_epoch
        if self._promoting:
            self._keep_others()
            return role_now.effective(self.of_file, known.promoting())
        if known.is_promised:
            self._refuse_beside_master(known)
            self._keep_others()
        elif role_now.is_master(self.of_file, known):
            fence = self._newer_master(known)
            if fence is not None:
                known = known.fenced(fence)
                epochs.write(self._root, known)
        config = role_now.effective(self.of_file, known)
        if known.is_copy_of(self.identity) and self.of_file.broker_role is BrokerRole.SLAVE:
            log.warning(
                "this store is a copy of the store in which %s became the master of epoch %d; starting as a slave;"
                " `slipstream promote %s` makes this broker the master",
                self.identity,
                known.last_epoch,
                self._root,
            )
        if config.broker_role is BrokerRole.SLAVE and self.of_file.broker_role is not BrokerRole.SLAVE:
            self._tell_slave(config, known)
        return config

    def _circle(self) -> Circle:
        """Return what a starting broker needs to ask for other masters."""
        how = tls.of_broker(self.of_file).client
        return fencing.circle_of(self.of_file, how, lambda: fencing.log_at_rest(self.of_file))

    def _keep_others(self) -> None:
        """Note the registered brokers that a promoted master must ask, before name servers hear of the promotion."""
        with suppress(OSError):  # a full disk: those that it has met are asked
            fencing.keep_registered(self._circle(), self._root)

    def _newer_master(self, known: Epochs) -> Fence | None:
        """The master that has taken this one's place, and proves it; None without one."""
        circle = self._circle()
        if not self.of_file.has_name_servers and not circle.peers:
            return None
        for one in fencing.judged(circle, Standing(known.entries, is_master=True, is_confirmed=False)):
            if one.verdict is Verdict.YIELD and (self.of_file.has_name_servers or circle.secret):
                return one.master.fence
            log.warning(
                "%s at %s is also a master, of epoch %d (%s); this broker's epoch is %d, and it starts as a master",
                one.master.extent.identity,
                one.master.address,
                one.master.extent.epoch,
                one.verdict,
                known.last_epoch,
            )
        return None

    def _refuse_beside_master(self, known: Epochs) -> None:
        """Raise StartRefused where `promote` was said while no broker ran, and another master lives."""
        if known.role is SaidRole.FORCED:
            return
        living = fencing.living_master(self._circle(), self.of_file.ha_master_address)
        if living is not None:
            remedy = (
                f"stop that one first; or `slipstream demote {self._root}`, start, and `slipstream promote {self._root}"
                f" --switch`; or `slipstream promote {self._root} --force`, if nothing will write there again"
            )
            why = f"its master {living} is running, and both would accept messages"
            raise StartRefused("slipstream promote", why, remedy)

    def publish(self, counters: BrokerCounters, config: BrokerConfig, only: Collection[str]) -> None:
        """Publish the settings that change at run time, as the file has them.

        A promoted master takes no message before its clients role has asked who else is one, where that can be asked.
        """
        live_settings.publish(counters, config)
        if self._asks_first and (not only or "clients" in only):
            waiting.publish(counters.reign, Reign.ASKS)
            waiting.publish(counters.broker_permission, config.broker_permission & ~PERM_WRITE)

    def _tell_slave(self, config: BrokerConfig, known: Epochs) -> None:
        """Log why a master by its file is a slave. Raises StartRefused at a start without a master to follow.

        In the middle of a run it goes on without one instead, refuses messages, and `status` says why.
        """
        newer = known.fenced_by if known.is_fenced else None
        why = "an operator demoted it" if known.role is SaidRole.SLAVE else "another broker's epoch is newer"
        if known.is_copy_of(self.identity):
            why = f"this store is a copy of the store in which it became the master of epoch {known.last_epoch}"
        if newer is not None:
            who = newer.broker or "another broker"
            why = f"{who} is the master of epoch {newer.epoch}, and this log's epoch is {known.last_epoch}"
        if not role_now.knows_master(config) and not self._has_served:
            remedy = (
                f"name its master: `slipstream demote {self._root} --master HOST:PORT` (the HA port); or make it"
                f" the master again: `slipstream promote {self._root}`"
            )
            what = f"brokerRole={self.of_file.broker_role}"
            raise StartRefused(what, f"this broker may not be a master: {why}", remedy)
        log.warning("starts as a slave (id %d), although its file says master: %s", config.broker_id, why)

    def is_asked(self, counters: BrokerCounters) -> bool:
        """Whether another role is wanted of the one that runs: by a request, or a slave knows a newer master."""
        return (role_request.is_there(counters.directory) and self._has_room(counters)) or self._is_outdated_by(
            counters
        ) > 0

    def _has_room(self, counters: BrokerCounters) -> bool:
        """Whether the disk has room for what the end of one role and the start of another write, before anything is
        stopped for it; else the request is refused, and the broker goes on. A proved fence is obeyed all the same."""
        request = role_request.read(counters.directory)
        if request is None or request.is_proved:
            return True
        try:
            room.require(self._root)
        except OSError as error:
            why = f"the disk has no room for the files of a role change ({error.strerror})"
            log.error("%s: the role was not changed: %s", self._root, why)
            role_request.refuse(counters.directory, why)
            return False
        return True

    def _is_outdated_by(self, counters: BrokerCounters) -> int:
        """The epoch of a newer master that a slave of this one has proved; 0 without one, and for a slave of slaves."""
        newer = counters.fenced_by_epoch.read()
        return newer if self._is_master and newer > self._epoch else 0

    def take(self, counters: BrokerCounters) -> RoleRequest | None:
        """Take the wanted change, once the role before it has stopped; write down what must not be forgotten."""
        request, newer = role_request.read(counters.directory), self._is_outdated_by(counters)
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
        if not request.is_proved and (request.master or not request.epoch):
            known = known.demoted(request.master)
        if request.epoch:
            known = known.fenced(Fence(request.epoch, request.broker, request.master, wall_ms()))
        epochs.write(self._root, known)
        return request

    def begin(self, end_offset: int) -> None:
        """The log is whole and ends there: a promotion begins its epoch, durably. Raises OSError."""
        known = epochs.read(self._root)
        self._asks_first = self._promoting or known.is_promised
        if self._asks_first:
            known = known._replace(seen_epoch=max(known.seen_epoch, self._epoch_min - 1))
            known = known.promoted(self.identity, end_offset, wall_ms())
            epochs.write(self._root, known)
            self._epoch = known.last_epoch
            log.warning("%s is the master of epoch %d, from offset %d on", self.identity, known.last_epoch, end_offset)
        elif self._is_master and known.entries:
            with suppress(OSError):  # a full disk: bound at the next start
                epochs.write(self._root, known)  # its directory's device may be another one since a boot
        self._asks_first &= self.of_file.has_name_servers or self.of_file.ha_secret_file is not None
        self._promoting, self._epoch_min = False, 0

    def was_slave(self) -> bool:
        """Whether what wrote to the log last may have been a receiver, whatever the role is now."""
        return self.of_file.broker_role is BrokerRole.SLAVE or epochs.read(self._root) != Epochs()
