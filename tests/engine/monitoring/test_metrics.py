"""`/metrics` of a running master and its slave, read by Prometheus' own parser; and by clients that misbehave."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from engine.monitoring.ha_status import ConnectionStatus, ha_status
from engine.monitoring.metrics import TableSizes, replica_labels
from engine.monitoring.metrics_server import REQUEST_BYTES_MAX, MetricsServer
from engine.producer import Producer
from engine.protocol.ha.wire import REPORT, CloseReason
from engine.protocol.remoting.frame import RemotingCommand
from engine.settings.config import from_mapping
from engine.settings.keys import METRICS_CONNECTIONS
from engine.shared_memory.cursors import BrokerCounters
from ipc import waiting
from store.reading import extent
from tests.harness.conditions import await_that
from tests.harness.front_client import FrontClient
from tests.harness.ha_node import wait_for, wait_until
from tools import cli
from tools.common.local_broker import LocalBroker, free_port

SMALL = {"mappedFileSizeCommitLog": 1 << 20, "slaveTimeout": 20_000, "compat": "5"}
BROKER = ("cluster", "node_id", "node_type")
STORAGE = (*BROKER, "storage_medium", "storage_type")
ROCKETMQS = {  # names and labels as a 5.3.3 broker with metricsExporterType=PROM exported them
    "rocketmq_broker_permission": BROKER,
    "rocketmq_topic_number": BROKER,
    "rocketmq_consumer_group_number": BROKER,
    "rocketmq_storage_size_bytes": STORAGE,
    "rocketmq_storage_flush_behind_bytes": STORAGE,
    "rocketmq_storage_dispatch_behind_bytes": STORAGE,
}
SECONDS = 120.0
REPLICA = "m:1"  # who it says to be, whatever port it comes from
REPLICA_STATUS = ConnectionStatus(0, "-", "TRANSFER", 0, 0, 0, 0, 0.0, 0, 0, 0.0, 0.0)
Samples = dict[str, list[tuple[dict[str, str], float]]]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalBroker, LocalBroker]]:
    directory = tmp_path_factory.mktemp("metrics")
    with LocalBroker(directory / "m", brokerRole="SYNC_MASTER", **SMALL) as master:
        keys = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address}
        with LocalBroker(directory / "s", **SMALL, **keys) as slave:
            counters = counters_of(master)
            wait_until(counters.in_sync_slaves, lambda count: count == 1)
            with Producer(master.store, timeout=60) as producer:
                for _ in range(3):
                    producer.send("to-pic", b"x" * 100, timeout=SECONDS)
            wait_for(counters.reput_from_offset, counters.max_physical_offset.read())
            end = counters.max_physical_offset.read()  # a slave that came again has another slot
            await_that(lambda: max(words.slave_ack_offset.read() for words in counters.ha) >= end, "the slave has all")
            yield master, slave


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)


async def nobody_tells() -> int | None:
    return None


async def no_sizes() -> TableSizes:
    return TableSizes(6, 0, 0)


def port_of(broker: LocalBroker) -> int:
    return wait_until(counters_of(broker).metrics_port, lambda port: port != 0)


def get(broker: LocalBroker, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(broker), timeout=SECONDS)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.headers["Content-Type"], answer.read().decode()
    connection.close()
    return found


def samples_of(broker: LocalBroker) -> Samples:
    status, content_type, text = get(broker)
    assert (status, content_type.partition(";")[0]) == (200, "text/plain")
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def one(found: Samples, name: str, **labels: str) -> float:
    (value,) = [value for of, value in found[name] if labels.items() <= of.items()]
    return value


def test_rocketmqs_names_have_rocketmqs_labels(pair: tuple[LocalBroker, LocalBroker]) -> None:
    for broker, node in zip(pair, ("m", "s:1"), strict=True):
        found = samples_of(broker)
        for name, labels in ROCKETMQS.items():
            ((of, _value),) = found[name]
            assert tuple(of) == labels, name
            assert (of["node_id"], of["node_type"]) == (node, "broker")
    found = samples_of(pair[0])
    assert one(found, "rocketmq_messages_in_total", topic="to-pic", is_system="false") == 3
    assert one(found, "rocketmq_throughput_in_total", topic="to-pic") > 300
    assert one(found, "rocketmq_storage_message_reserve_time_milliseconds") > 0
    assert one(found, "rocketmq_broker_permission") == 6


def test_a_masters_figures_are_those_of_ha_status(pair: tuple[LocalBroker, LocalBroker]) -> None:
    found, status = samples_of(pair[0]), ha_status(pair[0].store)
    assert one(found, "rocketmq_ha_max_physical_offset") == status.max_physical_offset > 0
    assert one(found, "rocketmq_ha_in_sync_slaves") == 1
    assert one(found, "rocketmq_ha_replicas_needed") == 2
    assert one(found, "rocketmq_ha_slave_fall_behind_bytes") == 0
    assert one(found, "rocketmq_ha_replica_state", replica=REPLICA, state="TRANSFER", reason="OK") == 1
    for name in ("lag_bytes", "lag_seconds", "catch_up_seconds"):
        assert one(found, f"rocketmq_ha_replica_{name}", replica=REPLICA) == 0
    assert one(found, "rocketmq_ha_info", role="SYNC_MASTER", compat="5") == 1


def test_a_slaves_figures(pair: tuple[LocalBroker, LocalBroker]) -> None:
    found, master = samples_of(pair[1]), pair[0].ha_address
    assert one(found, "rocketmq_ha_client_state", master=master, state="TRANSFER") == 1
    assert one(found, "rocketmq_ha_client_state", master=master, state="READY") == 0
    assert one(found, "rocketmq_ha_client_reason", reason="OK") == 1
    assert one(found, "rocketmq_ha_client_received_bytes_total") > 300
    assert "rocketmq_messages_in_total" not in found, "clients gave it nothing"


def test_a_rejected_acknowledgement_is_counted_with_its_reason(pair: tuple[LocalBroker, LocalBroker]) -> None:
    counters = counters_of(pair[0])
    with socket.create_connection(("127.0.0.1", pair[0].port + 1), timeout=SECONDS) as liar:
        liar.sendall(REPORT.pack(0) + REPORT.pack(1 << 40))
        wait_until(counters.ha_acks_rejected, lambda count: count == 1)
    rejected = "rocketmq_ha_acks_rejected_total"  # figures are kept for a moment
    await_that(lambda: one(samples_of(pair[0]), rejected) == 1, "it is counted", pause=0.1)
    found = samples_of(pair[0])
    labels = {"side": "master", "close_reason": "ACK_NOT_SENT", "reason": "IDENTITY"}
    assert one(found, "rocketmq_ha_connections_ended_total", **labels) == 1


def test_replicas_are_called_by_who_they_are_and_never_two_the_same() -> None:
    def called(*replicas: tuple[str, str]) -> list[str]:
        return replica_labels([replace(REPLICA_STATUS, replica=name, peer=peer) for name, peer in replicas])

    assert called(("a:1", "10.0.0.1:4"), ("10.0.0.2", "10.0.0.2:4")) == ["a:1", "10.0.0.2"]
    assert called(("a:1", "10.0.0.1:4"), ("a:1", "10.0.0.2:5"), ("a:2", "10.0.0.2:4")) == [
        "a:1 at 10.0.0.1:4",
        "a:1 at 10.0.0.2:5",
        "a:2",
    ]


def test_open_metrics_on_request(pair: tuple[LocalBroker, LocalBroker]) -> None:
    status, content_type, text = get(pair[0], Accept="application/openmetrics-text; version=1.0.0")
    assert (status, content_type.partition(";")[0]) == (200, "application/openmetrics-text")
    assert {"rocketmq_ha_in_sync_slaves", "rocketmq_storage_size_bytes"} <= {one.name for one in open_metrics(text)}


def test_a_pair_that_works_is_alive_and_ready(pair: tuple[LocalBroker, LocalBroker]) -> None:
    for broker, role, lag in ((pair[0], "SYNC_MASTER", None), (pair[1], "SLAVE", 0)):
        for path in ("/healthz", "/readyz"):
            expected_lag = lag if path == "/readyz" else None
            # a slave asks its master where its log ends, and does without an answer that takes long
            await_that(lambda: json.loads(get(broker, path)[2])["lag_bytes"] == expected_lag, "the lag", pause=0.1)  # noqa: B023
            status, content_type, text = get(broker, path)
            assert (status, content_type) == (200, "application/json"), text
            health = json.loads(text)
            assert (health["ok"], health["role"], health["state"], health["reasons"]) == (True, role, "RUNNING", [])


def test_a_slave_without_its_master_is_alive_and_not_ready(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "s", brokerRole="SLAVE", brokerId=1, haMasterAddress="127.0.0.1:9", **SMALL) as slave:
        wait_until(counters_of(slave).ha_client.reason, lambda reason: reason == CloseReason.NO_LISTENER)
        assert get(slave, "/healthz")[0] == 200

        def is_told() -> bool:  # while it tries again there is no reason for a moment
            status, _type, text = get(slave, "/readyz")
            (reason,) = json.loads(text)["reasons"]
            return status == 503 and reason["reason"] == "NO_LISTENER" and "does not answer" in reason["what"]

        await_that(is_told, "why it is not ready", pause=0.05)


def test_requests_other_than_for_metrics_get_their_http_status(pair: tuple[LocalBroker, LocalBroker]) -> None:
    assert get(pair[0], "/")[0] == 404
    assert get(pair[0], method="POST")[0] == 405
    status, _type, text = get(pair[0], method="HEAD")
    assert (status, text) == (200, "")
    assert get(pair[0], "/metrics?name=x")[0] == 200


@pytest.mark.parametrize(
    "request_bytes",
    [b"", b"\r\n\r\n", b"GET", b"\xff" * 100 + b"\r\n\r\n", b"G" * (REQUEST_BYTES_MAX * 4)],
    ids=["nothing", "empty", "half", "noise", "endless"],
)
def test_a_client_that_sends_nonsense_is_closed_and_others_are_served(
    pair: tuple[LocalBroker, LocalBroker], request_bytes: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", port_of(pair[0])), timeout=SECONDS) as sock:
        with suppress(ConnectionError):  # it may hang up before all of that was said
            sock.sendall(request_bytes)
        if len(request_bytes) < REQUEST_BYTES_MAX and request_bytes.endswith(b"\n"):
            assert b" 405 " in sock.recv(1000)
        assert get(pair[0])[0] == 200
        try:
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1000):
                pass
        except OSError as error:  # it hung up with our bytes unread
            assert error.errno in (errno.ECONNRESET, errno.ENOTCONN)


def test_silent_connections_make_room_for_those_that_ask(pair: tuple[LocalBroker, LocalBroker]) -> None:
    address = ("127.0.0.1", port_of(pair[1]))
    silent = [socket.create_connection(address, timeout=SECONDS) for _ in range(3 * METRICS_CONNECTIONS)]
    assert get(pair[1])[0] == 200
    assert [sock.recv(1) for sock in silent[:METRICS_CONNECTIONS]] == [b""] * METRICS_CONNECTIONS
    for sock in silent:
        sock.close()
    assert get(pair[1])[0] == 200
    lines = pair[1].log.read_text().count("connections for metrics, the limit: closed the oldest")
    assert 1 <= lines <= 3


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=x",
        "application/openmetrics-text;version=1.0.0;escaping=none",
        "application/openmetrics-text; version=" + "9" * 4000,
        "application/openmetrics-text;version=;escaping",
        ";" * 7000,
        "text/plain;version=1.0.0;escaping=\x80",
        ",".join(["application/openmetrics-text;q=0.x"] * 200),
        "*/*;q=NaN",
    ],
)
def test_whatever_a_client_accepts_it_gets_figures(pair: tuple[LocalBroker, LocalBroker], accept: str) -> None:
    status, content_type, text = get(pair[0], Accept=accept)
    assert status == 200 and "rocketmq_broker_permission" in text
    assert content_type.partition(";")[0] in ("text/plain", "application/openmetrics-text")
    assert "Traceback" not in pair[0].log.read_text()


def test_a_client_that_does_not_read_harms_nobody(pair: tuple[LocalBroker, LocalBroker]) -> None:
    slow = []
    for n in range(2 * METRICS_CONNECTIONS):
        slow.append(socket.socket())
        slow[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        slow[-1].connect(("127.0.0.1", port_of(pair[0])))
        slow[-1].sendall(b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.%d\r\n\r\n" % n)
    assert get(pair[0])[0] == 200
    for sock in slow:
        sock.close()


@pytest.mark.parametrize(
    ("settings", "before", "ports"),
    [({}, 0, [5557, 0]), ({}, 4000, [4000, 0]), ({"metricsPromExporterPort": 0}, 0, [0, 0]),
     ({"metricsPromExporterPort": 80}, 4000, [80])],
)  # fmt: skip
def test_the_metrics_port_is_tried_first_and_any_free_port_next_unless_configured(
    tmp_path: Path, settings: dict[str, int], before: int, ports: list[int]
) -> None:
    counters = BrokerCounters.create(tmp_path / "counters")
    waiting.publish(counters.metrics_port, before)
    assert MetricsServer(from_mapping(settings), counters, no_sizes, nobody_tells).ports() == ports


def test_another_port_than_the_usual_one_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    counters = BrokerCounters.create(tmp_path / "counters")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        waiting.publish(counters.metrics_port, taken.getsockname()[1])  # as of the run before
        server = MetricsServer(from_mapping({"brokerIP1": "127.0.0.1"}), counters, no_sizes, nobody_tells)

        async def served() -> None:
            await server.start()
            await server.stop()

        asyncio.run(served())
    (warned,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert f"metrics are served at port {counters.metrics_port.read()} until the next start" in warned


def test_a_taken_port_is_tried_again_and_disable_opens_no_port(tmp_path: Path) -> None:
    port = free_port()  # none that a connection of somebody else's gets while it is free
    with (
        socket.create_server(("127.0.0.1", port)) as taken,
        LocalBroker(tmp_path / "b", **SMALL, metricsPromExporterPort=port) as broker,
    ):
        wait_until(counters_of(broker).listen_port, lambda at: at != 0)
        assert counters_of(broker).metrics_port.read() == 0
        taken.close()
        assert port_of(broker) == port, "tried again"
    with LocalBroker(tmp_path / "off", **SMALL, metricsExporterType="DISABLE") as broker:
        wait_until(counters_of(broker).listen_port, lambda port: port != 0)
        assert counters_of(broker).metrics_port.read() == 0


def test_fronts_are_metrics_and_of_too_many_samples_the_rest_is_one(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", **SMALL, metricsOtelCardinalityLimit=2) as broker:
        with Producer(broker.store, timeout=60) as producer:
            for number in range(4):
                producer.send(f"topic-{number}", b"x", timeout=SECONDS)
        counters = counters_of(broker)
        client = FrontClient(wait_until(counters.listen_port, lambda port: port != 0))
        fields = {
            "consumerGroup": "CID_RMQ_SYS_x", "topic": "topic-0", "queueId": "0", "queueOffset": "0",
            "maxMsgNums": "8", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "3600000",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        wait_for(counters.reput_from_offset, counters.max_physical_offset.read())
        await_that(lambda: client.ask(11, **fields).code == 0, "the topic is known to the front", pause=0.1)
        client.send(RemotingCommand(11, 2, ext_fields={**fields, "queueOffset": "1"}))
        wait_until(counters.fronts[0].pulls_held, lambda count: count == 1)

        def is_known() -> bool:
            found = samples_of(broker)
            return all(
                one(found, f"rocketmq_front_{name}", front="0") == 1
                for name in ("connections", "pulls_held", "pulled_messages_total")
            )

        await_that(is_known, "the front's words are exported", pause=0.1)
        messages = samples_of(broker)["rocketmq_messages_in_total"]
        (rest,) = [value for labels, value in messages if labels.get("otel_metric_overflow") == "true"]
        assert (len(messages), rest) == (3, 2)
        FrontClient.close_all()


def test_ha_status_of_5_has_the_same_figures(
    pair: tuple[LocalBroker, LocalBroker], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run_command(["admin", "haStatus", "-b", f"127.0.0.1:{pair[0].port}", "-o", "json"]) == 0
    found, status = json.loads(capsys.readouterr().out), ha_status(pair[0].store)
    (connection,), (replica,) = found["haConnectionInfo"], status.replicas
    assert (connection["addr"], connection["slaveAckOffset"]) == (replica.peer, replica.slave_ack_offset)
    assert (connection["inSync"], connection["diff"], found["inSyncSlaveNums"]) == (True, 0, 1)
    assert isinstance(connection["transferredByteInSecond"], int)
