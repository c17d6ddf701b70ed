"""The schemas that one process has asked for: each once; bounded by number and by bytes.

A missing schema is remembered, too, for a while: bodies come from strangers, and each may name another number.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from typing import Protocol

from spark_bridge.registry.answers import Reference, Registered
from spark_bridge.registry.errors import SchemaUnknown, SchemaUnusable
from spark_bridge.registry.files import LATEST, FileRegistry
from spark_bridge.registry.http import HttpRegistry
from spark_bridge.registry.place import RegistryPlace

SCHEMAS_MAX = 4096
SCHEMAS_BYTES_MAX = 64 << 20
UNKNOWN_MAX = 1024  # numbers that were not there; of more the oldest are asked for again
UNKNOWN_S = 60.0
LATEST_S = 10.0  # one plan asks several times
CLOSURE_MAX = 200  # schemas that one refers to, and those to others
REGISTRIES_MAX = 16

_Key = tuple[str, int | str]  # ("", number) or (subject, version)


class _Asked(Protocol):
    def by_id(self, schema_id: int, serialized: bool) -> Registered: ...

    def version(self, subject: str, version: int | str, serialized: bool) -> Registered: ...


class Schemas:
    """One registry as this process knows it; `serialized` is how Protobuf is asked for."""

    def __init__(self, place: RegistryPlace, serialized: bool) -> None:
        self.at = place.at
        self._registry: _Asked = HttpRegistry(place) if place.is_http else FileRegistry(place)
        self._serialized = serialized
        self._known: OrderedDict[_Key, Registered] = OrderedDict()
        self._known_bytes = 0
        self._unknown: dict[_Key, tuple[float, str]] = {}
        self._latest: dict[str, tuple[float, Registered]] = {}
        self._lock = threading.Lock()

    def by_id(self, schema_id: int) -> Registered:
        """The schema of a number. Raises SchemaUnknown, and what asking raises."""
        return self._once(("", schema_id))

    def latest(self, subject: str) -> Registered:
        """The last version of a subject, at most ten seconds old."""
        with self._lock:
            at, schema = self._latest.get(subject, (0.0, None))
            if schema is None or time.monotonic() - at > LATEST_S:
                schema = self._registry.version(subject, LATEST, self._serialized)
                self._latest[subject] = time.monotonic(), schema
            return schema

    def referred(self, schema: Registered) -> list[tuple[Reference, Registered]]:
        """Return what a schema refers to, and those to others: each after what it needs. Raises SchemaUnusable."""
        listed: dict[Reference, Registered] = {}
        self._refer(schema, listed, set())
        return list(listed.items())

    def _refer(self, schema: Registered, listed: dict[Reference, Registered], inside: set[Reference]) -> None:
        for reference in schema.references:
            if reference in listed:
                continue
            if reference in inside or len(inside) + len(listed) >= CLOSURE_MAX:
                what = "refer to each other" if reference in inside else f"are more than {CLOSURE_MAX}"
                raise SchemaUnusable(f"{self.at}: references {what}, at {reference.name[:80]!r}")
            try:
                other = self._once((reference.subject, reference.version))
            except SchemaUnknown as error:
                raise SchemaUnusable(f"a reference that is not there: {error}") from error
            self._refer(other, listed, inside | {reference})
            listed[reference] = other

    def _once(self, key: _Key) -> Registered:
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
            self._refuse_unknown(key)
            try:
                schema = self._asked(key)
            except SchemaUnknown as error:
                self._unknown.pop(key, None)
                self._unknown[key] = time.monotonic(), str(error)
                if len(self._unknown) > UNKNOWN_MAX:
                    del self._unknown[next(iter(self._unknown))]
                raise
            self._keep(key, schema)
            return schema

    def _asked(self, key: _Key) -> Registered:
        subject, number = key
        if not subject and isinstance(number, int):
            return self._registry.by_id(number, self._serialized)
        return self._registry.version(subject, number, self._serialized)

    def _refuse_unknown(self, key: _Key) -> None:
        if key in self._unknown and time.monotonic() - self._unknown[key][0] <= UNKNOWN_S:
            raise SchemaUnknown(self._unknown[key][1])

    def _keep(self, key: _Key, schema: Registered) -> None:
        self._known[key] = schema
        self._known_bytes += len(schema.text)
        while len(self._known) > SCHEMAS_MAX or self._known_bytes > SCHEMAS_BYTES_MAX:
            self._known_bytes -= len(self._known.popitem(last=False)[1].text)


_open: dict[tuple[int, RegistryPlace, bool], Schemas] = {}


def schemas_of(place: RegistryPlace, serialized: bool = False) -> Schemas:
    """The registry as this process knows it: of its own after a fork, whose locks somebody may hold."""
    key = os.getpid(), place, serialized
    if key not in _open:
        if len(_open) >= REGISTRIES_MAX:
            _open.clear()
        _open.setdefault(key, Schemas(place, serialized))
    return _open[key]
