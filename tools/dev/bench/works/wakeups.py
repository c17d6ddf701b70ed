"""Who wakes for a message: voluntary switches and CPU of each process of a SYNC_MASTER and its slave.

For a local producer's sends and a client's, for messages that a consumer's held pulls wait for, and for nothing at all.
Only a process that a message passes may wake for it; of the others, the one that wakes most is held against a goal.
"""

from __future__ import annotations

import shutil
import sys
import time

from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.brokers import pair
from tools.dev.bench.bed.cpu_time import Spent, since, spent
from tools.dev.bench.bed.figures import Results
from tools.dev.bench.bed.front_load import PULLS, Sending, compiled, push, send
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.works.latency import MESSAGES, SIZE

SENT_TOPIC, PUSHED_TOPIC, PUSHES, PUSH_US = "sent", "pushed", 5_000, 1000
SETTLE_SECONDS, WATCH_SECONDS = 15.0, 20.0
OFF_THE_WAY_GOAL, IDLE_GOAL_PERCENT = 0.2, 0.5
REPLICATED = {"master writer", "master sender.0", "slave receiver"}
SENT = REPLICATED | {"master front.0"}
PUSHED = SENT | {"master dispatcher"}  # it wakes held pulls


class Watch:
    """Both brokers of a pair, looked at when the work begins and when it is over."""

    def __init__(self, brokers: dict[str, LocalBroker]) -> None:
        self._brokers = brokers
        self._looks: list[dict[str, dict[str, Spent]]] = []

    def look(self) -> float:
        """Look at all processes; 0.0, for those who want a clock."""
        self._looks.append({name: spent(broker.process.pid) for name, broker in self._brokers.items()})
        return 0.0

    def taken(self) -> dict[str, Spent]:
        """Return what each process took between the last two looks, by broker and role."""
        before, after = self._looks[-2:]
        return {f"{name} {role}": of for name in before for role, of in since(before[name], after[name]).items()}


def measure(of: Asked, to: Results) -> None:
    """Measure each work once: what is counted differs little from run to run."""
    home = of.scratch / "wakeups"
    sends, pulls = compiled(of.scratch), compiled(of.scratch, PULLS)
    one = Sending(1, 1, SIZE)
    with pair(home) as (master, slave):
        watch = Watch({"master": master, "slave": slave})
        run_load(master.store, "sync", SIZE, 1000)
        run_load(master.store, "sync", SIZE, MESSAGES, clock=watch.look)
        _report("local send", watch.taken(), MESSAGES, REPLICATED, to)
        send(sends, master.port, one, SENT_TOPIC, MESSAGES // 10, MESSAGES, watch.look)
        _report("client's send", watch.taken(), MESSAGES, SENT, to)
        send(sends, master.port, one, PUSHED_TOPIC, 0, 100)
        push(pulls, master.port, PUSHED_TOPIC, PUSHES, PUSH_US, watch.look)
        _report("held pull and send", watch.taken(), PUSHES, PUSHED, to)
        time.sleep(SETTLE_SECONDS)
        watch.look()
        began = time.monotonic()
        time.sleep(WATCH_SECONDS)
        watch.look()
        _report_idle(watch.taken(), time.monotonic() - began, to)
    shutil.rmtree(home)


def _report(work: str, taken: dict[str, Spent], messages: int, way: set[str], to: Results) -> None:
    """A line for each process, and the one off the way that wakes most."""
    for name, of in taken.items():
        note = f"{of.cpu_seconds / messages * 1e6:.2f} us CPU" + (", on the way" if name in way else "")
        print(f"{work}: {name}: {of.switches / messages:.3f} switches a message, {note}", file=sys.stderr)
        to.figure(work, name, of.switches / messages, "switches a message", note=note)
    others = {name: of.switches / messages for name, of in taken.items() if name not in way}
    most = max(others, key=others.__getitem__)
    against = f"{OFF_THE_WAY_GOAL} switches a message"
    to.at_most(f"{work}: {most}, off its way", others[most], OFF_THE_WAY_GOAL, against)


def _report_idle(taken: dict[str, Spent], seconds: float, to: Results) -> None:
    for name, of in taken.items():
        note = f"{of.cpu_seconds / seconds * 100:.3f} % of a core"
        print(f"idle: {name}: {of.switches / seconds:.2f} switches a second, {note}", file=sys.stderr)
        to.figure("idle", name, of.switches / seconds, "switches a second", note=note)
    percent = sum(of.cpu_seconds for of in taken.values()) / seconds * 100
    to.at_most("idle master and slave: CPU", percent, IDLE_GOAL_PERCENT, f"{IDLE_GOAL_PERCENT} % of a core")
