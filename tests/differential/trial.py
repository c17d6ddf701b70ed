"""One trial: the same list to an unmodified RocketMQ broker and to ours, then every byte of both stores compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.differential import our_side, real_side
from tests.differential.comparison import Comparison
from tests.differential.operations import Operation, operations, topics
from tests.differential.settings import Outcome
from tests.interop.rocketmq import is_five

OUTCOMES_SHOWN_MAX = 5


@dataclass
class Trial:
    """What came out."""

    version: str
    features: bool
    seed: int
    operations: int
    comparison: Comparison
    differences: list[str]
    kinds: list[str]

    @property
    def lines(self) -> list[str]:
        """The figures, for people."""
        found = self.comparison
        kind = "with features" if self.features else "plain"
        head = f"{self.version} {kind}, seed {self.seed}: {self.operations:,} operations"
        head += (
            f", {found.records:,} records, {found.blanks:,} blank records, {found.entries:,} queue and index entries"
        )
        return [head, *found.masked.lines(), *self.differences]


def run_trial(work: Path, version: str, *, features: bool, seed: int, count: int) -> Trial:
    """Both sides below `work`, one after the other; the real one ends while ours works."""
    five = is_five(version)
    wanted = list(operations(seed, count, five=five, features=features))
    hosts = real_side.new_hosts(features=features)
    made = topics(five=five, features=features)
    with real_side.new_broker(work / "real", version, features=features, hosts=hosts) as broker:
        real = real_side.run(broker, version, wanted, made, hosts)
        ours = our_side.run(work / "ours", wanted, work / "real" / "config", hosts, five=five, features=features)
        broker.stop()
    places = {
        outcome.physical_offsets[0]: f"operation {number} ({wanted[number].what})"
        for number, outcome in real.items()
        if outcome.physical_offsets
    }
    comparison = Comparison(work / "real" / "store", work / "ours" / "store", places).run()
    differences = [*_outcomes(wanted, real, ours), *comparison.mismatches]
    return Trial(version, features, seed, len(wanted), comparison, differences, [one.what for one in wanted])


def _outcomes(wanted: list[Operation], real: dict[int, Outcome], ours: dict[int, Outcome]) -> list[str]:
    """The first operations whose callers were told different things."""
    different = []
    for number, operation in enumerate(wanted):
        one, other = real[number], ours[number]
        told = [(o.stored, o.physical_offsets, o.queue_id, o.queue_offset) for o in (one, other)]
        if told[0] != told[1] and len(different) < OUTCOMES_SHOWN_MAX:
            different.append(f"operation {number} ({operation.what}): answer\n  RocketMQ  {one}\n  ours      {other}")
    return different
