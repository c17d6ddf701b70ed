"""Our name server against captured conversations of real brokers and clients with a real one: the same answers.

What may differ by name: the order of JSON arrays of names, which in Java is that of a hash set.
"""

from __future__ import annotations

import base64
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.naming.name_server import NameServer
from engine.protocol.naming.route_table import EXPIRY_MS
from engine.protocol.remoting.frame import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand, Serialize, decode
from store.tables import fastjson

GOLDEN = Path(__file__).parents[3] / "golden"
CASES = [
    (compat, path)
    for compat, version in (("4.9", "4.9.7"), ("5", "5.3.3"))
    for path in sorted((GOLDEN / f"rocketmq-{version}").glob("*remoting*.jsonl.xz"))
]


def body_of(value: Any) -> bytes:
    return fastjson.dumps(value).encode()


def json_of(body: bytes) -> Any:
    found = fastjson.loads(body) if body else None
    if isinstance(found, dict) and "topicList" in found:
        found["topicList"] = sorted(found["topicList"])
    return found


@pytest.mark.parametrize(("compat", "path"), CASES, ids=lambda value: getattr(value, "name", value))
def test_captured_conversations_get_the_same_answers(compat: str, path: Path) -> None:
    server, asked, compared = NameServer(compat), {}, 0
    with lzma.open(path, "rt") as file:
        told = [line for line in map(json.loads, file) if line["server"] == "namesrv"]
    for line in told:
        command = decode(base64.b64decode(line["frame"])[4:])
        if line["kind"] != "response":
            asked[line["conn"], line["opaque"]] = server.answer(command, line["conn"], int(line["t"] * 1000))
            continue
        ours = asked.pop((line["conn"], line["opaque"]))
        assert ours is not None
        assert (ours.code, ours.flag, ours.remark, ours.version) == (
            command.code, command.flag, command.remark, command.version
        )  # fmt: skip
        assert (ours.ext_fields, ours.serialize) == (command.ext_fields, command.serialize), line
        assert json_of(bytes(ours.body)) == json_of(bytes(command.body)), line
        compared += 1
    assert compared > 2


def ask(
    server: NameServer, code: int, body: bytes = b"", at_ms: int = 0, connection: int = 1, **ext: str
) -> RemotingCommand:
    answer = server.answer(RemotingCommand(code, 9, 0, None, ext, body, version=479), connection, at_ms)
    assert answer is not None
    return answer


def register(
    server: NameServer,
    name: str,
    broker_id: int,
    at_ms: int = 0,
    connection: int = 1,
    topics: int = 2,
    state: int = 0,
    port: int = 10911,
    perm: int = 6,
    **ext: str,
) -> RemotingCommand:
    table = {
        f"t{n}": {"topicName": f"t{n}", "perm": perm, "readQueueNums": 4, "writeQueueNums": 4, "topicSysFlag": n}
        for n in range(topics)
    }
    version = {"counter": topics, "timestamp": 5, "stateVersion": state}
    body = body_of({"topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": table}})
    return ask(
        server,
        103,
        body,
        at_ms,
        connection,
        clusterName="c",
        brokerName=name,
        brokerId=str(broker_id),
        brokerAddr=f"10.0.0.{broker_id + 1}:{port}",
        haServerAddr=f"10.0.0.{broker_id + 1}:{port + 1}",
        **ext,
    )


def addresses(server: NameServer, topic: str) -> Any:
    answer = ask(server, 105, topic=topic)
    return json.loads(bytes(answer.body))["brokerDatas"][0]["brokerAddrs"] if answer.code == 0 else None


def test_a_slave_hears_of_its_master_while_that_lives() -> None:
    server = NameServer()
    assert register(server, "a", 1, enableActingMaster="false").ext_fields == {}
    assert register(server, "a", 0, at_ms=1000).code == 0
    told = register(server, "a", 1, connection=2, at_ms=1000, enableActingMaster="false")
    assert told.ext_fields == {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}
    server.routes.connection_closed(1)
    assert register(server, "a", 1, connection=2, enableActingMaster="false").ext_fields == {}
    assert addresses(server, "t0") == {"1": "10.0.0.2:10911"}


def test_a_broker_that_is_silent_for_too_long_is_forgotten_and_its_connection_closed() -> None:
    server = NameServer()
    register(server, "a", 0, connection=7)
    register(server, "b", 0, port=20911, connection=8, heartbeatTimeoutMillis="1000")
    assert server.routes.expire(1000) == []
    assert server.routes.expire(1001) == [8]
    ask(server, 904, at_ms=EXPIRY_MS, clusterName="c", brokerAddr="10.0.0.1:10911", brokerName="a")
    assert server.routes.expire(EXPIRY_MS + 1) == []
    assert server.routes.expire(2 * EXPIRY_MS + 1) == [7]
    assert ask(server, 105, topic="t0").code == 17
    assert not (server.routes.brokers or server.routes.clusters or server.routes.topics or server.routes.live)


