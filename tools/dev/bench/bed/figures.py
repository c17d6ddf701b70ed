"""A measured figure, and how figures are shown: a table for people, one JSON line each for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import TypeVar

from rich.console import Console
from rich.table import Table

Side = TypeVar("Side")


@dataclass(frozen=True)
class Figure:
    """One line: who did what, how fast; `ratio` is ours to the peer's or the limit's of the same run."""

    work: str
    subject: str
    value: float
    unit: str
    p99: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Ratio:
    """Two figures of one run beside each other, with the mark that the project set itself."""

    work: str
    ours: float
    theirs: float
    against: str
    goal: float
    more_is_better: bool = True

    @property
    def value(self) -> float:
        """Return Slipstream's figure divided by the peer's."""
        return self.ours / self.theirs if self.theirs else float("nan")

    @property
    def reached(self) -> bool:
        """Whether the ratio is at least (or, for latencies, at most) the goal."""
        return self.value >= self.goal if self.more_is_better else self.value <= self.goal


class Results:
    """The figures and ratios of a run, in the order in which they were measured."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []
        self.ratios: list[Ratio] = []

    def figure(
        self, work: str, subject: str, value: float, unit: str, p99: float | None = None, note: str = ""
    ) -> None:
        """Add a figure: the fields of `Figure`."""
        self.figures.append(Figure(work, subject, value, unit, p99, note))

    def at_least(self, work: str, ours: float, theirs: float, against: str, goal: float = 1.0) -> None:
        """Add a ratio whose goal is its smallest good value."""
        self.ratios.append(Ratio(work, ours, theirs, against, goal))

    def at_most(self, work: str, ours: float, theirs: float, against: str, goal: float = 1.0) -> None:
        """Add a ratio whose goal is its largest good value."""
        self.ratios.append(Ratio(work, ours, theirs, against, goal, more_is_better=False))


def medians(runs: Iterable[Iterable[float]]) -> tuple[float, ...]:
    """Return the median of each column of some runs."""
    return tuple(map(median, zip(*runs, strict=True)))


def in_turn(
    sides: Mapping[str, Side], repeat: int, measured: Callable[[Side], Iterable[float]]
) -> dict[str, tuple[float, ...]]:
    """Return the medians of each side, which are measured in turn."""
    runs: dict[str, list[Iterable[float]]] = {name: [] for name in sides}
    for _ in range(repeat):
        for name, side in sides.items():
            runs[name].append(measured(side))
    return {name: medians(of) for name, of in runs.items()}


def show(results: Results, console: Console) -> None:
    """Print figures and ratios as tables."""
    table = Table("work", "subject", "figure", "p99", "unit", "note", title="Figures of this run")
    for figure in results.figures:
        p99 = f"{figure.p99:,.1f}" if figure.p99 is not None else ""
        table.add_row(figure.work, figure.subject, f"{figure.value:,.1f}", p99, figure.unit, figure.note)
    console.print(table)
    comparison = Table("work", "against", "ratio", "goal", "", title="Ratios in this run")
    for ratio in results.ratios:
        sign = "≥" if ratio.more_is_better else "≤"
        mark = "reached" if ratio.reached else "missed"
        comparison.add_row(ratio.work, ratio.against, f"{ratio.value:.2f}", f"{sign} {ratio.goal:.2f}", mark)
    console.print(comparison)


def json_lines(results: Results) -> list[str]:
    """Return one line of JSON for each figure and ratio."""
    lines = [json.dumps({"kind": "figure", **asdict(figure)}) for figure in results.figures]
    return lines + [
        json.dumps({"kind": "ratio", **asdict(ratio), "value": ratio.value, "reached": ratio.reached})
        for ratio in results.ratios
    ]
