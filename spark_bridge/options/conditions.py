"""What a condition on a frame says, as Spark understands it: the columns it names, the values and ranges it admits.

Only comparisons that every row has to meet are taken, of a plain column with constants: what is taken is less than
what the condition says, never more, and Spark still applies all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame

from spark_bridge.options.ranges import MICROSECONDS, RANGED, TIMES, Range, compared

PLAIN_TYPES = ("string", "int")
WHOLE_TYPES = ("tinyint", "smallint", "int", "bigint")
SIGNS = {"EqualTo": "=", "GreaterThan": ">", "GreaterThanOrEqual": ">=", "LessThan": "<", "LessThanOrEqual": "<="}
MIRRORED = {"=": "=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}  # with the sides exchanged


class Analysed(NamedTuple):
    """A condition as Spark understands it, and the columns of the frame that it is about."""

    columns: Sequence[str]
    expression: Any

    @classmethod
    def of(cls, frame: DataFrame, condition: str | Column) -> Self:
        """Resolved against the frame's columns: nothing is planned or read."""
        return cls(frame.columns, frame.filter(condition)._jdf.queryExecution().analyzed().condition())


def columns_named(condition: Analysed) -> set[str]:
    """The columns of the frame that the condition needs."""
    references = _elements(condition.expression.references().toSeq())
    named = {str(reference.name()).lower() for reference in references}
    return {name for name in condition.columns if name.lower() in named}


def admitted(condition: Analysed) -> dict[str, set[Any]]:
    """Columns to the values that one of them must have in a row that meets the condition."""
    by_column: dict[str, set[Any]] = {}
    names = {name.lower(): name for name in condition.columns}  # an expression has the name as its writer wrote it
    for part in _parts(condition.expression):
        column, values = _equality(part)
        column = names.get(str(column).lower())
        if column is not None:
            by_column[column] = by_column[column] & values if column in by_column else values
    return by_column


def ranged(condition: Analysed) -> dict[str, Range]:
    """Columns of offsets and times to the ranges in which they must be in a row that meets the condition."""
    by_column: dict[str, Range] = {}
    names = {name.lower(): name for name in condition.columns if name in RANGED}
    for part in _parts(condition.expression):
        for sign, name, constant in _comparisons(part):
            column = names.get(name.lower())
            if column is not None:
                unit = MICROSECONDS if RANGED[column] in TIMES else 1
                by_column[column] = by_column.get(column, Range()).met(compared(sign, constant, unit))
    return by_column


def _parts(expression: Any) -> Iterator[Any]:
    """Yield the conditions that all have to be true."""
    if _kind(expression) == "And":
        yield from _parts(expression.left())
        yield from _parts(expression.right())
    else:
        yield expression


def _equality(expression: Any) -> tuple[str | None, set[Any]]:
    """Return a column and the values that an equality or IN admits; null, which equals nothing, is left out."""
    kind = _kind(expression)
    if kind in ("EqualTo", "EqualNullSafe"):
        sides = [expression.left(), expression.right()]
    elif kind == "In":
        sides = [expression.value(), *_elements(expression.list())]
    else:
        return None, set()
    columns = [side for side in sides if _kind(side) == "AttributeReference"]
    literals = [side for side in sides if _kind(side) == "Literal"]
    if len(columns) != 1 or len(literals) != len(sides) - 1 or (kind == "In" and _kind(sides[0]) == "Literal"):
        return None, set()
    if any(side.dataType().catalogString() not in PLAIN_TYPES for side in sides):
        return None, set()
    values = {None if literal.value() is None else _python(literal) for literal in literals}
    if kind == "EqualNullSafe" and None in values:
        return None, set()
    return str(columns[0].name()), values - {None}


def _comparisons(expression: Any) -> Iterator[tuple[str, str, int]]:
    """Yield how a column is compared, its name, and with which constant: times in microseconds."""
    for sign, left, right in _compared(expression):
        if _kind(left) != "AttributeReference":
            sign, left, right = MIRRORED[sign], right, left
        constant = _constant(right) if _kind(left) == "AttributeReference" else None
        if constant is not None:
            yield sign, str(left.name()), constant


def _compared(expression: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield what is compared with what, and how; BETWEEN is two comparisons."""
    if _kind(expression) in SIGNS:
        yield SIGNS[_kind(expression)], expression.left(), expression.right()
    elif _kind(expression) == "Between":
        both = expression.replacement()
        while _kind(both) == "With":  # which names the value in the middle
            both = both.child()
        for part in _parts(both):
            if _kind(part) in SIGNS and _kind(part.left()) in ("CommonExpressionRef", "AttributeReference"):
                yield SIGNS[_kind(part)], expression.input(), part.right()


def _constant(expression: Any) -> int | None:
    """The number that a literal is, as it is or cast to a time or a wider number; None for anything else."""
    plain = expression
    while _kind(plain) == "Cast":
        plain = plain.child()
    if _kind(plain) != "Literal" or expression.dataType().catalogString() not in (*WHOLE_TYPES, "timestamp"):
        return None
    try:
        value = expression.eval(None)
    except (Py4JError, PySparkException):  # what cannot be cast: Spark tells it when it runs
        return None
    return value if isinstance(value, int) else None


def _python(literal: Any) -> str | int:
    value = literal.value()
    return value if isinstance(value, int) else str(value.toString())


def _elements(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (sequence.apply(place) for place in range(sequence.size()))


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())
