"""A broker's registrations in virtual time against our name server, which is itself held against real ones."""

from __future__ import annotations

import json
import zlib
from collections.abc import Generator
from typing import Any

import pytest

from engine.protocol.naming import registration
from engine.protocol.naming.name_server import LARGE_BODY_BYTES, NameServer
from engine.protocol.naming.registration import Heartbeats, Learned, Registration
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.tables import register_body
from engine.protocol.tables.defaults import Identity
from engine.protocol.tables.metadata import Metadata
from engine.protocol.tables.register_body import Member, RegisterBody
from store.compat import LINES, Line
from store.names import TOPICS
from store.tables.entry_texts import STEP
from store.tables.steps import at_once
from store.tables.tables import topic_config

PERIOD = 30_000
IDENTITY = {"4.9": Identity(LINES["4.9"], "c", "a"), "5": Identity(LINES["5"], "c", "a")}


def member(broker_id: int) -> Member:
    return Member("c", "a", broker_id, f"10.0.0.{broker_id}:10911", f"10.0.0.{broker_id}:10912")


class Broker:
    """One broker and its link to one name server."""

    def __init__(self, server: NameServer, broker_id: int, *, force: bool = True, compat: str = "4.9") -> None:
        self.server, self.connection = server, broker_id
        self.metadata = Metadata(IDENTITY[compat], {}, 0)
        self.link = Registration(member(broker_id), compat, period_ms=PERIOD, force=force)
        self.codes: list[int] = []

    def request(self, now_ms: int, permission: int = 6) -> RemotingCommand:
        """What is to be sent, as there is something."""
        making = self.link.next_request(self.metadata, permission, now_ms)
        assert making is not None
        return at_once(making)

    def turn(self, now_ms: int, permission: int = 6) -> Learned | None:
        making = self.link.next_request(self.metadata, permission, now_ms)
        if making is None:
            return None
        request = at_once(making)
        self.codes.append(request.code)
        answer = self.server.answer(request, self.connection, now_ms)
        assert answer is not None
        return self.link.on_answer(request, answer, now_ms)


def test_a_slave_learns_of_its_master_as_soon_as_that_has_registered() -> None:
    server = NameServer("4.9")
    slave, master = Broker(server, 1), Broker(server, 0)
    assert slave.turn(0) == Learned(None, None, None)
    assert slave.turn(1) is None
    master.turn(5)
    assert slave.turn(9999) is None
    assert slave.turn(10_000) == Learned("10.0.0.0:10911", "10.0.0.0:10912", None)
    assert server.routes.route("TBW102") is not None


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_a_body_that_no_frame_may_take_is_deflated_and_made_once(compat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "PLAIN_BYTES_MAX", 8192)
    server = NameServer(compat)
    broker = Broker(server, 0, compat=compat)
    for number in range(200):
        broker.metadata.set_topic(topic_config(f"topic-{number}", 3, 4, 6, line=LINES[compat]), 1)
    assert broker.turn(0) is not None
    route = server.routes.route("topic-199")
    assert route is not None and (route.queues[0].read_queue_nums, route.queues[0].write_queue_nums) == (3, 4)
    request, again = (broker.request(turn * PERIOD) for turn in (1, 2))
    assert again.body is request.body
    assert len(request.body) < 8192 < len(broker.metadata.topics_json())
    broker.metadata.set_topic(topic_config("one-more", 1, 1, 6, line=LINES[compat]), 2)
    broker.link.hurry()
    assert broker.turn(2 * PERIOD + 1) is not None
    assert server.routes.route("one-more") is not None


def with_topics(count: int, compat: str) -> Broker:
    """They are written, as it is done before name servers are told."""
    broker = Broker(NameServer(compat), 0, compat=compat)
    for number in range(count):
        broker.metadata.set_topic(topic_config(f"topic-{number}", 3, 4, 6, line=LINES[compat]), 1)
    at_once(broker.metadata.texts[TOPICS].steps())
    return broker


