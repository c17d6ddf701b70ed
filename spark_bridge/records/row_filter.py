"""Conditions that rows must meet, asked of some columns before the others are made: what a scan's `where` says.

A condition is a tuple (column, operator, value), as pyarrow's and pandas' `filters` have them. All of them must hold; a
null meets none. Records that fail are gone before a body is looked at.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_bridge.options.columns import BODY_COLUMNS, canonical
from spark_bridge.options.ranges import COMPARED, MICROSECONDS, RANGED, TIMES, Range, compared
from spark_bridge.options.rows import ERROR_COLUMN
from spark_bridge.options.value_types import TIMESTAMP
from spark_bridge.options.values import InvalidOption, nearest
from spark_bridge.records.columns import BY_NAME
from store.columns.columns import Column
from store.columns.records import Records

CONDITIONS_MAX, VALUES_MAX = 64, 10_000  # a condition's values are compared with each row
IN, NOT_IN = "in", "not in"
BODY_LENGTH = "bodyLength"
_COMPARED: Mapping[str, Callable[..., Any]] = {
    "==": pc.equal, "=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater,
    ">=": pc.greater_equal,
}  # fmt: skip
OPERATORS = (*_COMPARED, IN, NOT_IN)
EXAMPLE = "('queueId', '==', 3) or ('topic', 'in', ['orders', 'returns'])"


class Condition(NamedTuple):
    """One column, an operator of `OPERATORS`, and what the column is compared with: a value, or a list behind `in`."""

    column: Column
    operator: str
    value: Any

    def of(self, values: Any) -> Any:
        """Whether each of the column's values meets it, an array of booleans and nulls."""
        if self.operator not in (IN, NOT_IN):
            return _COMPARED[self.operator](values, self.value)
        is_among = pc.is_in(values, value_set=self.value)
        return pc.and_(values.is_valid(), pc.invert(is_among) if self.operator == NOT_IN else is_among)


class RowFilter:
    """Conditions of a scan, which rows must meet."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self.conditions = tuple(conditions)

    def kept(self, records: Records) -> Records:
        """The records that meet them."""
        for condition in self.conditions:
            if len(records):
                values = condition.column.build(records)
                meets = pc.fill_null(condition.of(values), False).to_numpy(zero_copy_only=False)
                records = records.meeting(meets)
        return records

    def admitted(self) -> dict[str, set[Any]]:
        """Columns to the values, texts and whole numbers, that one of them must have in a row that is kept."""
        by_column: dict[str, set[Any]] = {}
        for column, operator, value in self.conditions:
            if operator in ("==", "=", IN):
                values = set(value.to_pylist() if operator == IN else [value.as_py()])
                by_column[column.name] = by_column.get(column.name, values) & values
        return by_column

    def ranged(self) -> dict[str, Range]:
        """Columns of offsets and times to the ranges in which they must be in a row that is kept."""
        by_column: dict[str, Range] = {}
        for column, sign, value in self.conditions:
            if column.name in RANGED and sign in COMPARED:
                is_time = RANGED[column.name] in TIMES
                range_here = compared(sign, value.value, MICROSECONDS) if is_time else compared(sign, value.as_py())
                by_column[column.name] = by_column.get(column.name, Range()).met(range_here)
        return by_column

    def body_bytes(self) -> Range:
        """The lengths that bodies must have in a row that is kept."""
        lengths = Range()
        for column, sign, value in self.conditions:
            if column.name == BODY_LENGTH and sign in COMPARED:
                lengths = lengths.met(compared(sign, value.as_py()))
        return lengths

    def plain(self) -> tuple[tuple[str, str, Any], ...]:
        """The conditions in JSON's types, as `parse_conditions` takes them."""
        return tuple((column.name, operator, _plain(value)) for column, operator, value in self.conditions)


def _plain(value: Any) -> Any:
    """A scalar, or an array of them; times as ISO texts."""
    if isinstance(value, pa.Array):
        return [_plain(one) for one in value]
    plain = value.as_py()
    return plain.isoformat() if isinstance(plain, dt.datetime) else plain


def parse_conditions(given: Any) -> RowFilter:
    """A list of tuples (column, operator, value), or one of them. Raises InvalidOption."""
    if isinstance(given, tuple):
        given = [given]
    if not isinstance(given, list) or len(given) > CONDITIONS_MAX:
        raise InvalidOption(f"where: a list of up to {CONDITIONS_MAX} conditions as {EXAMPLE}")
    return RowFilter([_condition(one) for one in given])


def _condition(given: Any) -> Condition:
    if not isinstance(given, tuple | list) or len(given) != 3 or not isinstance(given[0], str):
        raise InvalidOption(f"where: {given!r:.200} is not a condition; give it as {EXAMPLE}")
    name, operator, value = given
    column = BY_NAME.get(canonical([name])[0])
    if column is None:
        raise InvalidOption(f"where: no column {name!r}; {nearest(name, BY_NAME)}")
    if column.name in BODY_COLUMNS or column.name == ERROR_COLUMN or pa.types.is_nested(column.kind):
        raise InvalidOption(f"where: {column.name} cannot be asked for before it is made: filter the batches by it")
    if operator not in OPERATORS:
        raise InvalidOption(f"where: no operator {operator!r}; one of {', '.join(OPERATORS)}")
    if operator not in (IN, NOT_IN):
        return Condition(column, operator, _value(column, value))
    if not isinstance(value, list | tuple | set | frozenset) or not 0 < len(value) <= VALUES_MAX:
        raise InvalidOption(f"where: {column.name} {operator} takes a list of 1 to {VALUES_MAX} values")
    values = [_value(column, one).as_py() for one in value]
    return Condition(column, operator, pa.array(values, column.kind))


def _value(column: Column, value: Any) -> pa.Scalar:
    """A value in the column's type: a time may be its ISO text; without a zone it is UTC."""
    try:
        if column.kind == TIMESTAMP:
            value = dt.datetime.fromisoformat(value) if isinstance(value, str) else value
            value = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        if value is None or isinstance(value, bool):
            raise TypeError(f"not {value!r}")
        return pa.scalar(value, column.kind)
    except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidOption(f"where: {column.name} is {column.kind}, {value!r:.200} is not ({error})") from error
