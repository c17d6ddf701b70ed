"""One seed: a cluster, a storm of faults under puts, then calm, in which all who can follow must catch up."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import NamedTuple

from engine.protocol.ha.client import HaClientState
from tests.simulation.cluster import Cluster, Node
from tests.simulation.faults import PARTING, SAFE, WITH_RETENTION, Faults
from tests.simulation.limits import CALM_MS, CALM_STEP_MS, HOUSEKEEPING_MS, LOOPBACK, STORM_MS
from tests.simulation.logs import Disks
from tests.simulation.referee import Broken, Referee
from tests.simulation.world import World

PUTS_OF_CALM = 3
PLAYS_MAX = 200


class Outcome(NamedTuple):
    """What a seed came to."""

    seed: int
    events: int
    virtual_ms: int
    acknowledged: int
    histories: int


class Failed(AssertionError):
    """A seed breaks a promise; says which, and how to see it again. `faults` had happened by then."""

    def __init__(self, play: Play, rule: str, text: str) -> None:
        self.seed, self.rule, self.faults = play.seed, rule, tuple(play.faults.happened)
        again = f"python -m tests.simulation --seed {self.seed}"
        if play.is_partial:
            again += f" --faults {','.join(map(str, self.faults)) or 0}"
        last = "\n".join(list(play.world.lines)[-60:])
        super().__init__(f"seed {self.seed}: {text}\nagain: {again}\n{last}")


class Play:
    """A seed while it is played, with all of its faults or `only` those of some numbers."""

    def __init__(self, seed: int, only: Collection[int] | None = None) -> None:
        self.seed, self.is_partial = seed, only is not None
        self.world = World(seed)
        self.referee = Referee()
        are_ours = self.world.chance(0.8)
        self.cluster = Cluster(self.world, self.referee, Disks(), are_ours=are_ours)
        self.faults = Faults(self.cluster, only)
        rng = self.world.rng
        kinds = rng.choice((SAFE, WITH_RETENTION))
        self.kinds = (*kinds, *PARTING) if are_ours else kinds
        self.put_every_ms, self.fault_every_ms = rng.choice((100, 400, 2000)), rng.choice((1000, 4000, 12_000))
        self.puts_left = -1  # without end

    def run(self) -> Outcome:
        """All of it. Raises Failed."""
        logging.disable(logging.CRITICAL)  # the play's own lines report each hang-up
        try:
            self._put()
            self._fault()
            self.world.run_until(STORM_MS, self.referee.look)
            self._calm_down()
            for node in self.cluster.nodes:
                self.referee.reads_again(node)
        except Broken as broken:
            raise Failed(self, broken.rule, str(broken)) from broken
        except Exception as error:
            raise Failed(self, type(error).__name__, repr(error)) from error
        finally:
            self._put_away()
        return Outcome(
            self.seed,
            self.world.events,
            self.world.now_ms,
            len(self.referee.acknowledged),
            len(self.referee.histories),
        )

    def _put_away(self) -> None:
        for node in self.cluster.nodes:
            if broker := node.master or node.receiver:
                broker.close(silently=False)
        self.cluster.disks.close()
        logging.disable(logging.NOTSET)

    def _put(self) -> None:
        if self.puts_left == 0:
            return
        self.puts_left -= 1
        master = self.cluster.leader.master
        if master is not None and master.stopped_until_ms <= self.world.now_ms:
            master.put()
        self.world.after(self.world.rng.randint(1, 2 * self.put_every_ms), self._put)

    def _fault(self) -> None:
        if self.world.now_ms < STORM_MS:
            self.faults.happen(self.kinds)
            self.world.after(self.faults.after(self.fault_every_ms), self._fault)

    # calm

    def _calm_down(self) -> None:
        cluster, world = self.cluster, self.world
        for node in cluster.nodes:
            node.cut_off_until_ms = 0
            if not node.is_running:
                cluster.start(node)
            if node.misled_until_ms and node.receiver is not None and node.receiver.link is not None:
                node.receiver.link.reset()  # what it follows may be no master, and say that their logs differ
            node.misled_until_ms = 0
        for node in cluster.slaves:  # an operator has compared them
            if self.referee.may_follow(node, cluster.leader):
                node.log.forgive()
        if world.chance(0.15) and cluster.leader.host != LOOPBACK:  # slaves of one address have one share of the slots
            self.faults.siege()
        self.puts_left = -1
        until_ms = world.now_ms + CALM_MS
        step = 0
        while world.now_ms < until_ms and not (step > PUTS_OF_CALM and self._is_even()):
            step += 1
            self.puts_left = 0 if step > PUTS_OF_CALM else 1
            world.run_until(world.now_ms + CALM_STEP_MS, self.referee.look)
            if step <= PUTS_OF_CALM and cluster.leader.master is not None:
                cluster.leader.master.put()
        if self._unwritten():
            raise Broken("what is put is appended once", f"{self._unwritten()} records are still in the ring")
        behind = [node for node in cluster.slaves if not self._has_caught_up(node)]
        if behind:
            raise Broken("progress", ", ".join(map(self._where, behind)) + f"; {self._where(cluster.leader)}")
        if self._should_answer() and cluster.leader.master is not None:
            cluster.leader.master.put()
            world.run_until(world.now_ms + CALM_STEP_MS, self.referee.look)
            if self.referee.last_ok != cluster.leader.log.end:
                text = f"{self.referee.last_ok}; {self._where(cluster.leader)}, {cluster.leader.master.in_sync} in step"
                raise Broken("a put that all replicas hold gets PUT_OK", text)

        if world.chance(0.2):
            self._rest()

    def _rest(self) -> None:
        """Without faults and puts, heartbeats alone keep the connections."""
        slaves = [node for node in self.cluster.slaves if self.referee.may_follow(node, self.cluster.leader)]
        links = [node.receiver.link for node in slaves if node.receiver is not None]
        self.world.run_until(self.world.now_ms + 3 * HOUSEKEEPING_MS, self.referee.look)
        now = [node.receiver.link for node in slaves if node.receiver is not None]
        if any(link is not one for link, one in zip(links, now, strict=True)):
            raise Broken("who is idle stays", ", ".join(map(self._where, slaves)))

    def _is_even(self) -> bool:
        return not self._unwritten() and all(map(self._has_caught_up, self.cluster.slaves))

    def _unwritten(self) -> int:
        """How many records the leader's ring holds."""
        master = self.cluster.leader.master
        return 0 if master is None else len(master.history.pending)

    def _has_caught_up(self, node: Node) -> bool:
        leader, receiver = self.cluster.leader, node.receiver
        if receiver is None or leader.master is None:
            return False
        if not self.referee.may_follow(node, leader):
            return receiver.client.state is not HaClientState.TRANSFER or bool(receiver.client.is_opening)
        in_step = receiver.client.state is HaClientState.TRANSFER and node.log.end == leader.log.end
        return in_step and (leader.master.confirmed == leader.log.end or not self._should_answer())

    def _should_answer(self) -> bool:
        """Whether all replicas that puts ask for are there."""
        enough = len(self.cluster.slaves) + 1 >= self.cluster.settings.of_puts["inSyncReplicas"]
        return enough and not self._left_out()

    def _left_out(self) -> list[Node]:
        return [node for node in self.cluster.slaves if not self.referee.may_follow(node, self.cluster.leader)]

    def _where(self, node: Node) -> str:
        where = f"{node.name} has {node.log.start} to {node.log.end}"
        client = None if node.receiver is None else node.receiver.client
        return where if client is None else f"{where} {client.state.name} {client.reason.name}"


def play(seed: int, only: Collection[int] | None = None) -> Outcome:
    """Play a seed. Raises Failed."""
    return Play(seed, only).run()


def shortest(failed: Failed, plays_max: int = PLAYS_MAX) -> Failed:
    """Leave out faults of a play, half of them, a quarter, each alone, while it breaks the same promise."""
    size, plays = max(len(failed.faults) // 2, 1), 0
    while True:
        at, before = 0, failed
        while at < len(failed.faults) and plays < plays_max:
            plays += 1
            fewer = _failure_of(failed.seed, failed.faults[:at] + failed.faults[at + size :])
            if fewer is not None and fewer.rule == failed.rule:
                failed = fewer
            else:
                at += size
        if plays >= plays_max or (size == 1 and failed is before):
            return failed
        size = max(size // 2, 1)


def _failure_of(seed: int, only: Collection[int]) -> Failed | None:
    try:
        play(seed, only)
    except Failed as failed:
        return failed
    return None
