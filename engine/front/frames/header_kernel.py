"""A request's header, compiled: both forms, as RocketMQ's clients write them; anything else leaves the fast path.

Implements: RemotingCommand.headerDecode (spec: remoting, 1 frame, 2 command fields)
Nothing is decided here by a length that a client names before it is compared with what is there. What is taken says to
`engine.protocol.remoting.frame.decode` the same; what is not taken, it may still understand.
"""

# mypy: disable-error-code="no-any-return,return-value"

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ipc.arrays import Bytes, Words
from ipc.compiled.kernels import bare_kernel
from ipc.compiled.memory import copy_bytes, load_be16, load_be32
from ipc.compiled.texts import NO_NUMBER, is_ascii, same_bytes, whole_number

TEXT_BYTES_MAX = 32767  # of a text that is unescaped
HEADER_BYTES_MAX = 128 * 1024
NONE, IGNORED, UNKNOWN = -1, -1, -2
QUOTE, BACKSLASH, COLON, COMMA, OPEN, CLOSE, BLANK = (ord(one) for one in '"\\:,{} ')
SLASH = ord("/")
ZERO, NINE, MINUS, SMALL_A = (ord(one) for one in "09-a")
BINARY_FIXED_BYTES = 21  # code, language, version, opaque, flag; then the lengths of remark and fields
BINARY_CODE, BINARY_OPAQUE, BINARY_FLAG, BINARY_REMARK = 0, 5, 9, 13
FIELD_WORDS = 2


class HeaderWord(IntEnum):
    """Words of a parsed header: its numbers, then for each field where its value is and its length (-1: missing)."""

    CODE = 0
    FLAG = 1
    OPAQUE = 2
    SEEN = 3  # bits: the keys of the header
    LONG_NAMES = 4  # fields that are called by their names
    LETTERS = 5  # by letters
    TEXT_BYTES = 6  # of the text that is unescaped
    OTHERS = 7  # fields that are ignored
    FIELDS = 8  # AT, BYTES of each


class FormWord(IntEnum):
    """Words of a form: the fields of a request, whose names precede the ignored ones."""

    FIELDS = 0
    LETTERS = 1  # so many of them have a letter as well: a, b, ...
    TEXT = 2  # the one that is unescaped into a text; -1: none
    OTHERS = 3  # what any other name is: IGNORED or UNKNOWN


class Fields(NamedTuple):
    """The fields of a kind of request: their form (FormWord), and names as `spelled` gives them."""

    form: Words
    names: Bytes
    ends: Words


def spelled(names: tuple[str, ...]) -> tuple[Bytes, Words]:
    """Names one behind the other, and where each ends."""
    ends = np.cumsum([0, *map(len, names)], dtype=np.int64)
    return np.frombuffer("".join(names).encode(), np.uint8).copy(), ends


TOP_KEYS = ("code", "flag", "opaque", "extFields", "language", "version", "serializeTypeCurrentRPC")
CODE_KEY, FLAG_KEY, OPAQUE_KEY, FIELDS_KEY, LANGUAGE_KEY, VERSION_KEY, FORM_KEY = range(len(TOP_KEYS))
TOP_BYTES, TOP_ENDS = spelled(TOP_KEYS)


@bare_kernel
def number_of(name_bytes: Bytes, name_ends: Words, data: Bytes, at: int, count: int) -> int:
    """Return which of the names these `count` bytes are; -1: not one of them."""
    for k in range(name_ends.size - 1):
        if name_ends[k + 1] - name_ends[k] == count and same_bytes(data, at, name_bytes, name_ends[k], count):
            return k
    return NONE


@bare_kernel
def _field_of(data: Bytes, at: int, count: int, fields: Fields, header: Words) -> int:
    """The field with that name, IGNORED, or UNKNOWN."""
    if count == 1 and fields.form[FormWord.LETTERS] > 0:
        if not SMALL_A <= data[at] < SMALL_A + fields.form[FormWord.LETTERS]:
            return UNKNOWN
        header[HeaderWord.LETTERS] += 1
        return np.int64(data[at]) - SMALL_A
    field = number_of(fields.names, fields.ends, data, at, count)
    if field < 0 or field >= fields.form[FormWord.FIELDS]:
        header[HeaderWord.OTHERS] += 1
        return fields.form[FormWord.OTHERS] if field < 0 else IGNORED
    header[HeaderWord.LONG_NAMES] += 1
    return field


