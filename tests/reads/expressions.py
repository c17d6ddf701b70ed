"""Generated conditions as Spark has them: their SQL, their value of a row in three-valued logic, and a tree of nodes.

The nodes answer as Catalyst's do, as far as `spark_bridge.options.conditions` asks them, so that what it takes into a
plan is tried without a JVM. A run with Spark compares both trees' answers.
"""

from __future__ import annotations

import datetime as dt
import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from tests.reads.made_stores import Made
from tests.spark_bridge.stores import Row

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
TYPES = {
    "topic": "string", "tags": "string", "keys": "string", "msgId": "string", "storeHost": "string",
    "brokerName": "string", "queueId": "int", "flag": "int", "sysFlag": "int", "bodyLength": "int",
    "reconsumeTimes": "int", "queueOffset": "bigint", "physicalOffset": "bigint", "storeTimestamp": "timestamp",
    "bornTimestamp": "timestamp",
}  # fmt: skip
OFTEN = ("topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "bornTimestamp", "tags", "keys",
         "bodyLength", "flag")  # fmt: skip
SIGNS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "=": ("EqualTo", operator.eq), ">": ("GreaterThan", operator.gt), ">=": ("GreaterThanOrEqual", operator.ge),
    "<": ("LessThan", operator.lt), "<=": ("LessThanOrEqual", operator.le),
}  # fmt: skip
EPOCH = dt.datetime(1970, 1, 1)
Truth = bool | None


class Node:
    """A node of Catalyst, or a value of Java's: what it is called, and what its methods return."""

    def __init__(self, name: str, /, **answers: Any) -> None:
        self._name, self._answers = name, answers

    def getClass(self) -> Self:  # noqa: N802 - Java's name
        """The class, which knows its name."""
        return self

    def getSimpleName(self) -> str:  # noqa: N802 - Java's name
        """The name of the class."""
        return self._name

    def __getattr__(self, method: str) -> Callable[..., Any]:
        answer = self._answers[method]
        return lambda *_: answer


class Sequenced:
    """A sequence of Scala's."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items

    def size(self) -> int:
        """The number of its elements."""
        return len(self._items)

    def apply(self, place: int) -> Any:
        """The element there."""
        return self._items[place]


def _typed(name: str) -> Node:
    return Node("DataType", catalogString=name)


def _attribute(name: str) -> Node:
    return Node("AttributeReference", name=name, dataType=_typed(TYPES[name]))


def _cast(child: Node, kind: str, value: Any = None) -> Node:
    return Node("Cast", child=child, dataType=_typed(kind), eval=value)


class Literal(NamedTuple):
    """A constant: its text in SQL, its type there, and its value in the type of the column that it is compared with.

    `cast_to` is the type to which both sides, or the literal alone, are cast; empty: of one type already.
    """

    sql: str
    kind: str
    value: Any
    cast_to: str = ""

    def node(self) -> Node:
        """Its node; texts are objects of Java's, numbers and times are not."""
        inner = Node("UTF8String", toString=self.sql[1:-1]) if self.kind == "string" else self.value
        plain = Node("Literal", dataType=_typed(self.kind), value=inner, eval=inner)
        return _cast(plain, self.cast_to, self.value) if self.cast_to else plain

    def compared(self, column: str) -> Node:
        """Its node where one column is compared with it: null is of the column's type there."""
        if self.kind != "void":
            return self.node()
        return Node("Literal", dataType=_typed(TYPES[column]), value=None, eval=None)

    def beside(self, column: str) -> Node:
        """The node of the column as it is compared with this."""
        attribute = _attribute(column)
        return _cast(attribute, self.cast_to) if self.cast_to not in ("", TYPES[column]) else attribute


class Expression:
    """A condition on a row."""

    def sql(self) -> str:
        """Its text."""
        raise AssertionError

    def of(self, row: Row) -> Truth:
        """Whether it is true of a row; None where that is unknown."""
        raise AssertionError

    def node(self) -> Node:
        """Its tree."""
        raise AssertionError


