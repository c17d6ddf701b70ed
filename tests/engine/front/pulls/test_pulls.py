"""Pulls at a front: messages out of the log, what is refused, what is held and what wakes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.keeping import dispatcher
from engine.protocol.pulling.decision import Status
from engine.protocol.pulling.header import PullFlag
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand, Serialize
from engine.remoting.links import exchange
from engine.settings.config import from_mapping
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.queue_ends import QueueEnds
from engine.shared_memory.topic_table import TopicTable
from ipc import waiting
from store.message.properties import tags_code
from tests.harness import played_clients, served_front
from tests.harness.conditions import await_that
from tests.harness.front_client import FrontClient
from tests.harness.logs import SmallLog
from tests.harness.played_clients import PlayedClients
from tools.common.local_broker import free_port

SEGMENT_BYTES, QUEUE_FILE_BYTES = 1 << 20, 2000
TOPIC, GROUP = "t", "g"
TOPICS = {TOPIC: {"topicName": TOPIC, "perm": 6, "readQueueNums": 4, "writeQueueNums": 4}}
GROUPS = {GROUP: {"groupName": GROUP, "consumeEnable": True, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1}}


class Clients(PlayedClients):
    """Who makes groups that are asked for."""

    def answer_question(self, what: str, fields: dict[str, Any]) -> dict[str, Any] | None:
        """One with a name that begins with `new` may be made."""
        self.questions.append((what, fields))
        if what == "ensure_group" and fields["group"].startswith("new"):
            return {"config": {**GROUPS[GROUP], "groupName": fields["group"]}}
        return {}


class Shop:
    """A store, its dispatcher stepped by hand, a front."""

    def __init__(self, directory: Path, stack: ExitStack, *, is_told: bool = True, **settings: object) -> None:
        self.port = free_port()
        self.config = from_mapping(
            {
                "storePathRootDir": directory / "store",
                "brokerIP1": "127.0.0.1",
                "listenPort": self.port,
                "mappedFileSizeCommitLog": SEGMENT_BYTES,
                "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES,
                **settings,
            }
        )
        self.log = SmallLog(directory / "store", SEGMENT_BYTES)
        self.counters = BrokerCounters.create(directory / "counters")
        live_settings.publish(self.counters, self.config)
        QueueEnds.create(directory, {})
        TopicTable.create(directory)
        exchange.create(directory, 1)
        bells = stack.enter_context(closing(exchange.Bells.make(1)))
        self.dispatcher = dispatcher.open_role(self.config, self.counters, directory)
        self.front = stack.enter_context(served_front.served(self.config, self.counters, bells))
        tables = {"topics": dict(TOPICS), "groups": dict(GROUPS), "subscriptions": {}}
        if not is_told:
            del tables["subscriptions"]
        self.clients = stack.enter_context(played_clients.played(directory, bells, tables, made=Clients))
        await_that(lambda: self.front._tables.is_complete or not is_told, "the tables were told")
        self.client = FrontClient(self.port)

    def put(self, count: int, *, tags: str = "", queue_id: int = 0, size: int = 100) -> None:
        """So many messages, dispatched."""
        for _ in range(count):
            body = bytes(len(self.log.records) % 256 for _ in range(size))
            self.log.append(TOPIC, body, queue_id=queue_id, properties={"TAGS": tags} if tags else {})
        self.dispatch()

    def dispatch(self) -> None:
        """What was put comes into the queues."""
        waiting.publish(self.counters.max_physical_offset, self.log.end)
        while self.dispatcher.do_work(0):
            pass

    def stored(self, queue_id: int, first: int, count: int) -> bytes:
        """Records of a queue as they lie in the log."""
        of_queue = [one for one in self.log.records if one.queue_id == queue_id][first : first + count]
        return b"".join(self.log.read(one.offset, one.size) for one in of_queue)

    def ask(self, offset: int = 0, client: FrontClient | None = None, **fields: object) -> RemotingCommand:
        """The answer to a pull."""
        client = client or self.client
        client.send(pull(offset, **fields))
        return client.take()


def pull(
    offset: int = 0,
    *,
    opaque: int = 1,
    form: Serialize = Serialize.JSON,
    code: int = RequestCode.PULL_MESSAGE,
    flag: int = 0,
    **fields: object,
) -> RemotingCommand:
    """A pull of everything, in the request's own words."""
    said = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": int(PullFlag.SUBSCRIPTION),
        "commitOffset": 0,
        "suspendTimeoutMillis": 1 << 30,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
        **fields,
    }
    texts = {name: str(value) for name, value in said.items() if value is not None}
    return RemotingCommand(code, opaque, flag, ext_fields=texts, serialize=form)


