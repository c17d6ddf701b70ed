"""A broker's config files: what cannot be read or written harms nothing else, what was deleted stays away."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.clients.locks import RebalanceLockManager
from engine.protocol.tables.timer_state import TimerCheckpoint
from engine.remoting.files.broker_files import TELL_AGAIN_MS, BrokerFiles
from engine.settings.config import BrokerConfig, from_mapping
from engine.shared_memory.clients import client_table
from engine.shared_memory.clients.client_table import ClientJournal
from engine.shared_memory.topic_table import TopicTable
from engine.writer.topic_keeper import TopicKeeper
from store.compat import LINES
from store.files import file_io
from store.names import CONSUMER_OFFSETS, DELETED_TOPICS, GROUPS, LIGHT_OFFSETS, TIMER_CHECKPOINT, TOPICS
from store.recovery.dispatch import Dispatcher
from store.tables import json_files
from store.tables import tables as broker_tables
from store.tables.steps import at_once
from store.tables.tables import DataVersion, topic_config
from tests.harness.conditions import SECONDS, await_that
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog

NOW = 1_700_000_000_000


def config_of(store: Path, region_dir: Path, **settings: object) -> BrokerConfig:
    return from_mapping({"storePathRootDir": store, "regionPath": region_dir, "brokerName": "a", **settings})


class Counting:
    """Messages as the dispatcher counts them, into a broker's topic table."""

    def __init__(self, region_directory: Path, directory: Path) -> None:
        self._regions, self._log = region_directory, SmallLog(directory / "counted")
        TopicTable.create(self._regions)

    def put(self, topic: str, count: int) -> None:
        begin = self._log.end
        for _ in range(count):
            self._log.append(topic, b"x")
        table = TopicTable.attach(self._regions, writable=True)
        queues = self._log.directory.consumequeue
        builder = Dispatcher(self._log.files, queues, QUEUE_FILE_BYTES, on_rows=table.put)
        assert builder.dispatch(begin, self._log.end) == self._log.end
        builder.close()
        table.close()


