"""The remoting role in one process, with name servers that are slow, dead and well: who harms whom."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.monitoring.finding import Verdict
from engine.monitoring.problems import of_the_tables
from engine.protocol.broker import slave_synchronize
from engine.protocol.broker.requests import BrokerRequests, ShownFacts
from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.tables.defaults import Identity
from engine.protocol.tables.metadata import Metadata
from engine.remoting import clients
from engine.remoting.clients import Clients
from engine.remoting.files import broker_files
from engine.remoting.links import exchange
from engine.remoting.peers import master_tables
from engine.remoting.sockets.client import RemotingClient
from engine.remoting.sockets.server import RemotingServer
from engine.shared_memory import address_cursors, live_settings
from ipc.clock import monotonic_ms, wall_ms
from store.compat import LINES
from store.files.file_io import CREATING_SUFFIX
from store.names import CONSUMER_OFFSETS, GROUPS, TOPICS
from store.tables import json_files
from tests.harness.clients_turns import role, turn_until
from tests.harness.conditions import await_that
from tests.harness.served_names import Serving
from tools.common.local_broker import free_port

LATE_SECONDS = 120


@pytest.fixture
def well() -> Iterator[Serving]:
    server = Serving()
    yield server
    server.stop()


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield listening.getsockname()[1]


def in_a_thread(server: Clients, work: Callable[[], RemotingCommand]) -> RemotingCommand:
    """Ask the role something while it turns."""
    found: list[RemotingCommand] = []
    asking = threading.Thread(target=lambda: found.append(work()), daemon=True)
    asking.start()
    turn_until(server, lambda: bool(found))
    asking.join()
    return found[0]


def test_a_silent_and_a_dead_name_server_harm_nothing(
    store_dir: Path, region_dir: Path, well: Serving, silent: int
) -> None:
    dead, topics = free_port(), well.state.routes.topics
    names = f"127.0.0.1:{silent};127.0.0.1:{dead};127.0.0.1:{well.port}"
    with role(store_dir, region_dir, names) as (server, config):
        turn_until(server, lambda: "TBW102" in topics)
        fields = {"topic": "made", "readQueueNums": "3", "writeQueueNums": "2", "perm": "6"}
        with RemotingClient(f"127.0.0.1:{config.listen_port}", timeout=60) as client:
            answer = in_a_thread(
                server,
                lambda: client.ask(
                    RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, "topicFilterType": "SINGLE_TAG", "order": "false"}
                ),
            )
            assert answer.code == 0
            turn_until(server, lambda: "made" in topics)
            assert topics["made"]["a"].read_queue_nums == 3
    await_that(lambda: not well.state.routes.brokers, "the goodbye is heard")


def test_slaves_that_copy_tables_keep_no_quiet_broker_awake(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with role(store_dir, region_dir, "") as (server, _config):
        now_ms = monotonic_ms()
        monkeypatch.setattr(clients, "monotonic_ms", lambda: now_ms)
        awake_ms = server._wait_ms()
        now_ms += clients.QUIET_MS
        quiet_ms = server._wait_ms()
        assert quiet_ms > awake_ms
        for code, wait_ms in (
            (RequestCode.GET_ALL_TOPIC_CONFIG, quiet_ms), (RequestCode.GET_BROKER_RUNTIME_INFO, awake_ms)
        ):  # fmt: skip
            server.answer_frame(RemotingCommand(code), 1)
            assert server._wait_ms() == wait_ms


def test_a_changed_topic_ends_a_turn_however_long_that_would_be(
    store_dir: Path, region_dir: Path, well: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "TURN_MS_MAX", 10 * LATE_SECONDS * 1000)
    late: list[bool] = []
    fields = {"topic": "made", "readQueueNums": "3", "writeQueueNums": "2", "perm": "6"}
    with (
        role(store_dir, region_dir, f"127.0.0.1:{well.port}") as (server, config),
        RemotingClient(f"127.0.0.1:{config.listen_port}", timeout=60) as client,
    ):
        turn_until(server, lambda: "TBW102" in well.state.routes.topics)
        update = RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, "topicFilterType": "SINGLE_TAG", "order": "false"}
        asking = threading.Thread(target=lambda: client.ask(*update), daemon=True)
        asking.start()

        def give_up() -> None:
            late.append(True)
            server._turns.end_turn()

        server._loop.call_later(LATE_SECONDS, give_up)
        server.idle(10 * LATE_SECONDS * 1000)
        assert not late
        turn_until(server, lambda: "made" in well.state.routes.topics)
        turn_until(server, lambda: not asking.is_alive())


def test_permission_and_period_outlive_the_role(store_dir: Path, region_dir: Path, well: Serving) -> None:
    names, topics = f"127.0.0.1:{well.port}", well.state.routes.topics
    with role(store_dir, region_dir, names, brokerPermission=4) as (server, config):
        turn_until(server, lambda: "TBW102" in topics)
        assert topics["TBW102"]["a"].perm == 4, "as it is configured"
        with RemotingClient(f"127.0.0.1:{config.listen_port}", timeout=60) as client:
            change = b"brokerPermission=2\nregisterNameServerPeriod=20000\n"
            in_a_thread(server, lambda: client.ask(RequestCode.UPDATE_BROKER_CONFIG, None, change))
            turn_until(server, lambda: topics["TBW102"]["a"].perm == 2)
        bells = exchange.Bells.make(1)
        again = Clients(config, server._counters, bells)  # as the supervisor starts it when it died
        told = again.answer_frame(RemotingCommand(RequestCode.GET_BROKER_CONFIG), 1)
        again.close()
        bells.close()
        assert isinstance(told, RemotingCommand)
        assert {"brokerPermission=2", "registerNameServerPeriod=20000"} <= set(bytes(told.body).decode().splitlines())


def test_retention_is_set_shown_and_logged(store_dir: Path, region_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with role(store_dir, region_dir, "") as (server, config):

        def ask(code: int, body: bytes = b"") -> RemotingCommand:
            answer = server.answer_frame(RemotingCommand(code, body=body), 1)
            if isinstance(answer, asyncio.Future):
                turn_until(server, answer.done)
                answer = answer.result()
            assert isinstance(answer, RemotingCommand)
            return answer

        before = live_settings.retention(server._counters)
        assert before == ({4}, 72, 75), "as configured"
        for refused in (b"fileReservedTime=-1", b"deleteWhen=24", b"diskMaxUsedSpaceRatio=x", b"fileReservedTimes=3"):
            assert ask(RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=5\n" + refused).code != 0
        assert live_settings.retention(server._counters) == before and not caplog.text, "nothing of it"
        wanted = b"fileReservedTime=5\ndeleteWhen=23;4;\ndiskMaxUsedSpaceRatio=99\nbrokerPermission=6"
        assert ask(RequestCode.UPDATE_BROKER_CONFIG, wanted).code == 0
        assert live_settings.retention(server._counters) == ({4, 23}, 5, 99)
        shown = set(bytes(ask(RequestCode.GET_BROKER_CONFIG).body).decode().splitlines())
        assert {"fileReservedTime=5", "deleteWhen=04;23", "diskMaxUsedSpaceRatio=99", "brokerPermission=6"} <= shown
        assert "fileReservedTime=5 (it was 72) until this process ends: it was started without a file" in caplog.text
        assert "brokerPermission" not in caplog.text, "it was 6 before"
    assert config.file_reserved_hours == 72


class AMaster:
    """A master's two ports in a thread; what is asked at the lower one can be left without an answer."""

    def __init__(self, identity: Identity, compat: str = "4.9") -> None:
        self.metadata = Metadata(identity, {}, 1)
        self.requests = BrokerRequests(compat, self.metadata, ShownFacts(dict, dict, dict), is_slave=False)
        self.asked: list[int] = []
        self._loop = asyncio.new_event_loop()
        self._server = RemotingServer(self._answer, lambda _connection: None)
        self.port = self._loop.run_until_complete(self._server.start("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def _answer(self, request: RemotingCommand, connection: int) -> RemotingCommand | None:
        self.asked.append(request.code)
        return self.requests.answer(request, connection, wall_ms())

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def a_master() -> Iterator[AMaster]:
    server = AMaster(Identity(LINES["4.9"], "DefaultCluster", "a"))
    yield server
    server.stop()


def register(well: Serving, address: str, connection: int = 10**9) -> None:
    fields = {"clusterName": "DefaultCluster", "brokerName": "a", "brokerId": "0", "brokerAddr": address,
              "haServerAddr": "127.0.0.1:7"}  # fmt: skip
    request = RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=fields, version=407)
    told = well.do(lambda: well.state.answer(request, connection, wall_ms()))
    assert told is not None and told.code == 0


def test_blocked_topics_keep_no_offsets_and_groups_from_a_slave(
    store_dir: Path,
    region_dir: Path,
    well: Serving,
    a_master: AMaster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing answers two ports below: the question for topics waits out its time."""
    a_master.metadata.consumer_offsets.table = {("t", "g"): {0: 5}}
    a_master.metadata.set_group({"groupName": "theirs"}, 2)
    monkeypatch.setattr(slave_synchronize, "FIRST_MS", 0)
    with (
        socket.socket() as blocked,
        role(store_dir, region_dir, f"127.0.0.1:{well.port}", brokerRole="SLAVE", brokerId=1) as (server, _config),
    ):
        blocked.bind(("127.0.0.1", 0))
        blocked.listen(16)
        nobody = f"127.0.0.1:{blocked.getsockname()[1]}"
        monkeypatch.setattr(slave_synchronize, "fast_address", lambda _address: nobody)
        monkeypatch.setattr(master_tables, "SYNCHRONIZE_SECONDS", 0.5)
        register(well, f"127.0.0.1:{a_master.port}")
        turn_until(server, lambda: server._files.metadata.offsets == {("t", "g"): {0: 5}})
        turn_until(server, lambda: "theirs" in server._files.metadata.groups)
        turn_until(server, lambda: "the master's answer to request 21" in caplog.text)
        a_master.metadata.consumer_offsets.table = {("t", "g"): {0: 2}}  # an administrator reset them
        server._master.synchronize._due_ms = 0
        turn_until(server, lambda: server._files.metadata.offsets == {("t", "g"): {0: 2}})
        turn_until(server, lambda: '"t@g":{0:2' in _text(store_dir / "config/consumerOffset.json"))
        told = server._files.metadata.delay_offsets_text
        turn_until(server, lambda: _text(store_dir / "config/delayOffset.json").encode() == told)


def test_topics_that_ask_for_what_is_lacking_are_named(
    store_dir: Path, region_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a RocketMQ 5 broker left them: nothing compacts here."""
    of_5 = {"readQueueNums": 8, "writeQueueNums": 8, "perm": 6}
    wanted = {"kept": {"cleanup.policy": "COMPACTION"}, "long": {"reserve.time": "-1"}, "plain": {}}
    topics = {name: {**of_5, "topicName": name, "attributes": attributes} for name, attributes in wanted.items()}
    json_files.write(store_dir / "config" / TOPICS, {"topicConfigTable": topics})
    with role(store_dir, region_dir, "", compat="5") as (server, _config):
        turn_until(server, lambda: server._counters.unserved_topics.read() == 1)
        assert "topics whose attributes have no effect here: 1;" in caplog.text
        assert "kept (cleanup.policy=COMPACTION)" in caplog.text and "long" not in caplog.text
        (finding,) = of_the_tables(server._counters, str(store_dir))
        assert (finding.reason, finding.verdict) == ("UNSERVED", Verdict.DEGRADED)
        server._files.metadata.delete_topic("kept", wall_ms())
        turn_until(server, lambda: server._counters.unserved_topics.read() == 0)


def test_a_table_that_cannot_be_written_keeps_no_offsets_from_their_file(
    store_dir: Path, region_dir: Path, well: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again, and again it takes a while to say what is to be written."""
    moments = itertools.count()
    monkeypatch.setattr(broker_files, "time", SimpleNamespace(monotonic=lambda: next(moments) / 100))
    config = store_dir / "config"
    with role(store_dir, region_dir, f"127.0.0.1:{well.port}") as (server, _config):
        (config / f"{GROUPS}{CREATING_SUFFIX}").mkdir(parents=True)
        metadata = server._files.metadata
        metadata.set_group({"groupName": "g"}, 2)
        turn_until(server, lambda: f"{GROUPS}: cannot be written" in caplog.text)
        turn_until(server, lambda: server._counters.tables_errno.read() == errno.EISDIR)
        metadata.commit_offset("g", "t", 0, 5, wall_ms())
        metadata.changed.add(CONSUMER_OFFSETS)
        turn_until(server, lambda: '"t@g":{0:5}' in _text(config / CONSUMER_OFFSETS))
        (config / f"{GROUPS}{CREATING_SUFFIX}").rmdir()
        turn_until(server, lambda: '"g"' in _text(config / GROUPS))
        turn_until(server, lambda: server._counters.tables_errno.read() == 0)


def _text(path: Path) -> str:
    return "".join(path.read_text().split()) if path.exists() else ""


def test_the_masters_address_follows_the_name_server(store_dir: Path, region_dir: Path, well: Serving) -> None:
    names = f"127.0.0.1:{well.port}"
    with role(store_dir, region_dir, names, brokerRole="SLAVE", brokerId=1) as (server, config):

        def heard(address: str | None) -> None:
            for registration, _link in server._registrar.registrations.values():
                registration.hurry()
            turn_until(server, lambda: server._master.address == address)

        register(well, "127.0.0.1:1000")
        turn_until(server, lambda: server._master.address == "127.0.0.1:1000")
        well.do(lambda: well.state.routes.connection_closed(10**9))
        heard(None)
        register(well, "127.0.0.1:2000", 10**9 + 1)
        heard("127.0.0.1:2000")
        well.do(lambda: well.state.routes.connection_closed(10**9 + 1))
        register(well, "127.0.0.1:no port", 10**9 + 2)
        heard(None)
        well.do(lambda: well.state.routes.connection_closed(10**9 + 2))
        register(well, f"127.0.0.1:{config.listen_port}", 10**9 + 3)
        heard(None)


def test_a_slave_looks_its_masters_name_up_again_while_it_has_no_master(
    store_dir: Path, region_dir: Path, well: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = f"127.0.0.1:{well.port}"
    register = {"clusterName": "DefaultCluster", "brokerName": "a", "brokerId": "0", "brokerAddr": "127.0.0.1:1",
                "haServerAddr": "master.invalid:7"}  # fmt: skip
    request = RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=register, version=407)
    told = well.do(lambda: well.state.answer(request, 10**9, wall_ms()))
    assert told is not None and told.code == 0
    hosts = ["10.0.0.1"]
    with role(store_dir, region_dir, names, brokerRole="SLAVE", brokerId=1) as (server, _config):

        async def look_up(host: str, port: int, **_kind: object) -> list[tuple[object, ...]]:
            known = hosts[0] if host == "master.invalid" else host
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known, port))]

        monkeypatch.setattr(server._loop, "getaddrinfo", look_up)
        seen = server._counters.ha_server_address
        turn_until(server, lambda: address_cursors.text_of(seen) == "10.0.0.1:7")
        hosts[0] = "10.0.0.2"  # the name moved, long before the next registration
        turn_until(server, lambda: address_cursors.text_of(seen) == "10.0.0.2:7")
