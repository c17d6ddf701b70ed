"""What a caller hands over, looked at before anything is compiled or sent: types, and numbers that fit their fields.

An error names the wrong argument in one line; numpy's whole numbers are whole numbers.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import MessageIllegal, StoreIllegal
from store.message.host import Host
from store.message.properties import DELAY, KEYS, TAGS
from store.put.request import INT_MAX, INT_MIN, LONG_MAX, SendRequest

SHOWN_MAX = 40  # characters of a wrong value
PATH_BYTES_MAX, NAME_BYTES_MAX = 4000, 255  # of a store: room for the names below it
RESERVED = (KEYS, TAGS)  # properties that have arguments of their own

INTEGERS = ("queue_id", "sys_flag", "flag", "reconsume_times", "max_reconsume_times")  # of a request


def whole(value: Any, what: str, low: int = INT_MIN, high: int = INT_MAX) -> int:
    """A whole number within its bounds. Raises MessageIllegal."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not low <= number <= high:
        raise MessageIllegal(f"{what} {_shown(value)}", f"it is a whole number from {low} to {high}")
    return number


def text(value: Any, what: str) -> str:
    """A str that has a UTF-8 form. Raises MessageIllegal."""
    if not isinstance(value, str):
        raise MessageIllegal(f"{what} {_shown(value)}", f"it is a str, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        reason = f"character {error.start} is half of a surrogate pair, which UTF-8 cannot encode"
        raise MessageIllegal(f"{what} {_shown(value)}", reason) from None
    return value


def body_bytes(body: Any) -> bytes:
    """The bytes of a body: any object of bytes, or a str in UTF-8. Raises MessageIllegal."""
    if isinstance(body, str):
        return text(body, "body").encode()
    if type(body) is bytes:
        return body
    try:
        return bytes(memoryview(body))
    except TypeError:
        raise MessageIllegal("body", f"it is bytes or a str, not {type(body).__name__}") from None


def joined(keys: Any) -> str | None:
    """The keys of one message as their property: a str as it is, others with spaces between. Raises MessageIllegal."""
    if keys is None or isinstance(keys, str):
        return keys
    if not isinstance(keys, (list, tuple)):
        raise MessageIllegal(f"keys {_shown(keys)}", f"they are a str or a list of str, not {type(keys).__name__}")
    return " ".join(text(key, "key") for key in keys)


def named(properties: Any) -> Mapping[str, Any]:
    """Properties by name. Raises MessageIllegal."""
    if not isinstance(properties, Mapping):
        what = f"they are a dict of str, not {type(properties).__name__}"
        raise MessageIllegal(f"properties {_shown(properties)}", what)
    return properties


def fields_of(tags: Any, keys: Any, properties: Mapping[str, Any] | None, delay_level: int = 0) -> dict[str, Any]:
    """The properties of a message, or of a batch, by name. Raises MessageIllegal."""
    fields: dict[str, Any] = {}
    if keys is not None:
        fields[KEYS] = keys
    if tags is not None:
        fields[TAGS] = tags
    if properties:
        named(properties)
        for name in RESERVED:
            if name in properties:
                raise MessageIllegal(f"property {name}", "it has its own argument")
        fields.update(properties)
    if delay_level or type(delay_level) is not int:
        fields[DELAY] = str(whole(delay_level, "delay level"))
    return fields


def checked_request(request: Any) -> SendRequest:
    """A SendRequest with plain whole numbers and bytes in one run. Raises MessageIllegal."""
    if not isinstance(request, SendRequest):
        raise MessageIllegal("request", f"it is a SendRequest, not {type(request).__name__}")
    plain: dict[str, Any] = {name: whole(getattr(request, name), name) for name in INTEGERS}
    plain["born_timestamp_ms"] = whole(request.born_timestamp_ms, "born_timestamp_ms", -LONG_MAX - 1, LONG_MAX)
    text(request.topic, "topic")
    if not isinstance(request.properties, str):
        raise MessageIllegal("properties", f"of a request they are one str, not {type(request.properties).__name__}")
    if not isinstance(request.body, (bytes, bytearray, memoryview)):
        raise MessageIllegal("body", f"of a request it is bytes, not {type(request.body).__name__}")
    if not isinstance(request.born_host, Host):
        raise MessageIllegal("born_host", f"it is a Host, not {type(request.born_host).__name__}")
    return replace(request, **plain, body=body_bytes(request.body))


def truth(value: Any, what: str) -> bool:
    """Return True or False as given; any other value raises MessageIllegal."""
    if not isinstance(value, bool):
        raise MessageIllegal(f"{what} {_shown(value)}", "it is True or False")
    return value


def store_path(store: Any) -> str:
    """A store's directory, as the system takes it. Raises StoreIllegal."""
    if not isinstance(store, (str, os.PathLike)) or not isinstance(path := os.fspath(store), str):
        raise StoreIllegal(_shown(store), f"it is a str or a Path, not {type(store).__name__}")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError as error:
        raise StoreIllegal(_shown(path), f"character {error.start} cannot be part of a path") from None
    if b"\0" in encoded:
        raise StoreIllegal(_shown(path), "a path cannot contain a NUL character")
    if len(encoded) > PATH_BYTES_MAX or max(map(len, encoded.split(b"/"))) > NAME_BYTES_MAX:
        raise StoreIllegal(_shown(path), f"a path has {PATH_BYTES_MAX} bytes at most, each name {NAME_BYTES_MAX}")
    return path


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}…"