@bare_kernel
def int_of(data: Bytes, at: int, count: int) -> int:
    """Parse a whole number of 32 bits; NO_NUMBER where it is invalid or too large."""
    value = whole_number(data, at, count, 10)
    return value if -(1 << 31) <= value < 1 << 31 else NO_NUMBER


# JSON


@bare_kernel
def _blank(data: Bytes, at: int, end: int) -> int:
    while at < end and data[at] == BLANK:
        at += 1
    return at


@bare_kernel
def _text_end(data: Bytes, at: int, end: int) -> int:
    """Return where a text ends that begins at `at`, behind its quote; -1 where it is not plain ASCII."""
    while at < end:
        byte = data[at]
        if byte == QUOTE:
            return at
        if byte == BACKSLASH or byte < 0x20 or byte >= 0x80:
            return NONE
        at += 1
    return NONE


@bare_kernel
def _hex_digit(byte: int) -> int:
    if ZERO <= byte <= NINE:
        return byte - ZERO
    letter = byte | 0x20
    return letter - SMALL_A + 10 if SMALL_A <= letter <= SMALL_A + 5 else NONE


@bare_kernel
def _escaped(data: Bytes, at: int, end: int) -> int:
    """The ASCII character of the escape whose backslash lies at `at`, or -1."""
    if end - at < 2:
        return NONE
    kind = data[at + 1]
    if kind == ord("u"):
        if end - at < 6 or data[at + 2] != ZERO or data[at + 3] != ZERO:
            return NONE
        high, low = _hex_digit(np.int64(data[at + 4])), _hex_digit(np.int64(data[at + 5]))
        return high * 16 + low if 0 <= high < 8 and low >= 0 else NONE
    if kind in (QUOTE, BACKSLASH, SLASH):
        return np.int64(kind)
    if kind == ord("n"):
        return 10
    if kind == ord("t"):
        return 9
    if kind == ord("r"):
        return 13
    if kind == ord("f"):
        return 12
    return 8 if kind == ord("b") else NONE


@bare_kernel
def _unescape(data: Bytes, at: int, end: int, text: Bytes, header: Words) -> int:
    """The text behind a quote, as it is meant, into `text`; where its closing quote lies, or -1."""
    count = 0
    while at < end and count < TEXT_BYTES_MAX:
        byte = np.int64(data[at])
        if byte == QUOTE:
            header[HeaderWord.TEXT_BYTES] = count
            return at
        if byte < 0x20:
            return NONE
        if byte == BACKSLASH:
            byte = _escaped(data, at, end)
            if byte < 0:
                return NONE
            at += 6 if data[at + 1] == ord("u") else 2
        else:
            at += 1
        text[count] = byte
        count += 1
    return NONE


@bare_kernel
def _json_fields(data: Bytes, at: int, end: int, fields: Fields, header: Words, text: Bytes) -> int:
    """The object of fields behind its brace; where it ends, or -1."""
    at = _blank(data, at, end)
    if at < end and data[at] == CLOSE:
        return at + 1
    while at < end and data[at] == QUOTE:
        name_end = _text_end(data, at + 1, end)
        if name_end < 0:
            return NONE
        field = _field_of(data, at + 1, name_end - at - 1, fields, header)
        at = _blank(data, name_end + 1, end)
        if field == UNKNOWN or at >= end or data[at] != COLON:
            return NONE
        at = _blank(data, at + 1, end) + 1
        if at > end or data[at - 1] != QUOTE:
            return NONE
        is_text = field >= 0 and field == fields.form[FormWord.TEXT]
        value_end = _unescape(data, at, end, text, header) if is_text else _text_end(data, at, end)
        if value_end < 0:
            return NONE
        if field >= 0:
            place = HeaderWord.FIELDS + field * FIELD_WORDS
            if header[place + 1] >= 0:
                return NONE
            header[place], header[place + 1] = at, value_end - at
        at = _blank(data, value_end + 1, end)
        if at < end and data[at] == CLOSE:
            return at + 1
        if at >= end or data[at] != COMMA:
            return NONE
        at = _blank(data, at + 1, end)
    return NONE


