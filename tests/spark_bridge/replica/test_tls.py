"""Name servers and brokers that take TLS only, asked by Spark: it works, and what does not is told in one line."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.datasource import InputPartition

import spark_bridge
from engine.producer import Producer
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.sockets.client import PeerRefused, RemotingClient
from spark_bridge.options.read import parse_options
from spark_bridge.options.views import CommitOptions
from spark_bridge.plan.stores import StoreAt, resolve_stores
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.replica import name_servers
from spark_bridge.replica.name_servers import NameServersUnreachable, ask, find_replicas, master_of
from spark_bridge.replica.remoting import Conversation, NoCommonTls, Question
from spark_bridge.replica.tls import tls_of
from spark_bridge.stream import group_commits
from spark_bridge.stream.group_commits import GroupCommits
from spark_bridge.stream.offsets import Offsets, QueueKey
from spark_bridge.stream.reader import RocketMQStreamReader
from tests.harness.certificates import Authority, Issued, server_file, tls_file
from tests.harness.conditions import await_that
from tests.spark_bridge.replica.test_tls_files import PASSWORD, stream_options
from tests.spark_bridge.stream.test_group_commits import MESSAGES, QUEUES, SIZES, await_dispatched
from tests.spark_bridge.streams import Batches, await_rows, rows_of, start
from tests.tools.run.test_namesrv import running
from tools.common.local_broker import LocalBroker

SECONDS = 120.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_servers, "TIMEOUT_S", SECONDS)  # a busy machine is no silent server
    monkeypatch.setattr(group_commits, "ROUND_S", SECONDS)
    monkeypatch.setattr(group_commits, "SETTLED_S", SECONDS)
    monkeypatch.setattr(group_commits, "RETRY_S", 0.1)


class Cluster(NamedTuple):
    """A name server and a master that take TLS only and ask for certificates; `mine` is what Spark names."""

    names: str
    broker: LocalBroker
    authority: Authority
    own: Issued
    mine: Path

    @property
    def address(self) -> str:
        """The broker's."""
        return f"127.0.0.1:{self.broker.port}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    authority = Authority(directory / "ca")
    own = authority.issue("node")
    trusts = {
        "client_trustCertPath": authority.certificate,
        "client_certPath": own.certificate,
        "client_keyPath": own.key,
    }
    asks = {"server_need_client_auth": "require", "server_trustCertPath": authority.certificate}
    file = server_file(directory / "node.properties", own, **trusts, **asks)
    enforcing = {"tls.server.mode": "enforcing", "tls.config.file": str(file)}
    settings = directory / "names.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in enforcing.items()))
    mine = tls_file(directory / "spark.properties", **trusts)
    with running(directory / "names", "-c", str(settings)) as port:
        names = f"127.0.0.1:{port}"
        with LocalBroker(directory / "north", namesrvAddr=names, brokerName="north", **SIZES, **enforcing) as broker:
            put(broker)
            await_that(lambda: "north" in known_to(names, mine), "the broker has registered, over TLS", SECONDS)
            yield Cluster(names, broker, authority, own, mine)


def put(broker: LocalBroker) -> None:
    with Producer(broker.store, timeout=60.0) as producer:
        for number in range(MESSAGES * QUEUES):
            assert producer.send("t", b"%d" % number, queue_id=number % QUEUES).status.name == "PUT_OK"
    await_dispatched(broker)


def known_to(names: str, file: Path) -> set[str]:
    try:
        return set(name_servers._brokers([names], tls_of(str(file))))
    except NameServersUnreachable:
        return set()


def all_at(offset: int) -> Offsets:
    return {QueueKey("", "t", queue_id): offset for queue_id in range(QUEUES)}


