"""A broker's config files: what cannot be read or written harms nothing else, what was deleted stays away."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from engine.board.topic_table import TopicTable
from engine.protocol.tables.timer_state import TimerCheckpoint
from engine.remoting.broker_files import TELL_AGAIN_MS, BrokerFiles
from engine.settings.config import BrokerConfig, from_mapping
from engine.writer.topic_keeper import TopicKeeper
from store.compat import LINES
from store.files import file_io
from store.names import CONSUMER_OFFSETS, DELETED_TOPICS, GROUPS, TIMER_CHECKPOINT, TOPICS
from store.recovery.dispatch import Dispatcher
from store.tables import json_files
from store.tables.tables import topic_config
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


@pytest.mark.parametrize(
    "content", [b"no json", b"[]", b'{"topicConfigTable":{"t":{"perm":"six"}}}', b'{"topicConfigTable":7}']
)
def test_a_file_that_nobody_can_read_stays_and_is_read_when_it_is_mended(
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
    assert path.read_bytes() == content, "what an administrator wants to see is not overwritten"
    json_files.write(path, {"topicConfigTable": {"theirs": topic_config("theirs", 8, 8, 6, line=LINES["4.9"])}})
    assert files.look(NOW + 20_000, dispatched=True)
    assert "theirs" in files.metadata.topics
    files.metadata.set_topic(topic_config("new", 4, 4, 6, line=LINES["4.9"]), NOW)
    files.save(NOW + 21_000)
    assert {"theirs", "new"} <= served(store_dir).keys()


def test_a_file_that_cannot_be_written_is_told_now_and_then_and_written_later(
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
    keeper.save(NOW)
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
