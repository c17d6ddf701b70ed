"""Registrations' bodies: both forms, as real brokers sent them, and bytes that are neither."""

from __future__ import annotations

import base64
import json
import lzma
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.remoting.frame import MalformedFrame, RemotingCommand
from engine.protocol.remoting.frame import decode as decode_frame
from engine.protocol.tables.register_body import INFLATED_BYTES_MAX, data_version_of, decode
from store.compat import LINES
from store.tables.tables import DataVersion

GOLDEN = Path(__file__).parents[3] / "golden"


def registrations(name: str) -> list[RemotingCommand]:
    with lzma.open(GOLDEN / name, "rt") as lines:
        frames = [base64.b64decode(told["frame"])[4:] for told in map(json.loads, lines) if told["code"] == 103]
    return [command for command in map(decode_frame, frames) if not command.is_response]


def test_a_deflated_body_says_the_same_as_a_plain_one() -> None:
    deflated = registrations("rocketmq-4.9.7/remoting-sync.jsonl.xz")[0]
    plain = registrations("rocketmq-4.9.7/remoting.jsonl.xz")[-1]
    assert deflated.ext_fields is not None and deflated.ext_fields["compressed"] == "true"
    line = LINES["5"]
    ours, theirs = (decode(c.body, compressed=c is deflated, version=c.version, line=line) for c in (deflated, plain))
    assert ours.topics["TBW102"] == theirs.topics["TBW102"]
    assert len(ours.topics) >= 10 and ours.data_version.timestamp_ms > 0


def test_the_5x_form_has_a_part_more() -> None:
    refused = registrations("rocketmq-5.3.3/register-deflated-refused.jsonl.xz")[0]
    body = decode(refused.body, compressed=True, version=refused.version, line=LINES["5"])
    assert body.topics["SCHEDULE_TOPIC_XXXX"].read_queue_nums == 18
    with pytest.raises(MalformedFrame):
        decode(refused.body, compressed=False, version=refused.version, line=LINES["5"])


def test_nothing_registered_is_an_empty_body() -> None:
    assert decode(b"", compressed=False, version=479, line=LINES["5"]).data_version == DataVersion(state_version=0)


def test_a_bomb_is_not_inflated() -> None:
    bomb = zlib.compress(bytes(INFLATED_BYTES_MAX + 1))
    with pytest.raises(MalformedFrame, match="inflates to more"):
        decode(bomb, compressed=True, version=479, line=LINES["5"])


@given(st.binary(max_size=100), st.booleans())
def test_any_bytes_are_a_body_or_malformed(data: bytes, deflate: bool) -> None:
    for body in (data, zlib.compress(data)):
        try:
            decode(body, compressed=deflate, version=479, line=LINES["5"])
            data_version_of(body, True)
        except MalformedFrame as refused:
            assert str(refused)