@pytest.mark.parametrize("permission", [6, 4])
@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_a_registration_of_very_many_topics_is_made_in_steps(
    compat: str, permission: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "PLAIN_BYTES_MAX", 8192)
    monkeypatch.setattr(registration, "CRC_STEP", 4096)
    broker, texts, pieces = with_topics(20 * STEP, compat), list[str](), list[int]()
    deflated, crc32 = register_body._deflated_topic, zlib.crc32

    def noted(name: str, config: dict[str, Any], line: Line) -> str:
        texts.append(name)
        return deflated(name, config, line)

    def summed(data: memoryview, crc: int) -> int:
        pieces.append(len(data))
        return crc32(data, crc)

    making, written = broker.link.next_request(broker.metadata, permission, 0), list[int]()
    assert making is not None

    def noting() -> Generator[int, None, RemotingCommand]:
        while True:
            texts.clear()
            pieces.clear()
            try:
                yield next(making)
            except StopIteration as end:
                request: RemotingCommand = end.value
                return request
            finally:
                written.append(len(texts))
                assert len(texts) <= STEP and len(pieces) <= 1 and max(pieces, default=0) <= 4096
            if sum(written) == 3 * STEP:  # others have their turns meanwhile: this is said the next time
                broker.metadata.delete_topic("topic-7", 2)

    with monkeypatch.context() as patched:
        patched.setattr(register_body, "_deflated_topic", noted)
        patched.setattr(zlib, "crc32", summed)
        request = at_once(noting())
    assert sum(written) > 20 * STEP and max(written) == STEP
    body = register_body.decode(request.body, compressed=True, version=request.version, line=LINES[compat])
    assert len(body.topics) == sum(written) and "topic-7" in body.topics
    assert {body.topics[f"topic-{number}"].perm for number in range(20 * STEP)} == {permission}
    assert request.ext_fields is not None
    assert request.ext_fields["bodyCrc32"] == str(zlib.crc32(request.body) & 0x7FFFFFFF)
    broker.link.hurry()
    assert (
        "topic-7"
        not in register_body.decode(
            broker.request(1, permission).body, compressed=True, version=request.version, line=LINES[compat]
        ).topics
    )


