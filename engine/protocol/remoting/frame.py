"""One request or answer of RocketMQ's remoting, as bytes and as a command: both header forms, every length bounded.

Implements: RemotingCommand, RocketMQSerializable, RemotingSerializable (spec: remoting, 1 frame, 2 command fields)

    length i32 | serialize type u8, header length u24 | header | body          length counts what follows it

JSON header: an object of code, language (a name), version, opaque, flag, remark, extFields, in fastjson's order. Other
clients write names, kinds and forms otherwise; what fastjson reads of them is read here, too.
ROCKETMQ header: code i16, language u8, version i16, opaque i32, flag i32, remark i32 + text, ext i32 + fields; a field
is i16 + name, i32 + value.
A decoded command encodes to the bytes that it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct, error
from typing import Any

from store.tables import fastjson
from store.tables.fastjson import INT32_MAX, INT32_MIN, MalformedJson
from store.tables.java_fields import JavaFields, text_of

FRAME_BYTES_MAX = 16 * 1024 * 1024  # RocketMQ's com.rocketmq.remoting.frameMaxLength
HEADER_BYTES_MAX = 1024 * 1024  # ours: properties of 32 KiB, escaped in JSON, are the largest that RocketMQ sends
LOOSE_CHARACTERS_MAX = 64 * 1024  # of a header that is JSON to fastjson alone
FIELDS_MAX = 1024  # ours, too: no request has more than some twenty
LENGTH_BYTES = 4
RESPONSE_FLAG, ONEWAY_FLAG = 1, 2
INT16_MAX = (1 << 15) - 1

_LENGTHS = Struct(">iI")
_BINARY = Struct(">hBhii")
_I32, _I16 = Struct(">i"), Struct(">h")
_NUMBERS = ("code", "flag", "opaque", "version")
_NAMES = frozenset((*_NUMBERS, "remark", "language", "extFields", "serializeTypeCurrentRPC"))
_Said = tuple[int, int, int, int, str | None, str, dict[str, str] | None]  # _NUMBERS, remark, language, extFields


class Serialize(IntEnum):
    """The ways in which a header is written."""

    JSON = 0
    ROCKETMQ = 1


LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
    "NODE_JS",
)  # fmt: skip
OTHER = LANGUAGES.index("OTHER")


class MalformedFrame(Exception):
    """Raised for bytes that are not a remoting frame; the connection must be closed.

    Next: `slipstream doctor HOST:PORT`: is that the `listenPort` of a broker, and TLS on both sides or on neither?
    """

    code = "REMOTING_FRAME"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}; the peer does not speak RocketMQ's remoting, or bytes were lost: closed")


@dataclass(frozen=True, slots=True)
class RemotingCommand:
    """A request (`code` names what is asked) or an answer (`code` is a response code); `opaque` ties them together."""

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: Mapping[str, str] | None = field(default=None)
    body: bytes | memoryview = b""
    language: str = "JAVA"
    version: int = 0
    serialize: Serialize = Serialize.JSON

    @property
    def cost(self) -> int:
        """Return about how many bytes it costs to keep it: its fields and its body."""
        fields = self.ext_fields or {}
        return sum(map(len, fields)) + sum(map(len, fields.values())) + len(self.remark or "") + len(self.body)

    @property
    def is_response(self) -> bool:
        """An answer, to the request of the same `opaque` that went the other way."""
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Nobody waits for an answer, and none may be sent."""
        return bool(self.flag & ONEWAY_FLAG)

    def answer(
        self,
        code: int,
        remark: str | None = None,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        version: int,
        serialize: Serialize | None = None,
    ) -> RemotingCommand:
        """The answer to this request; in its header form (4.9's way) unless another is given (5.x: always JSON)."""
        form = self.serialize if serialize is None else serialize
        return RemotingCommand(code, self.opaque, RESPONSE_FLAG, remark, ext_fields, body, "JAVA", version, form)


def encode(command: RemotingCommand) -> bytes:
    """The whole frame. Raises MalformedFrame when a field does not fit its place."""
    return b"".join((encode_head(command, len(command.body)), command.body))