HOLDS = PullFlag.SUBSCRIPTION | PullFlag.SUSPEND


@contextmanager
def opened(directory: Path, *, is_told: bool = True, **settings: object) -> Iterator[Shop]:
    with ExitStack() as stack:
        yield Shop(directory, stack, is_told=is_told, **settings)
        FrontClient.close_all()


@pytest.fixture
def shop(region_dir: Path) -> Iterator[Shop]:
    with opened(region_dir) as one:
        yield one


@pytest.mark.parametrize("form", Serialize)
@pytest.mark.parametrize("size", [100, 3000])
def test_a_pull_gets_the_records_as_they_lie_in_the_log(shop: Shop, size: int, form: Serialize) -> None:
    shop.put(50, size=size)
    answer = shop.ask(7, form=form)
    assert (answer.code, answer.remark, answer.serialize) == (ResponseCode.SUCCESS, Status.FOUND.name, form)
    assert bytes(answer.body) == shop.stored(0, 7, 32)
    assert answer.ext_fields == {
        "suggestWhichBrokerId": "0", "nextBeginOffset": "39", "minOffset": "0", "maxOffset": "50",
    }  # fmt: skip


def test_records_of_several_queues_are_sent_piece_by_piece(shop: Shop) -> None:
    for number in range(40):
        shop.put(1, queue_id=number % 2, size=20_000 if number % 3 else 50)
    for queue_id in (0, 1):
        at = 0
        while at < 20:
            answer = shop.ask(at, queueId=queue_id)
            following = int(answer.ext_fields["nextBeginOffset"])
            assert bytes(answer.body) == shop.stored(queue_id, at, following - at)
            at = following


def test_tags_are_chosen_by_their_codes(shop: Shop) -> None:
    for number in range(30):
        shop.put(1, tags=f"tag{number % 3}")
    chosen = [one for number, one in enumerate(shop.log.records) if number % 3 != 1]
    wanted = b"".join(shop.log.read(one.offset, one.size) for one in chosen)
    assert bytes(shop.ask(subscription="tag0 || tag2").body) == wanted
    codes = [tags_code("tag0"), tags_code("tag2")]
    subscription = {
        "messageModel": "CLUSTERING",
        "topics": {TOPIC: {"subString": "tag0||tag2", "expressionType": "TAG", "subVersion": 5, "codeSet": codes}},
    }
    shop.clients.note("subscriptions", {GROUP: subscription})
    await_that(lambda: GROUP in shop.front._tables.subscriptions, "the subscription is known")
    assert bytes(shop.ask(sysFlag=0, subVersion=5).body) == wanted
    assert shop.ask(sysFlag=0, subVersion=6).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    none = shop.ask(subscription="other")
    assert (none.code, none.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, Status.NO_MATCHED_MESSAGE.name)
    assert none.ext_fields["nextBeginOffset"] == "30"


def test_a_held_pull_is_answered_once_a_message_comes_that_it_wants(shop: Shop) -> None:
    shop.put(3, tags="a")
    shop.client.send(pull(3, opaque=9, sysFlag=HOLDS, subscription="b"))
    await_that(lambda: shop.counters.fronts[0].pulls_held.read() == 1, "it is held")
    shop.put(2, tags="a")
    shop.put(1, tags="b")
    answer = shop.client.take()
    assert (answer.opaque, answer.code) == (9, ResponseCode.SUCCESS)
    assert bytes(answer.body) == shop.stored(0, 5, 1)
    await_that(lambda: shop.counters.fronts[0].pulls_held.read() == 0, "it is held no more")


def test_a_pull_of_a_queue_without_messages_is_held_until_its_first(shop: Shop) -> None:
    shop.client.send(pull(sysFlag=HOLDS, queueId=3))
    await_that(lambda: shop.counters.fronts[0].pulls_held.read() == 1, "it is held")
    shop.put(1, queue_id=0)
    shop.put(1, queue_id=3)
    assert bytes(shop.client.take().body) == shop.stored(3, 0, 1)


def test_short_polling_answers_when_its_time_is_over(region_dir: Path) -> None:
    with opened(region_dir, longPollingEnable="false", shortPollingTimeMills=50) as shop:
        answer = shop.ask(sysFlag=HOLDS, suspendTimeoutMillis=3_600_000)
        assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, Status.NO_MESSAGE_IN_QUEUE.name)


def test_a_closed_connection_takes_its_pulls_along(shop: Shop) -> None:
    other = FrontClient(shop.port)
    other.send(*(pull(opaque=number, sysFlag=HOLDS) for number in range(10)))
    await_that(lambda: shop.counters.fronts[0].pulls_held.read() == 10, "they are held")
    other.sock.close()
    await_that(lambda: shop.counters.fronts[0].pulls_held.read() == 0, "none is held any more")