def committed(cluster: Cluster, group: str) -> list[int]:
    """How far the group is in each queue, as its consumers would ask."""
    with RemotingClient(cluster.address, SECONDS, tls_of(str(cluster.mine))) as client:
        of_group = {"consumerGroup": group, "topic": "t"}
        answers = [
            client.ask(RequestCode.QUERY_CONSUMER_OFFSET, {**of_group, "queueId": str(queue_id)})
            for queue_id in range(QUEUES)
        ]
    return [int((answer.ext_fields or {})["offset"]) for answer in answers]


def test_name_servers_and_brokers_that_take_tls_only_say_where_a_store_is(cluster: Cluster) -> None:
    tls = tls_of(str(cluster.mine))
    assert find_replicas([cluster.names], tls) == ([str(cluster.broker.store)], [])
    assert master_of([cluster.names], "north", tls) == cluster.address
    options = parse_options({"nameServer": cluster.names, "tlsConfigFile": f"file://{cluster.mine}"})
    assert resolve_stores(options) == [StoreAt(str(cluster.broker.store), "north")]


@pytest.mark.parametrize("by", ["its store", "name server", "address"])
def test_offsets_are_committed_to_a_broker_that_takes_tls_only(cluster: Cluster, by: str) -> None:
    group = f"over-tls-{by.replace(' ', '-')}"
    addresses = {"": cluster.address} if by == "address" else {}
    servers = (cluster.names,) if by == "name server" else ()
    commits = GroupCommits(CommitOptions(group, addresses, False, str(cluster.mine)), servers)
    commits.done(all_at(7), {"": StoreAt(str(cluster.broker.store), "north")})
    commits.settle(SECONDS)
    commits.close()
    assert commits.figures == {"queues": QUEUES, "failures": 0, "heldBack": 0}
    assert committed(cluster, group) == [7] * QUEUES


def test_plaintext_at_a_port_that_takes_tls_only_names_the_option(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    says = "if it needs TLS, give a tls.properties as tlsConfigFile"
    with pytest.raises(NameServersUnreachable, match=says):
        find_replicas([cluster.names])
    commits = GroupCommits(CommitOptions("plain"), ())
    commits.done(all_at(7), {"": StoreAt(str(cluster.broker.store), "north")})
    await_that(lambda: commits.figures["failures"] > 0, "it was tried", SECONDS)
    commits.close()
    (told,) = [record.getMessage() for record in caplog.records if "not committed" in record.getMessage()]
    assert f"commitGroup plain: not committed: {cluster.address}: " in told and says in told, told
    assert "the query continues" in told and "\n" not in told


def other_file(cluster: Cluster, kind: str, directory: Path) -> Path:
    trusts = {"client_trustCertPath": cluster.authority.certificate}
    shows = {"client_certPath": cluster.own.certificate, "client_keyPath": cluster.own.key}
    if kind == "whom nobody knows":
        stranger = Authority(directory / "other", "somebody else")
        return tls_file(directory / "a.properties", client_trustCertPath=stranger.certificate, **shows)
    if kind == "no certificate":
        return tls_file(directory / "b.properties", **trusts)
    issued = cluster.authority.issue("late", is_expired=True)
    return tls_file(directory / "c.properties", **trusts, client_certPath=issued.certificate, client_keyPath=issued.key)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("whom nobody knows", "certificate is not accepted: .*; tls.client.trustCertPath says who may have issued it"),
        ("no certificate", "(requires a certificate; see tls.client.certPath|closed the connection).*; look there"),
        ("expired", "(our certificate has expired|closed the connection|not accept our certificate).*; look there"),
    ],
)
def test_a_wrong_certificate_is_reported_with_the_file(cluster: Cluster, kind: str, says: str, tmp_path: Path) -> None:
    file = other_file(cluster, kind, tmp_path)
    with pytest.raises(NoCommonTls, match=says) as error:
        ask(cluster.names, RequestCode.GET_BROKER_CLUSTER_INFO, tls_of(str(file)))
    assert str(file) in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(NameServersUnreachable, match=says):
        find_replicas([cluster.names], tls_of(str(file)))
    with pytest.raises(NoCommonTls, match=says):
        ask(cluster.address, RequestCode.GET_BROKER_CONFIG, tls_of(str(file)))


