"""Protobuf's messages as Arrow's types: which message of a descriptor set bodies are, and what its fields become.

As Spark's `from_protobuf` maps them, but that unsigned numbers keep their value (bigint, decimal(20,0)). A message that
holds itself has no type.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from ipc.extras import ExtraMissing
from spark_bridge.options.value_types import NESTED_MAX, TIMESTAMP, array_of, map_of
from spark_bridge.options.values import MADE_BY, InvalidOption
from spark_bridge.registry.answers import PROTOBUF, Registered
from spark_bridge.registry.errors import SchemaUnusable
from spark_bridge.registry.schemas import Schemas

FIELDS_MAX = 10_000  # of one message and those inside it, each as often as it is held
SET_BYTES_MAX = 16 << 20
INLINE = "base64:"  # a compressed descriptor set in place of a file's name
TIMESTAMP_MESSAGE = "google.protobuf.Timestamp"
WELL_KNOWN = (
    "any", "api", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type", "wrappers",
)  # fmt: skip
WELL_KNOWN_PREFIX = "google/protobuf/"
UINT64 = pa.decimal128(20, 0)


@dataclass(frozen=True)
class MessageType:
    """A message by its whole name, and a FileDescriptorSet, compressed, with all that it needs."""

    name: str
    descriptors: bytes = field(repr=False)


def message_of(option: str, files: Iterable[Any], name: str) -> MessageType:
    """A message of some FileDescriptorProtos, with as many of them as it needs. Raises InvalidOption."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    by_name = {one.name: one for one in files}
    try:
        descriptor = _descriptor(by_name, name)
    except KeyError:
        known = sorted(_names(by_name.values()))
        raise InvalidOption(f"protobufMessage={name!r} is not in {option}; it has {', '.join(known[:20])}") from None
    needed: dict[str, Any] = {}
    _collect(descriptor.file, needed)
    whole = FileDescriptorSet()
    for known_file in needed.values():
        known_file.CopyToProto(whole.file.add())
    for one in whole.file:
        one.ClearField("source_code_info")
    return MessageType(name, zlib.compress(whole.SerializeToString(deterministic=True)))


def _collect(descriptor_file: Any, needed: dict[str, Any]) -> None:
    for other in descriptor_file.dependencies:
        if other.name not in needed:
            _collect(other, needed)
    needed[descriptor_file.name] = descriptor_file


def _names(files: Iterable[Any]) -> list[str]:
    return [f"{one.package}.{message.name}".lstrip(".") for one in files for message in one.message_type]


def first_message(one: Any) -> str:
    """The whole name of a file's first message. Raises InvalidOption for a file without any."""
    names = _names([one])
    if not names:
        raise InvalidOption("schemaSubject: a schema without a message")
    return names[0]


def parsed_set(option: str, data: bytes) -> list[Any]:
    """The files of a FileDescriptorSet, as `protoc --include_imports --descriptor_set_out` writes it."""
    descriptor_pb2, message = _protobuf()
    try:
        whole = descriptor_pb2.FileDescriptorSet.FromString(data)
    except message.DecodeError as error:
        raise InvalidOption(f"{option}: not a descriptor set ({error}); make one with {MADE_BY}") from error
    if not whole.file:
        raise InvalidOption(f"{option}: a descriptor set without files; make one with {MADE_BY}")
    return list(whole.file)


def _protobuf() -> tuple[Any, Any]:
    try:
        from google.protobuf import descriptor_pb2, message
    except ImportError as error:
        raise ExtraMissing("decode=protobuf", "protobuf", "spark") from error
    return descriptor_pb2, message


