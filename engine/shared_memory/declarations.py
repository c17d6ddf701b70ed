"""How a counter is declared: one line in a class says label, kind, who writes it, who follows it and what it means.

An object of that class, made over a region, has the cursor under the declaration's name; the class tells what is
declared: the region is laid out from that, and docs/counters.md is written from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, overload

from ipc.counters import Counters, Cursor

Reading = TypeVar("Reading")
Key = TypeVar("Key")


class Counter(NamedTuple):
    """One word. The owner is the one process that writes it; `A|B`: each in its time, or as the meaning says."""

    label: str
    kind: str
    owner: str
    followed_by: str
    meaning: str


class AddressCursors(NamedTuple):
    """The three words of an address: `engine.shared_memory.addresses`."""

    word: Cursor
    high: Cursor
    low: Cursor


class Declaration(Generic[Reading]):
    """A line of a class of counters; an object of that class has what it finds in the region."""

    def __init__(self, kind: str, owner: str, followed_by: str, meaning: str, *, label: str = "") -> None:
        self._counter = Counter(label, kind, owner, followed_by, meaning)

    def __set_name__(self, _group: type, name: str) -> None:
        self._counter = self._counter._replace(label=self._counter.label or name)

    @overload
    def __get__(self, group: None, kind: type) -> Self: ...
    @overload
    def __get__(self, group: object, kind: type) -> Reading: ...
    def __get__(self, group: object, kind: type) -> Self | Reading:
        """The declaration; what it finds lies in the object itself, which hides this."""
        assert group is None, f"{kind.__name__} has not looked for {self._counter.label}"
        return self

    def counters(self) -> list[Counter]:
        """Return all words that this line declares, here one."""
        return [self._counter]

    def summary(self) -> Counter:
        """Return one counter that stands for all words of the line."""
        return self._counter

    def find(self, cursor: Callable[[str], Cursor]) -> Reading:
        """Return what an object of the class holds."""
        raise AssertionError("one of the classes below")


class One(Declaration[Cursor]):
    """One word, with the name of the attribute as its label."""

    def find(self, cursor: Callable[[str], Cursor]) -> Cursor:
        """Return the cursor that `cursor` finds under this label."""
        return cursor(self._counter.label)


class Address(Declaration[AddressCursors]):
    """The three words of an address."""

    def counters(self) -> list[Counter]:
        """The word, the high and the low half of an IPv6 address."""
        return [self._counter._replace(label=f"{self._counter.label}{end}") for end in ("", ".high", ".low")]

    def find(self, cursor: Callable[[str], Cursor]) -> AddressCursors:
        """Return the three cursors of the address."""
        return AddressCursors(*(cursor(counter.label) for counter in self.counters()))


class Family(Declaration[dict[Key, Cursor]], Generic[Key]):
    """One word for each key: `label` and `owner` have a `{}` where a key's text comes; a summary says `word` there.

    `owner` may also be a function of the key's text.
    """

    def __init__(
        self,
        keys: Mapping[Key, str],
        word: str,
        kind: str,
        owner: str | Callable[[str], str],
        followed_by: str,
        meaning: str,
        *,
        label: str,
    ) -> None:
        self._keys, self._word, self._owner = keys, word, owner if callable(owner) else owner.format
        super().__init__(kind, "", followed_by, meaning, label=label)

    def _of(self, text: str) -> Counter:
        return self._counter._replace(label=self._counter.label.format(text), owner=self._owner(text))

    def counters(self) -> list[Counter]:
        """Return one counter for each key."""
        return [self._of(text) for text in self._keys.values()]

    def summary(self) -> Counter:
        """Return one counter for the whole family, for tables: its owner is the owner of all, or each of them."""
        owners = "|".join(dict.fromkeys(counter.owner for counter in self.counters()))
        every = self._of(self._word)
        return every if self._word in every.owner else every._replace(owner=owners)

    def find(self, cursor: Callable[[str], Cursor]) -> dict[Key, Cursor]:
        """Return the cursors of the family by key."""
        return {key: cursor(self._counter.label.format(text)) for key, text in self._keys.items()}


class Group:
    """A class of counters; `{}` in its prefix and in its owners is the number of the object."""

    prefix: ClassVar[str] = ""

    def __init__(self, counters: Counters, number: int | None = None) -> None:
        prefix = self.prefix.format(number)
        for name, declaration in self._declarations():
            vars(self)[name] = declaration.find(lambda label: counters.cursor_or_absent(f"{prefix}{label}"))

    @classmethod
    def _declarations(cls) -> Iterator[tuple[str, Declaration[Any]]]:
        return ((name, value) for name, value in vars(cls).items() if isinstance(value, Declaration))

    @classmethod
    def declared(cls, number: int | None = None) -> list[Counter]:
        """Return every word of one object, in the order of the class."""
        counters = (counter for _name, declaration in cls._declarations() for counter in declaration.counters())
        return [cls._named(counter, number) for counter in counters]

    @classmethod
    def summary(cls) -> list[Counter]:
        """A line for each declaration."""
        return [cls._named(declaration.summary(), "N") for _name, declaration in cls._declarations()]

    @classmethod
    def _named(cls, counter: Counter, number: object) -> Counter:
        owner = counter.owner.format(number)
        return counter._replace(label=f"{cls.prefix.format(number)}{counter.label}", owner=owner)