def served(store: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json_files.read(store / "config" / TOPICS)["topicConfigTable"]
    return found


def test_sound_files_are_looked_through_once(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be very long, and the role serves nobody before."""
    below, looked, offsets_of = store_dir / "config", list[int](), broker_tables.consumer_offsets
    below.mkdir(parents=True)
    (below / CONSUMER_OFFSETS).write_bytes(b'{"offsetTable":{"t@g":{0:7}}}')

    def noted(value: dict[str, Any], path: str = "") -> dict[tuple[str, str], dict[int, int]]:
        looked.extend([len(value)] * (path == CONSUMER_OFFSETS))
        return offsets_of(value, path)

    monkeypatch.setattr(broker_tables, "consumer_offsets", noted)
    files = BrokerFiles(config_of(store_dir, region_dir), NOW, region_dir)
    assert looked == [1] and files.metadata.offsets == {("t", "g"): {0: 7}} and not caplog.text
    (below / GROUPS).write_bytes(b'{"subscriptionGroupTable":7}')
    files = BrokerFiles(config_of(store_dir, region_dir), NOW, region_dir)
    assert files.metadata.offsets == {("t", "g"): {0: 7}} and "subscriptionGroupTable is not an object" in caplog.text


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_light_groups_are_where_rocketmq_keeps_them(store_dir: Path, region_dir: Path, compat: str) -> None:
    path = store_dir / "config" / LIGHT_OFFSETS
    settings = {"enableLmq": "true", "compat": compat}

    def files() -> BrokerFiles:
        return BrokerFiles(config_of(store_dir, region_dir, **settings), NOW, region_dir)

    begun = files()
    for group, queue_id, offset in (("%LMQ%g", 3, 7), ("usual", 1, 9)):
        begun.metadata.commit_offset(group, "%LMQ%t", queue_id, offset, NOW)
    assert begun.metadata.consumer_offsets.query("%LMQ%g", "%LMQ%t", 5) == 7, "whatever queue it names"
    begun.metadata.changed.add(CONSUMER_OFFSETS)
    begun.save(NOW, is_last=True)
    said = "".join(path.read_text().split())
    assert ('"groupTopicMap":{"usual":["%LMQ%t"]}' in said) is (compat == "5"), "light groups are not in it"
    assert said.endswith('"lmqOffsetTable":{"%LMQ%t@%LMQ%g":7},"offsetTable":{"%LMQ%t@usual":{1:9}}}')
    compact = at_once(begun.metadata.offsets_in_steps()).compact()
    assert compact.endswith(b'"lmqOffsetTable":{"%LMQ%t@%LMQ%g":7},"offsetTable":{"%LMQ%t@usual":{1:9}}}')
    assert files().metadata.offsets == {("%LMQ%t", "%LMQ%g"): {0: 7}, ("%LMQ%t", "usual"): {1: 9}}
    theirs = {"lmqOffsetTable": {"%LMQ%t@%LMQ%g": 8}, "offsetTable": {"%LMQ%t@usual": {1: 10}}}
    json_files.write(path, theirs)  # as RocketMQ does, which leaves consumerOffset.json alone
    assert files().metadata.offsets == {("%LMQ%t", "%LMQ%g"): {0: 8}, ("%LMQ%t", "usual"): {1: 10}}


class Journal:
    """A clients role's shared memory, and files as it reads them when it comes."""

    def __init__(self, store: Path, regions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        client_table.create(regions)
        self._store, self._regions, self.entries = store, regions, list[int]()
        offsets_of = broker_tables.consumer_offsets

        def noted(value: dict[str, Any], path: str = "") -> dict[tuple[str, str], dict[int, int]]:
            if path == CONSUMER_OFFSETS:
                self.entries.append(len(value["offsetTable"]) if value else 0)
            return offsets_of(value, path)

        monkeypatch.setattr(broker_tables, "consumer_offsets", noted)

    def comes(self, compat: str) -> BrokerFiles:
        """Another role, when the one before is gone; `entries`: of consumerOffset.json, how many it reads."""
        self.entries.clear()
        journal = ClientJournal.attach(self._regions)
        config = config_of(self._store, self._regions, compat=compat)
        files = BrokerFiles(config, NOW, self._regions, kept=journal)
        files.take_journal(journal, RebalanceLockManager())
        return files


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_offsets_that_shared_memory_has_are_not_read_again(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch, compat: str
) -> None:
    journal, path = Journal(store_dir, region_dir, monkeypatch), store_dir / "config" / CONSUMER_OFFSETS
    first = journal.comes(compat)
    version = DataVersion(7, NOW, 0 if compat == "5" else None)
    value = broker_tables.consumer_offsets_value({("t", "g"): {0: 7, 1: 9}}, version if compat == "5" else None)
    json_files.write(path, value)
    taken = journal.comes(compat)  # what it began with counts, not what somebody else wrote
    assert journal.entries == [1] and not first.metadata.offsets and not taken.metadata.offsets
    for _ in range(2):
        again = journal.comes(compat)
        assert journal.entries == [0]
        assert again.metadata.versions[CONSUMER_OFFSETS].counter == (7 if compat == "5" else 0)
    path.write_bytes(path.read_bytes() + b" ")
    journal.comes(compat)
    assert journal.entries == [1], "another file"
    path.write_bytes(b"\n" + path.read_bytes())
    journal.comes(compat)
    journal.comes(compat)
    assert journal.entries == [1], "which does not begin as usual"


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_all_offsets_that_a_role_had_come_back_with_the_next_one(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch, compat: str
) -> None:
    journal, path = Journal(store_dir, region_dir, monkeypatch), store_dir / "config" / CONSUMER_OFFSETS
    expected = {(f"t{n}", f"g{n % 7}"): {queue: n * queue for queue in range(n % 5 + 1)} for n in range(300)}
    path.parent.mkdir(parents=True)
    json_files.write(path, broker_tables.consumer_offsets_value(expected))
    assert journal.comes(compat).metadata.offsets == expected and journal.entries == [300]
    again = journal.comes(compat)
    assert again.metadata.offsets == expected and journal.entries == [0]
    again.save(NOW)
    assert broker_tables.consumer_offsets(json_files.read(path)) == expected, "and so does the file"


@pytest.mark.parametrize("content", [b"", bytes(99), b'{"offsetTable":{"t@g":{0:7},"nobody":{0:1}}}'])
def test_a_damaged_file_of_offsets_is_kept_and_new_commits_are_saved(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    journal, path = Journal(store_dir, region_dir, monkeypatch), store_dir / "config" / CONSUMER_OFFSETS
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    known = {("t", "g"): {0: 7}} if b"@" in content else {}
    for turn in range(3):
        files = journal.comes("4.9")
        assert files.metadata.offsets == known
        files.metadata.commit_offset("g", "u", turn, 5, NOW)
        known = {**known, ("u", "g"): {**known.get(("u", "g"), {}), turn: 5}}
        files.metadata.changed.add(CONSUMER_OFFSETS)
        files.save(NOW, is_last=True)
        assert broker_tables.consumer_offsets(json_files.read(path)) == known
    assert [one.read_bytes() for one in path.parent.glob("*.aside*")] == [content]


@pytest.mark.parametrize(
    "content", [b"no json", b"[]", b'{"topicConfigTable":{"t":{"perm":"six"}}}', b'{"topicConfigTable":7}', b""]
)
def test_a_damaged_file_costs_no_other_table_and_is_reported_once(
    store_dir: Path, region_dir: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = store_dir / "config" / TOPICS
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    json_files.write(path.with_name(CONSUMER_OFFSETS), {"offsetTable": {"t@g": {0: 7}}})
    with caplog.at_level(logging.ERROR):
        files = BrokerFiles(config_of(store_dir, region_dir), NOW, region_dir)
        for turn in range(5):
            files.look(NOW + turn * 1000, dispatched=True)
            files.save(NOW + turn * 1000)
    assert len(caplog.records) == 1, "told once"
    assert files.metadata.offsets == {("t", "g"): {0: 7}}
    files.metadata.set_topic(topic_config("new", 4, 4, 6, line=LINES["4.9"]), NOW)
    files.save(NOW + 10_000)
    assert "new" in served(store_dir) and path.with_name(f"{TOPICS}.aside").read_bytes() == content


def test_topics_that_are_damaged_while_they_are_served_are_written_again(store_dir: Path, region_dir: Path) -> None:
    files, path = BrokerFiles(config_of(store_dir, region_dir), NOW, region_dir), store_dir / "config" / TOPICS
    files.metadata.set_topic(topic_config("ours", 4, 4, 6, line=LINES["4.9"]), NOW)
    files.save(NOW)
    path.write_bytes(bytes(500))
    files.look(NOW + 1000, dispatched=True)
    files.save(NOW + 1000)
    assert "ours" in served(store_dir) and path.with_name(f"{TOPICS}.aside").read_bytes() == bytes(500)


def test_a_file_that_cannot_be_written_is_logged_now_and_then_and_written_later(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = BrokerFiles(config_of(store_dir, region_dir), NOW, region_dir)
    files.metadata.set_group({"groupName": "g"}, NOW)
    tries = []

    def failing(path: Path, content: bytes, mode: int = 0o644) -> None:
        tries.append(path)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(file_io, "replace_file", failing)
        for turn in range(TELL_AGAIN_MS // 500):  # the role's turns of a minute
            files.save(NOW + turn * 500)
        assert len(caplog.records) == 1 and len(tries) <= TELL_AGAIN_MS // 1000
        files.save(NOW + TELL_AGAIN_MS)
        assert len(caplog.records) == 2
    files.save(NOW + TELL_AGAIN_MS + 1000)
    assert "g" in json_files.read(store_dir / "config" / GROUPS)["subscriptionGroupTable"]
    assert not files.metadata.changed


def test_a_deleted_topic_stays_away_until_a_message_comes_for_it(
    store_dir: Path, region_dir: Path, tmp_path: Path
) -> None:
    config = config_of(store_dir, region_dir)
    counting = Counting(region_dir, tmp_path)
    keeper = TopicKeeper(config)
    keeper.note([("t", 2)], in_use=True)
    keeper.save(NOW)
    counting.put("t", 3)
    files = BrokerFiles(config, NOW, region_dir)
    files.metadata.delete_topic("t", NOW)
    files.save(NOW)
    assert "t" not in served(store_dir)
    files.look(NOW, dispatched=False)
    files.look(NOW, dispatched=True)
    assert "t" not in files.metadata.topics, "its messages were there before"
    starting = TopicKeeper(config)  # a supervisor that starts the broker again finds the topic's queues
    starting.note([("t", 2)])
    starting.save(NOW)
    assert "t" not in served(store_dir)
    files = BrokerFiles(config, NOW, region_dir)
    assert files.metadata.gone_topics == {"t"}
    (store_dir / "consumequeue" / "t" / "2").mkdir(parents=True)
    files.look(NOW, dispatched=True)
    counting.put("t", 1)
    assert files.look(NOW + 1000, dispatched=True), "to be registered again"
    assert files.metadata.topics["t"]["writeQueueNums"] == 4
    assert "t" in served(store_dir)
    files.save(NOW + 2000)
    assert json_files.read(store_dir / "config" / DELETED_TOPICS) == {"deletedTopics": []}


def test_a_new_queue_of_a_deleted_topic_makes_it_again(store_dir: Path, region_dir: Path) -> None:
    config = config_of(store_dir, region_dir)
    keeper = TopicKeeper(config)
    keeper.note([("t", 0)], in_use=True)
    keeper.save(NOW)
    files = BrokerFiles(config, NOW, region_dir)
    files.metadata.delete_topic("t", NOW)
    files.save(NOW)
    keeper.note([("t", 1)], in_use=True)
    assert keeper.finish(NOW, SECONDS)  # also where the first write was slow, and the file is read beside
    assert files.look(NOW, dispatched=True)
    assert "t" in files.metadata.topics and not files.metadata.gone_topics


def test_the_timer_wheels_place_is_kept_for_rocketmq(store_dir: Path, region_dir: Path) -> None:
    files = BrokerFiles(config_of(store_dir, region_dir, compat="5"), NOW, region_dir)
    checkpoint = TimerCheckpoint(1, 2, 3, 4)
    files.metadata.take_timer_checkpoint(checkpoint.encode())
    files.save(NOW)
    assert (store_dir / "config" / TIMER_CHECKPOINT).stat().st_size == 4096
    again = BrokerFiles(config_of(store_dir, region_dir, compat="5"), NOW, region_dir)
    assert again.metadata.timer_checkpoint == files.metadata.timer_checkpoint == TimerCheckpoint().following(checkpoint)


class SlowDisk:
    """Files are replaced once `goes_on` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on, self.is_asked = threading.Event(), threading.Event()
        self._replace = file_io.replace_file
        monkeypatch.setattr(file_io, "replace_file", self._slowly)

    def _slowly(self, path: Path, content: bytes, mode: int = 0o640) -> None:
        self.is_asked.set()
        assert self.goes_on.wait(60)
        self._replace(path, content, mode)


def test_a_slow_disk_holds_up_nobody_and_what_changes_meanwhile_is_written_after(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = BrokerFiles(config_of(store_dir, region_dir), NOW, region_dir, is_beside=True)
    disk = SlowDisk(monkeypatch)
    files.metadata.set_topic(topic_config("t", 4, 4, 6, line=LINES["4.9"]), NOW)
    files.save(NOW)
    assert disk.is_asked.wait(60) and not files.is_saved(TOPICS)
    files.metadata.delete_topic("t", NOW)
    files.metadata.set_topic(topic_config("u", 4, 4, 6, line=LINES["4.9"]), NOW)
    files.save(NOW + 10_000)
    assert not (store_dir / "config" / TOPICS).exists()
    disk.goes_on.set()
    files.save(NOW + 20_000, is_last=True)
    assert files.is_saved(TOPICS) and "u" in served(store_dir) and "t" not in served(store_dir)
    assert json_files.read(store_dir / "config" / DELETED_TOPICS) == {"deletedTopics": ["t"]}
    files.close()


def test_what_the_writer_adds_while_topics_are_being_written_is_in_the_file_and_in_the_table(
    store_dir: Path, region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(store_dir, region_dir)
    files = BrokerFiles(config, NOW, region_dir, is_beside=True)
    keeper = TopicKeeper(config)
    keeper.note([("theirs", 0), ("gone", 0)], in_use=True)
    keeper.save(NOW)
    await_that(lambda: files.look(NOW, dispatched=True), "theirs are known")
    with json_files.exclusive(store_dir / "config"):  # the thread has its words, and waits for the directory
        files.metadata.set_topic(topic_config("ours", 4, 4, 6, line=LINES["4.9"]), NOW)
        files.metadata.delete_topic("gone", NOW)
        files.save(NOW)
        path = store_dir / "config" / TOPICS
        value = json_files.read(path)
        value["topicConfigTable"]["late"] = topic_config("late", 4, 4, 6, line=LINES["4.9"])
        json_files.write(path, value)
        assert not files.look(NOW + 1000, dispatched=True), "what is being written is not looked at"
    files.save(NOW + 2000, is_last=True)
    assert {"theirs", "late", "ours"} <= served(store_dir).keys() and "gone" not in served(store_dir)
    assert {"theirs", "late", "ours"} <= files.metadata.topics.keys() and "gone" not in files.metadata.topics
    files.close()
