"""What bodies are decoded as: the options that say it, and the reader's schema, from text, a file or a registry.

`latest` of a subject is asked for here, where the plan is made: the columns of a frame have to be known then.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa

from spark_bridge.options import protobuf_types
from spark_bridge.options.avro_types import avro_type, self_contained
from spark_bridge.options.protobuf_types import MessageType
from spark_bridge.options.value_types import named_type
from spark_bridge.options.values import InvalidOption, choice, local_path
from spark_bridge.registry.errors import SchemaUnusable
from spark_bridge.registry.place import RegistryPlace
from spark_bridge.registry.schemas import schemas_of

RAW, JSON, AVRO, PROTOBUF = "raw", "json", "avro", "protobuf"
REGISTRY_OPTION_NAMES = ("schemaRegistry", "schemaSubject", "schemaRegistryUserFile", "schemaRegistryTokenFile",
                         "schemaRegistryRoots")  # fmt: skip
# What names a place of the reader's, which no other host is told.
LOCAL_OPTION_NAMES = (*REGISTRY_OPTION_NAMES, "protobufDescriptors", "protobufMessage")
DECODE_OPTION_NAMES = ("decode", "valueSchema", "avroSchema", *LOCAL_OPTION_NAMES)
SECRET_BYTES_MAX, ROOTS_BYTES_MAX = 1 << 16, 1 << 20
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Decoding:
    """What bodies are decoded as, to which type; `registry` where they are in Confluent's wire form."""

    decode: str = RAW
    value_type: pa.DataType | None = None
    avro_schema: str | None = None
    protobuf: MessageType | None = None
    registry: RegistryPlace | None = field(default=None)


def parse_decoding(options: Mapping[str, str]) -> Decoding:
    """The options of this module; `options` has lower-case names. Raises InvalidOption, and what a registry raises."""
    decode = choice("decode", options.get("decode", RAW), (RAW, JSON, AVRO, PROTOBUF))
    _refuse(options, "valueSchema", decode == JSON, "decode=json")
    _refuse(options, "avroSchema", decode == AVRO, "decode=avro")
    for name in ("protobufDescriptors", "protobufMessage"):
        _refuse(options, name, decode == PROTOBUF, "decode=protobuf")
    registry = _registry(options)
    _refuse(options, "schemaRegistry", decode != RAW, "decode=avro, protobuf or json")
    _refuse(options, "schemaSubject", decode in (AVRO, PROTOBUF), "decode=avro or protobuf")
    if decode == AVRO:
        text = _avro_schema(options, registry)
        return Decoding(decode, avro_type("avroSchema", text), text, None, registry)
    if decode == PROTOBUF:
        message = _message(options, registry)
        return Decoding(decode, protobuf_types.message_type(message), None, message, registry)
    if decode == JSON:
        kind = named_type("valueSchema", options["valueschema"]) if "valueschema" in options else pa.string()
        return Decoding(decode, kind, None, None, registry)
    return Decoding()


def _avro_schema(options: Mapping[str, str], registry: RegistryPlace | None) -> str:
    if registry is not None and "schemasubject" in options:
        if "avroschema" in options:
            raise InvalidOption("avroSchema and schemaSubject both say what bodies are read as: give one of them")
        schemas, subject = schemas_of(registry), options["schemasubject"]
        try:
            return self_contained(schemas, schemas.latest(subject), f"schemaSubject={subject!r}")
        except SchemaUnusable as error:
            raise InvalidOption(str(error)) from error
    if "avroschema" not in options:
        besides = ", or schemaSubject: of a registry" if registry is not None else ""
        raise InvalidOption(f"decode=avro needs avroSchema: the schema of the bodies, as Avro's JSON{besides}")
    return options["avroschema"]


