"""Masters of one name in virtual time: promoted, frozen, woken, cut off, killed and started, in any order and at once.

Each node decides by `engine.protocol.ha.reign` alone, as a broker does (`engine.remoting.processors.rivals`,
`engine.role_change`): it asks whom it reaches, in an answer's time, and does what the verdicts say. What the referee
demands: while every node reaches every other one, at most one takes messages, but for a window after one woke up, was
reached again, started, or was promoted; and in the end exactly one does, whose epoch is the newest of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.protocol.ha import reign
from engine.protocol.ha.reign import LOOK_MS, Standing, Step, Verdict, Watch
from store.epochs import Epoch
from tests.simulation.world import World

ANSWER_MS_MAX, TURN_MS = 400, 250
WINDOW_MS = LOOK_MS + 2 * (ANSWER_MS_MAX + TURN_MS)  # one look and its answer; what was under way before that
STORM_MS, CALM_MS = 120_000, 40_000


class TwoMasters(AssertionError):
    """Raised when two take messages that should not."""


@dataclass
class Node:
    """A broker of the group, and what its store remembers. `at_ms` tells reigns apart that have one number."""

    name: str
    entries: tuple[Epoch, ...] = ()
    log_end: int = 0
    is_up: bool = True
    is_master: bool = False
    is_confirmed: bool = False
    frozen_until_ms: int = 0
    fenced_by: int = 0
    run: int = 0
    watch: Watch | None = None
    is_asking: bool = False

    @property
    def standing(self) -> Standing:
        """As it answers."""
        return Standing(self.entries, self.is_master, self.is_confirmed, f"{self.name}.{self.run}")

    @property
    def epoch(self) -> int:
        """The highest that it knows."""
        return max(self.fenced_by, self.standing.epoch)


@dataclass
class Group:
    """The nodes, who of them is cut off, and since when all is in order."""

    world: World
    nodes: list[Node] = field(default_factory=list)
    cut_off: set[str] = field(default_factory=set)
    excused_until_ms: int = 0
    promotions: int = 0
    steps_down: int = 0

    def __post_init__(self) -> None:
        self.nodes = [Node(f"pair:{number}") for number in range(self.world.rng.choice((2, 3)))]
        self._become_master(self.nodes[0], is_confirmed=True)
        for node in self.nodes:
            self.world.after(self.world.rng.randint(0, TURN_MS), lambda node=node: self._turn(node))  # type: ignore[misc]

    # what a broker does

    def _become_master(self, node: Node, *, is_confirmed: bool) -> None:
        node.is_master, node.is_confirmed = True, is_confirmed
        node.run += 1
        node.is_asking, node.watch = False, Watch(self.world.now_ms, may_step_down=True)

    def _reaches(self, one: Node, other: Node) -> bool:
        is_apart = one.name in self.cut_off or other.name in self.cut_off
        return other.is_up and not is_apart and other.frozen_until_ms <= self.world.now_ms

    def _turn(self, node: Node) -> None:
        now_ms = self.world.now_ms
        thaw_ms = max(0, node.frozen_until_ms - now_ms)
        self.world.after(thaw_ms or TURN_MS, lambda: self._turn(node))
        if thaw_ms or not node.is_up or not node.is_master or node.watch is None or node.is_asking:
            return
        slaves = [one for one in self.nodes if not one.is_master and self._reaches(node, one)]
        connected = sum(one.epoch <= node.standing.epoch for one in slaves)
        if node.watch.is_due(now_ms, connected, len(self.nodes) - 1, asks_first=not node.is_confirmed):
            node.is_asking = True
            answers = [one.standing for one in self.nodes if one is not node and self._reaches(node, one)]
            run = node.run
            self.world.after(self.world.rng.randint(1, ANSWER_MS_MAX), lambda: self._answered(node, run, answers))

    def _answered(self, node: Node, run: int, answers: list[Standing]) -> None:
        if node.frozen_until_ms > self.world.now_ms:
            self.world.after(node.frozen_until_ms - self.world.now_ms, lambda: self._answered(node, run, answers))
            return
        if not node.is_up or node.run != run or node.watch is None:
            return
        node.is_asking = False
        verdicts = {one: reign.judge(node.standing, one, is_proved=True) for one in answers}
        step = node.watch.step(self.world.now_ms, list(verdicts.values()), asks_first=not node.is_confirmed)
        if step is Step.STEP_DOWN:
            newest = max(one.epoch for one, verdict in verdicts.items() if verdict is Verdict.YIELD)
            self._follow(node, newest)
        elif step is Step.SERVE:
            node.is_confirmed = True

    def _follow(self, node: Node, epoch: int) -> None:
        self.steps_down += 1
        self.world.tell(f"{node.name}: steps down for epoch {epoch}")
        node.is_master = node.is_confirmed = False
        node.run += 1
        node.fenced_by = max(node.fenced_by, epoch)
        node.entries = tuple(one for one in node.entries if one.epoch < epoch)

    # what happens to it

    def promote(self) -> None:
        """Of one slave, or of several in the same moment, with or without a living master (`--force`)."""
        slaves = [one for one in self.nodes if one.is_up and not one.is_master and not one.frozen_until_ms]
        for node in self.world.rng.sample(slaves, self.world.rng.randint(0, len(slaves))):
            self.world.after(self.world.rng.choice((0, 1, 300, 2000)), lambda node=node: self._promote(node))  # type: ignore[misc]

    def _promote(self, node: Node) -> None:
        if not node.is_up or node.is_master:
            return
        known = [one.epoch for one in self.nodes if one is not node and self._reaches(node, one)]
        number = max([node.epoch, *known]) + 1
        node.log_end += self.world.rng.randint(0, 3)
        node.entries = (*node.entries, Epoch(number, node.log_end, node.name, self.world.now_ms))
        self.promotions += 1
        self.world.tell(f"{node.name}: promoted, epoch {number}")
        self._become_master(node, is_confirmed=False)
        self._excuse()  # a master that does not see its slave leave has its window to ask

    def freeze(self) -> None:
        """A host is suspended for a while."""
        node = self.world.rng.choice(self.nodes)
        until_ms = self.world.now_ms + self.world.rng.choice((500, 5000, 20_000))
        node.frozen_until_ms = max(node.frozen_until_ms, until_ms)
        self.world.after(node.frozen_until_ms - self.world.now_ms, lambda: self._thaw(node))

    def _thaw(self, node: Node) -> None:
        if node.frozen_until_ms <= self.world.now_ms:
            node.frozen_until_ms = 0
            self._excuse()

    def part(self) -> None:
        """A host cannot be reached for a while."""
        node = self.world.rng.choice(self.nodes)
        self.cut_off.add(node.name)
        self.world.after(self.world.rng.choice((1000, 15_000)), lambda: self._join(node))

    def _join(self, node: Node) -> None:
        self.cut_off.discard(node.name)
        self._excuse()

    def restart(self) -> None:
        """A broker is killed, and started again: a master asks who else is one before it serves."""
        node = self.world.rng.choice(self.nodes)
        node.is_up, node.run = False, node.run + 1
        self.world.after(self.world.rng.choice((100, 8000)), lambda: self._start(node))

    def _start(self, node: Node) -> None:
        if node.is_up:
            return
        node.is_up, node.run, node.is_asking = True, node.run + 1, False
        if not node.is_master:
            return
        node.is_confirmed = False
        others = [one.standing for one in self.nodes if one is not node and self._reaches(node, one)]
        obeyed = [one for one in others if reign.judge(node.standing, one, is_proved=True) is Verdict.YIELD]
        if obeyed:
            self._follow(node, max(one.epoch for one in obeyed))
        else:
            self._become_master(node, is_confirmed=True)
            self._excuse()

    # the referee

    def _excuse(self) -> None:
        self.excused_until_ms = max(self.excused_until_ms, self.world.now_ms + WINDOW_MS)

    def serving(self) -> list[Node]:
        """Who takes messages just now."""
        return [
            one
            for one in self.nodes
            if one.is_up and one.is_master and one.is_confirmed and one.frozen_until_ms <= self.world.now_ms
        ]

    def look(self) -> None:
        """After each event. Raises TwoMasters."""
        if self.cut_off or self.world.now_ms < self.excused_until_ms:
            return
        serving = self.serving()
        if len(serving) > 1:
            raise TwoMasters(", ".join(f"{one.name} of epoch {one.standing.epoch}" for one in serving))


def play(seed: int) -> Group:
    """A storm, then calm. Raises TwoMasters."""
    world = World(seed)
    group = Group(world)

    def fault() -> None:
        if world.now_ms < STORM_MS:
            world.rng.choice((group.promote, group.promote, group.freeze, group.part, group.restart))()
            world.after(world.rng.choice((1, 1000, 8000)), fault)

    world.after(1, fault)
    world.run_until(STORM_MS, group.look)
    world.run_until(STORM_MS + CALM_MS, group.look)
    serving = group.serving()
    masters = [one for one in group.nodes if one.is_master]
    newest = max(one.epoch for one in group.nodes)
    if len(masters) != 1 or masters != serving or masters[0].standing.epoch != newest:
        raise TwoMasters(f"in the end: {[(one.name, one.standing.epoch, one.is_confirmed) for one in masters]}")
    return group
