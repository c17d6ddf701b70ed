"""Protobuf bodies as values: Protobuf's own library reads them, its messages become what Arrow makes structs of.

A field that tells whether it was sent is null when it was not, any other has its zero. A number that an enum does not
have is its digits. Bodies in Confluent's wire form say which message they are; one of another name, or whose fields
would be read as something else, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from spark_bridge.options.protobuf_types import (
    FIELDS_MAX,
    TIMESTAMP_MESSAGE,
    MessageType,
    descriptor_of,
    file_of,
    is_map,
)
from spark_bridge.registry.answers import Registered
from spark_bridge.registry.errors import SchemaUnusable

NANOS = 1_000_000_000
SECONDS_MIN, SECONDS_MAX = -62135596800, 253402300799  # of the years 1 to 9999
# A writer's type, and those that have all of its values in the same bytes.
SAME_VALUES = {
    "int32": {"int64"}, "uint32": {"uint64", "int64"}, "enum": {"int32", "int64"}, "sint32": {"sint64"},
    "string": {"bytes"}, "bytes": {"string"}, "bool": {"int32", "int64", "uint32", "uint64"},
}  # fmt: skip
_Value = Callable[[Any], Any]


@lru_cache(maxsize=16)
def protobuf_reader(message: MessageType) -> Callable[[bytes], Any]:
    """Return what makes a value of a whole message; raises whatever its bytes lead the library to."""
    from google.protobuf.message_factory import GetMessageClass

    made = GetMessageClass(descriptor_of(message))
    as_value = _message(made.DESCRIPTOR)

    def value(body: bytes) -> Any:
        one = made.FromString(body)
        if not one.IsInitialized():
            raise ValueError(f"required fields are missing: {', '.join(one.FindInitializationErrors())[:200]}")
        return as_value(one)

    return value


def _message(descriptor: Any) -> _Value:
    if descriptor.full_name == TIMESTAMP_MESSAGE:
        return _microseconds
    fields = [(one.name, one.has_presence, _field(one)) for one in descriptor.fields]

    def value(message: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not message.HasField(name) else made(getattr(message, name))
            for name, has_presence, made in fields
        }

    return value


def _field(one: Any) -> _Value:
    if is_map(one):
        made = _single(one.message_type.fields_by_name["value"])
        return lambda pairs: [(key, made(pairs[key])) for key in sorted(pairs)]
    single = _single(one)
    return (lambda values: list(map(single, values))) if one.is_repeated else single


def _single(one: Any) -> _Value:
    if one.message_type is not None:
        return _message(one.message_type)
    if one.enum_type is not None:
        names = {value.number: value.name for value in reversed(one.enum_type.values)}
        return lambda number: names.get(number) or str(number)
    return lambda value: value


def _microseconds(message: Any) -> int:
    if not SECONDS_MIN <= message.seconds <= SECONDS_MAX or not 0 <= message.nanos < NANOS:
        raise ValueError(f"a Timestamp of {message.seconds} s and {message.nanos} ns, which is not a time")
    return int(message.seconds) * 1_000_000 + int(message.nanos) // 1000


@lru_cache(maxsize=256)
def refusal(schema: Registered, indexes: tuple[int, ...], message: MessageType, what: str) -> str:
    """Return why a body of the schema's message at those indexes cannot be read as `message`; empty if it can."""
    try:
        file = file_of(schema, what)
        written, name = file.message_type, file.package
        for index in indexes:
            if index >= len(written):
                return f"{what} has no message at {list(indexes)}"
            one = written[index]
            written, name = one.nested_type, f"{name}.{one.name}".lstrip(".")
    except SchemaUnusable as error:
        return str(error)
    if name != message.name:
        return f"it is a message {name} of {what}, not {message.name}"
    known = _own_messages(file)
    difference = _Comparison(known).difference(one, descriptor_of(message))
    return f"{what}: {difference}" if difference else ""


def _own_messages(file: Any) -> dict[str, Any]:
    known: dict[str, Any] = {}
    waiting = [(f".{file.package}" if file.package else "", one) for one in file.message_type]
    while waiting:
        outer, one = waiting.pop()
        known[f"{outer}.{one.name}"] = one
        waiting += [(f"{outer}.{one.name}", inner) for inner in one.nested_type]
    return known


class _Comparison:
    """A writer's message beside the reader's. The writer's is a stranger's: one field may be there many times."""

    def __init__(self, known: dict[str, Any]) -> None:
        self._known, self._left = known, FIELDS_MAX

    def difference(self, written: Any, reader: Any) -> str:
        """The first field that both have and that would be read as something else; empty without any."""
        from google.protobuf.descriptor_pb2 import FieldDescriptorProto

        kinds = FieldDescriptorProto.Type
        for one in written.field:
            self._left -= 1
            if self._left < 0:
                return f"more than {FIELDS_MAX} fields, each as often as it is held"
            other = reader.fields_by_number.get(one.number)
            if other is None:
                continue
            ours, theirs = (kinds.Name(kind).removeprefix("TYPE_").lower() for kind in (other.type, one.type))
            was_repeated = one.label == FieldDescriptorProto.LABEL_REPEATED
            if (ours != theirs and ours not in SAME_VALUES.get(theirs, ())) or (was_repeated and not other.is_repeated):
                many = ("repeated " if was_repeated else "") + theirs
                asked = ("repeated " if other.is_repeated else "") + ours
                return f"field {one.number} is {many} {one.name}, the reader's message has {asked} {other.name}"
            if theirs == "message" and one.type_name in self._known:  # no deeper than the reader's, which has an end
                inner = self.difference(self._known[one.type_name], other.message_type)
                if inner:
                    return inner
        return ""
