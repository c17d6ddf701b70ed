"""What may happen to a cluster: to its connections, its processes, its hosts, its disks; and who else calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

from engine.protocol.ha.wire import REPORT
from engine.shared_memory.addresses import PORT_BITS
from engine.shared_memory.cursors import HA_CONNECTIONS_MAX
from tests.simulation.cluster import Cluster, Node
from tests.simulation.limits import LOOPBACK, SIEGE_LINKS_MAX, STRANGERS_FROM
from tests.simulation.network import Connection
from tests.simulation.sender import Sending
from tests.simulation.world import Actor


class Faults:
    """Each fault is a method: what happens, and when it is over. With `only`, those of other numbers are left out."""

    def __init__(self, cluster: Cluster, only: Collection[int] | None = None) -> None:
        self.cluster, self.world = cluster, cluster.world
        self.happened = list[int]()  # their numbers, from 1 on
        self._only, self._number = only, 0
        self._rng = random.Random(self.world.rng.random())  # what is left out changes neither kind nor time of others
        self._hosts = 8

    def after(self, every_ms: int) -> int:
        """Return how long it is to the next one, which come about so often."""
        return self._rng.randint(1, 2 * every_ms)

    def happen(self, kinds: tuple[str, ...]) -> None:
        """One of these, unless it is left out."""
        self._number += 1
        kind = self._rng.choice(kinds)
        if self._only is not None and self._number not in self._only:
            return
        self.happened.append(self._number)
        self.world.tell(f"fault {self._number}: {kind}")
        fault: Callable[[], None] = getattr(self, kind)
        fault()

    # connections

    def _link(self) -> Connection | None:
        return self.world.rng.choice(self.cluster.links) if self.cluster.links else None

    def reset(self) -> None:
        """A connection ends, what was on its way is lost."""
        if link := self._link():
            link.reset()

    def half_open(self) -> None:
        """Nothing arrives any more, in one direction or both, and nobody is told."""
        if (link := self._link()) and link.host != LOOPBACK:
            for pipe in self.world.rng.choice(((0,), (1,), (0, 1))):
                link.pipes[pipe].is_dead = True

    def hold(self) -> None:
        """Nothing arrives for a while, then all of it. On one host nothing is held up: there a kill is seen at once."""
        if (link := self._link()) and link.host != LOOPBACK:
            for pipe in link.pipes:
                pipe.hold(self.world.rng.choice((500, 6000, 25_000)))

    def break_in_head(self) -> None:
        """A connection ends within the head of a record."""
        if link := self._link():
            link.breaks_in_head = True

    def cut_off(self) -> None:
        """A host cannot be reached for a while."""
        node = self.world.rng.choice(self.cluster.nodes)
        node.cut_off_until_ms = self.world.now_ms + self.world.rng.choice((1000, 30_000))
        for link in self.cluster.links:
            if node is self.cluster.leader or (link.owner is not None and link.owner is node.receiver):
                link.die() if node.host != LOOPBACK else link.reset()

    # processes and hosts

    def _slave(self) -> Node | None:
        running = [node for node in self.cluster.slaves if node.receiver is not None]
        return self.world.rng.choice(running) if running else None

    def _back(self, node: Node) -> None:
        """Its broker comes back after a while."""
        later_ms = self.world.rng.choice((10, 2000, 30_000))
        self.world.after(later_ms, lambda: None if node.is_running else self.cluster.start(node))

    def kill_slave(self) -> None:
        """The page cache keeps what it had."""
        if node := self._slave():
            self.cluster.end(node)
            self._back(node)

    def restart_receiver(self) -> None:
        """One process is killed: it goes on from its own end, within a record."""
        if node := self._slave():
            self._restart_receiver(node, self.world.rng.choice((0, 300)))

    def _restart_receiver(self, node: Node, looks: int) -> None:
        """When its log ends within a record, if that is seen by so many looks."""
        if looks and node.log.end == node.log.boundary():
            self.world.after(self.world.rng.randint(1, 20), lambda: self._restart_receiver(node, looks - 1))
        elif node.receiver is not None:
            before = node.receiver
            before.close(silently=False)
            if self.world.chance(0.3):
                node.misled_until_ms = self.world.now_ms + 1000
            node.receiver = type(before)(
                self.world, self.cluster.settings, node.log, before.connects_by, node.name, before.broker_id
            )

    def stop_slave(self) -> None:
        """It does nothing for a while."""
        if node := self._slave():
            assert node.receiver is not None
            node.receiver.stopped_until_ms = self.world.now_ms + self.world.rng.choice((1000, 10_000, 40_000))

    def power_off_slave(self) -> None:
        """What was not flushed may be gone; nobody is told."""
        if node := self._slave():
            self.cluster.lose_power(node)
            self._back(node)

    def another_disk_slave(self) -> None:
        """It comes back with nothing."""
        if node := self._slave():
            self.cluster.end(node)
            self._empty(node)
            self._back(node)

    def another_disk_while_waited_for(self) -> None:
        """It does nothing for a moment, in which puts wait for it, then comes back with nothing."""
        if node := self._slave():
            assert node.receiver is not None
            node.receiver.stopped_until_ms = self.world.now_ms + 40_000
            self.world.after(self.world.rng.choice((300, 2000)), lambda: self._swap(node))

    def _swap(self, node: Node) -> None:
        if node.receiver is not None:
            self.cluster.end(node)
            self._empty(node)
            self.cluster.start(node)

    def _empty(self, node: Node) -> None:
        cluster = self.cluster
        cluster.disks.remove(node.log)
        node.log, node.history = cluster.disks.empty(node.log.counters, cluster.settings.segment_bytes), None
        self.cluster.referee.forget(node)

    def kill_master(self) -> None:
        """The page cache keeps what it had."""
        if (node := self.cluster.leader).is_running:
            self.cluster.end(node)
            self._back(node)

    def stop_master(self) -> None:
        """None of its processes does anything for a while."""
        if (master := self.cluster.leader.master) is not None:
            master.stop(self.world.now_ms + self.world.rng.choice((1000, 10_000, 40_000)))

    def kill_sender(self) -> None:
        """Its connection ends with it, and it cannot say why."""
        master = self.cluster.leader.master
        if master is not None and (sendings := [one for one in master.sendings if not one.is_gone]):
            self.world.rng.choice(sendings).killed()

    def kill_listener(self) -> None:
        """Its senders die with it, and who waits is hung up on; the next one has all slots to give."""
        if (master := self.cluster.leader.master) is not None:
            master.listening.kill()

    def lack_room(self) -> None:
        """Some call while its host has no descriptor for another connection, and no process for another sender."""
        if (master := self.cluster.leader.master) is not None:
            master.listening.lack_room(self.world.rng.choice((50, 3000)))
            self.strangers()

    def kill_writer(self) -> None:
        """The next one goes on with what the rings hold, whatever was copied and not published."""
        if (master := self.cluster.leader.master) is not None:
            master.writing.kill()

    def power_off_master_flushed(self) -> None:
        """It loses nothing, but nobody is told."""
        if (node := self.cluster.leader).is_running:
            self.cluster.end(node, silently=True)
            self._back(node)

    def expire(self) -> None:
        """The master's first segments, which are on its disk, are deleted."""
        leader = self.cluster.leader
        segment = self.cluster.settings.segment_bytes
        last = leader.log.flushed - leader.log.flushed % segment
        if leader.master is not None and leader.log.start < last:
            leader.log.expire(self.world.rng.randrange(leader.log.start, last + 1, segment))

    # strangers

    def strangers(self) -> None:
        """Some who are no slaves call."""
        master = self.cluster.leader.master
        if master is not None:
            for _ in range(self.world.rng.choice((1, 3, 6, 20))):
                Stranger(self.cluster, self.cluster.call(master, self._strangers_host()))

    def _strangers_host(self) -> int:
        """One of few, one caller of it at a time; else one that never called."""
        host = STRANGERS_FROM + self.world.rng.randint(4, 7)
        if any(link.host == host and not link.to_caller.is_ended for link in self.cluster.links):
            self._hosts += 1
            host = STRANGERS_FROM + self._hosts
        return host

    def siege(self) -> None:
        """Ever new strangers want slots, and hold them, until the end."""
        if self.cluster.leader.master is not None and len(self.cluster.links) < SIEGE_LINKS_MAX:
            for n in range(HA_CONNECTIONS_MAX):
                link = self.cluster.call(self.cluster.leader.master, STRANGERS_FROM + n)
                Stranger(self.cluster, link, stays=True)
        self.world.after(1500, self.siege)

    def rogue_master(self) -> None:
        """A slave comes to something else for a while: what it says is no part of any log."""
        if node := self._slave():
            node.misled_until_ms = self.world.now_ms + self.world.rng.choice((1000, 20_000))
            if node.receiver is not None and node.receiver.link is not None:
                node.receiver.link.reset()

    # histories that part

    def power_off_master(self) -> None:
        """What it had not flushed may be gone; a slave may have it."""
        if (node := self.cluster.leader).is_running:
            self.cluster.lose_power(node)
            self._back(node)

    def another_disk_master(self) -> None:
        """It comes back with nothing, and begins anew."""
        if (node := self.cluster.leader).is_running:
            self.cluster.end(node)
            self._empty(node)
            self._back(node)

    def promote(self) -> None:
        """The master is gone; the slave that has most of its history takes its place, and it comes back as slave."""
        old, cluster = self.cluster.leader, self.cluster
        followers = [node for node in cluster.slaves if cluster.referee.follows(node, old)]
        if not followers or old.history is None:
            return
        if old.is_running:
            cluster.end(old, silently=self.world.chance(0.5))
        best = max(followers, key=lambda node: node.log.end)
        for node in cluster.slaves:
            if node.is_running:
                cluster.end(node)
        cluster.referee.must_have(best.log, old.history, followers)
        cluster.leader = best
        for node in cluster.nodes:
            if node is not old:
                cluster.start(node)
        self._back(old)


