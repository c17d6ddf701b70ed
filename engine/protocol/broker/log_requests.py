"""What a Slipstream broker asks another about its log, and the answers: Slipstream's own requests.

GET_LOG_EXTENT   nonce (hex; or nothing) -> JSON: `Extent`; with a nonce and a secret, the answer's field `signature`
                 proves that this broker says it now (HMAC-SHA256 over nonce and body, as in `ha.hello`)
GET_LOG_DIGESTS  start, end, parts -> JSON: {"digests": [SHA-256 of each part]}
Both sides of each are here. An answer comes from a stranger, and is checked. RocketMQ refuses both requests.
"""

from __future__ import annotations

import hmac
from typing import Any, NamedTuple

from engine.protocol.ha.hello import NONCE_BYTES, signature
from engine.protocol.ha.reign import Standing
from engine.protocol.remoting.answers import Json, Refused, whole_number
from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from store.epochs import EPOCH_MAX, entries_of
from store.tables import fastjson
from store.tables.fastjson import MalformedJson

EXTENT_BYTES_MAX = DIGESTS_BYTES_MAX = 1 << 20
TEXT_MAX = 600
SEGMENT_BYTES_MAX = 2**31 - 1
DIGEST_DIGITS = 64


class Extent(NamedTuple):
    """A broker and its log. `epochs` is as its file of epochs writes them, not yet looked at."""

    cluster: str
    broker_name: str
    broker_id: int
    own_id: int  # of its own file: a promotion does not change it
    is_master: bool
    segment_bytes: int
    min_offset: int
    max_offset: int
    ha_address: str
    epoch: int
    next_epoch: int
    epochs: list[Any]
    now_ms: int  # its clock, as it answered
    # an earlier version does not say these:
    run: str = ""  # another one at each start, so that a broker knows itself at any address
    is_confirmed: bool = True  # of a master: it has asked who else is one since it was promoted, and takes messages
    yields_to: str = ""  # of a master that stepped down: for whom, NAME:ID
    yields_epoch: int = 0
    claims_epoch: int = 0  # of a slave that an operator makes the master just now: what it is about to begin

    @property
    def identity(self) -> str:
        """The broker as epochs name it."""
        return f"{self.broker_name}:{self.own_id}"


class Wanted(NamedTuple):
    """A range of the log, and in how many parts its digests are wanted."""

    start: int
    end: int
    parts: int


def extent_body(extent: Extent) -> Json:
    """Return the answer's body as JSON fields."""
    return extent._asdict()


def extent_of(body: bytes | memoryview) -> Extent:
    """Parse a peer's extent. Raises MalformedJson."""
    value = _object(body, "the extent of a log", EXTENT_BYTES_MAX)
    fields: Json = {}
    for name, kind in (
        ("cluster", str), ("broker_name", str), ("ha_address", str), ("broker_id", int), ("own_id", int),
        ("segment_bytes", int), ("min_offset", int), ("max_offset", int), ("epoch", int), ("next_epoch", int),
        ("is_master", bool), ("epochs", list), ("now_ms", int),
    ):  # fmt: skip
        fields[name] = value.get(name)
        if type(fields[name]) is not kind or (kind is str and not _is_text(fields[name])):
            raise MalformedJson("the extent of a log", f"{name} has an unexpected value")
    for name, default in Extent._field_defaults.items():
        said = value.get(name, default)
        if type(said) is not type(default) or (isinstance(said, str) and not _is_text(said)):
            raise MalformedJson("the extent of a log", f"{name} has an unexpected value")
        fields[name] = said
    extent = Extent(**fields)
    if not (0 <= extent.min_offset <= extent.max_offset and 0 < extent.segment_bytes <= SEGMENT_BYTES_MAX):
        raise MalformedJson("the extent of a log", "its offsets or its segment size are impossible")
    is_epoch = 0 <= extent.epoch < extent.next_epoch <= EPOCH_MAX
    if min(extent.broker_id, extent.own_id) < 0 or not is_epoch or extent.max_offset > fastjson.INT64_MAX:
        raise MalformedJson("the extent of a log", "a number is below zero or too large")
    return extent


def nonce_of(request: RemotingCommand) -> bytes:
    """Return the asker's nonce for the signature; b"" when it wants none. Raises Refused."""
    text = (request.ext_fields or {}).get("nonce", "")
    if not text:
        return b""
    if len(text) != 2 * NONCE_BYTES or not set(text) <= set("0123456789abcdef"):
        raise Refused(ResponseCode.SYSTEM_ERROR, f"nonce: {NONCE_BYTES} bytes, in hexadecimal")
    return bytes.fromhex(text)


def extent_signature(secret: bytes, nonce: bytes, body: bytes | memoryview) -> str:
    """The answer's field `signature`; "" without a secret or a nonce."""
    return signature(secret, b"extent", nonce, bytes(body)).hex() if secret and nonce else ""


def is_extent_signed(secret: bytes, nonce: bytes, answer: RemotingCommand) -> bool:
    """Whether who answers has proved that it knows the secret."""
    expected = extent_signature(secret, nonce, answer.body)
    said = (answer.ext_fields or {}).get("signature", "")
    return bool(expected) and hmac.compare_digest(expected.encode(), said.encode())


def standing_of(extent: Extent) -> Standing:
    """Return what an extent says of its broker's reign. Raises ValueError."""
    return Standing(entries_of(extent.epochs), extent.is_master, extent.is_confirmed, extent.run)


def _is_text(text: str) -> bool:
    return len(text) <= TEXT_MAX and text.isprintable()


def digests_fields(wanted: Wanted) -> dict[str, str]:
    """Return the request's header fields as text."""
    return {name: str(value) for name, value in wanted._asdict().items()}


def wanted_of(request: RemotingCommand, low: int, high: int, bytes_max: int, parts_max: int) -> Wanted:
    """The range asked for, which lies in [low, high]. Raises Refused."""
    start, end = (whole_number(request, name, 0) for name in ("start", "end"))
    parts = whole_number(request, "parts", 1, parts_max)
    if start is None or end is None or parts is None or not 0 < end - start <= bytes_max:
        what = f"start, end and parts: 1 to {bytes_max} bytes, 1 to {parts_max} parts"
        raise Refused(ResponseCode.SYSTEM_ERROR, what)
    if not low <= start < end <= high:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the log holds offsets {low} to {high}")
    return Wanted(start, end, parts)


def digests_of(body: bytes | memoryview, count: int) -> list[str]:
    """The digests in an answer. Raises MalformedJson."""
    digests = _object(body, "digests of a log", DIGESTS_BYTES_MAX).get("digests")
    if not isinstance(digests, list) or len(digests) != count:
        raise MalformedJson("digests of a log", f"they are not {count}")
    if not all(isinstance(each, str) and len(each) == DIGEST_DIGITS for each in digests):
        raise MalformedJson("digests of a log", "one is invalid")
    return digests


def _object(body: bytes | memoryview, what: str, bytes_max: int) -> Json:
    value = fastjson.loads(body, what, bytes_max)
    if not isinstance(value, dict):
        raise MalformedJson(what, "it is not an object")
    return value
