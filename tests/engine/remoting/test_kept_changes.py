"""An administrator's change is on disk and known to the name servers before the answer; it outlives kill -9."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting import kept_changes
from engine.remoting.clients import Clients
from engine.remoting.kept_settings import KeptSettings
from engine.remoting.sockets.client import PeerUnreachable, RemotingClient
from engine.settings.config import load
from store.files import file_io
from store.names import CONSUMER_OFFSETS, GROUPS, TOPICS
from store.tables import json_files
from tests.harness.clients_turns import role, turn_until
from tests.harness.killing import kill_broker
from tests.harness.page_loss import LossyDisk
from tests.harness.served_names import Serving
from tools.common.local_broker import LocalBroker, free_port

TOPIC = {"readQueueNums": "6", "writeQueueNums": "6", "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
         "topic": "made"}  # fmt: skip
Tables = Callable[[str], dict[Any, Any]]


@pytest.fixture
def well() -> Iterator[Serving]:
    server = Serving()
    yield server
    server.stop()


def asked(code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(code, ext_fields=fields, body=body)


def topics(says: Tables) -> dict[str, Any]:
    return dict(says(TOPICS)["topicConfigTable"])


def groups(says: Tables) -> dict[str, Any]:
    return dict(says(GROUPS)["subscriptionGroupTable"])


def offsets(says: Tables) -> dict[str, Any]:
    return dict(says(CONSUMER_OFFSETS)["offsetTable"])


COMMIT = {"consumerGroup": "g", "topic": "made", "queueId": "0"}
GROUP_AND_TOPIC = {"group": "g", "topic": "made"}
CHANGES: dict[str, tuple[RemotingCommand, Callable[[Tables], bool]]] = {
    "topic": (asked(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC), lambda says: "made" in topics(says)),
    "smaller": (
        asked(RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "writeQueueNums": "5"}),
        lambda says: topics(says)["made"]["writeQueueNums"] == 5,
    ),
    "topics": (
        asked(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, b'{"topicConfigList":[{"topicName":"u"}]}'),
        lambda says: "u" in topics(says),
    ),
    "group": (
        asked(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"g"}'),
        lambda says: "g" in groups(says),
    ),
    "groups": (
        asked(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, b'{"groupConfigList":[{"groupName":"h"}]}'),
        lambda says: "h" in groups(says),
    ),
    "forbidden": (
        asked(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, {**GROUP_AND_TOPIC, "readable": "false"}),
        lambda says: says(GROUPS)["forbiddenTable"] == {"g": {"made": 4}},
    ),
    "reset": (
        asked(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            {
                **GROUP_AND_TOPIC,
                "timestamp": "-1",
                "isForce": "true",
                "queueId": "0",
                "offset": "0",
            },
        ),
        lambda says: offsets(says)["made@g"] == {0: 0},
    ),
    "clone": (
        asked(RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "g", "destGroup": "h", "topic": "made", "offline": "true"}),
        lambda says: offsets(says)["made@h"] == {0: 0},
    ),
    "permission": (
        asked(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4"),
        lambda says: says(TOPICS)["dataVersion"]["counter"] >= 3,
    ),
    "group gone": (
        asked(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "h", "cleanOffset": "true"}),
        lambda says: "h" not in groups(says) and "made@h" not in offsets(says),
    ),
    "topic gone": (
        asked(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "made"}),
        lambda says: "made" not in topics(says) and "made@g" not in offsets(says),
    ),
}


class Disk:
    """Files are replaced while it `goes_on`; the first that waits for that is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on, self.is_asked, self.error = threading.Event(), threading.Event(), OSError(0, "")
        self._replace = file_io.replace_file
        monkeypatch.setattr(file_io, "replace_file", self._slowly)

    def _slowly(self, path: Path, content: bytes, mode: int = 0o640) -> None:
        self.is_asked.set()
        assert self.goes_on.wait(60)
        if self.error.errno:
            raise self.error
        self._replace(path, content, mode)


