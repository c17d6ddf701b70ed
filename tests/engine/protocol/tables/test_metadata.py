"""A broker's tables against what real brokers answered to their slaves, and the merging on a slave."""

from __future__ import annotations

import base64
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.broker.slave_synchronize import SlaveSynchronize
from engine.protocol.remoting.frame import RemotingCommand, decode
from engine.protocol.tables.defaults import Identity
from engine.protocol.tables.metadata import Metadata
from store.compat import LINES
from store.names import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, TOPICS
from store.tables import fastjson
from store.tables.steps import at_once
from store.tables.tables import DataVersion, topic_config

GOLDEN = Path(__file__).parents[3] / "golden"
FOUR, FIVE = (Identity(LINES[compat], "DefaultCluster", "broker-alpha") for compat in ("4.9", "5"))
BODIES = {21: TOPICS, 43: CONSUMER_OFFSETS, 45: DELAY_OFFSETS, 201: GROUPS}


def answers(version: str) -> list[tuple[int, bytes]]:
    """(code, body) of every answer to a slave's question."""
    asked: dict[Any, int] = {}
    found = []
    with lzma.open(GOLDEN / f"rocketmq-{version}" / "remoting.jsonl.xz", "rt") as lines:
        for line in map(json.loads, lines):
            command = decode(base64.b64decode(line["frame"])[4:])
            if not command.is_response:
                asked[line["conn"], command.opaque] = command.code
            elif asked.get((line["conn"], command.opaque)) in BODIES:
                found.append((asked[line["conn"], command.opaque], bytes(command.body)))
    return found


def parsed(body: bytes) -> Any:
    return fastjson.loads(body, as_written=True)


@pytest.mark.parametrize(("version", "identity"), [("4.9.7", FOUR), ("5.3.3", FIVE)])
def test_what_a_real_master_answers_is_answered_again(version: str, identity: Identity) -> None:
    bodies = answers(version)
    assert {code for code, _body in bodies} == set(BODIES)
    for code, body in bodies:
        slave = Metadata(identity, {}, 0)
        value = parsed(body)
        answer = RemotingCommand(0, flag=1, body=body)
        assert at_once(SlaveSynchronize.take(slave, code, answer)) or not value["offsetTable"]
        assert not at_once(SlaveSynchronize.take(slave, code, answer)), "the same again changes nothing"
        ours = parsed(slave.topics_json()) if code == 21 else slave.value(BODIES[code])
        assert json.loads(json.dumps(ours)) == json.loads(json.dumps(value)) | (
            {"mappingDataVersion": ours["mappingDataVersion"]} if "mappingDataVersion" in value else {}
        )
        assert slave.changed <= {BODIES[code]}


@pytest.mark.parametrize(("version", "identity"), [("4.9.7", FOUR), ("5.3.3", FIVE)])
def test_a_new_broker_has_the_topics_of_a_real_one(version: str, identity: Identity) -> None:
    with lzma.open(GOLDEN / f"rocketmq-{version}" / "remoting.jsonl.xz", "rt") as lines:
        frames = (base64.b64decode(told["frame"])[4:] for told in map(json.loads, lines) if told["code"] == 103)
        first = next(command for command in map(decode, frames) if not command.is_response)
    theirs = parsed(bytes(first.body))["topicConfigSerializeWrapper"]["topicConfigTable"]
    assert Metadata(identity, {}, 0).topics == theirs


@pytest.mark.parametrize("identity", [FOUR, FIVE], ids=["4.9", "5"])
def test_the_masters_offsets_are_the_truth_back_included_and_groups_it_lacks_stay(identity: Identity) -> None:
    slave = Metadata(identity, {CONSUMER_OFFSETS: {"offsetTable": {"t@g": {0: 7, 1: 3, 9: 9}, "v@g": {0: 4}}}}, 0)
    assert at_once(slave.take_consumer_offsets({"offsetTable": {"t@g": {0: 5, 1: 9, 2: 1}, "u@g": {"0": 2}}}))
    assert slave.offsets == {("t", "g"): {0: 5, 1: 9, 2: 1}, ("u", "g"): {0: 2}, ("v", "g"): {0: 4}}


@pytest.mark.parametrize(
    ("why", "state", "counter", "timestamp", "is_stale"),
    [
        ("the same table", 0, 10, 1000, False),
        ("a later one", 0, 11, 1500, False),
        ("an older copy of it", 0, 9, 999, True),
        ("made anew: few changes, the last one later", 0, 1, 2000, False),
        ("its clock was set back", 0, 11, 900, False),
        ("of an earlier master", -1, 50, 5000, True),
        ("of a later master", 1, 1, 1, False),
    ],
)
def test_only_against_a_stale_master_offsets_do_not_go_back(
    why: str, state: int, counter: int, timestamp: int, is_stale: bool
) -> None:
    def table(offset: int, **version: int) -> dict[str, Any]:
        return {"dataVersion": version, "offsetTable": {"t@g": {0: offset}}}

    slave = Metadata(FIVE, {}, 5_000_000)
    assert at_once(slave.take_consumer_offsets(table(7, counter=10, timestamp=1000, stateVersion=0)))
    at_once(slave.take_consumer_offsets(table(5, counter=counter, timestamp=timestamp, stateVersion=state)))
    assert slave.offsets == {("t", "g"): {0: 7 if is_stale else 5}}, why
    at_once(slave.take_consumer_offsets(table(9, counter=counter, timestamp=timestamp, stateVersion=state)))
    assert slave.offsets == {("t", "g"): {0: 9}}, why


