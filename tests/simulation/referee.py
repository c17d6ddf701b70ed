"""Looks at everything after every event: what must always be so, whatever happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.producer.pipeline import Outcome
from engine.protocol.ha.group_transfer import slave_identity
from engine.protocol.ha.opening import ALL_THERE_IS
from engine.protocol.ha.policy import PutPolicy
from engine.protocol.ha.put_status import PutMessageStatus
from engine.protocol.ha.wire import CloseReason
from engine.shared_memory import address_cursors
from engine.shared_memory.cursors import HaSlotState
from store.message.record import BLANK_BYTES, BLANK_MAGIC
from tests.simulation.limits import CALLERS_MAX
from tests.simulation.logs import History, Log, Put, heads
from tests.simulation.sender import Sending

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster, Node
    from tests.simulation.master import Master


class Broken(AssertionError):
    """A promise is broken: which one, and how."""

    def __init__(self, rule: str, text: str) -> None:
        self.rule = rule
        super().__init__(f"{rule}: {text}")


@dataclass
class Tenure:
    """What a disk held of one history: from the start of the log to its farthest end."""

    history: History
    start: int
    end: int
    flushed: int

    def had(self, put: Put) -> bool:
        """Whether a message was all there."""
        return self.start <= put.start and put.end <= self.end and self.history.data[put.start : put.end] == put.data


@dataclass
class Held:
    """What a node's disks ever held, and what the present one must hold still."""

    tenures: list[Tenure] = field(default_factory=list)
    must_hold: int = 0  # nothing but a loss of power, of the disk, or an operator takes bytes away
    begins_anew: bool = True

    def lost(self, log: Log) -> None:
        """The disk lost something: what is left is what must be held."""
        self.must_hold, self.begins_anew = log.end, True

    def now(self, history: History, log: Log) -> None:
        """It holds this much of that history."""
        last = self.tenures[-1] if self.tenures else None
        if last is None or self.begins_anew or last.history is not history:
            self.tenures.append(Tenure(history, log.start, log.end, log.flushed))
        else:
            last.end, last.flushed = max(last.end, log.end), max(last.flushed, log.flushed)
        self.must_hold, self.begins_anew = log.end, False