def test_a_certificate_of_another_host_is_not_accepted(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    settings = tmp_path / "names.properties"
    file = server_file(tmp_path / "node.properties", authority.issue("far", names="DNS:far.example"))
    settings.write_text(f"tls.server.mode=enforcing\ntls.config.file={file}\n")
    trusting = tls_file(tmp_path / "mine.properties", client_trustCertPath=authority.certificate)
    lenient = tls_file(
        tmp_path / "any.properties", client_trustCertPath=authority.certificate, client_checkHost="false"
    )
    with running(tmp_path / "names", "-c", str(settings)) as port:
        address = f"127.0.0.1:{port}"
        with pytest.raises(NoCommonTls, match="certificate is not accepted: IP address mismatch"):
            ask(address, RequestCode.GET_BROKER_CLUSTER_INFO, tls_of(str(trusting)))
        assert b"brokerAddrTable" in ask(address, RequestCode.GET_BROKER_CLUSTER_INFO, tls_of(str(lenient)))


def test_a_certificate_that_is_renewed_is_shown_at_the_next_question(tmp_path: Path) -> None:
    authority, newer = Authority(tmp_path / "ca"), Authority(tmp_path / "new", "another year's")
    settings = tmp_path / "names.properties"
    file = server_file(tmp_path / "node.properties", newer.issue("node"))
    settings.write_text(f"tls.server.mode=enforcing\ntls.config.file={file}\n")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.certificate.read_bytes())
    tls = tls_of(str(tls_file(tmp_path / "mine.properties", client_trustCertPath=trusted)))
    with running(tmp_path / "names", "-c", str(settings)) as port:
        with pytest.raises(NoCommonTls, match="certificate is not accepted"):
            ask(f"127.0.0.1:{port}", RequestCode.GET_BROKER_CLUSTER_INFO, tls)
        arriving = tmp_path / "arriving.pem"
        arriving.write_bytes(newer.certificate.read_bytes())
        arriving.replace(trusted)
        assert b"brokerAddrTable" in ask(f"127.0.0.1:{port}", RequestCode.GET_BROKER_CLUSTER_INFO, tls)