def test_a_slaves_delay_offsets_are_the_masters_words() -> None:
    slave = Metadata(FOUR, {}, 0)
    text = b'{"offsetTable":{12:208,6:2},"written":"otherwise"}'
    assert slave.take_delay_offsets({"offsetTable": {12: 208, 6: 2}}, text)
    assert (slave.delay_offsets_text, slave.delay_offsets) == (text, {12: 208, 6: 2})
    assert not slave.take_delay_offsets({"offsetTable": {12: 208, 6: 2}}, text)


def test_a_change_has_a_version_of_its_own_and_names_its_file() -> None:
    master = Metadata(FIVE, {}, 100)
    master.set_topic(topic_config("t", 4, 4, 6, line=LINES["5"]), 200)
    assert (master.versions[TOPICS].counter, master.versions[TOPICS].timestamp_ms) == (1, 200)
    master.delete_topic("t", 300)
    master.delete_topic("t", 400)
    assert (master.versions[TOPICS].counter, master.changed) == (2, {TOPICS})


def test_a_broker_without_write_permission_registers_topics_without_it() -> None:
    master = Metadata(FOUR, {}, 0)
    perms = {config["perm"] for config in parsed(master.topics_json(perm_mask=4))["topicConfigTable"].values()}
    assert perms == {4}
    assert master.topics["TBW102"]["perm"] == 7


def test_a_4_9_slave_follows_a_5_x_master_and_back() -> None:
    for ours, theirs in ((FOUR, FIVE), (FIVE, FOUR)):
        slave, master = Metadata(ours, {}, 0), Metadata(theirs, {}, 50)
        assert at_once(slave.take_topics(parsed(master.topics_json())))
        assert at_once(slave.take_groups(master.value(GROUPS)))
        assert not at_once(slave.take_topics(parsed(master.topics_json())))
        for topic, config in master.topics.items():
            assert slave.topics[topic] == ({"attributes": {}, **config} if ours.line.tables.state_versions else config)
        state = slave.versions[TOPICS].state_version
        assert (state is None) == (not ours.line.tables.state_versions)


@given(st.lists(st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.integers(0, 3), st.integers(0, 99)))))
def test_offsets_of_a_stale_master_are_merged_to_the_largest_ever_seen(tables: list[dict[str, dict[int, int]]]) -> None:
    slave = Metadata(FIVE, {}, 0)
    slave.versions[CONSUMER_OFFSETS] = DataVersion(100, 100, 0)
    stale = {"counter": 1, "timestamp": 1, "stateVersion": 0}
    highest: dict[tuple[str, int], int] = {}
    for table in tables:
        offsets = {f"{topic}@g": queues for topic, queues in table.items()}
        at_once(slave.take_consumer_offsets({"dataVersion": stale, "offsetTable": offsets}))
        for topic, queues in table.items():
            for queue_id, offset in queues.items():
                highest[topic, queue_id] = max(offset, highest.get((topic, queue_id), 0))
    found = {(topic, q): offset for (topic, _g), queues in slave.offsets.items() for q, offset in queues.items()}
    assert found == highest


def test_queues_that_an_administrator_took_do_not_come_back_with_a_file_that_is_older() -> None:
    """The writer may add a topic to the file between an administrator's word and the file that says it."""
    tables = Metadata(FIVE, {}, 0)
    tables.set_topic(topic_config("mine", 4, 4, 6, line=LINES["5"]), 1)
    older = json.loads(json.dumps(tables.value(TOPICS)))
    tables.begin_saving(TOPICS)
    tables.set_topic(topic_config("mine", 4, 2, 6, line=LINES["5"]), 2)
    older["topicConfigTable"]["another"] = topic_config("another", 4, 4, 6, line=LINES["5"])
    assert tables.take_served_topics(tables.served_topics(older))
    assert tables.topics["mine"]["writeQueueNums"] == 2 and "another" in tables.topics
    tables.begin_saving(TOPICS)
    older["topicConfigTable"]["mine"]["writeQueueNums"] = 8
    assert tables.take_served_topics(tables.served_topics(older)) and tables.topics["mine"]["writeQueueNums"] == 8


@pytest.mark.parametrize("line", [FOUR, FIVE])
def test_a_topic_of_an_older_file_makes_a_version_that_was_never_sent(line: Identity) -> None:
    """A name server that knows a broker's version passes over whatever else is said under it."""
    tables = Metadata(line, {}, 0)
    older = json.loads(json.dumps(tables.value(TOPICS)))
    older["dataVersion"].update(counter=1, timestamp=5)
    older["topicConfigTable"]["written"] = topic_config("written", 4, 4, 6, line=line.line)
    tables.set_topic(topic_config("%RETRY%g", 1, 1, 6, line=line.line), 7)
    told = tables.versions[TOPICS]
    tables.begin_saving(TOPICS)
    assert tables.take_served_topics(tables.served_topics(older))
    assert tables.versions[TOPICS] != told and not tables.versions[TOPICS].is_behind(told)
    assert TOPICS in tables.changed and b'"written"' in tables.topics_json()
    now = tables.versions[TOPICS]
    assert not tables.take_served_topics(tables.served_topics(older)) and tables.versions[TOPICS] == now