def _descriptor(files: dict[str, Any], name: str) -> Any:
    """A message's descriptor in a pool of its own. Raises KeyError without such a message, InvalidOption."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool, added = DescriptorPool(), set[str]()

    def add(file_name: str, inside: tuple[str, ...]) -> None:
        if file_name in added:
            return
        if file_name in inside:
            raise InvalidOption(f"protobufDescriptors: {file_name} imports itself")
        one = files.get(file_name) or _well_known(file_name)
        for needed in one.dependency:
            add(needed, (*inside, file_name))
        try:
            pool.AddSerializedFile(one.SerializeToString())
        except (TypeError, ValueError) as error:
            raise InvalidOption(f"protobufDescriptors: {file_name}: {str(error)[:300]}") from error
        added.add(file_name)

    try:
        for file_name in files:
            add(file_name, ())
    except RecursionError:
        raise InvalidOption("protobufDescriptors: imports that are nested too deeply") from None
    return pool.FindMessageTypeByName(name)


def _well_known(file_name: str) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    stem = file_name.removeprefix(WELL_KNOWN_PREFIX).removesuffix(".proto")
    if not file_name.startswith(WELL_KNOWN_PREFIX) or stem not in WELL_KNOWN:
        raise InvalidOption(f"protobufDescriptors: lacks the import {file_name}; make the set with {MADE_BY}")
    proto = FileDescriptorProto()
    importlib.import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.CopyToProto(proto)
    return proto


@lru_cache(maxsize=16)
def descriptor_of(message: MessageType) -> Any:
    """The descriptor of a message that options named."""
    data = zlib.decompress(message.descriptors)
    return _descriptor({one.name: one for one in parsed_set("protobufDescriptors", data)}, message.name)


def message_type(message: MessageType) -> pa.StructType:
    """The type of its values. Raises InvalidOption for a message that holds itself, or very many fields."""
    left = FIELDS_MAX

    def struct(descriptor: Any, inside: tuple[str, ...]) -> pa.DataType:
        if descriptor.full_name == TIMESTAMP_MESSAGE:
            return TIMESTAMP
        if descriptor.full_name in inside:
            raise InvalidOption(f"protobufMessage: {descriptor.full_name} holds itself; Spark has no such type")
        if len(inside) >= NESTED_MAX:
            deep = f"messages inside each other, more than {NESTED_MAX} deep"
            raise InvalidOption(f"protobufMessage={message.name!r}: {deep}; read such bodies raw")
        return pa.struct([(one.name, of(one, (*inside, descriptor.full_name))) for one in descriptor.fields])

    def of(one: Any, inside: tuple[str, ...]) -> pa.DataType:
        nonlocal left
        left -= 1
        if left < 0:
            raise InvalidOption(f"protobufMessage={message.name!r}: more than {FIELDS_MAX} fields")
        if is_map(one):
            key, value = one.message_type.fields_by_name["key"], one.message_type.fields_by_name["value"]
            return map_of(of(value, inside), of(key, inside))
        kind = struct(one.message_type, inside) if one.message_type is not None else _SCALARS[_scalar(one.type)]
        return array_of(kind) if one.is_repeated else kind

    return struct(descriptor_of(message), ())


def is_map(one: Any) -> bool:
    """Whether a field is a map, which Protobuf writes as repeated pairs."""
    return one.message_type is not None and bool(one.message_type.GetOptions().map_entry)


def _scalar(number: int) -> str:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return str(FieldDescriptorProto.Type.Name(number)).removeprefix("TYPE_").lower()


_SCALARS: dict[str, pa.DataType] = {
    "double": pa.float64(), "float": pa.float32(), "int64": pa.int64(), "uint64": UINT64, "int32": pa.int32(),
    "fixed64": UINT64, "fixed32": pa.int64(), "bool": pa.bool_(), "string": pa.string(), "bytes": pa.binary(),
    "uint32": pa.int64(), "enum": pa.string(), "sfixed32": pa.int32(), "sfixed64": pa.int64(), "sint32": pa.int32(),
    "sint64": pa.int64(),
}  # fmt: skip


def inline_set(text: str) -> bytes | None:
    """The descriptor set that an option's text holds itself; None for a file's name. Raises InvalidOption."""
    if not text.startswith(INLINE):
        return None
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(text.removeprefix(INLINE), validate=True), SET_BYTES_MAX)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise InvalidOption(f"protobufDescriptors: {INLINE} and no compressed descriptor set ({error})") from error
    if not inflater.eof:
        raise InvalidOption(f"protobufDescriptors: more than {SET_BYTES_MAX} bytes, or cut short")
    return data


def file_of(schema: Registered, what: str) -> Any:
    """The FileDescriptorProto of a registered schema. Raises SchemaUnusable."""
    descriptor_pb2, message = _protobuf()
    if schema.kind != PROTOBUF:
        raise SchemaUnusable(f"{what} is of kind {schema.kind}, the bodies are read as Protobuf")
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, ValueError, message.DecodeError) as error:
        serialized = "a FileDescriptorProto in Base64, as GET /schemas/ids/N?format=serialized gives it"
        raise SchemaUnusable(f"{what} is not {serialized}") from error


def registered_files(schemas: Schemas, schema: Registered, what: str) -> list[Any]:
    """A registered schema's files under the names by which they are imported, the schema's own the last."""
    files = [file_of(schema, what)]
    files[0].name = f"{what}.proto"
    for reference, other in schemas.referred(schema):
        one = file_of(other, f"the reference {reference.name}")
        one.name = reference.name
        files.insert(-1, one)
    return files
