"""How far groups are behind, in tables that a test made: what counts, and from where to where."""

from __future__ import annotations

from engine.protocol.clients.client_tables import Member
from engine.protocol.clients.consumers import ConsumerManager
from engine.protocol.clients.heartbeat import ConsumerData, Subscription
from engine.protocol.clients.lag import Consumed, Consuming, Lag, Tables, consuming, lag_of
from engine.protocol.clients.pull_offsets import PullOffsets
from store.compat import line_of

NOW_MS = 1_000_000
GROUPS = {name: {} for name in ("g", "nobody is in it")}
TOPICS = {
    "t": {"perm": 6, "writeQueueNums": 2},
    "shut": {"perm": 0, "writeQueueNums": 2},
    "%RETRY%g": {"perm": 6, "writeQueueNums": 1},
}
ENDS = {("t", 0): 100, ("t", 1): 50}


class Look:
    """Every second message is wanted; message n was stored at n ms."""

    def count(self, _topic: str, _queue_id: int, span: tuple[int, int], codes: tuple[int, ...] | None) -> int:
        start, end = span
        return max(0, end - start) // (1 if codes is None else 2)

    def stored_ms(self, _topic: str, _queue_id: int, offset: int) -> int:
        return offset


def subscription(topic: str, text: str = "*", codes: tuple[int, ...] = ()) -> Subscription:
    return Subscription(topic, text, "TAG", 1, codes, (), False)


def tables(*subscriptions: Subscription, committed: dict[int, int], pulled: dict[int, int]) -> Tables:
    consumers, pulls = ConsumerManager(line_of("5").groups, 1000), PullOffsets()
    data = ConsumerData("g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", subscriptions, False)
    consumers.register(Member(1, "c", "JAVA", 479, 0), data, notifies=False)
    for queue_id, offset in pulled.items():
        pulls.commit("g", "t", queue_id, offset)
    return Tables(
        GROUPS,
        TOPICS,
        consumers,
        lambda _group, _topic, queue_id: committed.get(queue_id),
        pulls.query,
        lambda topic, queue_id: ENDS.get((topic, queue_id), 0),
    )


def test_lag_is_counted_for_known_readable_topics_only() -> None:
    every = [subscription(topic) for topic in ("t", "shut", "%RETRY%g", "unknown")]
    known = tables(*every, committed={}, pulled={})
    assert [(one.group, one.topic) for one in consuming(known, 6)] == [("g", "t")]
    assert not list(consuming(known, 0))


def test_lag_is_split_into_pulled_messages_and_those_not_pulled() -> None:
    known = tables(subscription("t"), committed={0: 40, 1: 50}, pulled={0: 70})
    (one,) = consuming(known, 6)
    assert one.queues == [Consumed(0, 40, 70, 100), Consumed(1, 50, 50, 50)]
    assert lag_of(one, Look(), NOW_MS) == Lag(60, 30, 30, NOW_MS - 40, NOW_MS - 70)


def test_a_group_that_never_said_how_far_it_is_is_at_the_end() -> None:
    known = tables(subscription("t"), committed={}, pulled={})
    (one,) = consuming(known, 6)
    assert lag_of(one, Look(), NOW_MS) == Lag()
    (one,) = consuming(tables(subscription("t"), committed={}, pulled={0: 10}), 6)
    assert lag_of(one, Look(), NOW_MS) == Lag(0, 0, 90, 0, NOW_MS - 10)


def test_lag_counts_only_messages_with_the_groups_tags() -> None:
    known = tables(subscription("t", "a", (97,)), committed={0: 40, 1: 50}, pulled={0: 70})
    (one,) = consuming(known, 6)
    assert one.codes == (97,)
    assert lag_of(one, Look(), NOW_MS) == Lag(30, 15, 15, NOW_MS - 40, NOW_MS - 70)


def test_offsets_beyond_the_end_are_no_lag() -> None:
    one = Consuming("g", "t", None, [Consumed(0, 120, 110, 100)])
    assert lag_of(one, Look(), NOW_MS) == Lag()


def test_pull_offsets_are_forgotten_by_group_and_topic() -> None:
    pulls = PullOffsets()
    pulls.commit("g", "t", 0, 5)
    pulls.commit("g", "u", 0, 6)
    pulls.clear("g", "t")
    assert (pulls.query("g", "t", 0), pulls.query("g", "u", 0)) == (None, 6)
