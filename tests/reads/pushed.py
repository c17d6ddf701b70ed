"""Conditions of Spark over generated stores: what is taken into a plan leaves out no row that meets the condition."""

from __future__ import annotations

import random

from spark_bridge.options.conditions import Analysed, admitted, ranged
from spark_bridge.options.read import parse_options
from spark_bridge.options.where import COLUMNS, where_text
from spark_bridge.plan.planner import plan_read
from spark_bridge.records.columns import Asked
from spark_bridge.records.reader import read_split
from tests.reads.expressions import TYPES, Expression, generated
from tests.reads.made_stores import Made
from tests.reads.scanned import Tally

PLACES = Asked.of(["physicalOffset"])


def taken(condition: Analysed) -> dict[str, str]:
    """The options that a read with this condition adds, as `spark_bridge.read` does."""
    wanted = {name: values for name, values in admitted(condition).items() if name in COLUMNS}
    ranges = ranged(condition)
    return {"where": where_text(wanted, ranges)} if wanted or ranges else {}


def taken_of(expression: Expression) -> dict[str, str]:
    """The same of a tree without a JVM."""
    return taken(Analysed(list(TYPES), expression.node()))


def read_offsets(made: Made, options: dict[str, str]) -> list[int]:
    """The rows that executors would give Spark."""
    splits = plan_read(parse_options({"path": str(made.root), **options}))
    batches = (batch for split in splits for batch in read_split(split, PLACES))
    return sorted(at for batch in batches for at in batch.column(0).to_pylist())


def check(made: Made, number: int) -> Tally:
    """Read the store by the condition with that number."""
    chance = random.Random(number)
    expression = generated(chance, made)
    system_topics = chance.choice((True, False))
    visible = made.visible(system_topics)
    wanted = [row["physicalOffset"] for row in visible if expression.of(row)]
    tally = Tally(1, len(wanted), 0 < len(wanted) < len(visible), visible=len(visible))
    try:
        options = {**taken_of(expression), "includeSystemTopics": str(system_topics).lower()}
        offsets = read_offsets(made, options)
    except Exception as error:
        text = f"condition {number} of a store {made.kind}, {expression.sql()}: {type(error).__name__}: {error}"
        tally.differences.append(text)
        return tally
    tally.read = len(offsets)
    kept = [at for at in offsets if expression.of(made.rows[at])]
    if kept != wanted or len(set(offsets)) < len(offsets):
        lost = sorted(set(wanted) ^ set(kept)) or "rows twice"
        tally.differences.append(f"condition {number} of a store {made.kind}, {expression.sql()} {options}: {lost}")
    return tally
