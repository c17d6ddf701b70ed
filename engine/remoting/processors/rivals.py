"""Has a master that cannot see its slaves ask, every second, who else is the master; makes it step down on proof.

Implements: nothing of RocketMQ's
Writes:     slipstream.peers of a master; the note of its rivals, beside the regions; a request to become a slave
Publishes:  rivals_asked_ms, until when a writer that has stood still takes no message
Follows:    ha.N.remoting; reign, with which a promoted master begins; writer_held_ms
A master looks while no slave is connected, or fewer than it has met, and after its own loop has stood still. It steps
down for a newer master that answers: `reign.LOOK_MS`, then at most `fencing.SECONDS`, later. Sends are refused from the
proof on, before its roles are stopped. A master that was just promoted takes no message before it has asked once
(`Reign.ASKS`). When and what is decided by `engine.protocol.ha.reign`.
A master that only name servers see, because the network keeps it from this one, is noted; with a secret both prove by
way of the name servers who they are (`engine.remoting.peers.relay`), else nothing is done about it.
A request to step down (`slipstream promote --switch`) is anybody's word: it has this master ask its slaves, and the one
that it names must say itself that it takes over, and prove who it is as a newer master does.
"""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from engine.net import tls
from engine.net.rare_lines import RareLines
from engine.protocol.broker.log_requests import TEXT_MAX, Extent, standing_of
from engine.protocol.ha import reign
from engine.protocol.ha.reign import Standing, Step, Verdict, Watch
from engine.protocol.remoting.answers import Refused, required, whole_number
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.sending.checks import PERM_WRITE
from engine.remoting.peers import fencing
from engine.remoting.peers.fencing import Circle, Judged, OwnLog
from engine.remoting.peers.relay import Relay
from engine.remoting.processors.parts import Part, PartContext
from engine.remoting.sockets import log_answers
from engine.shared_memory import address_cursors
from engine.shared_memory.addresses import NOWHERE
from engine.shared_memory.cursors import HaSlotState, Reign
from engine.shared_memory.region_directory import rival_note, role_request
from engine.shared_memory.region_directory.rival_note import Rival
from engine.shared_memory.region_directory.role_request import ROLE_SIGNAL, RoleRequest
from ipc import waiting
from ipc.clock import monotonic_ms, wall_ms
from store.epochs import EPOCH_MAX
from store.errors import StoreError
from store.files.segment_files import SegmentFiles
from store.notes import epochs, peers

log = logging.getLogger("slipstream.remoting")

UNREACHED_MS = 90_000  # a name server has one master of a name: two take turns there, in a minute at most
FOUND_MS = 5000
SUCCESSORS_MAX = 4  # looked at, or waiting for it; more requests to step down are refused


