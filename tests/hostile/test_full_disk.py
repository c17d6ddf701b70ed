"""A disk that is really full under clients: sends are refused as RocketMQ refuses them, and nothing else is lost."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.sending.end_transaction import Decision
from store.message.record import Message
from store.names import CONFIG, CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, TOPICS
from tests.fuzz.attack import failures_in
from tests.harness.audit import messages_of
from tests.harness.conditions import await_that
from tests.harness.deciding import Deciding, Place
from tests.harness.front_client import FrontClient
from tests.harness.small_disk import SmallDisk
from tests.hostile.test_front import GROUP, SMALL, TOPIC, answer_to, connected, counters_of, heartbeat, send
from tools.common.local_broker import LocalBroker

DISK_BYTES, BODY_BYTES = 24 << 20, 16_000
SETTINGS = {
    **SMALL,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "messageDelayLevel": "1s 3s",
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 500,
    "flushConsumerOffsetInterval": 500,
    "flushDelayOffsetInterval": 500,
    "cleanFileForciblyEnable": "false",  # else the oldest messages go
    "transactionCheckMax": 1_000_000,  # on a slow machine it is asked about for long
}
BEFORE, DELAYED, MOST = 40, 20, 400
CREATE_FAILED, NO_SERVICE = "create mapped file failed, server is busy or broken.", "service not available now."
WAITS = "DELAY\x012\x02"
KINDS = pytest.mark.parametrize(("compat", "kind"), [("4.9", "ext4"), ("5", "ext4"), ("5", "tmpfs")])


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    FrontClient.close_all()


class Shop:
    """A broker on a small disk, a client, and what was acknowledged to it."""

    def __init__(self, disk: SmallDisk, broker: LocalBroker) -> None:
        self.disk, self.broker, self.counters, self.client = disk, broker, counters_of(broker), connected(broker)
        self.acknowledged: list[bytes] = []
        self.refusals: list[tuple[int, str]] = []

    def put(self, properties: str = "") -> int:
        """The answer's code to one more message."""
        body = b"%06d" % (len(self.acknowledged) + len(self.refusals)) + bytes(BODY_BYTES)
        answer = answer_to(self.client, send(body, i=properties))
        if answer.code == ResponseCode.SUCCESS:
            self.acknowledged.append(body)
        else:
            self.refusals.append((answer.code, answer.remark or ""))
        return answer.code

    def are_taken(self, count: int, properties: str = "") -> None:
        for _ in range(count):
            await_that(lambda: self.put(properties) == ResponseCode.SUCCESS, "a message is taken")

    def commit(self, offset: int) -> None:
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
        request = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, 90, ext_fields=fields, version=407)
        assert answer_to(self.client, request).code == ResponseCode.SUCCESS

    def pulled(self) -> bytes:
        """All of the queue, as it comes."""
        offset, came = 0, b""
        fields = {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "maxMsgNums": "32", "sysFlag": "4",
            "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*",
        }  # fmt: skip
        while True:
            asked = {**fields, "queueOffset": str(offset)}
            request = RemotingCommand(RequestCode.PULL_MESSAGE, 91, ext_fields=asked, version=407)
            answer = answer_to(self.client, request)
            if answer.code != ResponseCode.SUCCESS:
                return came
            came += bytes(answer.body)
            offset = int((answer.ext_fields or {})["nextBeginOffset"])

    def assert_pulls(self, bodies: list[bytes]) -> None:
        """Who reads has them, each once."""
        came = self.pulled()
        assert {body[:6]: came.count(body) for body in bodies} == {body[:6]: 1 for body in bodies}

    def of_topic(self) -> list[Message]:
        everything = messages_of(self.broker.store, self.counters.max_physical_offset.read())
        return [message for message in everything if message.topic == TOPIC]

    def says(self, name: str, wanted: str) -> bool:
        """Whether a file says that by now."""
        path = self.broker.store / CONFIG / name
        return path.exists() and re.search(wanted, re.sub(r"\s", "", path.read_text())) is not None

    def fill(self) -> None:
        """No room for anything; the segments that are there become full."""
        self.refusals.clear()
        self.disk.fill()
        await_that(lambda: self.put() == ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is known to be full")
        for code, remark in self.refusals:
            is_full = code == ResponseCode.SERVICE_NOT_AVAILABLE and remark.startswith(NO_SERVICE)
            assert is_full or (code, remark) == (ResponseCode.SYSTEM_ERROR, CREATE_FAILED)
        assert len(self.acknowledged) < MOST

    def await_dispatched(self) -> None:
        counters = self.counters
        await_that(
            lambda: counters.reput_from_offset.read() == counters.max_physical_offset.read(), "all is dispatched"
        )


def change_tables_on_a_full_disk(shop: Shop) -> None:
    """What clients ask of the clients role goes on; its files do not follow, and it says so."""
    numbers = itertools.count(1)

    def are_refused() -> bool:
        """A file whose replacement was under way gives its blocks back, by which others could be written."""
        shop.disk.fill()
        number = next(numbers)
        shop.commit(min(number, 6))
        assert answer_to(shop.client, heartbeat("c", f"Early-{number}")).code == ResponseCode.SUCCESS
        said = shop.broker.log.read_text()
        return all(f"{name}: cannot be written" in said for name in (CONSUMER_OFFSETS, GROUPS))

    await_that(are_refused, "neither file can be written", pause=1.0)
    shop.commit(7)
    assert answer_to(shop.client, heartbeat("c", "Late")).code == ResponseCode.SUCCESS
    assert not shop.says(CONSUMER_OFFSETS, '"0?"?:7|0:7')


def assert_tables_follow(shop: Shop) -> None:
    for name, wanted in ((CONSUMER_OFFSETS, f'"{TOPIC}@{GROUP}":{{0:7}}'), (GROUPS, '"Late"'), (TOPICS, f'"{TOPIC}"')):
        await_that(lambda name=name, wanted=wanted: shop.says(name, wanted), f"{name} says {wanted}")  # type: ignore[misc]
        assert not (shop.broker.store / CONFIG / name).read_text().endswith("\0")


def test_a_log_on_a_read_only_disk_is_refused_by_name(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 1 << 20, "tmpfs") as disk:
        subprocess.run([*disk.inside, "mount", "-o", "remount,ro", str(disk.directory)], check=True)
        broker = LocalBroker(tmp_path / "b", inside=disk.inside, storePathCommitLog=disk.directory)
        try:
            assert broker.process.wait(180) == 4
        finally:
            broker.stop()
    line = broker.log.read_text().splitlines()[-1]
    assert line.startswith(f"slipstream: START_REFUSED: {disk.directory}: its file system is mounted read-only; mount")


@KINDS
def test_on_a_full_disk_sends_are_refused_and_all_else_goes_on(tmp_path: Path, compat: str, kind: str) -> None:
    with SmallDisk(tmp_path / "disk", DISK_BYTES, kind) as disk, disk.broker(tmp_path, compat, SETTINGS) as broker:
        shop = Shop(disk, broker)
        answer_to(shop.client, heartbeat("c"))
        shop.are_taken(BEFORE)
        producer = Deciding(broker.port)
        half: Place = producer.half(TOPIC)
        shop.are_taken(DELAYED, WAITS)
        shop.await_dispatched()
        shop.fill()
        refused = producer.end(half, Decision.COMMIT)
        assert refused.code != ResponseCode.SUCCESS, refused.remark
        assert shop.put(WAITS) == ResponseCode.SERVICE_NOT_AVAILABLE
        shop.assert_pulls(shop.acknowledged[:BEFORE])
        change_tables_on_a_full_disk(shop)
        disk.free()
        shop.are_taken(BEFORE)
        await_that(lambda: shop.counters.delay.delivered.read() == DELAYED, "what was delayed comes late")
        asked = producer.asked()
        assert producer.end(asked, Decision.COMMIT, is_asked=True).code == ResponseCode.SUCCESS
        shop.await_dispatched()
        shop.assert_pulls(shop.acknowledged)
        assert [bytes(one.body) for one in shop.of_topic()].count(b"body") == 1
        assert_tables_follow(shop)
        await_that(lambda: shop.says(DELAY_OFFSETS, f"2:{DELAYED}"), "and that of the delay levels")
        assert failures_in(broker.log) == ()
        assert {name for name, count in shop.counters.restarts.items() if count.read()} == set()
