"""A broker's answers: those to captured requests of real slaves, clients and administrators, and what it refuses."""

from __future__ import annotations

import base64
import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.broker import requests as broker_requests
from engine.protocol.broker.requests import BrokerRequests, ShownFacts
from engine.protocol.broker.slave_synchronize import SlaveSynchronize
from engine.protocol.remoting.frame import RemotingCommand, decode, encode
from engine.protocol.tables.defaults import Identity
from engine.protocol.tables.metadata import Metadata
from engine.shared_memory import live_settings
from store.compat import LINES
from store.names import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, TOPICS
from store.tables import fastjson
from store.tables.steps import at_once

GOLDEN = Path(__file__).parents[3] / "golden"
TABLES = {21: TOPICS, 43: CONSUMER_OFFSETS, 45: DELAY_OFFSETS, 201: GROUPS}
SAME_ANSWER = (17,)  # with state that others change, or bodies of the table: compared through the tables


def broker(compat: str = "4.9", *, is_slave: bool = False) -> BrokerRequests:
    identity = Identity(LINES[compat], "DefaultCluster", "broker-alpha")
    settings = {"brokerName": "broker-alpha", "brokerPermission": "6", "registerNameServerPeriod": "30000"}
    changeable = live_settings.changeable()
    facts = ShownFacts(lambda: {"brokerVersionDesc": "V"}, lambda: {"master": True}, lambda: settings, changeable)
    return BrokerRequests(compat, Metadata(identity, {}, 0), facts, is_slave=is_slave)


def ask(of: BrokerRequests, code: int, body: bytes = b"", at_ms: int = 9, **ext: str) -> RemotingCommand:
    answer = of.answer(RemotingCommand(code, ext_fields=ext, body=body, version=407), 1, at_ms)
    assert answer is not None
    return answer


@pytest.mark.parametrize(("compat", "version"), [("4.9", "4.9.7"), ("5", "5.3.3")])
def test_captured_requests_get_the_real_brokers_answers(compat: str, version: str) -> None:
    of, asked, compared = broker(compat), {}, dict.fromkeys((*TABLES, *SAME_ANSWER), 0)
    with lzma.open(GOLDEN / f"rocketmq-{version}" / "remoting.jsonl.xz", "rt") as lines:
        told = [line for line in map(json.loads, lines) if line["server"].startswith("master")]
    for line in told:
        command = decode(base64.b64decode(line["frame"])[4:])
        if not command.is_response:
            if command.code in compared:
                asked[line["conn"], command.opaque] = command
            continue
        request = asked.pop((line["conn"], command.opaque), None)
        if request is None:
            continue
        if request.code in TABLES:  # the state of that moment, as a slave takes it
            at_once(SlaveSynchronize.take(of.metadata, request.code, command))
        ours = of.answer(request, line["conn"], 0)
        assert ours is not None
        ours = decode(encode(ours)[4:])
        assert (ours.code, ours.remark, ours.ext_fields, ours.flag, ours.opaque, ours.version) == (
            command.code, command.remark, command.ext_fields, command.flag, command.opaque, command.version
        ), line  # fmt: skip
        if request.code != 21:
            theirs = fastjson.loads(command.body) if len(command.body) else None
            assert (fastjson.loads(ours.body) if len(ours.body) else None) == theirs
        compared[request.code] += 1
    assert all(compared.values()), compared


def test_topics_are_created_changed_and_deleted() -> None:
    of = broker("5")
    fields = {"readQueueNums": "3", "writeQueueNums": "2", "perm": "6", "order": "true"}
    fields["topicFilterType"] = "SINGLE_TAG"
    assert ask(of, 17, topic="t", attributes="+message.type=FIFO", **fields).code == 0
    assert of.metadata.topics["t"]["attributes"] == {"message.type": "FIFO"}
    assert of.wants_registration and of.metadata.changed == {TOPICS}
    assert ask(of, 17, topic="t", attributes="-message.type", **fields).code == 0
    assert (of.metadata.topics["t"]["attributes"], of.metadata.topics["t"]["order"]) == ({}, True)
    assert ask(of, 215, topic="t").code == 0
    assert "t" not in of.metadata.topics
    assert of.metadata.versions[TOPICS].counter == 3


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        (" ", "blank"), ("a b", "illegal characters"), ("x" * 128, "longer than"), ("TBW102", "conflict with system"),
        ("broker-alpha", "conflict with system"), ("rmq_sys_x", "conflict with system"),
    ],
)  # fmt: skip
def test_topics_that_may_not_be_are_refused(topic: str, said: str) -> None:
    for code in (17, 215):
        answer = ask(
            broker(), code, topic=topic, readQueueNums="1", writeQueueNums="1", perm="6", topicFilterType="SINGLE_TAG"
        )
        assert answer.code == 1 and said in str(answer.remark)