class Rivals(Part):
    """The knowledge of a master about others of its name."""

    def __init__(self, context: PartContext) -> None:
        super().__init__(context)
        self._is_asking, self._has_yielded, self._successors = False, False, 0
        self._noted, self._began_ms = list[Rival](), monotonic_ms()
        self._relay = Relay()
        self._unreached: dict[str, int] = {}  # masters that name servers alone see, and when they were listed last
        self._met, self._said = peers.read(context.config.store_path_root_dir), list[str]()
        self.asking: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(2, "rivals")
        self._tls, self._lines = tls.of_broker(context.config), RareLines(log)
        config = context.config
        self._watch = Watch(monotonic_ms(), may_step_down=config.has_name_servers or config.ha_secret_file is not None)
        self._files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
        self.later = {RequestCode.STEP_DOWN: self._asked_to_step_down}

    def turn(self, now_ms: int) -> None:
        """Ask, where that is due."""
        if self.context.is_slave or self._has_yielded or self._is_asking:
            return
        if self._asks_first() and not self._can_be_found(now_ms):
            return  # of two that are promoted at once, the later one to ask finds the other one answering
        connected = self._meet_slaves()
        asks_first = self._asks_first() or self._is_held()
        if self._watch.is_due(now_ms, connected, len(self._met), asks_first=asks_first):
            self._lines.flush(now_ms)
            self._is_asking = True
            self.asking = self.context.loop.create_task(self._ask())

    def _can_be_found(self, now_ms: int) -> bool:
        """Return whether this master answers, and each name server lists it; a silent one is waited for FOUND_MS."""
        is_listed = self.context.registrar.is_known_at_all() or now_ms - self._began_ms > FOUND_MS
        return is_listed and self.context.counters.listen_port.read() > 0

    def _meet_slaves(self) -> int:
        """Keep where connected slaves say that they answer; return how many are connected."""
        slaves = [one for one in self.context.counters.ha if one.state.read() == HaSlotState.TRANSFER]
        said = [address_cursors.text_of(one.remoting) for one in slaves]
        if said == self._said:
            return len(slaves)
        with suppress(OSError):  # a full disk: kept with the next turn
            peers.add(self.context.config.store_path_root_dir, (one for one in said if one != NOWHERE))
            self._met, self._said = peers.read(self.context.config.store_path_root_dir), said
        return len(slaves)

    def _asks_first(self) -> bool:
        return self.context.counters.reign.read() == Reign.ASKS

    def _is_held(self) -> bool:
        """Whether the writer waits for an answer to a question that begins from now on."""
        counters = self.context.counters
        return counters.writer_held_ms.read() > counters.rivals_asked_ms.read()

    async def _ask(self) -> None:
        began_ms = monotonic_ms()
        if self._is_held():
            log.warning("this master stood still: it takes messages again once it has asked who else is one")
        try:
            has_whom = self._met or self.context.config.has_name_servers
            asked = self.context.loop.run_in_executor(self._threads, self._judged) if has_whom else None
            masters, listed = await asked if asked is not None else ([], {})
            proved = {one.master.address for one in masters}
            self._decide(masters, [one for one in self._not_reached(listed, began_ms) if one not in proved])
            self.context.registrar.relay(self._relay.texts)
            if not self._has_yielded:
                waiting.publish(self.context.counters.rivals_asked_ms, began_ms)
        except (StoreError, OSError) as error:
            self._lines.tell("masters asked for", monotonic_ms(), "cannot ask for other masters: %s", error)
        finally:
            self._is_asking = False

    def _judged(self) -> tuple[list[Judged], dict[str, bool]]:
        """Ask and judge other masters, in a thread. Raises OwnFileDamaged, AccessDenied."""
        circle, own, known_at = self._circle(), self._standing(), self.context.registrar.known_at()
        listed = fencing.unreached(circle, known_at, tuple(self._unreached))
        relayed = self._relay.look(circle, known_at, own, self._extent, listed)
        return fencing.in_order([*fencing.judged(circle, own), *relayed]), listed

    def _extent(self) -> Extent:
        return log_answers.extent_now(self.context.config, self.context.counters, self._files, wall_ms())

    def _not_reached(self, listed: dict[str, bool], now_ms: int) -> list[str]:
        """The masters that name servers have listed of late, and that do not answer."""
        seen_ms = {one: now_ms if is_listed else self._unreached[one] for one, is_listed in listed.items()}
        self._unreached = {one: then_ms for one, then_ms in seen_ms.items() if now_ms - then_ms < UNREACHED_MS}
        return list(self._unreached)

    def _circle(self) -> Circle:
        return fencing.circle_of(self.context.config, self._tls.client, self._own_log)

    def _standing(self) -> Standing:
        entries = epochs.read(self.context.config.store_path_root_dir).entries
        return Standing(entries, True, not self._asks_first(), log_answers.run_of(self.context.counters))

    def _own_log(self) -> OwnLog:
        counters = self.context.counters
        extent = reign.Extent(counters.min_physical_offset.read(), counters.max_physical_offset.read())
        return OwnLog(self._files, extent, log_answers.OWN_QUESTIONS)

    def _decide(self, masters: list[Judged], not_reached: list[str]) -> None:
        verdicts = [*(one.verdict for one in masters), *(Verdict.UNREACHED for _one in not_reached)]
        step = self._watch.step(monotonic_ms(), verdicts, asks_first=self._asks_first())
        if step is Step.STEP_DOWN:
            self._step_down(masters[0].master)
            return
        self._note(masters, not_reached)
        if any(one.verdict is Verdict.OLDER and one.master.is_registered for one in masters):
            self.context.registrar.hurry()  # a name server has one master of a name: the other one has to see us there
        if step is Step.SERVE:
            self._begin_to_serve()

    def _step_down(self, master: fencing.Master) -> None:
        counters, extent = self.context.counters, master.extent
        log.error(
            "%s at %s is the master of epoch %d: this broker accepts no more messages and becomes its slave",
            extent.identity,
            master.address,
            extent.epoch,
        )
        waiting.raise_to(counters.fenced_by_epoch, extent.epoch)
        self._permit(counters.broker_permission.read() & ~PERM_WRITE)
        role_request.write(
            counters.directory,
            RoleRequest(
                to_master=False, master=extent.ha_address, epoch=extent.epoch, broker=extent.identity, is_proved=True
            ),
        )
        self._has_yielded = True
        os.kill(os.getppid(), ROLE_SIGNAL)

    def _begin_to_serve(self) -> None:
        """Take messages from now on: it has asked, and no other master takes precedence."""
        waiting.publish(self.context.counters.reign, Reign.CONFIRMED)
        self._permit(self.context.config.broker_permission)
        self.context.registrar.hurry()

    def _permit(self, permission: int) -> None:
        counters = self.context.counters
        waiting.publish(counters.broker_permission, permission)
        waiting.add(counters.topics_changes, 1)

    def _note(self, masters: list[Judged], not_reached: list[str]) -> None:
        noted = [
            Rival(
                one.verdict.value,
                one.master.extent.identity,
                one.master.extent.epoch,
                one.master.address,
                one.master.extent.ha_address,
            )
            for one in masters
        ]
        noted += [Rival(Verdict.UNREACHED.value, "a broker that does not answer", 0, one, "") for one in not_reached]
        if noted != self._noted:
            rival_note.write(self.context.counters.directory, noted)
            for one in noted:
                said = "%s at %s is also a master, of epoch %d (%s)"
                log.warning(said, one.broker, one.address, one.epoch, one.verdict)
        self._noted = noted

    async def _asked_to_step_down(self, request: RemotingCommand, _channel: int, _now_ms: int) -> RemotingCommand:
        """Have the supervisor stop this master in order, and run it again as a slave of its successor."""
        wanted, directory = self._successor(request), self.context.counters.directory
        if self._successors >= SUCCESSORS_MAX:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "too many ask this master to step down at once")
        self._successors += 1
        self._meet_slaves()  # one that has just connected is asked, too
        try:
            is_so = await self.context.loop.run_in_executor(self._threads, self._is_claimed, wanted)
        except OSError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{wanted.broker} cannot be asked: {error}") from None
        finally:
            self._successors -= 1
        if not is_so:
            why = (
                f"{wanted.broker} does not answer this master as the one that takes over with epoch {wanted.epoch}, or"
                " does not prove who it is; use the slave's own `slipstream promote --switch`, of this version"
            )
            raise Refused(ResponseCode.NO_PERMISSION, why)
        before = role_request.read(directory)
        if before is not None and before.broker != wanted.broker:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"this master is already stepping down for {before.broker or 'an operator'}"
            )
        role_request.write(directory, wanted)
        return self.answered(request)

    def _successor(self, request: RemotingCommand) -> RoleRequest:
        """What the request says. Raises Refused."""
        epoch = whole_number(request, "epoch", 1, EPOCH_MAX)
        broker, master = (required(request, name) for name in ("broker", "master"))
        if self.context.is_slave:
            raise Refused(ResponseCode.NO_PERMISSION, "this broker is already a slave")
        name, _colon, _number = broker.rpartition(":")
        is_whole = name == self.context.config.broker_name and len(master) <= TEXT_MAX and master.isprintable()
        if epoch is None or not is_whole:
            what = "epoch, broker and master: a number, NAME:ID of this broker's name, HOST:PORT"
            raise Refused(ResponseCode.SYSTEM_ERROR, what)
        if epoch <= epochs.read(self.context.config.store_path_root_dir).last_epoch:
            raise Refused(ResponseCode.NO_PERMISSION, f"epoch {epoch} is not newer than this master's")
        return RoleRequest(to_master=False, master=master, epoch=epoch, broker=broker)

    def _is_claimed(self, wanted: RoleRequest) -> bool:
        """Whether that broker says so itself, where this master knows that it answers, and proves it. In a thread.

        Raises OwnFileDamaged, AccessDenied.
        """
        circle, own = self._circle(), self._standing()
        for one in fencing.others(circle):
            said = one.extent
            if (said.identity, said.ha_address, said.claims_epoch) != (wanted.broker, wanted.master, wanted.epoch):
                continue
            with suppress(ValueError):
                if fencing.is_proved(circle, own, standing_of(said), one):
                    return True
        return False

    def close(self) -> None:
        """Stop asking; questions not begun are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