def test_a_slave_that_becomes_master_keeps_one_entry() -> None:
    server = NameServer()
    register(server, "a", 0)
    register(server, "a", 1, connection=2)
    server.routes.connection_closed(1)
    ask(
        server,
        103,
        body_of({"topicConfigSerializeWrapper": {"topicConfigTable": {}}}),
        connection=2,
        clusterName="c",
        brokerName="a",
        brokerId="0",
        brokerAddr="10.0.0.2:10911",
        haServerAddr="10.0.0.2:10912",
    )
    assert addresses(server, "t0") == {"0": "10.0.0.2:10911"}


def test_an_old_master_that_comes_back_with_an_older_state_is_ignored() -> None:
    server = NameServer()
    register(server, "a", 0, state=2)
    ask(
        server,
        103,
        body_of({"topicConfigSerializeWrapper": {"dataVersion": {"stateVersion": 1}}}),
        connection=2,
        clusterName="c",
        brokerName="a",
        brokerId="0",
        brokerAddr="10.0.0.9:10911",
        haServerAddr="x:1",
    )
    assert addresses(server, "t0") == {"0": "10.0.0.1:10911"}


def test_the_first_registration_may_not_be_of_one_topic() -> None:
    server = NameServer()
    answer = register(server, "a", 0, topics=1)
    assert (answer.code, answer.remark) == (1, "register broker failed")
    assert register(server, "a", 0, topics=2).code == register(server, "a", 0, topics=1).code == 0


def test_an_acting_master_is_read_only() -> None:
    server = NameServer(support_acting_master=True)
    for broker_id in (0, 1):
        register(server, "a", broker_id, connection=broker_id, enableActingMaster="true")
    server.routes.connection_closed(0)
    route = json.loads(bytes(ask(server, 105, topic="t1").body))
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.2:10911"}
    assert {queue["perm"] for queue in route["queueDatas"]} == {4}


def test_a_wrong_checksum_a_missing_field_and_an_unknown_code_are_refused() -> None:
    server = NameServer()
    assert register(server, "a", 0, bodyCrc32="1").remark == "crc32 not match"
    assert "the custom field <clusterName> is null" in str(ask(server, 103, brokerId="0").remark)
    assert (ask(server, 999).code, ask(server, 999).remark) == (3, " request type 999 not supported")
    assert not server.routes.brokers


def permissions(server: NameServer) -> set[int]:
    return {queue.perm for queues in server.routes.topics.values() for queue in queues.values()}


def test_permissions_of_a_broker_are_wiped_and_given_back() -> None:
    server = NameServer()
    register(server, "a", 0, topics=3)
    assert ask(server, 205, brokerName="a").ext_fields == {"wipeTopicCount": "3"}
    assert permissions(server) == {4}
    assert ask(server, 327, brokerName="a").ext_fields == {"addTopicCount": "3"}
    assert permissions(server) == {6}


def started_again(server: NameServer) -> NameServer:
    return NameServer(wiped=dict(server.routes.wiped))


def test_permissions_that_were_wiped_stay_so_after_a_start_while_topics_stay_the_same() -> None:
    server = NameServer()
    register(server, "a", 0, topics=3)
    ask(server, 205, brokerName="a")
    again = started_again(server)
    register(again, "a", 0, topics=3)
    assert (permissions(again), again.changes) == ({4}, 0)
    register(again, "a", 0, topics=4)
    assert (permissions(again), again.changes, again.kept()) == ({6}, 1, {"configTable": {}})


@pytest.mark.parametrize("how", ["an order", "its end", "its silence"])
def test_permissions_that_were_given_back_are_so_after_a_start(how: str) -> None:
    server = NameServer()
    register(server, "a", 0, topics=3)
    ask(server, 205, brokerName="a")
    {
        "an order": lambda: ask(server, 327, brokerName="a"),
        "its end": lambda: server.routes.connection_closed(1),
        "its silence": lambda: server.routes.expire(1 << 40),
    }[how]()
    assert server.changes == 2
    again = started_again(server)
    register(again, "a", 0, topics=3)
    assert permissions(again) == {6}


def test_a_broker_that_nobody_knows_leaves_nothing_when_it_is_wiped() -> None:
    server = NameServer()
    assert ask(server, 205, brokerName="ghost").ext_fields == {"wipeTopicCount": "0"}
    assert (server.changes, server.kept()) == (0, {"configTable": {}})


