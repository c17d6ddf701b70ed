"""What strangers register at a name server: refused whole and leaving nothing, or bounded; others are answered on."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from engine.protocol.naming import name_server, route_table
from engine.protocol.naming.name_server import NameServer
from engine.protocol.remoting.frame import FRAME_BYTES_MAX, MalformedFrame, RemotingCommand, encode
from engine.protocol.tables.register_body import INFLATED_BYTES_MAX, TOPICS_MAX, decode
from store.compat import LINES
from store.tables import fastjson

LISTS = (106, 206, 304, 311, 312, 313)


def ask(server: NameServer, code: int, body: bytes = b"", connection: int = 1, **ext: str) -> RemotingCommand:
    request = RemotingCommand(code, 9, 0, None, ext, body, version=479)
    answer = server.answer(request, connection, 0, server.work_ahead(request))
    assert answer is not None
    assert len(encode(answer)) <= FRAME_BYTES_MAX, "whoever asks gets an answer"
    return answer


def register(server: NameServer, name: str, body: bytes, connection: int = 1, **ext: str) -> RemotingCommand:
    fields = {"clusterName": "c", "brokerName": name, "brokerId": "0", "brokerAddr": f"{name}:1", "haServerAddr": "h:2"}
    return ask(server, 103, body, connection, **(fields | ext))


def body_with(topics: dict[str, Any], **version: Any) -> bytes:
    wrapper = {"dataVersion": {"counter": 1, "timestamp": 1, **version}, "topicConfigTable": topics}
    return fastjson.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def topics(count: int, prefix: str = "t") -> dict[str, Any]:
    names = (f"{prefix}{n}" for n in range(count))
    return {name: {"topicName": name, "perm": 6, "readQueueNums": 4, "writeQueueNums": 4} for name in names}


def is_empty(server: NameServer) -> bool:
    table = server.routes
    return not (table.brokers or table.clusters or table.topics or table.live)


GOOD = body_with(topics(2))


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_a_thousand_refusals_leave_no_ghost_that_locks_others_out(compat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_table, "BROKERS_MAX", 50)
    server, refused = NameServer(compat), 0
    alone = body_with(topics(1)) if compat == "5" else body_with({"t\x07": {}})
    for n in range(1000):
        refused += register(server, f"ghost-{n}", alone, clusterName=f"cluster-{n}").code == 1
    assert refused == 1000 and is_empty(server)
    assert register(server, "honest", GOOD).code == 0


@pytest.mark.parametrize("value", ["1e999", "NaN", "-1e999", "1.5", "true", '"x"', str(2**63), "9" * 5000, "[]", "{}"])
@pytest.mark.parametrize("where", ["counter", "timestamp", "stateVersion", "readQueueNums", "perm", "topicSysFlag"])
def test_what_is_no_number_of_its_place_is_refused_whole(where: str, value: str) -> None:
    server = NameServer()
    assert register(server, "honest", GOOD, connection=2).code == 0
    told = json.loads(body_with(topics(2, "other")))
    wrapper = told["topicConfigSerializeWrapper"]
    (
        wrapper["dataVersion"]
        if where in ("counter", "timestamp", "stateVersion")
        else wrapper["topicConfigTable"]["other1"]
    )[where] = "PLACE"
    answer = register(server, "stranger", json.dumps(told).replace('"PLACE"', value).encode())
    assert answer.code == 1 and list(server.routes.brokers) == ["honest"]
    version = b'{"counter":' + value.encode() + b',"timestamp":1}'
    if where == "counter":
        assert ask(server, 322, version, clusterName="c", brokerAddr="honest:1").code == 1
    assert [ask(server, code).code for code in LISTS] == [0] * len(LISTS)


@pytest.mark.parametrize("name", ["\\ud800", "a\\nb", "\\u001b[31m", "\\u202e", "\\u0085", "x" * 600, "\\u0000"])
def test_a_name_that_cannot_be_shown_is_refused(name: str) -> None:
    server = NameServer()
    assert register(server, "honest", GOOD, connection=2).code == 0
    body = body_with({"good": {"topicName": "NAME"}, "too": {}}).replace(b"NAME", name.encode())
    assert register(server, "stranger", body).code == 1
    real = json.loads(f'"{name}"')
    for field in ("clusterName", "brokerName", "brokerAddr", "haServerAddr", "__ZONE_NAME"):
        assert register(server, "stranger", GOOD, **{field: real}).code == 1
    assert (
        ask(
            server,
            217,
            b'{"queueDatas":[{"brokerName":"honest","readQueueNums":1,"writeQueueNums":1,"perm":6}]}',
            topic=real,
        ).code
        == 1
    )
    assert ask(server, 100, namespace=real, key="k", value="v").code == 1
    assert list(server.routes.brokers) == ["honest"] and server.kv == {}
    assert [ask(server, code).code for code in LISTS] == [0] * len(LISTS)


def deflated(count: int, topic: bytes) -> bytes:
    def part(data: bytes) -> bytes:
        return len(data).to_bytes(4) + data

    one = part(topic + b" 1 1 6 SINGLE_TAG")
    return zlib.compress(part(b"{}") + count.to_bytes(4) + one * min(count, 2_000_000) + part(b"[]") + bytes(4))


def test_a_small_body_of_too_many_topics_is_refused_before_they_are_made() -> None:
    for count in (TOPICS_MAX + 1, 2_000_000, 2**31 - 1, 2**32 - 1):
        with pytest.raises(MalformedFrame, match=r"claims|inflates to more"):
            decode(deflated(count, b""), compressed=True, version=479, line=LINES["5"])
    plain = body_with({str(n): {} for n in range(TOPICS_MAX + 1)})
    with pytest.raises(MalformedFrame, match="topics"):
        decode(plain, compressed=False, version=479, line=LINES["5"])
    assert INFLATED_BYTES_MAX <= FRAME_BYTES_MAX


def test_the_tables_are_bounded_in_all_and_free_again_when_the_stranger_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_table, "QUEUES_MAX", 100)
    monkeypatch.setattr(route_table, "BROKERS_OF_A_CONNECTION_MAX", 3)
    server = NameServer()
    assert register(server, "a", body_with(topics(90)), connection=1).code == 0
    answer = register(server, "b", body_with(topics(20)), connection=2)
    assert answer.code == 1 and "entries of topics" in str(answer.remark)
    assert "b" not in server.routes.brokers
    assert register(server, "b", body_with(topics(9)), connection=2).code == 0
    assert [register(server, f"c{n}", body_with({}), connection=2).code for n in range(4)] == [0, 0, 1, 1]
    server.routes.connection_closed(1)
    assert register(server, "d", body_with(topics(20)), connection=3).code == 0
    server.routes.connection_closed(2)
    server.routes.connection_closed(3)
    assert is_empty(server)
    assert register(server, "e", body_with(topics(100)), connection=4).code == 0


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_one_broker_at_ever_new_addresses_fills_no_table(compat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_table, "BROKERS_MAX", 5)
    monkeypatch.setattr(route_table, "BROKERS_OF_A_CONNECTION_MAX", 3)
    server, forever = NameServer(compat), str(1 << 62)
    told = [
        register(server, "a", GOOD, connection, brokerAddr=f"h{connection}:{n}", heartbeatTimeoutMillis=forever).code
        for connection in (1, 2)
        for n in range(5)
    ]
    assert told == [0, 0, 0, 1, 1, 0, 0, 1, 1, 1] and len(server.routes.live) == 5
    assert register(server, "a", GOOD, 1, brokerAddr="h1:0").code == 0, "one that is known says so again"
    server.routes.connection_closed(1)
    assert register(server, "honest", GOOD, 3).code == 0


def test_the_list_of_all_topics_fits_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    assert route_table.LIST_BYTES_MAX < FRAME_BYTES_MAX
    monkeypatch.setattr(route_table, "LIST_BYTES_MAX", 1000)
    server, names = NameServer(), [f'"{n}\\' * 10 for n in range(40)]
    for n in range(0, 40, 2):
        register(server, f"b{n}", body_with({name: {} for name in names[n : n + 2]}), connection=n)
    body = bytes(ask(server, 206).body)
    assert 500 < len(body) <= 1000 + len('{"topicList":[]}')


def test_a_broker_that_leaves_several_clusters_leaves_nothing_behind() -> None:
    server = NameServer()
    for n in range(5):
        assert register(server, "a", GOOD, connection=n, clusterName=f"c{n}", brokerAddr=f"h{n}:1").code == 0
    for n in range(5):
        server.routes.connection_closed(n)
    assert is_empty(server)


def test_key_values_are_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_server, "KV_ENTRIES_MAX", 6)
    monkeypatch.setattr(name_server, "KV_BYTES_MAX", 1000)
    server = NameServer()
    assert [ask(server, 100, namespace="n", key=str(n), value="v").code for n in range(7)] == [0, 0, 0, 0, 0, 1, 1]
    assert server.changes == 5
    assert ask(server, 100, namespace="other", key="k", value="v").code == 1 and "other" not in server.kv
    assert ask(server, 100, namespace="n", key="0", value="x" * 900).code == 0
    assert ask(server, 100, namespace="n", key="1", value="x" * 900).code == 1
    assert ask(server, 102, namespace="n", key="0").code == 0
    assert ask(server, 100, namespace="n", key="1", value="x" * 900).code == 0
    assert ask(server, 100, namespace="n", key="1", value="x" * 70_000).code == 1
    assert json.loads(bytes(ask(server, 219, namespace="n").body))["table"]["1"] == "x" * 900
    assert ask(server, 100, namespace="ghost", key="k").code == 0 and "ghost" not in server.kv
