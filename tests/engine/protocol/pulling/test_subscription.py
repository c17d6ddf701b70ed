"""What a consumer wants, and the answer's frame: as RocketMQ reads the one, and as any answer is written the other."""

from __future__ import annotations

import pytest

from engine.protocol.pulling.decision import head_in_json
from engine.protocol.pulling.header import pull_header
from engine.protocol.pulling.subscription import EVERYTHING, filter_of, filter_of_heartbeat
from engine.protocol.remoting.answers import Thrown
from engine.protocol.remoting.frame import RESPONSE_FLAG, RemotingCommand, encode_head
from store.message.properties import java_hash

ASKED = {
    "consumerGroup": "g", "topic": "t", "queueId": "1", "queueOffset": "-2", "maxMsgNums": "32", "sysFlag": "6",
    "commitOffset": "9223372036854775807", "suspendTimeoutMillis": "15000", "subVersion": "0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("a", "a"), ("a||b", "ab"), (" a || b ", "ab"), ("||a", "a"), ("a||", "a"), ("a|| ||b", "ab"), ("  ", ""),
        ("||", None), ("||||", None),
    ],
)  # fmt: skip
def test_tags_are_read_as_java_reads_them(text: str, tags: str | None) -> None:
    chosen = filter_of(text, "TAG")
    if tags is None:
        assert chosen is None
    else:
        assert chosen is not None and not chosen.takes_all
        assert chosen.codes.tolist() == sorted(map(java_hash, tags))


def test_a_star_or_an_empty_expression_selects_everything() -> None:
    assert all(filter_of(text, kind) is EVERYTHING for text in ("*", "", None) for kind in ("TAG", None))
    assert filter_of_heartbeat({"subString": "*"}) is EVERYTHING
    assert filter_of_heartbeat({"subString": "x", "classFilterMode": True}) is EVERYTHING
    assert filter_of_heartbeat({"subString": "x", "codeSet": [3, -1]}).codes.tolist() == [-1, 3]


def test_a_header_has_javas_numbers() -> None:
    header = pull_header(ASKED)
    assert (header.queue_offset, header.commit_offset, header.subscription) == (-2, (1 << 63) - 1, None)
    for name in ASKED:
        with pytest.raises(Thrown, match="NullPointerException"):
            pull_header({key: value for key, value in ASKED.items() if key != name})
    for name, text in (("queueId", "2147483648"), ("queueOffset", "x"), ("maxMsgNums", ""), ("sysFlag", "٣")):
        with pytest.raises(Thrown, match="NumberFormatException"):
            pull_header({**ASKED, name: text})


@pytest.mark.parametrize("fields", [{}, {"suggestWhichBrokerId": "0", "nextBeginOffset": "-1"}])
def test_the_usual_frame_is_what_any_answers_is(fields: dict[str, str]) -> None:
    for opaque, size in ((0, 0), (-5, 9), (2**31 - 1, 70_000)):
        answer = RemotingCommand(0, opaque, RESPONSE_FLAG, "FOUND", fields, version=407)
        assert head_in_json(fields, opaque, 407, size) == encode_head(answer, size)