def _message(options: Mapping[str, str], registry: RegistryPlace | None) -> MessageType:
    name = options.get("protobufmessage")
    if registry is not None and "schemasubject" in options:
        if "protobufdescriptors" in options:
            what = "protobufDescriptors and schemaSubject both say what bodies are read as: give one of them"
            raise InvalidOption(what)
        schemas, subject = schemas_of(registry, serialized=True), options["schemasubject"]
        try:
            files = protobuf_types.registered_files(schemas, schemas.latest(subject), f"schemaSubject={subject!r}")
        except SchemaUnusable as error:
            raise InvalidOption(str(error)) from error
        name = name or protobuf_types.first_message(files[-1])
        return protobuf_types.message_of(f"schemaSubject={subject!r}", files, name)
    if "protobufdescriptors" not in options or name is None:
        what = f"decode=protobuf needs protobufDescriptors, a file made by {protobuf_types.MADE_BY}"
        raise InvalidOption(f"{what}, and protobufMessage, a message's whole name")
    text = options["protobufdescriptors"]
    data = protobuf_types.inline_set(text)
    if data is None:
        data = _read("protobufDescriptors", text, protobuf_types.SET_BYTES_MAX)
    files = protobuf_types.parsed_set(f"protobufDescriptors={text[:200]!r}", data)
    return protobuf_types.message_of("protobufDescriptors", files, name)


def _registry(options: Mapping[str, str]) -> RegistryPlace | None:
    at = options.get("schemaregistry")
    if at is None:
        for name in REGISTRY_OPTION_NAMES[1:]:
            _refuse(options, name, False, "schemaRegistry, which is not given")
        return None
    if not at.lower().startswith(("http://", "https://")):
        for name in REGISTRY_OPTION_NAMES[2:]:
            _refuse(options, name, False, "a registry with a URL; this one is a file")
        return RegistryPlace(local_path("schemaRegistry", at))
    scheme, host = _checked_url(at)
    _refuse(options, "schemaRegistryRoots", scheme == "https", "a registry at https://")
    authorization = _authorization(options)
    if authorization is not None and scheme == "http" and host not in LOOPBACK:
        raise InvalidOption(f"schemaRegistry={at!r}: credentials are sent by https:// alone, and to this host")
    roots = None
    if "schemaregistryroots" in options:
        roots = _read("schemaRegistryRoots", options["schemaregistryroots"], ROOTS_BYTES_MAX)
    return RegistryPlace(scheme + at[len(scheme) :].rstrip("/"), authorization, roots)


def _checked_url(at: str) -> tuple[str, str]:
    example = "give http(s)://HOST[:PORT][/BASE]; credentials have files of their own"
    try:
        url = urlsplit(at)
        _ = url.port
    except ValueError as error:
        raise InvalidOption(f"schemaRegistry={at[:200]!r} ({error}): {example}") from error
    is_plain = at.isascii() and at.isprintable() and " " not in at
    if not is_plain or not url.hostname or url.query or url.fragment:
        raise InvalidOption(f"schemaRegistry={at[:200]!r}: {example}")
    if url.username is not None or url.password is not None:
        raise InvalidOption(f"schemaRegistry: a URL with credentials in it; {example}")
    return url.scheme.lower(), url.hostname


def _authorization(options: Mapping[str, str]) -> str | None:
    user, token = options.get("schemaregistryuserfile"), options.get("schemaregistrytokenfile")
    if user is not None and token is not None:
        raise InvalidOption("schemaRegistryUserFile and schemaRegistryTokenFile: give one of them")
    if user is not None:
        line = _secret("schemaRegistryUserFile", user)
        if ":" not in line:
            raise InvalidOption(f"schemaRegistryUserFile={user!r}: its one line is USER:PASSWORD")
        return "Basic " + base64.b64encode(line.encode()).decode()
    return None if token is None else "Bearer " + _secret("schemaRegistryTokenFile", token)


def _secret(option: str, name: str) -> str:
    text = _read(option, name, SECRET_BYTES_MAX).decode("utf-8", "replace").strip()
    if not text or not text.isprintable() or (option.endswith("TokenFile") and not text.isascii()):
        raise InvalidOption(f"{option}={name!r}: a file of one line is wanted")
    return text


def _read(option: str, name: str, most: int) -> bytes:
    """A file of the driver's host: what it holds travels with the tasks."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidOption(f"{option}={name[:200]!r}: {reason}; a file that the driver can read") from error
    if len(data) > most:
        raise InvalidOption(f"{option}={name!r}: larger than {most} bytes; is it the file that was meant?")
    return data


def _refuse(options: Mapping[str, str], option: str, fits: bool, belongs_to: str) -> None:
    if option.lower() in options and not fits:
        raise InvalidOption(f"{option} belongs to {belongs_to}")