class Stranger(Actor):
    """Says what no slave says: parts of reports, positions that it lacks, acknowledgements of what it was not sent."""

    def __init__(self, cluster: Cluster, link: Connection, *, stays: bool = False) -> None:
        super().__init__(cluster.world)
        self._cluster, self._link, self._stays = cluster, link, stays
        self._has_begun, self._begins_with = False, 0
        link.to_caller.reader = None
        self.wake(self.world.rng.choice((0, 1, 300)))

    def turn(self) -> None:
        """Say something, or vanish."""
        rng, leader = self.world.rng, self._cluster.leader
        end = leader.log.end
        if self._stays:
            self._link.to_listener.send(REPORT.pack(self._begins_with))
            self.wake(4000)
            return
        if self.world.chance(0.3):
            self._link.reset()
            return
        sender = self._sender()
        if sender is not None and not sender.connection.rest and self.world.chance(0.4):
            sent = max(sender.connection.next_transfer_offset, sender.connection.slave_request_offset)
            forged = (sent + 1, sent + rng.randint(1, 10_000), 1 << 60, sender.connection.slave_ack_offset - 1)
            self._link.to_listener.inbox += REPORT.pack(rng.choice(forged))  # at once: more may be sent later
            sender.wake()
        elif self._has_begun:
            said = REPORT.pack(self._begins_with)
            if self.world.chance(0.2):  # and no more: what is shifted may be the number that is due, by chance
                self._link.to_listener.send(said[: rng.randint(1, 7)])
                return
            self._link.to_listener.send(said)
        else:
            self._has_begun, positions = True, [0, 1 << 60, 1 << 62, -1]
            if not self._was_served():
                positions += [end, max(end - 1, 0), rng.randint(0, max(end, 1))]
            self._begins_with = rng.choice(positions)
            said = REPORT.pack(self._begins_with)
            if self.world.chance(0.1):  # and no more, ever
                self._link.to_listener.send(said[: rng.randint(1, 7)])
                return
            self._link.to_listener.inbox += said
            leader.master.listening.wake() if leader.master is not None else None
        self.wake(rng.choice((1, 100, 4000, 15_000)))

    def _was_served(self) -> bool:
        """Whether its host was sent what it could acknowledge: whoever has read that may say so, and is believed."""
        master = self._cluster.leader.master
        slots = [] if master is None else master.log.counters.ha
        own = [words for words in slots if words.peer_address.word.read() >> PORT_BITS == self._link.host]
        return any(words.held_offset.read() >= words.slave_ack_offset.read() >= 0 for words in own)

    def _sender(self) -> Sending | None:
        master = self._cluster.leader.master
        return next((one for one in master.sendings if one.link is self._link), None) if master is not None else None


SAFE = (
    "reset", "half_open", "hold", "cut_off", "kill_slave", "restart_receiver", "stop_slave", "power_off_slave",
    "another_disk_slave", "kill_master", "stop_master", "kill_sender", "power_off_master_flushed", "strangers",
    "rogue_master", "break_in_head", "another_disk_while_waited_for", "kill_writer",
    "kill_listener", "lack_room",
)  # fmt: skip
WITH_RETENTION = (*SAFE, "expire")
PARTING = ("power_off_master", "another_disk_master", "promote")