def test_groups_are_made_where_they_may_be(shop: Shop) -> None:
    shop.put(1)
    assert shop.ask(consumerGroup="new one").code == ResponseCode.SUCCESS
    refused = shop.ask(consumerGroup="old one")
    assert refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert ("ensure_group", {"group": "old one"}) in shop.clients.questions


def test_offsets_that_pulls_carry_are_committed_once(shop: Shop) -> None:
    flags = HOLDS | PullFlag.COMMIT_OFFSET
    shop.client.send(pull(sysFlag=flags, commitOffset=17))
    await_that(lambda: shop.counters.fronts[0].pulls_held.read() == 1, "it is held")
    shop.put(1)
    assert shop.client.take().code == ResponseCode.SUCCESS
    shop.ask(sysFlag=flags, commitOffset=18)

    def committed() -> list[dict[str, Any]]:
        return [fields for what, fields in shop.clients.questions if what == "commit_offset"]

    await_that(lambda: len(committed()) == 2, "both are known")
    first, second = committed()
    assert (first["offset"], second["offset"]) == (17, 18)
    assert first["group"] == GROUP and first["queueId"] == 0 and first["host"].startswith("127.0.0.1:")


def test_pull_offsets_and_their_distance_to_the_logs_end_are_reported_once(shop: Shop) -> None:
    shop.put(5)

    def told() -> list[list[object]]:
        return [row for what, fields in shop.clients.questions if what == "pulled" for row in fields["offsets"]]

    for _ in range(3):
        assert shop.ask(0, maxMsgNums=2).code == 0
    assert shop.ask(2).code == 0
    await_that(lambda: told() and told()[-1][3] == 5, "it was told")
    behind = shop.log.end - shop.log.records[4].offset
    assert told()[-1] == [TOPIC, GROUP, 0, 5, behind]
    assert len(told()) <= 2


def test_a_pull_that_waits_too_long_for_the_tables_is_answered(region_dir: Path) -> None:
    with opened(region_dir, is_told=False, waitTimeMillsInPullQueue=1) as shop:
        answer = shop.ask()
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert str(answer.remark).startswith("[TIMEOUT_CLEAN_QUEUE]broker busy")


def test_the_port_below_does_not_serve_pulls(shop: Shop) -> None:
    answer = shop.ask(client=FrontClient(shop.port - 2))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_tags_whose_codes_lie_in_an_extension_are_chosen_all_the_same(region_dir: Path) -> None:
    with opened(region_dir, enableConsumeQueueExt="true") as shop:
        for number in range(60):
            shop.put(1, tags=f"tag{number % 3}")
        assert list((region_dir / "store").glob(f"consumequeue_ext/{TOPIC}/0/*")), "entries have addresses of units"
        chosen = [one for number, one in enumerate(shop.log.records) if number % 3 == 1]
        wanted = b"".join(shop.log.read(one.offset, one.size) for one in chosen)
        assert bytes(shop.ask(subscription="tag1").body) == wanted
        assert bytes(shop.ask(40).body) == shop.stored(0, 40, 20)
        shop.client.send(pull(60, opaque=9, sysFlag=HOLDS, subscription="tag2"))
        await_that(lambda: shop.counters.fronts[0].pulls_held.read() == 1, "it is held")
        shop.put(1, tags="tag1")
        shop.put(1, tags="tag2")
        assert bytes(shop.client.take().body) == shop.stored(0, 61, 1)


def test_a_pull_hears_once_that_an_offset_was_set(region_dir: Path) -> None:
    with opened(region_dir, compat="5") as shop:
        shop.put(5)
        resets = {f"{TOPIC}@{GROUP}": {"0": 2, "1": 7}, f"{TOPIC}@other": {"0": 1}}
        shop.clients.note("resets", resets)
        await_that(lambda: len(shop.front._tables.resets) == 2, "they are known")
        first, again = shop.ask(4), shop.ask(4)
        assert (first.code, first.remark) == (ResponseCode.PULL_OFFSET_MOVED, Status.OFFSET_RESET.name)
        fields = first.ext_fields or {}
        assert [fields[name] for name in ("nextBeginOffset", "minOffset", "maxOffset")] == ["2", "0", "5"]
        assert (again.code, again.remark) == (ResponseCode.SUCCESS, Status.FOUND.name)
        heard = {"topic": TOPIC, "group": GROUP, "queueId": 0, "offset": 2}
        await_that(lambda: ("reset_heard", heard) in shop.clients.questions, "the clients role hears of it")
        assert [what for what, _fields in shop.clients.questions].count("reset_heard") == 1