def encode_head(command: RemotingCommand, body_bytes: int) -> bytes:
    """A frame up to its body, which has so many bytes. Raises MalformedFrame when a field does not fit its place."""
    header = _encode_json(command) if command.serialize is Serialize.JSON else _encode_binary(command)
    length = LENGTH_BYTES + len(header) + body_bytes
    if len(header) > HEADER_BYTES_MAX or length > FRAME_BYTES_MAX:
        raise MalformedFrame("frame to be sent", f"header of {len(header)}, body of {body_bytes} bytes: too long")
    return _LENGTHS.pack(length, command.serialize << 24 | len(header)) + header


def _encode_json(command: RemotingCommand) -> bytes:
    fields: dict[str, Any] = {"code": command.code}
    if command.ext_fields is not None:
        fields["extFields"] = dict(command.ext_fields)
    fields |= {"flag": command.flag, "language": command.language, "opaque": command.opaque}
    if command.remark is not None:
        fields["remark"] = command.remark
    fields |= {"serializeTypeCurrentRPC": command.serialize.name, "version": command.version}
    return fastjson.ENCODER.encode(fields).encode("utf-8", "replace")


def _encode_binary(command: RemotingCommand) -> bytes:
    remark = (command.remark or "").encode("utf-8", "replace")
    parts: list[bytes] = []
    for name, value in (command.ext_fields or {}).items():
        key, text = name.encode("utf-8", "replace"), value.encode("utf-8", "replace")
        if len(key) > INT16_MAX:
            raise MalformedFrame("frame to be sent", f"a field's name of {len(key)} bytes")
        parts += (_I16.pack(len(key)), key, _I32.pack(len(text)), text)
    language = LANGUAGES.index(command.language) if command.language in LANGUAGES else OTHER
    try:  # a code above 32767 does not fit: the real one lets it wrap, and asks for another thing
        fixed = _BINARY.pack(command.code, language, command.version, command.opaque, command.flag)
    except error as reason:
        raise MalformedFrame("frame to be sent", f"code {command.code}: {reason}") from reason
    ext = b"".join(parts)
    return b"".join((fixed, _I32.pack(len(remark)), remark, _I32.pack(len(ext)), ext))


def decode(frame: bytes | memoryview) -> RemotingCommand:
    """A frame without its first four bytes. The body is a view of it. Raises MalformedFrame."""
    view = memoryview(frame)
    if len(view) < LENGTH_BYTES:
        raise MalformedFrame(f"frame of {len(view)} bytes", "it has no header length")
    word = int.from_bytes(view[:LENGTH_BYTES])
    kind, header_bytes = word >> 24, word & 0xFFFFFF
    if header_bytes > HEADER_BYTES_MAX or header_bytes > len(view) - LENGTH_BYTES:
        raise MalformedFrame(f"frame of {len(view)} bytes", f"its header claims {header_bytes}")
    header, body = bytes(view[LENGTH_BYTES : LENGTH_BYTES + header_bytes]), view[LENGTH_BYTES + header_bytes :]
    if kind == Serialize.JSON:
        return _decode_json(header, body)
    if kind == Serialize.ROCKETMQ:
        return _decode_binary(header, body)
    raise MalformedFrame(f"frame of {len(view)} bytes", f"serialize type {kind} is neither JSON (0) nor ROCKETMQ (1)")


def _decode_json(header: bytes, body: memoryview) -> RemotingCommand:
    try:
        fields = fastjson.sent(header, "JSON header", HEADER_BYTES_MAX, LOOSE_CHARACTERS_MAX)
        said = _as_java_writes(fields) or _as_java_reads(JavaFields(fields, "JSON header", "it"))
    except MalformedJson as malformed:
        raise MalformedFrame("JSON header", malformed.reason) from None
    code, flag, opaque, version, remark, language, ext = said
    _check_fields(len(ext or ()))
    return RemotingCommand(code, opaque, flag, remark, ext, body, language, version, Serialize.JSON)


