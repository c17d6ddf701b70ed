"""Who wakes for a message: voluntary switches and CPU of each process of a SYNC_MASTER and its slave.

For a local producer's sends and a client's, for messages that a consumer's held pulls wait for, and for nothing at all.
Only a process that a message passes may wake for it; of the others, the one that wakes most is held against a goal.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.figures import Figure, Ratio
from tools.dev.bench.bed.front_load import Sending, compiled, send
from tools.dev.bench.bed.loads import run_load
from tools.dev.bench.bed.pull_load import PULLS, push
from tools.dev.bench.bed.switches import Spent, since, spent
from tools.dev.bench.works.latency import MESSAGES, SIZE, await_slaves

SENT_TOPIC, PUSHED_TOPIC, PUSHES, PUSH_US = "sent", "pushed", 5_000, 1000
SETTLE_SECONDS, WATCH_SECONDS = 15.0, 20.0
OFF_THE_WAY_GOAL, IDLE_GOAL_PERCENT = 0.2, 0.5
REPLICATED = {"master writer", "master sender.0", "slave receiver"}
SENT = REPLICATED | {"master front.0"}
PUSHED = SENT | {"master dispatcher"}  # it wakes held pulls


class Watch:
    """Both brokers of a pair: `begin` when the work does, `end` when it is over."""

    def __init__(self, brokers: dict[str, LocalBroker]) -> None:
        self._brokers = brokers
        self._before: dict[str, dict[str, Spent]] = {}

    def begin(self) -> float:
        """Look at all processes; 0.0, for those who want a clock."""
        self._before = {name: spent(broker.process.pid) for name, broker in self._brokers.items()}
        return 0.0

    def end(self) -> dict[str, Spent]:
        """Return what each process took since, by broker and role."""
        return {
            f"{name} {role}": of
            for name, broker in self._brokers.items()
            for role, of in since(self._before[name], spent(broker.process.pid)).items()
        }


def measure(directory: Path, _repeat: int) -> tuple[list[Figure], list[Ratio]]:
    """Measure each work once: what is counted differs little from run to run."""
    home = directory / "wakeups"
    figures: list[Figure] = []
    ratios: list[Ratio] = []
    sends, pulls = compiled(directory), compiled(directory, PULLS)
    with (
        LocalBroker(home / "m", brokerRole="SYNC_MASTER") as master,
        LocalBroker(home / "s", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address) as slave,
    ):
        await_slaves(master.store)
        watch = Watch({"master": master, "slave": slave})

        def count(work: str, messages: int, way: set[str], run: Callable[[Callable[[], float]], object]) -> None:
            looks: list[dict[str, Spent]] = []

            def look() -> float:  # at the beginning of what is measured, and at its end
                if not looks:
                    looks.append({})
                    return watch.begin()
                looks.append(watch.end())
                return 0.0

            run(look)
            _report(work, looks[-1], messages, way, figures, ratios)

        run_load(master.store, "sync", SIZE, 1000)
        count(
            "local send", MESSAGES, REPLICATED, lambda look: run_load(master.store, "sync", SIZE, MESSAGES, clock=look)
        )
        one = Sending(1, 1, SIZE)
        count(
            "client's send",
            MESSAGES,
            SENT,
            lambda look: send(sends, master.port, one, SENT_TOPIC, MESSAGES // 10, MESSAGES, look),
        )
        send(sends, master.port, one, PUSHED_TOPIC, 0, 100, lambda: 0.0)
        count(
            "held pull and send",
            PUSHES,
            PUSHED,
            lambda look: push(pulls, master.port, PUSHED_TOPIC, PUSHES, PUSH_US, look),
        )
        time.sleep(SETTLE_SECONDS)
        watch.begin()
        began = time.monotonic()
        time.sleep(WATCH_SECONDS)
        _report_idle(watch.end(), time.monotonic() - began, figures, ratios)
    shutil.rmtree(home)
    return figures, ratios


def _report(
    work: str, taken: dict[str, Spent], messages: int, way: set[str], figures: list[Figure], ratios: list[Ratio]
) -> None:
    """A line for each process, and the one off the way that wakes most."""
    for name, of in taken.items():
        note = f"{of.cpu_seconds / messages * 1e6:.2f} us CPU" + (", on the way" if name in way else "")
        print(f"{work}: {name}: {of.switches / messages:.3f} switches a message, {note}", file=sys.stderr)
        figures.append(Figure(work, name, of.switches / messages, "switches a message", note=note))
    others = {name: of.switches / messages for name, of in taken.items() if name not in way}
    most = max(others, key=others.__getitem__)
    against = f"{OFF_THE_WAY_GOAL} switches a message"
    ratios.append(
        Ratio(f"{work}: {most}, off its way", others[most], OFF_THE_WAY_GOAL, against, 1.0, more_is_better=False)
    )


def _report_idle(taken: dict[str, Spent], seconds: float, figures: list[Figure], ratios: list[Ratio]) -> None:
    for name, of in taken.items():
        note = f"{of.cpu_seconds / seconds * 100:.3f} % of a core"
        print(f"idle: {name}: {of.switches / seconds:.2f} switches a second, {note}", file=sys.stderr)
        figures.append(Figure("idle", name, of.switches / seconds, "switches a second", note=note))
    percent = sum(of.cpu_seconds for of in taken.values()) / seconds * 100
    goal = f"{IDLE_GOAL_PERCENT} % of a core"
    ratios.append(Ratio("idle master and slave: CPU", percent, IDLE_GOAL_PERCENT, goal, 1.0, more_is_better=False))
