"""What clients sent, by topic and kind of message: what topics were given, less what fronts know to be something else.

Implements: SendMessageProcessor's and ScheduleMessageService's part of BrokerMetricsManager (getMessageType)
Usual sends are counted nowhere but in the log: the dispatcher counts topics, the entries of queues have sizes. Of the
rest fronts say what it was: they count it before it can be in the log, so what the log had before they were asked is
known. A message in order (FIFO) and one that is delivered after a delay are usual there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from engine.monitoring.counted import KEPT, SENT, Counts, Row
from engine.monitoring.series import COUNTER, Histogram, Sample, Series
from engine.shared_memory.topic_table import TopicCount
from store.message.delay import SCHEDULE_TOPIC
from store.message.topics import CHECK_MAX_TOPIC, DEAD_PREFIX, HALF_TOPIC, OP_TOPIC, RETRY_PREFIX, is_system_topic

NORMAL, FIFO, DELAY, TRANSACTION = "normal", "fifo", "delay", "transaction"
NOT_SENT = "-"  # what a broker put itself: the end of a transaction
ONLY_TOLD = frozenset({HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, CHECK_MAX_TOPIC})  # of these fronts know all that counts
LABELS = ("topic", "message_type", "is_system")
WIDTH = KEPT[SENT].width


def is_counted(topic: str) -> bool:
    """Return whether all messages of a topic count as sent by clients, unless a front reports them as another kind."""
    return topic not in ONLY_TOLD and not topic.startswith((RETRY_PREFIX, DEAD_PREFIX))


class SentMessages:
    """Send counters of one broker. A value never decreases, even if a stalled front reports late."""

    def __init__(self, noted: Counts) -> None:
        self._noted = noted
        self._shown: dict[tuple[str, str], Row] = {}  # by topic and kind
        self._shown_sizes: dict[tuple[str, str], Row] = {}

    def series(self, topics: Iterable[TopicCount]) -> Iterator[Series]:
        """Yield numbers and bytes of messages; `topics`: as they were before the fronts were asked."""
        noted = self._by_topic()
        messages: list[Sample] = []
        sizes: list[Sample] = []
        for topic in topics:
            if is_counted(topic.topic):
                others = noted.get(topic.topic, {}).values()
                here = [topic.messages - sum(sum(row[:-1]) for row in others), topic.bytes - sum(r[-1] for r in others)]
                shown = _raised(self._shown, (topic.topic, NORMAL), here)
                if any(shown) or topic.topic not in noted:
                    messages.append((_labels(topic.topic, NORMAL), float(shown[0])))
                    sizes.append((_labels(topic.topic, NORMAL), float(shown[1])))
        for name, by_type in noted.items():
            for kind, row in by_type.items():
                if kind != NOT_SENT:
                    shown = _raised(self._shown, (name, kind), [sum(row[:-1]), row[-1]])
                    messages.append((_labels(name, kind), float(shown[0])))
                    sizes.append((_labels(name, kind), float(shown[1])))
        yield Series(COUNTER, "rocketmq_messages_in", "Total number of incoming messages", LABELS, messages)
        yield Series(COUNTER, "rocketmq_throughput_in", "Total traffic of incoming messages", LABELS, sizes)

    def sizes(self, stored: Mapping[str, Row]) -> Histogram:
        """Return the messages' sizes; `stored`: all of a topic's, as its queues have them."""
        kept, noted = KEPT[SENT], self._by_topic()
        rows: list[tuple[tuple[str, ...], Row]] = []
        for topic, row in stored.items():
            others = noted.get(topic, {}).values()
            here = [count - sum(other[at] for other in others) for at, count in enumerate(row)]
            shown = _raised(self._shown_sizes, (topic, NORMAL), here)
            if any(shown[:-1]):
                rows.append((_labels(topic, NORMAL), shown))
        rows += [
            (_labels(name, kind), _raised(self._shown_sizes, (name, kind), row))
            for name, by_type in noted.items()
            for kind, row in by_type.items()
            if kind != NOT_SENT
        ]
        samples = [(labels, row[:-1], row[-1]) for labels, row in rows]
        return Histogram(kept.metric, kept.says, LABELS, kept.bounds, samples)

    def _by_topic(self) -> dict[str, dict[str, Row]]:
        """Return what fronts reported by topic and by kind of message, where the kind is not normal."""
        by_topic: dict[str, dict[str, Row]] = {}
        for (topic, kind), row in self._noted.of(SENT):
            by_topic.setdefault(topic, {})[kind] = row
        return by_topic


def _labels(topic: str, kind: str) -> tuple[str, ...]:
    return topic, kind, str(is_system_topic(topic)).lower()


def _raised(shown: dict[tuple[str, str], Row], key: tuple[str, str], here: Row) -> Row:
    """Return the value to show: no less than before."""
    before = shown.get(key) or [0] * len(here)
    shown[key] = [max(was, now) for was, now in zip(before, here, strict=True)]
    return shown[key]