@bare_kernel
def _json_value(data: Bytes, at: int, end: int, key: int, fields: Fields, header: Words, text: Bytes) -> int:
    """The value of one of the header's keys; where it ends, or -1."""
    if at >= end:
        return NONE
    if key == FIELDS_KEY:
        if data[at] != OPEN:
            return NONE
        return _json_fields(data, at + 1, end, fields, header, text)
    if key in (LANGUAGE_KEY, FORM_KEY):
        value_end = _text_end(data, at + 1, end) if data[at] == QUOTE else NONE
        return value_end + 1 if value_end >= 0 else NONE
    first = at
    while at < end and (ZERO <= data[at] <= NINE or data[at] == MINUS):
        at += 1
    value = int_of(data, first, at - first)
    if value == NO_NUMBER:
        return NONE
    if key == CODE_KEY:
        header[HeaderWord.CODE] = value
    elif key == FLAG_KEY:
        header[HeaderWord.FLAG] = value
    elif key == OPAQUE_KEY:
        header[HeaderWord.OPAQUE] = value
    return at


@bare_kernel
def _read_json(data: Bytes, at: int, end: int, fields: Fields, header: Words, text: Bytes) -> bool:
    if at >= end or data[at] != OPEN:
        return False
    at = _blank(data, at + 1, end)
    while at < end and data[at] == QUOTE:
        name_end = _text_end(data, at + 1, end)
        if name_end < 0:
            return False
        key = number_of(TOP_BYTES, TOP_ENDS, data, at + 1, name_end - at - 1)
        if key < 0 or header[HeaderWord.SEEN] >> key & 1:
            return False
        header[HeaderWord.SEEN] |= 1 << key
        at = _blank(data, name_end + 1, end)
        if at >= end or data[at] != COLON:
            return False
        at = _json_value(data, _blank(data, at + 1, end), end, key, fields, header, text)
        if at < 0:
            return False
        at = _blank(data, at, end)
        if at < end and data[at] == CLOSE:
            return at + 1 == end and header[HeaderWord.SEEN] & 1 << CODE_KEY != 0
        if at >= end or data[at] != COMMA:
            return False
        at = _blank(data, at + 1, end)
    return False


# ROCKETMQ


@bare_kernel
def _read_binary(data: Bytes, at: int, end: int, fields: Fields, header: Words, text: Bytes) -> bool:
    if end - at < BINARY_FIXED_BYTES:
        return False
    header[HeaderWord.CODE] = load_be16(data, at + BINARY_CODE)
    header[HeaderWord.OPAQUE] = load_be32(data, at + BINARY_OPAQUE)
    header[HeaderWord.FLAG] = load_be32(data, at + BINARY_FLAG)
    fields_at = at + BINARY_FIXED_BYTES
    if load_be32(data, at + BINARY_REMARK) != 0 or load_be32(data, fields_at - 4) != end - fields_at:
        return False
    at = fields_at
    while at < end:
        if end - at < 2:
            return False
        name_bytes = load_be16(data, at)
        if not 0 < name_bytes <= end - at - 6:
            return False
        field = _field_of(data, at + 2, name_bytes, fields, header)
        if field == IGNORED and not is_ascii(data, at + 2, at + 2 + name_bytes):
            return False
        at += 2 + name_bytes + 4
        count = load_be32(data, at - 4)
        if field == UNKNOWN or not 0 <= count <= end - at:
            return False
        if field >= 0 and field == fields.form[FormWord.TEXT]:
            if count > TEXT_BYTES_MAX:
                return False
            copy_bytes(text, 0, data, at, count)
            header[HeaderWord.TEXT_BYTES] = count
        elif not is_ascii(data, at, at + count):
            return False
        if field >= 0:
            place = HeaderWord.FIELDS + field * FIELD_WORDS
            if header[place + 1] >= 0:
                return False
            header[place], header[place + 1] = at, count
        at += count
    return True


@bare_kernel
def read_fields(data: Bytes, at: int, end: int, is_json: bool, fields: Fields, header: Words, text: Bytes) -> bool:
    """The header at data[at:end] into `header`, its text into `text`; False where it leaves the fast path."""
    for k in range(HeaderWord.FIELDS):
        header[k] = 0
    for k in range(fields.form[FormWord.FIELDS]):
        header[HeaderWord.FIELDS + k * FIELD_WORDS] = 0
        header[HeaderWord.FIELDS + k * FIELD_WORDS + 1] = NONE
    if end - at > HEADER_BYTES_MAX:
        return False
    if is_json:
        return _read_json(data, at, end, fields, header, text)
    return _read_binary(data, at, end, fields, header, text)
