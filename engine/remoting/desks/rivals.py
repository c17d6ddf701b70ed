"""Has a master that cannot see its slaves ask, every second, who else is the master; makes it step down on proof.

Implements: nothing of RocketMQ's
Writes:     slipstream.peers of a master; the note of its rivals, beside the regions; a request to become a slave
Follows:    ha.N.remoting; reign, with which a promoted master begins
A master looks while no slave is connected, or fewer than it has met, and after its own loop has stood still. It steps
down for a newer master that answers: `reign.LOOK_MS`, then at most `fencing.SECONDS`, later. Sends are refused from the
proof on, before its roles are stopped. A master that was just promoted takes no message before it has asked once
(`Reign.ASKS`). When and what is decided by `engine.protocol.ha.reign`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from engine.board import address_cursors, rival_note, role_request
from engine.board.addresses import NOWHERE
from engine.board.cursors import HaSlotState, Reign
from engine.board.rival_note import Rival
from engine.board.role_request import ROLE_SIGNAL, RoleRequest
from engine.net import tls
from engine.net.rare_lines import RareLines
from engine.protocol.ha import reign
from engine.protocol.ha.reign import Standing, Step, Verdict, Watch
from engine.protocol.sending.checks import PERM_WRITE
from engine.remoting.desks.parts import Part, PartContext
from engine.remoting.peers import fencing
from engine.remoting.peers.fencing import Judged, OwnLog
from engine.remoting.sockets import log_answers
from ipc import waiting
from ipc.clock import monotonic_ms
from store.errors import StoreError
from store.files import epochs, peers
from store.files.segment_files import SegmentFiles

log = logging.getLogger("slipstream.remoting")


class Rivals(Part):
    """The knowledge of a master about others of its name."""

    def __init__(self, context: PartContext) -> None:
        super().__init__(context)
        self._is_asking, self._has_yielded = False, False
        self._noted: list[Rival] = []
        self._met, self._said = peers.read(context.config.store_path_root_dir), list[str]()
        self._task: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(1, "rivals")
        self._tls, self._lines = tls.of_broker(context.config), RareLines(log)
        config = context.config
        self._watch = Watch(monotonic_ms(), may_step_down=bool(config.name_servers or config.ha_secret_file))
        self._files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)

    def turn(self, now_ms: int) -> None:
        """Ask, where that is due."""
        if self.context.is_slave or self._has_yielded or self._is_asking:
            return
        if self._asks_first() and not self.context.board.listen_port.read():
            return  # of two that are promoted at once, the later one to ask finds the other one answering
        slaves = [one for one in self.context.board.ha if one.state.read() == HaSlotState.TRANSFER]
        self._meet([address_cursors.text_of(one.remoting) for one in slaves])
        if self._watch.is_due(now_ms, len(slaves), len(self._met), asks_first=self._asks_first()):
            self._lines.flush(now_ms)
            self._is_asking = True
            self._task = self.context.loop.create_task(self._ask())

    def _meet(self, said: list[str]) -> None:
        """Keep where slaves say that they answer."""
        if said == self._said:
            return
        with suppress(OSError):  # a full disk: kept with the next turn
            peers.add(self.context.config.store_path_root_dir, (one for one in said if one != NOWHERE))
            self._met, self._said = peers.read(self.context.config.store_path_root_dir), said

    def _asks_first(self) -> bool:
        return self.context.board.reign.read() == Reign.ASKS

    async def _ask(self) -> None:
        try:
            has_whom = self._met or self.context.config.name_servers
            asked = self.context.loop.run_in_executor(self._threads, self._judged) if has_whom else None
            self._decide(await asked if asked is not None else [])
        except (StoreError, OSError) as error:
            self._lines.tell("masters asked for", monotonic_ms(), "who else is the master cannot be asked: %s", error)
        finally:
            self._is_asking = False

    def _judged(self) -> list[Judged]:
        """Ask and judge other masters, in a thread. Raises OwnFileDamaged, AccessDenied."""
        config, board = self.context.config, self.context.board
        entries = epochs.read(config.store_path_root_dir).entries
        own = Standing(entries, True, not self._asks_first(), log_answers.run_of(board))
        return fencing.judged(fencing.circle_of(config, self._tls.client, self._own_log), own)

    def _own_log(self) -> OwnLog:
        board = self.context.board
        extent = reign.Extent(board.min_physical_offset.read(), board.max_physical_offset.read())
        return OwnLog(self._files, extent, log_answers.OWN_QUESTIONS)

    def _decide(self, masters: list[Judged]) -> None:
        verdicts = [one.verdict for one in masters]
        step = self._watch.step(monotonic_ms(), verdicts, asks_first=self._asks_first())
        if step is Step.STEP_DOWN:
            self._step_down(masters[0].master)
            return
        self._note(masters)
        if any(one.verdict is Verdict.OLDER and one.master.is_registered for one in masters):
            self.context.registrar.hurry()  # a name server has one master of a name: the other one has to see us there
        if step is Step.SERVE:
            self._begin_to_serve()

    def _step_down(self, master: fencing.Master) -> None:
        board, extent = self.context.board, master.extent
        log.error(
            "%s at %s is the master of epoch %d: this broker takes no more messages, and becomes its slave",
            extent.identity, master.address, extent.epoch,
        )  # fmt: skip
        waiting.raise_to(board.fenced_by_epoch, extent.epoch)
        self._permit(board.broker_permission.read() & ~PERM_WRITE)
        role_request.write(board.directory, RoleRequest(
            to_master=False, master=extent.ha_address, epoch=extent.epoch, broker=extent.identity, is_proved=True
        ))  # fmt: skip
        self._has_yielded = True
        os.kill(os.getppid(), ROLE_SIGNAL)

    def _begin_to_serve(self) -> None:
        """Take messages from now on: it has asked, and no other master takes precedence."""
        waiting.publish(self.context.board.reign, Reign.CONFIRMED)
        self._permit(self.context.config.broker_permission)
        self.context.registrar.hurry()

    def _permit(self, permission: int) -> None:
        board = self.context.board
        waiting.publish(board.broker_permission, permission)
        waiting.add(board.topics_changes, 1)

    def _note(self, masters: list[Judged]) -> None:
        noted = [
            Rival(one.verdict.value, one.master.extent.identity, one.master.extent.epoch, one.master.address,
                  one.master.extent.ha_address)
            for one in masters
        ]  # fmt: skip
        if noted != self._noted:
            rival_note.write(self.context.board.directory, noted)
            for one in noted:
                said = "%s at %s is a master, too, of epoch %d (%s)"
                log.warning(said, one.broker, one.address, one.epoch, one.verdict)
        self._noted = noted

    def close(self) -> None:
        """Stop asking; questions not begun are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
