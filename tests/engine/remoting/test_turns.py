"""Very many topics and groups: what the clients role does with them in one turn of its event loop is bounded."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.tables.defaults import group_config
from engine.protocol.tables.metadata import Metadata, Served
from engine.remoting import clients
from engine.remoting.files.broker_files import BrokerFiles
from engine.remoting.links import exchange
from engine.remoting.loop import slices
from engine.remoting.peers.link import RemotingLink
from engine.shared_memory.cursors import BrokerCounters
from store.compat import LINES
from store.errors import MalformedConfig
from store.names import CONFIG, GROUPS, TOPICS
from store.tables import config_texts, fastjson, json_files, json_steps
from store.tables import tables as broker_tables
from store.tables.config_texts import ConfigTexts
from store.tables.entry_texts import STEP, compact_of
from store.tables.json_steps import PART_CHARS, STEP_CHARS
from store.tables.tables import QUEUES_A_STEP, topic_config
from tests.engine.remoting.files.test_broker_files import NOW, config_of
from tests.harness.clients_turns import role, turn_until
from tests.harness.conditions import await_that
from tests.harness.served_names import Serving

MANY = 12 * STEP
BOTH = pytest.mark.parametrize("compat", ["4.9", "5"])


class Turns:
    """Which turn of a loop it is, and how many entries were written in each."""

    def __init__(self) -> None:
        self.now, self.written, self.is_over = 0, dict[int, int](), False
        self.others: dict[str, dict[int, int]] = {}

    def count(self, loop: asyncio.AbstractEventLoop) -> None:
        """One more, and so on with each turn of the loop."""
        self.now += 1
        if not self.is_over:
            loop.call_soon(self.count, loop)

    def note(self, count: int = 1, of: str = "written") -> None:
        counts = self.written if of == "written" else self.others.setdefault(of, {})
        counts[self.now] = counts.get(self.now, 0) + count

    def most(self, of: str) -> int:
        """In one turn."""
        return max(self.others[of].values())

    def counted(
        self, of: str, work: Callable[..., Any], count: Callable[..., int] = lambda *_: 1
    ) -> Callable[..., Any]:
        """The same work, noted."""

        def noted(*args: Any, **kwargs: Any) -> Any:
            self.note(count(*args), of)
            return work(*args, **kwargs)

        return noted


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    """Counted; a turn of theirs ends with each step, however fast this machine is."""
    counted, entry = Turns(), ConfigTexts._entry

    def noted(texts: ConfigTexts, name: str) -> object:
        counted.note()
        return entry(texts, name)

    monkeypatch.setattr(ConfigTexts, "_entry", noted)
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
    yield counted
    counted.is_over = True


def fill(store: Path, compat: str) -> None:
    line, below = LINES[compat], store / CONFIG
    below.mkdir(parents=True)
    topics = {f"topic-{n}": topic_config(f"topic-{n}", 10, 10, 6, line=line) for n in range(MANY)}
    groups = {f"group-{n}": group_config(f"group-{n}", line) for n in range(MANY)}
    json_files.write(below / TOPICS, {"topicConfigTable": topics})
    json_files.write(below / GROUPS, {"subscriptionGroupTable": groups})


def change(metadata: Metadata) -> None:
    metadata.set_topic(topic_config("new", 4, 4, 6, line=metadata.identity.line), NOW)
    metadata.set_group(group_config("new", metadata.identity.line), NOW)
    metadata.forbid("new", "topic-1", 1, is_forbidden=True, now_ms=NOW)


@BOTH
def test_files_of_topics_and_groups_are_written_a_part_at_a_time_after_a_start(
    tmp_path: Path, region_dir: Path, turns: Turns, compat: str
) -> None:
    fill(tmp_path / "s", compat)
    files = BrokerFiles(config_of(tmp_path / "s", region_dir, compat=compat), NOW, region_dir, is_beside=True)
    change(files.metadata)
    files.save(NOW)
    assert not turns.written, "not in the turn that finds them changed"

    async def write() -> None:
        turns.count(asyncio.get_running_loop())
        await asyncio.gather(files.write_tables(), files.write_tables())

    asyncio.run(write())
    assert 2 * MANY <= sum(turns.written.values()) <= 2 * MANY + 2 * STEP
    assert len(turns.written) >= 2 * MANY // (2 * STEP) and max(turns.written.values()) <= 2 * STEP, "two drive it"
    turns.written.clear()
    files.save(NOW + 1)
    files.save(NOW + 2, is_last=True)
    assert not turns.written, "what is written once is not written again"
    for name in (TOPICS, GROUPS):
        path = tmp_path / "s" / CONFIG / name
        assert path.read_bytes() == fastjson.dumps_pretty(files.metadata.value(name)).encode()
    assert files.metadata.groups_json() == fastjson.dumps(files.metadata.value(GROUPS), bare_keys=True).encode()
    files.close()


def test_topics_of_others_are_read_beside_the_role_and_taken_before_its_own_are_written(
    tmp_path: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "s", "5")
    files = BrokerFiles(config_of(tmp_path / "s", region_dir, compat="5"), NOW, region_dir, is_beside=True)
    readers, read, parts = set[int](), Metadata.served_topics, list[int]()

    def noted(metadata: Metadata, value: dict[str, Any]) -> Served:
        readers.add(threading.get_ident())
        return read(metadata, value)

    def read_part(text: str) -> Any:
        parts.append(len(text))
        return fastjson.read_as_written(text)

    monkeypatch.setattr(Metadata, "served_topics", noted)
    monkeypatch.setattr(json_steps, "read_as_written", read_part)
    monkeypatch.setattr(fastjson, "loads", lambda *_of, **_how: pytest.fail("while it reads, the role has no turn"))
    await_that(lambda: not files.look(NOW, dispatched=True) and not files._reading, "nothing is new")
    path = tmp_path / "s" / CONFIG / TOPICS
    served = json_files.read(path, beside=True)
    served["topicConfigTable"]["theirs"] = topic_config("theirs", 3, 3, 6, line=LINES["5"])
    json_files.write(path, served)
    change(files.metadata)
    for _ in files.metadata.texts[TOPICS].steps():
        pass
    at = NOW

    def is_saved() -> bool:
        nonlocal at
        at += 1
        files.save(at)
        return files.is_saved(TOPICS)

    await_that(is_saved, "ours is written")
    assert {"theirs", "new"} <= json_files.read(path, beside=True)["topicConfigTable"].keys()
    assert parts and max(parts) <= PART_CHARS
    assert files.look(NOW, dispatched=True), "name servers are to hear of theirs"
    assert not files.look(NOW, dispatched=True)
    assert readers and threading.get_ident() not in readers
    files.close()


@BOTH
def test_name_servers_and_slaves_hear_of_very_many_once_they_are_written(
    store_dir: Path, region_dir: Path, turns: Turns, monkeypatch: pytest.MonkeyPatch, compat: str
) -> None:
    fill(store_dir, compat)
    names = Serving()
    with role(store_dir, region_dir, f"127.0.0.1:{names.port}", compat=compat) as (server, _config):
        metadata = server._files.metadata
        assert metadata.many_unwritten == [TOPICS, GROUPS]
        turns.count(server._loop)
        server.do_work(0)
        assert not server._registrar.registrations, "nobody is told in the turn that has to write them"
        turn_until(server, lambda: not metadata.many_unwritten)
        assert max(turns.written.values()) <= STEP
        turns.written.clear()
        turn_until(server, lambda: "topic-7" in names.state.routes.topics)
        metadata.set_group(group_config("one more", metadata.identity.line), NOW)
        metadata.texts[GROUPS].alter_all()
        assert metadata.many_unwritten == [GROUPS]
        counted = turns.counted("entries", compact_of, lambda text: text.count(b"groupName"))
        monkeypatch.setattr(config_texts, "compact_of", counted)
        request = RemotingCommand(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, 7)
        answering = server.answer_frame(request, 1)
        assert isinstance(answering, asyncio.Future)
        turn_until(server, answering.done)
        answer = answering.result()
        assert answer is not None and bytes(answer.body) == metadata.groups_json()
        assert max(turns.written.values()) <= STEP + 1
        assert turns.most("entries") <= STEP and sum(turns.others["entries"].values()) > MANY, (
            "nor put together at once"
        )
        turns.is_over = True
    names.stop()


def offsets_of(base: int) -> bytes:
    table = {f"topic-{n}@group-{n}": {queue: base + queue for queue in range(10)} for n in range(MANY)}
    return fastjson.dumps(
        {"offsetTable": {**table, "many@one": dict.fromkeys(range(3 * QUEUES_A_STEP), base)}}
    ).encode()


@BOTH
def test_a_slave_reads_and_takes_its_masters_tables_a_part_at_a_time(
    store_dir: Path, region_dir: Path, tmp_path: Path, turns: Turns, monkeypatch: pytest.MonkeyPatch, compat: str
) -> None:
    fill(tmp_path / "master", compat)
    master = BrokerFiles(config_of(tmp_path / "master", region_dir, compat=compat), NOW, region_dir).metadata
    change(master)
    bodies = {
        RequestCode.GET_ALL_TOPIC_CONFIG: master.topics_json(),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: master.groups_json(),
        RequestCode.GET_ALL_CONSUMER_OFFSET: offsets_of(7), RequestCode.GET_ALL_DELAY_OFFSET: b"{}",
    }  # fmt: skip

    async def ask(_link: RemotingLink, request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand(0, flag=1, body=bodies.get(RequestCode(request.code), b"{}"))

    with role(store_dir, region_dir, "", compat=compat, brokerRole="SLAVE", brokerId=1) as (server, _config):
        turn_until(server, lambda: not server._files.metadata.many_unwritten)
        for of, where, name in (
            ("characters", json_steps, "read_as_written"),
            ("topics", broker_tables, "topic_config"),
            ("offsets", server._journal, "set_offset"),
        ):
            count: Callable[..., int] = len if of == "characters" else lambda *_: 1
            monkeypatch.setattr(where, name, turns.counted(of, getattr(where, name), count))
        monkeypatch.setattr(RemotingLink, "ask", ask)
        turns.count(server._loop)
        frozen = list[int]()
        monkeypatch.setattr(gc, "freeze", lambda: frozen.append(server._master.synchronize.last_ms))
        server._master.address, server._master.synchronize._due_ms = "127.0.0.1:10911", 0
        turn_until(server, lambda: server._master.synchronize.last_ms > 0)
        first_ms = server._master.synchronize.last_ms
        taken = server._files.metadata
        assert taken.topics == master.topics and taken.groups == master.groups
        assert taken.offsets == broker_tables.consumer_offsets(json_files.parse(offsets_of(7)))
        assert server._journal.offsets() == taken.offsets
        server._master.synchronize._due_ms = 0
        turn_until(server, lambda: server._master.synchronize.last_ms > first_ms)
        turns.is_over = True
        assert frozen == [0], "what it took at first stays for long, what comes later perhaps not"
    assert turns.most("characters") <= 2 * (STEP_CHARS + PART_CHARS), "both ports' answers are read at once"
    assert turns.most("topics") <= STEP and turns.most("offsets") <= QUEUES_A_STEP


def test_no_garbage_is_looked_for_while_tables_are_loaded(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, looked = config_of(store_dir, region_dir), list[bool]()
    counters = BrokerCounters.create(region_dir / "counters")

    def loading(*_about: object) -> None:
        looked.append(gc.isenabled())
        if len(looked) == 2:
            raise MalformedConfig("topics.json", "of a kind that nobody expects")

    monkeypatch.setattr(clients, "Clients", loading)
    bells = exchange.Bells.make(1)
    clients.open_role(config, counters, bells)
    assert gc.isenabled()
    with pytest.raises(MalformedConfig):
        clients.open_role(config, counters, bells)
    assert gc.isenabled() and looked == [False, False]
    bells.close()
    counters.region.close()