def test_topics_are_listed_deleted_and_registered_by_hand() -> None:
    server = NameServer()
    register(server, "a", 0, topics=4)
    assert json_of(bytes(ask(server, 224, cluster="c").body)) == {"topicList": ["t0", "t1", "t2", "t3"]}
    assert json_of(bytes(ask(server, 311).body)) == {"topicList": ["t1", "t3"]}
    assert json_of(bytes(ask(server, 313).body)) == {"topicList": ["t2"]}
    assert json_of(bytes(ask(server, 304).body)) == {"brokerAddr": "10.0.0.1:10911", "topicList": ["a", "c"]}
    ask(server, 216, topic="t0", clusterName="other")
    ask(server, 216, topic="t1", clusterName="c")
    ask(server, 216, topic="t2")
    queue = {"brokerName": "a", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    ask(server, 217, body_of({"queueDatas": [queue]}), topic="mine")
    ask(server, 217, body_of({"queueDatas": [{**queue, "brokerName": "unknown"}]}), topic="theirs")
    assert json_of(bytes(ask(server, 206).body)) == {"topicList": ["mine", "t0", "t3"]}


def test_key_values_are_kept_and_order_topics_reach_brokers_and_clients() -> None:
    server = NameServer(order_message_enable=True)
    assert ask(server, 101, namespace="n", key="k").code == 22
    assert ask(server, 219, namespace="n").code == 22
    ask(server, 100, namespace="ORDER_TOPIC_CONFIG", key="t0", value="a:4")
    assert ask(server, 101, namespace="ORDER_TOPIC_CONFIG", key="t0").ext_fields == {"value": "a:4"}
    assert json_of(bytes(register(server, "a", 0).body)) == {"table": {"t0": "a:4"}}
    assert json_of(bytes(ask(server, 105, topic="t0").body))["orderTopicConf"] == "a:4"
    ask(server, 102, namespace="ORDER_TOPIC_CONFIG", key="t0")
    assert json_of(bytes(ask(server, 219, namespace="ORDER_TOPIC_CONFIG").body)) == {"table": {}}
    assert server.changes == 2


def test_old_clients_get_bare_integer_keys_new_ones_quoted() -> None:
    server = NameServer("4.9")
    register(server, "a", 0)
    old = server.answer(RemotingCommand(105, ext_fields={"topic": "t0"}, version=395), 1, 0)
    assert old is not None and b'{0:"10.0.0.1:10911"}' in bytes(old.body)
    asked = {"topic": "t0", "acceptStandardJsonOnly": "true"}
    standard = server.answer(RemotingCommand(105, ext_fields=asked, version=395), 1, 0)
    assert standard is not None and b'{"0":"10.0.0.1:10911"}' in bytes(standard.body)


def test_oneway_requests_and_stray_answers_get_no_answer() -> None:
    server = NameServer()
    for flag in (ONEWAY_FLAG, RESPONSE_FLAG):
        assert server.answer(RemotingCommand(105, flag=flag), 1, 0) is None


def test_the_header_form_of_answers_is_the_versions() -> None:
    request = RemotingCommand(206, serialize=Serialize.ROCKETMQ)
    for compat, form in (("4.9", Serialize.ROCKETMQ), ("5", Serialize.JSON)):
        answer = NameServer(compat).answer(request, 1, 0)
        assert answer is not None and answer.serialize is form


FIELDS = st.sampled_from(["clusterName", "brokerName", "brokerAddr", "brokerId", "haServerAddr", "topic", "bodyCrc32",
                          "namespace", "key", "value", "compressed", "heartbeatTimeoutMillis", "cluster"])  # fmt: skip
CODES = st.sampled_from(
    [100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 322, 327, 901]
)


@given(
    st.lists(
        st.tuples(
            CODES, st.dictionaries(FIELDS, st.sampled_from(["", "true", "1", "-7", "x"])), st.binary(max_size=40)
        ),
        max_size=8,
    )
)
def test_whatever_is_asked_there_is_an_answer(requests: list[tuple[int, dict[str, str], bytes]]) -> None:
    server = NameServer()
    register(server, "x", 1)
    for code, ext, body in requests:
        assert ask(server, code, body, **ext).is_response


def test_a_broker_without_a_name_is_refused() -> None:
    """RocketMQ takes it in, and from then on its list of system topics breaks off there."""
    server = NameServer()
    for missing in ("clusterName", "brokerName", "brokerAddr", "haServerAddr"):
        fields = {"clusterName": "c", "brokerName": "a", "brokerId": "0", "brokerAddr": "h:1", "haServerAddr": "h:2"}
        del fields[missing]
        answer = ask(server, 103, **fields)
        assert (answer.code, f"<{missing}> is null" in str(answer.remark)) == (1, True)
    assert not server.routes.brokers and not server.routes.clusters


def test_the_versions_differ_in_what_they_take_from_a_registration() -> None:
    four, five = NameServer("4.9"), NameServer("5")
    assert (register(four, "a", 0, topics=1).code, register(five, "a", 0, topics=1).code) == (0, 1)
    for server in (four, five):
        register(server, "b", 0, port=1, topics=2)
        server.routes.delete_topic("t1", "c")
        register(server, "b", 0, port=1, topics=2)  # the same version again: 5.x looks at every topic
    assert ("t1" in four.routes.topics, "t1" in five.routes.topics) == (False, True)