def test_every_change_is_in_its_file_before_the_answer(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    with role(store_dir, region_dir, "", compat="5", useServerSideResetOffset="true") as (server, _config):
        for name, (request, is_done) in CHANGES.items():
            disk.goes_on.clear()
            disk.is_asked.clear()
            answer = server.answer_frame(request, 1)
            assert not isinstance(answer, RemotingCommand | None), f"{name}: answered before anything was written"
            turn_until(server, disk.is_asked.is_set)
            for _ in range(3):
                turn_until(server, lambda: True)
                server.idle(1)
            assert not answer.done(), f"{name}: answered while the disk had not taken it"
            disk.goes_on.set()
            turn_until(server, answer.done)
            assert (told := answer.result()) is not None and told.code == 0, (name, told)
            assert is_done(lambda name: json_files.read(store_dir / "config" / name)), name


def test_a_commit_that_sets_a_group_back_is_on_disk_before_its_answer(store_dir: Path, region_dir: Path) -> None:
    """So an administrator resets a group that nobody is in."""
    with role(store_dir, region_dir, "") as (server, _config):
        forward = server.answer_frame(asked(RequestCode.UPDATE_CONSUMER_OFFSET, {**COMMIT, "commitOffset": "9"}), 1)
        assert isinstance(forward, RemotingCommand), "consumers wait for no disk"
        back = server.answer_frame(asked(RequestCode.UPDATE_CONSUMER_OFFSET, {**COMMIT, "commitOffset": "4"}), 1)
        assert not isinstance(back, RemotingCommand | None)
        turn_until(server, back.done)
        assert offsets(lambda name: json_files.read(store_dir / "config" / name)) == {"made@g": {0: 4}}


def test_a_change_that_the_disk_does_not_take_is_answered_as_failed(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    disk.error = OSError(28, "No space left on device")
    disk.goes_on.set()
    with role(store_dir, region_dir, "") as (server, _config):
        answer = server.answer_frame(CHANGES["topic"][0], 1)
        assert not isinstance(answer, RemotingCommand | None)
        turn_until(server, answer.done)
        assert (told := answer.result()) is not None and told.code == 1
        assert "topics.json cannot be written: No space left on device" in (told.remark or "")
        disk.error = OSError(0, "")
        again = server.answer_frame(CHANGES["topic"][0], 1)
        assert not isinstance(again, RemotingCommand | None)
        turn_until(server, again.done)
        assert (told := again.result()) is not None and told.code == 0
        assert CHANGES["topic"][1](lambda name: json_files.read(store_dir / "config" / name))


def test_changes_that_wait_together_are_written_together(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []
    disk = Disk(monkeypatch)
    real = disk._replace
    disk._replace = lambda path, content, mode: (written.append(path), real(path, content, mode))[1]
    with role(store_dir, region_dir, "") as (server, _config):
        answers = [
            server.answer_frame(asked(RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "topic": f"t{n}"}), 1)
            for n in range(200)
        ]
        disk.goes_on.set()
        futures = [answer for answer in answers if not isinstance(answer, RemotingCommand | None)]
        assert len(futures) == 200
        turn_until(server, lambda: all(answer.done() for answer in futures))
    assert sum(path.name == TOPICS for path in written) <= 3


def test_a_setting_is_in_the_file_before_the_answer_and_else_answered_as_failed(
    store_dir: Path, region_dir: Path, tmp_path: Path, well: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, link = tmp_path / "real.properties", tmp_path / "broker.properties"
    real.write_bytes(b"# ours\nfileReservedTime = 72\n\nbrokerName=a\n")
    real.chmod(0o604)
    link.symlink_to(real)
    monkeypatch.setattr(kept_changes, "REGISTERED_SECONDS", 60)  # a busy machine may be late
    names = f"127.0.0.1:{well.port}"
    with role(store_dir, region_dir, names) as (server, config):
        server._settings = KeptSettings(str(link))
        turn_until(server, lambda: "TBW102" in well.state.routes.topics)
        request = asked(RequestCode.UPDATE_BROKER_CONFIG, {}, b"fileReservedTime=5\nbrokerPermission=4")
        known = well.state.routes.topics
        assert ask(server, config.listen_port, request, lambda: known["TBW102"]["a"].perm == 4)
        assert real.read_bytes() == b"# ours\nfileReservedTime=5\n\nbrokerName=a\nbrokerPermission=4\n"
        assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o604
        monkeypatch.setattr(file_io, "rename", lambda *_paths: refuse())
        request = asked(RequestCode.UPDATE_BROKER_CONFIG, {}, b"fileReservedTime=3")
        answer = server.answer_frame(request, 1)
        assert not isinstance(answer, RemotingCommand | None)
        turn_until(server, answer.done)
        assert (told := answer.result()) is not None and told.code == 1
        assert told.remark == (
            f"fileReservedTime: in use, and lost at the next start: {link} cannot be written: No space left on device"
        )
        assert server._counters.file_reserved_hours.read() == 3, "it may be what makes room"
        monkeypatch.undo()


def refuse() -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("name", ["topic", "topics", "permission", "topic gone"])
def test_name_servers_know_of_a_change_before_the_answer(
    store_dir: Path, region_dir: Path, well: Serving, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_changes, "REGISTERED_SECONDS", 60)
    known = well.state.routes.topics
    with role(store_dir, region_dir, f"127.0.0.1:{well.port}", compat="5") as (server, config):
        turn_until(server, lambda: "TBW102" in known)
        if name == "topic gone":
            ask(server, config.listen_port, CHANGES["topic"][0])
        address = f"127.0.0.1:{config.listen_port}"
        before = well.state.routes.version_of("DefaultCluster", address)
        is_known = {
            "topic": lambda: "made" in known,
            "topics": lambda: "u" in known,
            "permission": lambda: known["TBW102"]["a"].perm == 4,
            "topic gone": lambda: well.state.routes.version_of("DefaultCluster", address) != before,
        }
        assert before is not None and ask(server, config.listen_port, CHANGES[name][0], is_known[name])


def ask(server: Clients, port: int, request: RemotingCommand, then: Callable[[], bool] = lambda: True) -> bool:
    """What `then` finds at the moment when a client has the answer to its request."""
    found: Future[bool] = Future()

    def run() -> None:
        try:
            with RemotingClient(f"127.0.0.1:{port}", timeout=60) as client:
                answer = client.ask(RequestCode(request.code), dict(request.ext_fields or {}), bytes(request.body))
                found.set_result(answer.code == 0 and then())
        except Exception as error:
            found.set_exception(error)

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    turn_until(server, found.done)
    asking.join()
    return found.result()


def test_a_silent_name_server_is_not_waited_for_for_ever(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kept_changes, "REGISTERED_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_at, dead_at = silent.getsockname()[1], free_port()
        with role(store_dir, region_dir, f"127.0.0.1:{silent_at};127.0.0.1:{dead_at}") as (server, _config):
            answer = server.answer_frame(CHANGES["topic"][0], 1)
            assert not isinstance(answer, RemotingCommand | None)
            turn_until(server, answer.done)
            assert (told := answer.result()) is not None and told.code == 0
            assert CHANGES["topic"][1](lambda name: json_files.read(store_dir / "config" / name))
    assert f"127.0.0.1:{silent_at} did not confirm an administrator's change" in caplog.text


def test_an_answered_change_is_there_after_a_power_cut(
    store_dir: Path, region_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(7)
    store_dir.mkdir(parents=True, exist_ok=True)
    disk = LossyDisk(store_dir, monkeypatch)
    try:
        with role(store_dir, region_dir, "", compat="5", useServerSideResetOffset="true") as (server, _config):
            for number, (request, is_done) in enumerate(CHANGES.values()):
                answer = server.answer_frame(request, 1)
                assert not isinstance(answer, RemotingCommand | None)
                turn_until(server, answer.done)
                for state in range(10):
                    target = tmp_path / f"{number}.{state}"
                    disk.crash(dice, target)
                    assert is_done(lambda name, at=target: json_files.read(at / "config" / name)), (request, target)
    finally:
        disk.close()


class Changing:
    """Administrators who make topics of one broker, three at a time, until it is killed."""

    def __init__(self, port: int, attempt: int) -> None:
        self.answered: list[str] = []
        self.hours = 0  # of fileReservedTime, as it was answered last
        self._port, self._attempt, self._enough = port, attempt, threading.Event()
        self._threads = [threading.Thread(target=self._change, args=(first,), daemon=True) for first in (0, 100, 200)]
        for one in self._threads:
            one.start()

    def _change(self, first: int) -> None:
        with suppress(PeerUnreachable), RemotingClient(f"127.0.0.1:{self._port}", timeout=60) as client:
            for number in range(first, first + 100):
                name = f"t{self._attempt}-{number}"
                answer = client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "topic": name})
                if answer.code == 0:
                    self.answered.append(name)
                if first == 0:  # one of them changes a setting as well, to ever more
                    body = b"fileReservedTime=%d" % (number + 1)
                    if client.ask(RequestCode.UPDATE_BROKER_CONFIG, None, body).code == 0:
                        self.hours = number + 1
                if len(self.answered) > 10:
                    self._enough.set()

    def await_some(self) -> None:
        """Until some of them have their answers."""
        assert self._enough.wait(120)

    def await_end(self) -> None:
        """Until nobody is answered any more."""
        for one in self._threads:
            one.join(120)
            assert not one.is_alive()


@pytest.mark.crash
def test_an_answered_change_is_there_after_kill_9(tmp_path: Path) -> None:
    """A broker that is killed while administrators are being answered, and started again on what it left."""
    for attempt in range(3):
        with LocalBroker(tmp_path / "b") as broker:
            changing = Changing(broker.port, attempt)
            changing.await_some()
            kill_broker(broker)
            changing.await_end()
        table = json.loads((broker.store / "config" / TOPICS).read_text())["topicConfigTable"]
        queues = {name: table.get(name, {}).get("writeQueueNums") for name in changing.answered}
        assert queues == dict.fromkeys(changing.answered, 6)
        settings, _warnings = load(tmp_path / "b" / "broker.properties")
        assert settings.file_reserved_hours in (changing.hours, changing.hours + 1)