@pytest.fixture
def stranger() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """Begins what is no server of RocketMQ's, for one connection; gives its address."""
    opened: list[tuple[socket.socket, threading.Thread]] = []

    def begin(answering: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(SECONDS)

        def serve() -> None:
            connection, _peer = listener.accept()
            with connection:
                connection.settimeout(SECONDS)
                answering(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        opened.append((listener, thread))
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield begin
    for listener, thread in opened:
        thread.join(SECONDS)
        listener.close()
        assert not thread.is_alive()


def test_tls_at_a_plaintext_port_says_that_the_option_may_be_wrong(cluster: Cluster, tmp_path: Path) -> None:
    settings = tmp_path / "names.properties"
    settings.write_text("tls.server.mode=disabled\n")
    with running(tmp_path / "names", "-c", str(settings)) as port:
        says = "not use TLS.*; look there, and leave the option out where plaintext is spoken"
        with pytest.raises(NoCommonTls, match=says) as error:
            ask(f"127.0.0.1:{port}", RequestCode.GET_BROKER_CLUSTER_INFO, tls_of(str(cluster.mine)))
        assert "\n" not in str(error.value)
        ask(f"127.0.0.1:{port}", RequestCode.GET_BROKER_CLUSTER_INFO)


def test_a_port_that_does_not_speak_tls_is_reported(cluster: Cluster, stranger) -> None:
    def answering(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with pytest.raises(NoCommonTls, match="speaks no TLS here"):
        ask(stranger(answering), RequestCode.GET_BROKER_CONFIG, tls_of(str(cluster.mine)))


def test_a_handshake_that_never_ends_is_given_up_at_the_deadline(cluster: Cluster, stranger) -> None:
    given_up = threading.Event()

    def answering(connection: socket.socket) -> None:
        connection.sendall(b"\x16\x03\x03\x40\x00")  # a record of 16 KiB, whose bytes come one by one
        try:
            while not given_up.wait(0.02):
                connection.sendall(b"\x02")
        except OSError:
            return

    try:
        with pytest.raises(TimeoutError, match=r"no answer within 0\.5 s"):
            Conversation(stranger(answering), 0.5, tls_of(str(cluster.mine)))
    finally:
        given_up.set()


def test_executors_and_offsets_know_no_more_than_the_name_of_the_file(cluster: Cluster, tmp_path: Path) -> None:
    shown = {"client_certPath": cluster.own.certificate, "client_keyPath": cluster.own.key}
    file = tls_file(
        tmp_path / "mine", client_trustCertPath=cluster.authority.certificate, **shown, client_keyPassword=PASSWORD
    )
    reader = RocketMQStreamReader(schema_of(["queueOffset"]), stream_options(cluster.broker.store, file))
    sent = pickle.dumps(reader)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    tasks = pickle.dumps([partition.value for partition in reader.partitions(start, end)])
    reader.stop()
    for data in (sent, tasks, repr((start, end)).encode()):
        assert PASSWORD.encode() not in data
        assert cluster.own.key.name.encode() not in data
    file.unlink()  # an executor's host has none
    executors = pickle.loads(sent)
    rows = [batch.num_rows for task in pickle.loads(tasks) for batch in executors.read(InputPartition(task))]
    assert sum(rows) == MESSAGES * QUEUES


def test_spark_reads_and_commits_where_all_take_tls_only(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    options = {"nameServer": cluster.names, "tlsConfigFile": str(cluster.mine)}
    read = spark.read.format("rocketmq").options(**options, topic="t", columns="queueId")
    await_that(lambda: rows_read(read) == MESSAGES * QUEUES, "name server and broker answered in time", SECONDS)
    batches: Batches = {}
    query = start(
        spark,
        cluster.broker.store,
        tmp_path / "checkpoint",
        batches,
        continuous=True,
        topic="t",
        commitGroup="spark",
        tlsConfigFile=str(cluster.mine),
    )
    await_rows(query, lambda: (query.lastProgress or {}) and spark_bridge.lag(query.lastProgress).rows_behind == 0)
    await_rows(query, lambda: is_committed(cluster, "spark"))
    query.stop()
    assert len(rows_of(batches)) == MESSAGES * QUEUES
    kept = [path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert kept and not any(b"tls" in data or b"spark.properties" in data for data in kept)
    wrong = tmp_path / "wrong.properties"
    wrong.write_text("tls.client.trustCertPath=nowhere.pem\n")
    with pytest.raises(Exception, match=r"INVALID_OPTION: tlsConfigFile=.*nowhere\.pem: cannot be read") as error:
        spark.read.format("rocketmq").options(**{**options, "tlsConfigFile": str(wrong)}).load().count()
    assert "Traceback" not in str(error.value)


def rows_read(read: DataFrameReader) -> int:
    try:
        return read.load().count()
    except PySparkException as error:
        assert "no answer within" in str(error), "a busy machine"
        return 0


def is_committed(cluster: Cluster, group: str) -> bool:
    try:
        return committed(cluster, group) == [MESSAGES] * QUEUES
    except PeerRefused:  # the group is on its way
        return False


def test_very_many_questions_go_over_one_connection(cluster: Cluster) -> None:
    questions = [Question(RequestCode.GET_BROKER_CONFIG) for _ in range(401)]
    with Conversation(cluster.address, SECONDS, tls_of(str(cluster.mine))) as conversation:
        answers = conversation.ask_all(questions)
    assert {answer.code for answer in answers} == {0} and len(answers) == 401