def test_a_large_body_that_comes_again_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that got no answer in time sends it again: else a slow name server would read for ever."""
    server, lengths, decode = NameServer("5"), list[int](), register_body.decode

    def counted(body: bytes, **how: Any) -> RegisterBody:
        lengths.append(len(body))
        return decode(body, **how)

    monkeypatch.setattr(register_body, "decode", counted)
    broker = Broker(server, 0, compat="5")
    for number in range(1000):
        broker.metadata.set_topic(topic_config(f"topic-{number}", 3, 4, 6, line=LINES["5"]), 1)
    for turn in range(4):
        assert broker.turn(turn * PERIOD) is not None
    assert len(lengths) == 1 and lengths[0] > LARGE_BODY_BYTES
    server.routes.delete_topic("topic-7", None)
    assert broker.turn(4 * PERIOD) is not None
    assert server.routes.route("topic-7") is not None, "what it says is taken each time, as before"
    broker.metadata.set_topic(topic_config("one-more", 3, 4, 6, line=LINES["5"]), 2)
    assert broker.turn(5 * PERIOD) is not None
    assert len(lengths) == 2 and server.routes.route("one-more") is not None


def test_the_second_registration_comes_after_ten_seconds_then_each_period() -> None:
    broker = Broker(NameServer("4.9"), 0)
    at = [now_ms for now_ms in range(0, 100_001, 1000) if broker.turn(now_ms) is not None]
    assert at == [0, 10_000, 40_000, 70_000, 100_000]


def test_without_force_a_registration_is_only_sent_when_something_changed() -> None:
    broker = Broker(NameServer("5"), 0, force=False, compat="5")
    for now_ms in (0, PERIOD, 2 * PERIOD):
        broker.turn(now_ms)
    broker.metadata.set_topic(topic_config("t", 4, 4, 6, line=LINES["5"]), 2 * PERIOD)
    broker.turn(3 * PERIOD)
    broker.turn(3 * PERIOD)
    broker.turn(4 * PERIOD)
    assert broker.codes == [103, 322, 322, 322, 103, 322]
    assert broker.server.routes.route("t") is not None


def test_a_change_is_registered_at_once_when_asked_for() -> None:
    broker = Broker(NameServer("4.9"), 0)
    broker.turn(0)
    broker.metadata.set_topic(topic_config("t", 4, 4, 6, line=LINES["4.9"]), 10)
    broker.link.hurry()
    broker.turn(10)
    assert broker.server.routes.route("t") is not None
    assert broker.codes == [103, 103]


def test_a_broker_that_registers_under_another_id_is_listed_once() -> None:
    server = NameServer("4.9")
    broker = Broker(server, 1)
    broker.turn(0)
    broker.link.register_as(1)
    assert broker.turn(1) is None, "nothing has changed"
    broker.link.register_as(0)
    assert broker.turn(1) is not None
    assert server.routes.brokers["a"].addresses == {0: "10.0.0.1:10911"}


def test_a_broker_that_gets_another_id_while_it_waits_for_an_answer_registers_again() -> None:
    server = NameServer("4.9")
    broker = Broker(server, 1, force=False)
    request = broker.request(0)
    broker.link.register_as(0)
    answer = server.answer(request, broker.connection, 0)
    assert answer is not None
    broker.link.on_answer(request, answer, 1)
    assert not broker.link.is_known
    assert broker.turn(2) is not None, "it registers, and asks for no version"
    assert server.routes.brokers["a"].addresses == {0: "10.0.0.1:10911"}


def test_a_refusal_and_a_lost_name_server_are_tried_again_soon() -> None:
    server = NameServer("4.9")
    broker = Broker(server, 0)
    request = broker.request(0)
    assert request is not None
    broker.link.on_answer(request, RemotingCommand(1, remark="no"), 0)
    assert (broker.turn(999), broker.codes) == (None, [])
    broker.link.lost(1000)
    broker.turn(2000)
    assert broker.codes == [103]


def test_a_broker_that_may_not_be_written_to_says_so_and_leaves_when_it_stops() -> None:
    server = NameServer("4.9")
    broker = Broker(server, 0)
    broker.turn(0, permission=4)
    assert {queue.perm for queues in server.routes.topics.values() for queue in queues.values()} == {4}
    assert broker.metadata.value(TOPICS)["topicConfigTable"]["TBW102"]["perm"] == 7
    answer = server.answer(broker.link.unregister(), 0, 1)
    assert answer is not None and answer.code == 0
    assert not server.routes.brokers


def test_ordered_topics_come_with_the_answer() -> None:
    server = NameServer("4.9", {"ORDER_TOPIC_CONFIG": {"t": "a:4"}})
    assert Broker(server, 0).turn(0) == Learned(None, None, {"t": "a:4"})
    json.dumps(server.kv)


def test_the_period_can_change_and_stays_between_ten_and_sixty_seconds() -> None:
    broker = Broker(NameServer("4.9"), 0)
    broker.turn(0)
    broker.link.set_period(10_000)
    assert (broker.turn(9_999), broker.codes) == (None, [103])
    broker.turn(10_000)
    broker.link.set_period(1)
    assert (broker.turn(19_999), broker.codes) == (None, [103, 103])
    broker.link.set_period(1_000_000)
    broker.turn(20_000)
    assert (broker.turn(79_999), broker.codes) == (None, [103] * 3)
    broker.turn(80_000)
    assert broker.codes == [103] * 4


def test_heartbeats_keep_a_broker_with_a_short_timeout_alive() -> None:
    for by_version, code in ((False, 904), (True, 322)):
        server = NameServer("5")
        beats = Heartbeats(1000, 3000, by_version)
        link = Registration(member(0), "5", period_ms=PERIOD, force=True, heartbeats=beats)
        metadata = Metadata(IDENTITY["5"], {}, 0)
        assert link.heartbeat(metadata, 0) is None, "nobody knows it yet"
        making = link.next_request(metadata, 6, 0)
        assert making is not None
        request = at_once(making)
        answer = server.answer(request, 1, 0)
        assert answer is not None and link.on_answer(request, answer, 0) is not None
        for now_ms in range(0, 10_000, 500):
            beat = link.heartbeat(metadata, now_ms)
            assert (beat is None) == bool(now_ms % 1000)
            if beat is not None:
                assert (beat.code, beat.is_oneway, server.answer(beat, 1, now_ms)) == (code, True, None)
            assert server.routes.expire(now_ms) == []
        assert server.routes.expire(9_001 + 3000) == [1]
        assert json.loads(json.dumps(request.ext_fields))["enableActingMaster"] == "true"


def test_a_broker_takes_over_which_topics_are_ordered() -> None:
    for compat, after in (("4.9", False), ("5", True)):
        broker = Broker(NameServer(compat, {"ORDER_TOPIC_CONFIG": {"t": "a:4"}}), 0, compat=compat)
        broker.metadata.set_topic(topic_config("t", 4, 4, 6, line=LINES[compat]), 1)
        learned = broker.turn(0)
        assert learned is not None and learned.order_topics is not None
        assert broker.metadata.set_order_topics(learned.order_topics, 2)
        assert not broker.metadata.set_order_topics(learned.order_topics, 3), "no news"
        assert broker.metadata.topics["t"]["order"] is True
        assert broker.metadata.set_order_topics({}, 4) is not after
        assert broker.metadata.topics["t"]["order"] is after
