"""What a registry says of one schema, as its API writes it; a stranger's JSON, checked.

    {"schemaType": "AVRO", "schema": "...", "references": [{"name": "a.B", "subject": "b-value", "version": 1}]}

A schema of Protobuf is asked for as `format=serialized`: the FileDescriptorProto in Base64, since nothing here reads
`.proto` files.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from spark_bridge.registry.errors import RegistryRefused, SchemaUnusable

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
KINDS = (AVRO, PROTOBUF, JSON)
ANSWER_BYTES_MAX = 4 << 20
REFERENCES_MAX = 100
NAME_CHARACTERS_MAX = 1024
VERSION_MAX = 2**31 - 1


class Reference(NamedTuple):
    """A schema that another one names: under which name, and where it is."""

    name: str
    subject: str
    version: int


class Registered(NamedTuple):
    """A schema: one of KINDS, its text, and what it refers to."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


def parsed_json(place: str, data: bytes) -> Any:
    """The JSON that a registry gave. Raises SchemaUnusable for too much of it, RegistryRefused for anything else."""
    if len(data) > ANSWER_BYTES_MAX:
        raise SchemaUnusable(f"{place}: more than {ANSWER_BYTES_MAX} bytes, too long for a schema")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise RegistryRefused(f"{place}: the answer is not JSON; is that a schema registry?") from None


def registered(place: str, answer: Any) -> Registered:
    """The schema in an answer. Raises RegistryRefused for an answer of another form, SchemaUnusable."""
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        raise RegistryRefused(f"{place}: an answer without a schema; is that a schema registry?")
    kind = answer.get("schemaType") or AVRO
    if kind not in KINDS:
        raise SchemaUnusable(f"{place}: a schema of kind {str(kind)[:40]!r}, not one of {', '.join(KINDS)}")
    listed = answer.get("references") or []
    if not isinstance(listed, list) or len(listed) > REFERENCES_MAX:
        raise SchemaUnusable(f"{place}: references are not a list of up to {REFERENCES_MAX}")
    return Registered(kind, answer["schema"], tuple(_reference(place, one) for one in listed))


def _reference(place: str, one: Any) -> Reference:
    given = one if isinstance(one, dict) else {}
    name, subject, version = given.get("name"), given.get("subject"), given.get("version")
    if not (is_name(name) and is_name(subject) and type(version) is int and 0 < version <= VERSION_MAX):
        raise SchemaUnusable(f"{place}: a reference without name, subject and version")
    return Reference(str(name), str(subject), version)


def is_name(value: object) -> bool:
    """Whether it may be a subject's name."""
    return isinstance(value, str) and 0 < len(value) <= NAME_CHARACTERS_MAX