def test_a_slave_changes_nothing() -> None:
    of = broker(is_slave=True)
    for code in (17, 215, 200, 207):
        answer = ask(of, code, topic="t", groupName="g")
        assert answer.code == 1 and "from slave broker" in str(answer.remark)
    assert not of.metadata.changed


def test_groups_are_set_and_deleted_with_their_offsets() -> None:
    of = broker()
    of.metadata.consumer_offsets.table = {("t", "g"): {0: 1}, ("t", "other"): {0: 2}}
    assert ask(of, 200, fastjson.dumps({"groupName": "g", "retryMaxTimes": 3, "unknown": 1}).encode()).code == 0
    assert (of.metadata.groups["g"]["retryMaxTimes"], "unknown" in of.metadata.groups["g"]) == (3, False)
    assert ask(of, 300, topic="t").body == b'{"groupList":["other","g"]}'
    assert ask(of, 207, groupName="g", removeOffset="true").code == 0
    assert list(of.metadata.offsets) == [("t", "other")]
    assert [ask(broker(compat), 200, b"[]").code for compat in ("4.9", "5")] == [0, 1]


def test_only_what_is_safe_may_change_while_it_runs() -> None:
    of = broker()
    for line, code in ((b"storePathRootDir=/x\n", 16), (b"brokerRole=SLAVE", 16), (b"brokerPermission=9", 1)):
        assert ask(of, 25, line).code == code
    assert ask(of, 25, b"brokerPermission=4\nregisterNameServerPeriod=20000\n").code == 0
    assert (of.changed_settings, of.wants_registration) == (
        {"brokerPermission": 4, "registerNameServerPeriod": 20_000},
        True,
    )
    told = ask(of, 26)
    assert bytes(told.body) == b"brokerName=broker-alpha\nbrokerPermission=6\nregisterNameServerPeriod=30000\n"
    assert told.ext_fields is not None and json.loads(told.ext_fields["version"])["counter"] == 1


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("fileReservedTime=2147483648", 1, "fileReservedTime: a whole number from 0 to 2147483647 (hours)"),
        ("fileReservedTime=1.5", 1, "fileReservedTime: a whole number"), ("fileReservedTime=", 1, "a whole number"),
        ("fileReservedTime=" + "9" * 5000, 1, "a whole number"),
        ("diskMaxUsedSpaceRatio=-1", 1, "diskMaxUsedSpaceRatio: a whole number from 0"),
        ("deleteWhen=24", 1, "deleteWhen: hours of the day from 0 to 23, separated by ;"),
        ("deleteWhen=4,5", 1, "hours of the day"), ("deleteWhen=;", 1, "hours of the day"),
        ("registerNameServerPeriod=9999", 1, "a whole number from 10000 to 60000"),
        ("cleanResourceInterval=1", 16, "cleanResourceInterval cannot change while the broker runs; set it"),
        ("deletewhen=4", 16, "deletewhen cannot change while the broker runs"),
    ],
)  # fmt: skip
def test_a_request_with_one_bad_setting_changes_nothing(line: str, code: int, said: str) -> None:
    for body in (f"fileReservedTime=48\n{line}\n", f"{line}\nbrokerPermission=4\n"):
        of = broker()
        answer = ask(of, 25, body.encode())
        assert answer.code == code and said in str(answer.remark)
        assert not of.changed_settings and not of.wants_registration


