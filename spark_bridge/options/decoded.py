"""Arrow's types of decoded bodies, of the schema that the options name: a text, a file, or a registry's.

`latest` of a subject is asked for here, where the plan is made: the columns of a frame have to be known then.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from spark_bridge.options import protobuf_types
from spark_bridge.options.avro_types import avro_type, self_contained
from spark_bridge.options.protobuf_types import MessageType
from spark_bridge.options.value_types import checked, named_type
from spark_bridge.options.values import InvalidOption, file_of_driver
from spark_bridge.registry.errors import SchemaUnusable
from spark_bridge.registry.place import RegistryPlace
from spark_bridge.registry.schemas import schemas_of


def of_json(options: Mapping[str, str]) -> pa.DataType:
    """Return what bodies of JSON are: what `valueSchema` says, else a text."""
    if "valueschema" not in options:
        return pa.string()
    return checked("valueSchema", named_type("valueSchema", options["valueschema"]))


def of_avro(schema: str) -> pa.DataType:
    """Return the Arrow type of Avro bodies. Raises InvalidOption."""
    return checked("avroSchema", avro_type("avroSchema", schema))


def of_message(message: MessageType) -> pa.DataType:
    """Return the Arrow type of Protobuf bodies. Raises InvalidOption."""
    return checked(f"protobufMessage={message.name!r}", protobuf_types.message_type(message))


def avro_schema(options: Mapping[str, str], registry: RegistryPlace | None) -> str:
    """The reader's Avro schema. Raises InvalidOption, and what a registry raises."""
    if registry is not None and "schemasubject" in options:
        schemas, subject = schemas_of(registry), options["schemasubject"]
        try:
            return self_contained(schemas, schemas.latest(subject), f"schemaSubject={subject!r}")
        except SchemaUnusable as error:
            raise InvalidOption(str(error)) from error
    return options["avroschema"]


def message(options: Mapping[str, str], registry: RegistryPlace | None) -> MessageType:
    """The reader's Protobuf message. Raises InvalidOption, and what a registry raises."""
    name = options.get("protobufmessage")
    if registry is not None and "schemasubject" in options:
        schemas, subject = schemas_of(registry, serialized=True), options["schemasubject"]
        try:
            files = protobuf_types.registered_files(schemas, schemas.latest(subject), f"schemaSubject={subject!r}")
        except SchemaUnusable as error:
            raise InvalidOption(str(error)) from error
        name = name or protobuf_types.first_message(files[-1])
        return protobuf_types.message_of(f"schemaSubject={subject!r}", files, name)
    text = options["protobufdescriptors"]
    data = protobuf_types.inline_set(text)
    if data is None:
        data = file_of_driver("protobufDescriptors", text, protobuf_types.SET_BYTES_MAX)
    files = protobuf_types.parsed_set(f"protobufDescriptors={text[:200]!r}", data)
    return protobuf_types.message_of("protobufDescriptors", files, options["protobufmessage"])
