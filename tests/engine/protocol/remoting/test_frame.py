"""The remoting codec against captured traffic of real processes, every cut of it, and bytes that are no frames."""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.remoting.frame import (
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    LANGUAGES,
    FrameSplitter,
    MalformedFrame,
    RemotingCommand,
    Serialize,
    decode,
    encode,
)

GOLDEN = Path(__file__).parents[3] / "golden"
CAPTURES = sorted(
    path for path in GOLDEN.glob("rocketmq-*/*.jsonl.xz") if "remoting" in path.name or "register" in path.name
)
LENGTH = 4

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
commands = st.builds(
    RemotingCommand,
    code=st.integers(0, 32767),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    remark=st.none() | texts.filter(bool),
    ext_fields=st.none() | st.dictionaries(texts, texts, min_size=1, max_size=5),
    body=st.binary(max_size=100),
    language=st.sampled_from(LANGUAGES),
    version=st.integers(0, 500),
    serialize=st.sampled_from(Serialize),
)


def lines(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    with lzma.open(path, "rt") as file:
        for line in file:
            told = json.loads(line)
            yield told, base64.b64decode(told["frame"])


def test_there_are_captures_of_both_versions() -> None:
    assert len(CAPTURES) == 8


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_captured_frames_decode_and_encode_to_the_same_bytes(path: Path) -> None:
    for told, frame in lines(path):
        command = decode(frame[LENGTH:])
        assert (command.code, command.flag, command.opaque) == (told["code"], told["flag"], told["opaque"])
        assert (command.serialize.name, len(command.body)) == (told["serialize"], told["body"])
        assert command.is_response == (told["kind"] == "response")
        assert encode(command) == frame


@pytest.mark.parametrize("step", [1, 3, 7, 4096])
def test_frames_come_out_whole_however_the_stream_is_cut(step: int) -> None:
    frames = [frame for _told, frame in lines(CAPTURES[0])][:120]
    stream, splitter, found = b"".join(frames), FrameSplitter(), []
    for at in range(0, len(stream), step):
        found += splitter.feed(stream[at : at + step])
    assert [LENGTH * b"" + len(part).to_bytes(4) + part for part in found] == frames
    assert splitter.pending_bytes == 0


@given(commands)
def test_what_is_encoded_decodes_to_the_same(command: RemotingCommand) -> None:
    assert decode(encode(command)[LENGTH:]) == command


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_malformed(data: bytes) -> None:
    try:
        command = decode(data)
    except MalformedFrame as refused:
        assert str(refused)
    else:
        assert len(command.body) <= len(data)


@given(st.data())
def test_a_changed_frame_is_a_frame_or_malformed(data: st.DataObject) -> None:
    frame = bytearray(encode(data.draw(commands))[LENGTH:])
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(frame))
    except MalformedFrame as refused:
        assert str(refused)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "no header length"),
        (b"\x00\x00\x00\x09{}", "claims 9"),
        (b"\x02\x00\x00\x00", "neither JSON"),
        (b"\x00\x00\x00\x02[]", "not an object"),
        (b'\x00\x00\x00\x0e{"code":"ten"}', "code: 'ten' is not a whole number"),
        (b'\x00\x00\x00\x18{"code":1,"extFields":1}', "extFields is not an object"),
        (b"\x00" + (60_003).to_bytes(3) + b"[" * 60_003, "JSON header"),
        (b"\x01\x00\x00\x04\x00\x00\x00\x00", "binary header"),
    ],
)
def test_each_kind_of_damage_is_reported(frame: bytes, why: str) -> None:
    with pytest.raises(MalformedFrame, match=why):
        decode(frame)