def test_retention_may_change_in_the_spelling_of_the_file() -> None:
    of = broker()
    assert ask(of, 25, b"fileReservedTime = 48 \r\ndeleteWhen=04;16;\ndiskMaxUsedSpaceRatio=+88\n").code == 0
    assert of.changed_settings == {"fileReservedTime": 48, "deleteWhen": 1 << 4 | 1 << 16, "diskMaxUsedSpaceRatio": 88}
    assert not of.wants_registration and of.metadata.versions[TOPICS].counter == 0, "name servers need not know"


def test_figures_heartbeats_and_what_is_not_supported() -> None:
    assert bytes(ask(broker(), 28).body) == b'{"table":{"brokerVersionDesc":"V"}}'
    assert (ask(broker("4.9"), 907).code, bytes(ask(broker("5"), 907).body)) == (3, b'{"master":true}')
    assert ask(broker("4.9"), 34).ext_fields is None
    answer = ask(broker(), 11)
    assert (answer.code, answer.remark) == (3, " request type 11 not supported")


CODES = st.sampled_from([17, 21, 25, 26, 28, 34, 35, 43, 45, 200, 201, 207, 215, 300, 402, 907])
FIELDS = st.sampled_from(["topic", "groupName", "perm", "readQueueNums", "writeQueueNums", "attributes", "clientID"])
TEXTS = st.sampled_from(["", "t", "-1", "6", "+a=b,-c", "+", "true"])


@given(st.sampled_from(["4.9", "5"]), CODES, st.dictionaries(FIELDS, TEXTS), st.binary(max_size=60))
def test_whatever_is_asked_there_is_an_answer(compat: str, code: int, ext: dict[str, str], body: bytes) -> None:
    assert ask(broker(compat), code, body, **ext).is_response


@pytest.mark.parametrize("compat", ["4.9", "5"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"groupName":"a\\nb"}', b'{"groupName":"' + b"x" * 300 + b'"}',
        b'{"groupName":""}',
        b'{"groupName":"g","retryMaxTimes":1e999}', b'{"groupName":"g","retryMaxTimes":"many"}',
        b'{"groupName":"g","retryMaxTimes":"1.5"}', b'{"groupName":"g","retryMaxTimes":[[[]]]}',
        b'{"groupName":"g","consumeEnable":"yes"}', b'{"groupName":"g","retryMaxTimes":' + b"9" * 30 + b"}",
        b'{"groupName":"g","x":' + b"[" * 100 + b"]" * 100 + b"}", b'{"groupName":"' + b"x" * 100_000 + b'"}',
    ],
)  # fmt: skip
def test_a_group_that_no_list_could_show_is_refused(compat: str, body: bytes) -> None:
    of = broker(compat)
    before = bytes(ask(of, 201).body)
    assert ask(of, 200, body).code == 1
    assert bytes(ask(of, 201).body) == before and not of.metadata.changed


@pytest.mark.parametrize("number", [str(2**31), "9" * 19, "1e3", "\u0663"])
def test_a_topics_numbers_are_javas(number: str) -> None:
    fields = {"topicFilterType": "SINGLE_TAG", "perm": "6", "readQueueNums": "4", "writeQueueNums": "4"}
    for compat in ("4.9", "5"):
        for name in ("perm", "readQueueNums", "writeQueueNums"):
            of = broker(compat)
            assert ask(of, 17, topic="t", **{**fields, name: number}).code == 1 and "t" not in of.metadata.topics


def test_topics_and_groups_are_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    of = broker()
    monkeypatch.setattr(broker_requests, "TOPICS_MAX", len(of.metadata.topics) + 2)
    monkeypatch.setattr(broker_requests, "GROUPS_MAX", len(of.metadata.groups) + 2)
    fields = {"topicFilterType": "SINGLE_TAG", "perm": "6", "readQueueNums": "4", "writeQueueNums": "4"}
    topics = [ask(of, 17, topic=f"t{n}", **fields).code for n in (0, 1, 2, 1)]
    groups = [ask(of, 200, b'{"groupName":"g%d"}' % n).code for n in (0, 1, 2, 1)]
    assert topics == groups == [0, 0, 1, 0]
    assert ask(of, 215, topic="t0").code == ask(of, 17, topic="t2", **fields).code == 0
    assert ask(of, 25, b"brokerPermission=4\n" + b"#" * 70_000).code == 1