class Referee:
    """Knows all histories, what each node held, and what producers were told."""

    def __init__(self) -> None:
        self.histories: list[History] = []
        self.held: dict[str, Held] = {}
        self.acknowledged: list[Put] = []
        self._seen_logs: dict[str, tuple[int, int, int]] = {}
        self._seen_acks: dict[Sending, tuple[int, int]] = {}
        self._seen_masters: dict[Master, tuple[int, ...]] = {}
        self._seen_confirm: dict[Master, list[int]] = {}
        self._sent_in_second: dict[Sending, tuple[int, int, int]] = {}
        self._seen_senders: dict[Sending, tuple[object, ...]] = {}
        self.last_ok = 0
        self.cluster: Cluster

    def new_history(self, name: str, before: bytes = b"") -> History:
        """Another one begins, or forks."""
        history = History(name, before)
        self.histories.append(history)
        return history

    def forget(self, node: Node) -> None:
        """A log was cut or set aside: what was seen of it counts no more."""
        self._seen_logs.pop(node.name, None)
        self.held.setdefault(node.name, Held()).lost(node.log)

    # after every event

    def look(self) -> None:
        """All of it."""
        for node in self.cluster.nodes:
            log = node.log
            shape = log.start, log.end, log.flushed
            if self._seen_logs.get(node.name) != shape:
                log.look()
                self._look_at_log(node)
                self._seen_logs[node.name] = shape
            if node.master is not None:
                self._look_at_master(node.master)

    def _look_at_log(self, node: Node) -> None:
        log, held = node.log, self.held.setdefault(node.name, Held())
        if log.end == log.start:
            return
        history = self._history_of(log, held.tenures[-1].history if held.tenures else None)
        if history is None:
            raise Broken("one history", f"{node.name} has {log.start} to {log.end} of no history: {self._mixture(log)}")
        if log.end < held.must_hold:
            raise Broken("nothing is taken away", f"{node.name} ends at {log.end}, it held {held.must_hold}")
        held.now(history, log)

    def recovered(self, node: Node, least: int) -> None:
        """A recovery kept the whole records that it must keep, at least up to there, and nothing else."""
        if not least <= node.log.end == node.log.boundary():
            raise Broken("whole records are kept", f"{node.name} ends at {node.log.end}, it had {least} on its disk")
        if node.history is not None and node.history.pending:
            if node.log.end > len(node.history.data):  # what its writer copied, and did not come to publish
                self.appended(node.history, node.log)
            node.history.pending.clear()
        self.forget(node)

    def reads_again(self, node: Node) -> None:
        """Its files have still what was published, whatever was written since."""
        if not node.log.is_as_published():
            raise Broken("what is published stays", f"{node.name}, {node.log.start} to {node.log.end}")

    def _history_of(self, log: Log, last: History | None) -> History | None:
        for history in [*([last] if last else []), *reversed(self.histories)]:
            if len(history.data) >= log.end and history.data[log.start : log.end] == log.data:
                return history
        return None

    def _mixture(self, log: Log) -> str:
        """Where a log stops following each history."""
        parts = []
        for history in self.histories:
            ours, theirs = log.data[: log.end - log.start], history.data[log.start : log.end]
            same = next((at for at, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(theirs))
            parts.append(f"{history.name} up to {log.start + same}")
        return ", ".join(parts)

    def _look_at_master(self, master: Master) -> None:
        seen = master.log.end, master.listening.callers, *master.confirms()
        if self._seen_masters.get(master) != seen:
            self._look_at_confirmed(master)
            self._seen_masters[master] = seen
        for sender in [one for one in master.sendings if one.has_begun]:
            state = sender.connection.words.tobytes(), sender.published()
            if self._seen_senders.get(sender) != state:
                self._seen_senders[sender] = state
                self._look_at_sender(sender)

    def _look_at_confirmed(self, master: Master) -> None:
        confirms = master.confirms()
        before = self._seen_confirm.get(master, confirms)
        if any(now < then for now, then in zip(confirms, before, strict=True)):
            raise Broken("confirm_offset never falls", f"{confirms} after {before}")
        if max(confirms) > master.log.end:
            raise Broken("confirm_offset is within the log", f"{confirms}, the log ends at {master.log.end}")
        self._seen_confirm[master] = confirms
        if master.listening.callers > CALLERS_MAX:
            raise Broken("tables are bounded", f"{master.listening.callers} callers wait")

    def _look_at_sender(self, sender: Sending) -> None:
        connection = sender.connection
        is_served, ack, held = sender.published()
        sent = max(connection.next_transfer_offset, connection.slave_request_offset)
        greeting = connection.greeting
        if connection.slave_request_offset >= 0 and greeting is not None and greeting.replica is None:
            raise Broken("who it is comes first", f"it is served from {connection.slave_request_offset}")
        if is_served and not held <= ack <= sent:
            raise Broken("acknowledgements are bounded", f"held {held}, acknowledged {ack}, sent {sent}")
        self._look_at_speed(sender, connection.next_transfer_offset)
        before = self._seen_acks.get(sender, (-1, 0))
        if ack < before[0] or held < before[1]:
            raise Broken("acknowledgements never fall", f"{(ack, held)} after {before}")
        if (ack, held) == before:
            return
        self._seen_acks[sender] = ack, held
        owner = sender.link.owner
        if owner is None or not is_served:
            return
        if ack > max(owner.farthest, ALL_THERE_IS):  # which an empty slave says until bytes come
            raise Broken("acknowledgements are true", f"{owner.name} acknowledged {ack}, held {owner.farthest}")
        has_been_sent = ack > max(connection.slave_request_offset, ALL_THERE_IS)
        if has_been_sent and not owner.is_gone and self._differs(owner.log, sender.master.history, ack):
            raise Broken("acknowledged is the same", f"{owner.name} acknowledged {ack}, its bytes are others")

    def _look_at_speed(self, sender: Sending, sent: int) -> None:
        """Windows begin when they like: in a second there may be parts of two."""
        limit, second = sender.master.settings.flow_limit, sender.world.now_ms // 1000
        if not limit or sent < 0:
            return
        known = self._sent_in_second.get(sender, (second, sent, sent))
        begun_at = known[1] if known[0] == second else known[2]
        self._sent_in_second[sender] = second, begun_at, sent
        if sent - begun_at > 2 * limit:
            raise Broken("the flow is bounded", f"{sent - begun_at} bytes in a second, allowed are {limit}")

    def _differs(self, log: Log, history: History, end: int) -> bool:
        end = min(end, log.end)
        return end > log.start and log.data[: end - log.start] != history.data[log.start : end]

    def hung_up(self, sender: Sending, reason: CloseReason) -> None:
        """No slave that says what is true is taken for another."""
        owner = sender.link.owner
        if owner is not None and reason in (CloseReason.ACK_NOT_SENT, CloseReason.ACK_FELL, CloseReason.NOT_A_SLAVE):
            raise Broken("a slave is believed", f"{owner.name} said what is true: {reason.name}")

    # what the master's processes decide

    def counted(self, master: Master) -> None:
        """Group transfer says how many are in step: as many as acknowledged enough, each host once."""
        end, most_bytes, names = master.log.end, master.settings.fallbehind_bytes_max, set()
        owners = {sending.words.slot: sending.link.owner for sending in master.sendings}
        for words in master.log.counters.ha:
            is_served, owner = words.state.read() == HaSlotState.TRANSFER, owners.get(words.slot)
            if not is_served or end - words.slave_ack_offset.read() >= most_bytes:
                continue
            if not words.identity.read():
                names.add(str(slave_identity(*address_cursors.read(words.peer_address))))
            elif owner is not None:
                names.add(owner.name)
        if master.in_sync != len(names):
            raise Broken("in step is counted", f"{master.in_sync} counted, {sorted(names)} are")

    def appends(self, policy: PutPolicy, in_sync: int, is_appended: bool) -> None:
        """A message is stored, or refused because too few replicas are in step."""
        may = not policy.check_before_append or _replicas(policy, in_sync) <= in_sync + 1
        if is_appended != may:
            raise Broken("stored where enough are in step", f"{is_appended} with {in_sync} in step and {policy}")

    def appended(self, history: History, log: Log) -> list[Put]:
        """A log has grown by these, which its writer takes from the ring: each once, in order; and by blank records."""
        new, segment_bytes, puts = log.data[len(history.data) - log.start :], log.files.segment_bytes, list[Put]()
        for at, size, magic in heads(new):
            start, stored = len(history.data), new[at : at + size]
            put = history.pending[0] if history.pending else None
            if put is None:
                is_due = False
            elif magic == BLANK_MAGIC:
                is_due = size == segment_bytes - start % segment_bytes < len(put.record) + BLANK_BYTES
            else:
                is_due = stored == put.stored_at(start, history.queue_offset)
                history.queue_offset += 1
                puts.append(history.pending.popleft())
            if not is_due:
                raise Broken("what is put is appended once", f"{size} bytes at {start}: {put}, {bytes(stored)!r}")
            history.data += stored
        if len(history.data) != log.end:
            raise Broken("what is put is appended once", f"{len(history.data)} to {log.end} are not records")
        return puts

    def waits(self, put: Put, now_ms: int, longest_ms: int) -> None:
        """A producer waits still."""
        if now_ms - put.began_ms > longest_ms:
            raise Broken("every put is answered", f"{put.start} waits since {put.began_ms}")

    # what producers are told

    def answered(self, master: Master, outcome: Outcome) -> None:
        """A put is answered, with its place."""
        put = outcome.token
        if put.start != outcome.physical_offset:
            raise Broken("a put is answered with its place", f"{put.start}, not {outcome.physical_offset}")
        if outcome.status is PutMessageStatus.PUT_OK:
            self._answered_ok(master, put)

    def _answered_ok(self, master: Master, put: Put) -> None:
        """A put is answered with PUT_OK: whoever was asked for holds it, or held it."""
        policy = master.policy
        self.look()
        self.last_ok = put.end
        if policy.wait_for_flush and master.log.flushed < put.end:
            raise Broken("flushed", f"PUT_OK for {put.start} to {put.end}, flushed up to {master.log.flushed}")
        needed = _replicas(policy, put.in_sync_slaves) - 1
        others = [node for node in self.cluster.nodes if node.master is not master]
        where = {node.name: [tenure for tenure in self._tenures(node) if tenure.had(put)] for node in others}
        is_flushed = 0 if not master.settings.counts_flushed else put.end
        having = [name for name, held in where.items() if any(tenure.flushed >= is_flushed for tenure in held)]
        if len(having) < needed:
            raise Broken("acknowledged is held", f"PUT_OK for {put.start} to {put.end}: {needed} needed, {having}")
        self.acknowledged.append(put)

    # whose a log is

    def followed(self, node: Node) -> History:
        """The history that a log is a part of."""
        history = self._history_of(node.log, node.history)
        assert history is not None
        return history

    def follows(self, node: Node, leader: Node) -> bool:
        """Whether a log is a part of what another node wrote as master."""
        history = leader.history
        return history is not None and node.log.end > 0 and not self._differs(node.log, history, node.log.end)

    def may_follow(self, node: Node, leader: Node) -> bool:
        """Whether a slave can go on from its end: it has nothing else than its master, and that keeps what it lacks."""
        if node.log.end == 0:
            return True
        return leader.log.start <= node.log.end <= leader.log.end and self.follows(node, leader)

    def _tenures(self, node: Node) -> list[Tenure]:
        return self.held.setdefault(node.name, Held()).tenures

    def must_have(self, log: Log, old: History, holders: list[Node]) -> None:
        """Whoever becomes master has all that its forerunner acknowledged and that one of `holders` has still."""
        for put in self.acknowledged:
            if _has(log, put) or put.start < log.start or old.data[put.start : put.end] != put.data:
                continue
            having = [node.name for node in holders if _has(node.log, put)]
            if having:
                raise Broken("acknowledged is not lost", f"{put.start} to {put.end} is with {having} alone")


def _replicas(policy: PutPolicy, in_sync: int) -> int:
    """How many must have a message, with the master: as configured, or as many as there are within bounds."""
    if policy.replicas_min == 0:
        return policy.in_sync_replicas
    return sorted((policy.replicas_min, in_sync + 1, policy.in_sync_replicas))[1]


def _has(log: Log, put: Put) -> bool:
    return log.start <= put.start and put.end <= log.end and log.read(put.start, put.end) == put.data