@pytest.mark.parametrize("length", [-1, 0, 3, FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_a_length_out_of_bounds_is_refused_before_anything_is_kept(length: int) -> None:
    with pytest.raises(MalformedFrame, match="its length is"):
        FrameSplitter().feed(length.to_bytes(4, signed=True) + b"rest")


def test_what_does_not_fit_is_not_sent() -> None:
    for command in (
        RemotingCommand(200_050, serialize=Serialize.ROCKETMQ),
        RemotingCommand(10, ext_fields={"properties": "x" * HEADER_BYTES_MAX}),
        RemotingCommand(10, body=b"x" * FRAME_BYTES_MAX),
    ):
        with pytest.raises(MalformedFrame, match="frame to be sent"):
            encode(command)


def test_an_answer_goes_back_in_the_form_of_its_request() -> None:
    request = RemotingCommand(17, opaque=7, ext_fields={"topic": "t"}, serialize=Serialize.ROCKETMQ)
    answer = request.answer(3, " request type 17 not supported", version=407)
    assert (answer.opaque, answer.is_response, answer.serialize) == (7, True, Serialize.ROCKETMQ)
    assert not request.is_oneway


@pytest.mark.parametrize("serialize", Serialize)
def test_fields_are_bounded_in_number(serialize: Serialize) -> None:
    for count, is_taken in ((1024, True), (1025, False), (50_000, False)):
        frame = encode(RemotingCommand(1, ext_fields={str(n): "" for n in range(count)}, serialize=serialize))
        if is_taken:
            assert len(decode(frame[LENGTH:]).ext_fields or {}) == count
        else:
            with pytest.raises(MalformedFrame, match="more than 1024 fields"):
                decode(frame[LENGTH:])


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":1e999}', b'{"code":' + b"9" * 5000 + b"}", b'{"code":1,"language":99}', b'{"code":[]}',
        b'{"code":1,"version":99999999999}', b'{"code":1,"opaque":"3.5"}', b'{"code":1}{}',
        b'{"code":1,"remark":"\\q"}',
        b'{"code":1}'.decode().encode("utf-16"), b'{"code":1,"x":' + b"[" * 5000, b'{"code":1,"x":' + b'"\\"' * 300_000,
        b"{code:1," + b" " * 65_536 + b"}", b"\xef\xbb\xbf" * 2 + b'{"code":1}', b'/*{"code":1}', b"null", b"",
    ],
    ids=range(16),
)  # fmt: skip
def test_a_json_header_that_says_the_impossible_is_no_header(header: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode(len(header).to_bytes(4) + header)


@pytest.mark.parametrize("serialize", Serialize)
def test_a_text_that_no_utf8_can_say_is_written_as_java_writes_it(serialize: Serialize) -> None:
    frame = encode(RemotingCommand(1, remark="a\ud800", ext_fields={"k": "\udfffb"}, serialize=serialize))
    decoded = decode(frame[LENGTH:])
    assert (decoded.remark, decoded.ext_fields) == ("a?", {"k": "?b"})


@pytest.mark.parametrize(
    ("header", "ext_fields", "others"),
    [
        ('{"code":"34","language":1,"version":"3","opaque":7.9,"flag":null}', None, {"language": "CPP", "version": 3}),
        ('{"code":34,"opaque":7,"language":"cpp","remark":5}', None, {"language": "CPP", "remark": "5"}),
        ('{"code":34,"opaque":7,"language":"COBOL"}', None, {"language": "OTHER"}),
        ('\ufeff{"code":34,"opaque":7}', None, {}),
        ("{'code':34,opaque:+7,extFields:{a:'it\\'s',b:1.50,}}", {"a": "it's", "b": "1.50"}, {}),
        ('/*x*/{"code":34,//y\n"opaque":7,,"extFields":{"a":NaN}}', {}, {}),
        ('{"code":34,"opaque":7,"extFields":{"a":{"z":[1,null],"y":null}}}', {"a": '{"z":[1,null]}'}, {}),
        ('{"CODE":34,"opaque":7,"ext_fields":{"a":true,"b":null}}', {"a": "true"}, {}),
        ('{"code":34,"opaque":7,"extFields":{"\\ud83d":"x\\udfff"},"remark":"\\ud800"}', {"?": "x?"}, {"remark": "?"}),
        ('{"code":34,"opaque":7,"extFields":{"a":"\\x41\\0\n"}}', {"a": "A\0\n"}, {}),
        ('{"opaque":7,"version":undefined}', None, {"code": 0}),
    ],
)  # fmt: skip
def test_a_json_header_is_read_as_fastjson_reads_it(
    header: str, ext_fields: dict[str, str] | None, others: dict[str, Any]
) -> None:
    data = header.encode()
    command = decode(len(data).to_bytes(4) + data + b"body")
    assert (command.opaque, command.ext_fields, bytes(command.body)) == (7, ext_fields, b"body")
    for name, value in ({"code": 34} | others).items():
        assert getattr(command, name) == value