def _as_java_writes(fields: Any) -> _Said | None:
    """Return what a header says whose fields have the names and kinds that Java writes; else None."""
    if type(fields) is not dict or not fields.keys() <= _NAMES:
        return None
    numbers = [fields.get(name, 0) for name in _NUMBERS]
    remark, language, ext = fields.get("remark"), fields.get("language", "JAVA"), fields.get("extFields")
    if language not in LANGUAGES or not isinstance(remark, str | None):
        return None
    if not all(type(number) is int and INT32_MIN <= number <= INT32_MAX for number in numbers):
        return None
    if ext is not None and not (type(ext) is dict and all(type(text) is str for text in ext.values())):
        return None
    code, flag, opaque, version = numbers
    return code, flag, opaque, version, remark, language, ext


def _as_java_reads(fields: JavaFields) -> _Said:
    """Return what fastjson reads of any other header. Raises MalformedJson."""
    code, flag, opaque, version = map(fields.number, _NUMBERS)
    language = fields.one_of("language", LANGUAGES) if fields.has("language") else LANGUAGES[0]
    ext = fields.value("extFields")
    if not isinstance(ext, dict | None):
        raise MalformedJson("JSON header", "extFields is not an object")
    if ext is not None:
        _check_fields(len(ext))
        ext = {name: text_of(value) for name, value in ext.items() if value is not None}
    return code, flag, opaque, version, fields.text("remark"), language or LANGUAGES[OTHER], ext


def _check_fields(count: int) -> None:
    if count > FIELDS_MAX:
        raise MalformedFrame("header", f"it has more than {FIELDS_MAX} fields")


def _decode_binary(header: bytes, body: memoryview) -> RemotingCommand:
    try:
        code, language, version, opaque, flag = _BINARY.unpack_from(header)
        remark, at = _binary_text(header, _BINARY.size)
        (ext_bytes,) = _I32.unpack_from(header, at)
        at += _I32.size
        if ext_bytes < 0 or at + ext_bytes > len(header):
            raise MalformedFrame("binary header", f"its fields claim {ext_bytes} bytes")
        ext, end = {}, at + ext_bytes
        while at < end:
            (key_bytes,) = _I16.unpack_from(header, at)
            if key_bytes < 0 or at + _I16.size + key_bytes > end:
                raise MalformedFrame("binary header", f"a field's name claims {key_bytes} bytes")
            name = header[at + _I16.size : at + _I16.size + key_bytes].decode()
            value, at = _binary_text(header, at + _I16.size + key_bytes)
            ext[name] = value or ""
            _check_fields(len(ext))
    except (error, UnicodeDecodeError) as reason:
        raise MalformedFrame("binary header", str(reason)) from None
    name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    return RemotingCommand(code, opaque, flag, remark, ext or None, body, name, version, Serialize.ROCKETMQ)


def _binary_text(header: bytes, at: int) -> tuple[str | None, int]:
    """A text with its length before it, None for an empty one, and where it ends."""
    (count,) = _I32.unpack_from(header, at)
    at += _I32.size
    if count < 0 or at + count > len(header):
        raise MalformedFrame("binary header", f"a text claims {count} bytes")
    return header[at : at + count].decode() or None, at + count


class FrameSplitter:
    """Cuts what a connection receives into frames, however it was cut on the way; holds one frame at most."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._frame_bytes_max = frame_bytes_max

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now, each without its first four bytes. Raises MalformedFrame."""
        self._buffer += data
        frames, at = [], 0
        while len(self._buffer) - at >= LENGTH_BYTES:
            (length,) = _I32.unpack_from(self._buffer, at)
            if not LENGTH_BYTES <= length <= self._frame_bytes_max:
                raise MalformedFrame("frame", f"its length is {length}, allowed are 4 to {self._frame_bytes_max}")
            if len(self._buffer) - at - LENGTH_BYTES < length:
                break
            with memoryview(self._buffer) as view:
                frames.append(bytes(view[at + LENGTH_BYTES : at + LENGTH_BYTES + length]))
            at += LENGTH_BYTES + length
        del self._buffer[:at]
        return frames

    @property
    def pending_bytes(self) -> int:
        """Return the bytes of a frame that is not complete yet."""
        return len(self._buffer)
