"""Which kind a message off the fast path was, what became of transactions and of dead letters: counted as it happens.

Implements: BrokerMetricsManager.getMessageType; what SendMessageProcessor, EndTransactionProcessor and
    consumerSendMsgBack say to it
"""

from __future__ import annotations

from engine.monitoring.counted import COMMITTED, DEAD, FINISHED, HALF, ROLLED_BACK, SENT, Counts
from engine.monitoring.sent_messages import DELAY, FIFO, NORMAL, NOT_SENT, TRANSACTION, is_counted
from ipc.clock import wall_ms
from store.message import properties
from store.message.delay import SCHEDULE_TOPIC
from store.message.record import Message
from store.message.topics import HALF_TOPIC, is_system_topic
from store.put.draft import Draft
from store.put.request import Stored

SHARDING_KEY, START_DELIVER_TIME, SYSTEM_GROUPS = "__SHARDINGKEY", "__STARTDELIVERTIME", "cid_rmq_sys_"
OF_DELAYS = (
    START_DELIVER_TIME, properties.DELAY, properties.TIMER_DELIVER_MS, properties.TIMER_DELAY_SEC,
    properties.TIMER_DELAY_MS,
)  # fmt: skip


def kind_of(stored: Stored) -> str:
    """Return the kind of a message, from its properties."""
    fields = stored.fields
    if fields.get(properties.TRANSACTION_PREPARED, "").lower() == "true":
        return TRANSACTION
    if SHARDING_KEY in fields:
        return FIFO
    return DELAY if any(name in fields for name in OF_DELAYS) else NORMAL


def note_sent(counts: Counts, stored: Stored, draft: Draft, by: int) -> None:
    """Count a message that leaves the fast path before it can be seen in the log; `by` -1 takes it back.

    What is normal the log tells.
    """
    kind, topic = kind_of(stored), draft.topic
    if kind == NORMAL or not (is_counted(topic) or topic in (HALF_TOPIC, SCHEDULE_TOPIC)):
        return
    _note(counts, topic, kind, draft, by)
    if topic == HALF_TOPIC:
        counts.count(HALF, stored.fields.get(properties.REAL_TOPIC, ""), by=by)


def note_not_sent(counts: Counts, draft: Draft, by: int) -> None:
    """Count a message that no client sent, such as a committed transaction's, under its topic."""
    _note(counts, draft.topic, NOT_SENT, draft, by)


def _note(counts: Counts, topic: str, kind: str, draft: Draft, by: int) -> None:
    size = sum(map(len, draft.pieces)) // max(1, draft.records)
    counts.observe(SENT, size, topic, kind, by=by * draft.records)


def note_dead(counts: Counts, group: str, topic: str) -> None:
    """A message became a dead letter."""
    is_system = is_system_topic(topic) or group.lower().startswith(SYSTEM_GROUPS)
    counts.count(DEAD, group, topic, str(is_system).lower())


def note_committed(counts: Counts, half: Message, stored: Stored) -> None:
    """A transaction's message is in its topic."""
    counts.count(COMMITTED, stored.topic)
    counts.observe(FINISHED, max(0, wall_ms() - half.born_timestamp_ms) // 1000, stored.topic)
    counts.count(HALF, stored.topic, by=-1)


def note_rolled_back(counts: Counts, half: Message) -> None:
    """A transaction's message comes to nothing."""
    topic = half.properties.get(properties.REAL_TOPIC, "")
    counts.count(ROLLED_BACK, topic)
    counts.count(HALF, topic, by=-1)