@dataclass(frozen=True)
class Compared(Expression):
    """A column and a constant; `is_mirrored` with the constant first. `<=>` is as true of two nulls."""

    column: str
    sign: str
    literal: Literal
    is_mirrored: bool = False

    def sql(self) -> str:
        """`column sign constant`, or the other way around."""
        sides = [self.column, self.literal.sql]
        return f" {self.sign} ".join(reversed(sides) if self.is_mirrored else sides)

    def of(self, row: Row) -> Truth:
        """Unknown with a null, but for `<=>`."""
        sides = [row[self.column], self.literal.value]
        if self.sign == "<=>":
            return sides[0] == sides[1]
        if None in sides:
            return None
        return SIGNS[self.sign][1](*(reversed(sides) if self.is_mirrored else sides))

    def node(self) -> Node:
        """Catalyst's comparison of that name."""
        sides = [self.literal.beside(self.column), self.literal.compared(self.column)]
        left, right = reversed(sides) if self.is_mirrored else sides
        return Node("EqualNullSafe" if self.sign == "<=>" else SIGNS[self.sign][0], left=left, right=right)


@dataclass(frozen=True)
class Among(Expression):
    """IN: unknown where no value is equal and one is null."""

    column: str
    literals: tuple[Literal, ...]

    def sql(self) -> str:
        """`column IN (...)`."""
        return f"{self.column} IN ({', '.join(one.sql for one in self.literals)})"

    def of(self, row: Row) -> Truth:
        """Whether one of the values is equal."""
        values = [one.value for one in self.literals]
        if row[self.column] is None:
            return None
        return True if row[self.column] in values else None if None in values else False

    def node(self) -> Node:
        """Catalyst's In; a wider value widens all."""
        kinds = {one.cast_to for one in self.literals} - {""}
        wider = max(kinds) if kinds else ""
        items = [one if one.kind == "void" or not wider else one._replace(cast_to=wider) for one in self.literals]
        value = items[0]._replace(cast_to=wider).beside(self.column)
        return Node("In", value=value, list=Sequenced([one.node() for one in items]))


@dataclass(frozen=True)
class Between(Expression):
    """Two comparisons with one column, both of which have to hold."""

    column: str
    low: Literal
    high: Literal

    def sql(self) -> str:
        """`column BETWEEN low AND high`."""
        return f"{self.column} BETWEEN {self.low.sql} AND {self.high.sql}"

    def _parts(self) -> Both:
        return Both("And", Compared(self.column, ">=", self.low), Compared(self.column, "<=", self.high))

    def of(self, row: Row) -> Truth:
        """Whether both comparisons hold."""
        return self._parts().of(row)

    def node(self) -> Node:
        """Catalyst's Between, which names the column once."""
        reference = Node("CommonExpressionRef")
        sides = [
            Node(name, left=reference if one.cast_to in ("", TYPES[self.column]) else _cast(reference, one.cast_to),
                 right=one.compared(self.column))
            for name, one in (("GreaterThanOrEqual", self.low), ("LessThanOrEqual", self.high))
        ]  # fmt: skip
        both = Node("With", child=Node("And", left=sides[0], right=sides[1]))
        return Node("Between", replacement=both, input=_attribute(self.column))


@dataclass(frozen=True)
class Null(Expression):
    """IS NULL, and IS NOT NULL."""

    column: str
    is_null: bool

    def sql(self) -> str:
        """`column IS NULL`, or NOT."""
        return f"{self.column} IS {'' if self.is_null else 'NOT '}NULL"

    def of(self, row: Row) -> Truth:
        """Always known."""
        return (row[self.column] is None) == self.is_null

    def node(self) -> Node:
        """Catalyst's, which nobody takes."""
        return Node("IsNull" if self.is_null else "IsNotNull", child=_attribute(self.column))


