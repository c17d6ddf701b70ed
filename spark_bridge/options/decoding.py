"""What bodies are decoded as: the options that say it, and the reader's schema, from text, a file or a registry.

They are checked without loading Arrow; `decoded` makes types of valid ones.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spark_bridge.options.values import MADE_BY, InvalidOption, choice, file_of_driver, local_path
from spark_bridge.options.zones import local_zone, zone_of
from spark_bridge.registry.place import RegistryPlace

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_bridge.options.protobuf_types import MessageType

RAW, JSON, AVRO, PROTOBUF = "raw", "json", "avro", "protobuf"
REGISTRY_OPTION_NAMES = ("schemaRegistry", "schemaSubject", "schemaRegistryUserFile", "schemaRegistryTokenFile",
                         "schemaRegistryRoots")  # fmt: skip
# What names a file or server of the reader's, which is sent to no other host.
LOCAL_OPTION_NAMES = (*REGISTRY_OPTION_NAMES, "protobufDescriptors", "protobufMessage")
TIME_ZONE = "timeZone"  # as from_json calls it
DECODE_OPTION_NAMES = ("decode", "valueSchema", "avroSchema", TIME_ZONE, *LOCAL_OPTION_NAMES)
SECRET_BYTES_MAX, ROOTS_BYTES_MAX = 1 << 16, 1 << 20
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Decoding:
    """The way to decode bodies, to which type; `registry` where they are in Confluent's wire form.

    `time_zone` is the one that was given for times of JSON without one, `local_zone` that of this process.
    """

    decode: str = RAW
    value_type: pa.DataType | None = None
    avro_schema: str | None = None
    protobuf: MessageType | None = None
    registry: RegistryPlace | None = field(default=None)
    time_zone: str | None = None
    local_zone: str | None = None


def parse_decoding(options: Mapping[str, str]) -> Decoding:
    """The options of this module; `options` has lower-case names. Raises InvalidOption, and what a registry raises."""
    decode = choice("decode", options.get("decode", RAW), (RAW, JSON, AVRO, PROTOBUF))
    _refuse(options, "valueSchema", decode == JSON, "decode=json")
    _refuse(options, TIME_ZONE, decode == JSON, "decode=json")
    _refuse(options, "avroSchema", decode == AVRO, "decode=avro")
    for name in ("protobufDescriptors", "protobufMessage"):
        _refuse(options, name, decode == PROTOBUF, "decode=protobuf")
    registry = _registry(options)
    _refuse(options, "schemaRegistry", decode != RAW, "decode=avro, protobuf or json")
    _refuse(options, "schemaSubject", decode in (AVRO, PROTOBUF), "decode=avro or protobuf")
    if decode == RAW:
        return Decoding()
    _require_schema(decode, options, has_subject=registry is not None and "schemasubject" in options)
    from spark_bridge.options import decoded  # loads Arrow, which no other option needs

    if decode == AVRO:
        text = decoded.avro_schema(options, registry)
        return Decoding(decode, decoded.of_avro(text), text, None, registry)
    if decode == PROTOBUF:
        message = decoded.message(options, registry)
        return Decoding(decode, decoded.of_message(message), None, message, registry)
    zone = options.get(TIME_ZONE.lower())
    if zone is not None:
        _checked_zone(zone)
    return Decoding(decode, decoded.of_json(options), None, None, registry, zone, local_zone())


def _checked_zone(name: str) -> None:
    try:
        zone_of(name)
    except ValueError as error:
        raise InvalidOption(f"{TIME_ZONE}={name[:80]!r}: {error}; give one as Europe/Berlin, +02:00 or UTC") from None


def _require_schema(decode: str, options: Mapping[str, str], *, has_subject: bool) -> None:
    """Raise InvalidOption unless something says what bodies are read as, and one thing alone."""
    for kind, name in ((AVRO, "avroSchema"), (PROTOBUF, "protobufDescriptors")):
        if decode == kind and has_subject and name.lower() in options:
            raise InvalidOption(f"{name} and schemaSubject both say what bodies are read as: give one of them")
    if decode == AVRO and not has_subject and "avroschema" not in options:
        besides = ", or schemaSubject: of a registry" if "schemaregistry" in options else ""
        raise InvalidOption(f"decode=avro needs avroSchema: the schema of the bodies, as Avro's JSON{besides}")
    named = {"protobufdescriptors", "protobufmessage"} & set(options)
    if decode == PROTOBUF and not has_subject and len(named) < 2:
        what = f"decode=protobuf needs protobufDescriptors, a file made by {MADE_BY}"
        raise InvalidOption(f"{what}, and protobufMessage, a message's whole name")


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
        roots = file_of_driver("schemaRegistryRoots", options["schemaregistryroots"], ROOTS_BYTES_MAX)
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
    text = file_of_driver(option, name, SECRET_BYTES_MAX).decode("utf-8", "replace").strip()
    if not text or not text.isprintable() or (option.endswith("TokenFile") and not text.isascii()):
        raise InvalidOption(f"{option}={name!r}: a file of one line is wanted")
    return text


def _refuse(options: Mapping[str, str], option: str, fits: bool, belongs_to: str) -> None:
    if option.lower() in options and not fits:
        raise InvalidOption(f"{option} belongs to {belongs_to}")
