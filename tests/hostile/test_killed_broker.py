"""All processes of a broker killed at once: the next one knows what the files of the one before did not say yet."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.delay_table import DelayTable
from engine.shared_memory.region_directory import dead_run
from engine.shared_memory.region_directory.regions import COUNTS_NAME
from store.files.file_io import CREATING_SUFFIX
from store.message.delay import SCHEDULE_TOPIC
from store.names import CONFIG, CONSUMER_OFFSETS, DELAY_OFFSETS
from store.tables import json_files
from tests.harness.audit import messages_of
from tests.harness.conditions import await_that
from tests.harness.front_client import FrontClient
from tests.harness.killing import kill_broker
from tests.hostile.test_front import GROUP, SMALL, TOPIC, answer_to, connected, counters_of, heartbeat, send, sent
from tests.hostile.test_set_clock import locked
from tools.common.local_broker import LocalBroker

NEVER_MS, LOCKED_SECONDS = 3_600_000, 50.0  # a lock holds for a minute
SETTINGS = {
    **SMALL,
    "messageDelayLevel": "1s 1h",
    "flushConsumerOffsetInterval": NEVER_MS,
    "flushDelayOffsetInterval": NEVER_MS,
}
DELAYED, WAITS = 300, "DELAY\x011\x02"


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    FrontClient.close_all()


def commit(client: FrontClient, offset: int) -> None:
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
    request = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, 90, ext_fields=fields, version=407)
    assert answer_to(client, request).code == ResponseCode.SUCCESS


def committed(client: FrontClient) -> int | None:
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
    answer = answer_to(client, RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, 91, ext_fields=fields, version=407))
    return int((answer.ext_fields or {})["offset"]) if answer.code == ResponseCode.SUCCESS else None


def delivered(broker: LocalBroker, counters: BrokerCounters) -> Counter[bytes]:
    everything = messages_of(broker.store, counters.max_physical_offset.read())
    return Counter(bytes(one.body) for one in everything if one.topic != SCHEDULE_TOPIC and one.body != b"first")


def far(counters: BrokerCounters) -> int:
    """Delayed messages that are done with."""
    table = DelayTable.attach(counters.directory)
    try:
        return sum(table.current().values())
    finally:
        table.close()


def use(broker: LocalBroker) -> tuple[FrontClient, BrokerCounters]:
    """A consumer at offset 7 that holds the queue, and delayed messages that are delivered; none of it in files."""
    client, counters = connected(broker), counters_of(broker)
    await_that(lambda: sent(client, b"first"), "it is taken")
    answer_to(client, heartbeat("c0"))
    assert locked(client, "c0")
    for number in range(DELAYED):
        assert answer_to(client, send(b"%d" % number, i=WAITS)).code == ResponseCode.SUCCESS
    await_that(lambda: far(counters) == DELAYED, "all are delivered")
    commit(client, 7)
    return client, counters


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_offsets_delays_and_locks_are_those_of_the_dead_run(tmp_path: Path, compat: str) -> None:
    with LocalBroker(tmp_path / "b", compat=compat, **SETTINGS) as broker:
        client, counters = use(broker)
        dead, until = counters.directory, time.monotonic() + LOCKED_SECONDS
        assert locked(client, "c0")
        await_that((dead / COUNTS_NAME).exists, "what it has counted is written, too")
        config = broker.store / CONFIG
        for name in (CONSUMER_OFFSETS, DELAY_OFFSETS):
            path = config / name
            said = json_files.read(path) if path.exists() else {}
            assert isinstance(said, dict) and DELAYED not in dict(said["offsetTable"] if said else {}).values(), said
        kill_broker(broker)
    with LocalBroker(tmp_path / "b", compat=compat, **SETTINGS) as broker:
        client, counters = connected(broker), counters_of(broker)
        await_that(lambda: not dead.exists(), "the dead one's shared memory is given back")
        assert counters.directory.exists()
        assert committed(client) == 7
        was_over = time.monotonic() >= until  # on a machine that stood still for long
        assert was_over or (not locked(client, "c1") and locked(client, "c0"))
        await_that(lambda: sent(client, b"first"), "it is taken")
        answer_to(client, send(b"after", i=WAITS))
        await_that(lambda: far(counters) == DELAYED + 1, "what came after is delivered")
        assert set(delivered(broker, counters).values()) == {1}, "none came again"
    assert str(DELAYED + 1) in (config / DELAY_OFFSETS).read_text() and "0:7" in (config / CONSUMER_OFFSETS).read_text()


REFUSED: list[dict[str, object]] = [{"regionPath": "/proc"}, {"mappedFileSizeCommitLog": 3 << 20}]


@pytest.mark.parametrize("wrong", REFUSED, ids=["no memory", "other segments"])
def test_a_start_that_fails_takes_nothing_of_it_from_the_next(tmp_path: Path, wrong: dict[str, object]) -> None:
    with LocalBroker(tmp_path / "b", **SETTINGS) as broker:
        dead = use(broker)[1].directory
        kill_broker(broker)
    with pytest.raises(RuntimeError, match="did not start"), LocalBroker(tmp_path / "b", **{**SETTINGS, **wrong}):
        pass
    left = {path.name for path in dead.iterdir()}
    assert left >= dead_run.READ and (left == dead_run.READ) is ("regionPath" not in wrong), "no ring keeps its memory"
    with LocalBroker(tmp_path / "b", **SETTINGS) as broker:
        client, counters = connected(broker), counters_of(broker)
        await_that(lambda: not dead.exists(), "the dead one's shared memory is given back")
        assert committed(client) == 7
        answer_to(client, send(b"after", i=WAITS))
        await_that(lambda: far(counters) == DELAYED + 1, "what came after is delivered")
        assert set(delivered(broker, counters).values()) == {1}, "none came again"


def test_what_somebody_writes_into_a_dead_broker_s_files_counts(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", **SETTINGS) as broker:
        client, _counters = use(broker)
        commit(client, 9)
        kill_broker(broker)
    path = broker.store / CONFIG / CONSUMER_OFFSETS
    json_files.write(path, {"offsetTable": {f"{TOPIC}@{GROUP}": {0: 5}}})  # at once, as a script would
    with LocalBroker(tmp_path / "b", **SETTINGS) as broker:
        assert committed(connected(broker)) == 5


def test_a_master_that_was_killed_comes_back_as_a_slave(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", **SETTINGS) as broker:
        use(broker)
        kill_broker(broker)
    slave = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": "127.0.0.1:1", "slaveReadEnable": True}
    with LocalBroker(tmp_path / "b", **SETTINGS, **slave) as broker:
        assert committed(connected(broker)) == 7


def test_a_copy_made_while_clients_are_served_is_another_broker_s(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "b", **SETTINGS) as broker:
        client, counters = use(broker)
        unfinished = shutil.ignore_patterns(f"*{CREATING_SUFFIX}")  # which may be gone before it is copied
        shutil.copytree(broker.store, tmp_path / "c" / "store", ignore=unfinished)
        with LocalBroker(tmp_path / "c", **SETTINGS) as copy:
            other, copied = connected(copy), counters_of(copy)
            assert copied.directory != counters.directory
            assert committed(other) in (None, 0), "no file said more when it was copied"
            members = RemotingCommand(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP, 92, ext_fields={"consumerGroup": GROUP}, version=407
            )
            assert answer_to(other, members).code != ResponseCode.SUCCESS, "nobody is here"
            assert locked(other, "c1"), "and nobody holds a queue"
            await_that(lambda: sent(other, b"only here"), "it is taken")
            commit(other, 1)
            assert locked(client, "c0") and not locked(client, "c1") and committed(client) == 7
            assert json.loads(bytes(answer_to(client, members).body))["consumerIdList"] == ["c0"]
            assert sent(client, b"only there")
            at = copied.max_physical_offset.read()
            assert b"only there" not in [bytes(one.body) for one in messages_of(copy.store, at)]
        assert b"only here" not in [
            bytes(one.body) for one in messages_of(broker.store, counters.max_physical_offset.read())
        ]
        assert sent(client, b"still") and not [name for name, count in counters.restarts.items() if count.read()]
        kill_broker(broker)
    with LocalBroker(tmp_path / "b", **SETTINGS) as broker:
        assert committed(connected(broker)) == 7, "the copy took nothing of it away"