@dataclass(frozen=True)
class Not(Expression):
    """The other truth; what is unknown stays so."""

    inner: Expression

    def sql(self) -> str:
        """`NOT (...)`."""
        return f"NOT ({self.inner.sql()})"

    def of(self, row: Row) -> Truth:
        """The negation."""
        truth = self.inner.of(row)
        return None if truth is None else not truth

    def node(self) -> Node:
        """Catalyst's Not."""
        return Node("Not", child=self.inner.node())


@dataclass(frozen=True)
class Both(Expression):
    """And, or Or."""

    kind: str
    left: Expression
    right: Expression

    def sql(self) -> str:
        """`(...) AND (...)`, or OR."""
        return f"({self.left.sql()}) {self.kind.upper()} ({self.right.sql()})"

    def of(self, row: Row) -> Truth:
        """What decides is the first that is false of an And, true of an Or; else unknown, if one is."""
        deciding = self.kind == "Or"
        truths = (self.left.of(row), self.right.of(row))
        return deciding if deciding in truths else None if None in truths else not deciding

    def node(self) -> Node:
        """Catalyst's And, or Or."""
        return Node(self.kind, left=self.left.node(), right=self.right.node())


def generated(chance: random.Random, made: Made, depth: int = 3) -> Expression:
    """A condition, in which And is frequent: of nothing else a plan takes anything."""
    kind = chance.randrange(10) if depth else 9
    if kind < 5:
        return Both("And", generated(chance, made, depth - 1), generated(chance, made, depth - 1))
    if kind == 5:
        return Both("Or", generated(chance, made, depth - 1), generated(chance, made, depth - 1))
    return Not(generated(chance, made, depth - 1)) if kind == 6 else _leaf(chance, made)


def _leaf(chance: random.Random, made: Made) -> Expression:
    column, kind = chance.choice(OFTEN if chance.randrange(4) else tuple(TYPES)), chance.randrange(12)
    if kind < 2:
        return Among(column, tuple(literal(chance, made, column) for _ in range(chance.randrange(1, 4))))
    if kind == 2:
        return Between(column, literal(chance, made, column), literal(chance, made, column))
    if kind == 3:
        return Null(column, chance.choice((True, False)))
    sign = chance.choice((*SIGNS, "=", "=", "<=>"))
    return Compared(column, sign, literal(chance, made, column), chance.randrange(4) == 0)


def literal(chance: random.Random, made: Made, column: str) -> Literal:
    """A constant for the column: a value that it has, one beside it, one far away, null; numbers also as wider ones."""
    kind, known = TYPES[column], chance.choice(list(made.rows.values()))[column]
    if chance.randrange(12) == 0:
        return Literal("NULL", "void", None, kind)
    if kind == "string":
        text = chance.choice((known, known, known, "", "a", "zz", "grün")) or "a"
        return Literal(f"'{text}'", "string", text)
    if kind == "timestamp":
        return _moment(chance, known + chance.choice((0, 0, 1000, -1000, 1, -1, 10**9)))
    value = known + chance.choice((0, 0, 0, 1, -1, 1000, -1000))
    return _number(chance, kind, max(-INT_MAX, min(value, INT_MAX)))


def _number(chance: random.Random, kind: str, value: int) -> Literal:
    form = chance.randrange(8)
    if form == 0:
        return Literal(f"{value}L", "bigint", value, "" if kind == "bigint" else "bigint")
    if form == 1:
        far = chance.choice((LONG_MAX, -LONG_MAX, INT_MAX + 1))
        return Literal(f"{far}L", "bigint", far, "" if kind == "bigint" else "bigint")
    if form == 2:
        return Literal(f"'{value}'", "string", value, "bigint")
    return Literal(str(value), "int", value, "bigint" if kind == "bigint" else "")


def _moment(chance: random.Random, microseconds: int) -> Literal:
    text = (EPOCH + dt.timedelta(microseconds=microseconds)).isoformat(" ")
    if chance.randrange(2):
        return Literal(f"timestamp'{text}'", "timestamp", microseconds)
    return Literal(f"'{text}'", "string", microseconds, "timestamp")
