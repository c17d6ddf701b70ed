"""One store, two brokers in turn: ours and an unmodified RocketMQ write to the same directory, each reads all of it.

`make interop` runs every version, in order and with kills, and writes down what came of it.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.producer import Producer
from ipc.errors import IpcError
from store.message.record import Message
from store.recovery.recovery import recover_read_only
from store.verify.verification import Finding, Verification
from tests.harness.audit import assert_queue_offsets_dense, messages_of
from tests.harness.killing import kill_broker
from tests.interop.rocketmq import VERSIONS, NameServer, RealClient, RocketMQBroker
from tools.common.local_broker import LocalBroker

SIZES = {
    "mappedFileSizeCommitLog": 256 * 1024, "mappedFileSizeConsumeQueue": 20_000, "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}  # fmt: skip
TOPICS = ("GiveOurs", "GiveTheirs")  # each begun by one side, written to by both
ADDED_BY_BROKERS = {"UNIQ_KEY", "CLUSTER", "MSG_REGION", "TRACE_ON", "WAIT", "MIN_OFFSET", "MAX_OFFSET"}
OURS_A_ROUND, THEIRS_A_ROUND, KILLED_AFTER = 120, 90, 40
UNTIL_KILLED = 10**7  # more than a client sends until its broker is killed, however late that is


@dataclass(frozen=True, slots=True)
class Sent:
    """What a message holds, whoever reads it."""

    topic: str
    tags: str | None
    keys: str
    body_sha256: str
    properties: tuple[tuple[str, str], ...]


def never(_round_number: int) -> bool:
    """Everybody stops in order."""
    return False


def always(_round_number: int) -> bool:
    """Everybody is killed."""
    return True


def message_of(n: int) -> tuple[bytes, dict[str, Any]]:
    """Message number `n`, as java/Talk.java makes it too: (body, arguments of Producer.send)."""
    named = {"named": f"värde {n}"} if n % 4 == 0 else {}
    body = f"body {n} é消".encode() * (1 + n % 7)
    tags = None if n % 5 == 0 else f"Tag{n % 3}"
    return body, {"tags": tags, "keys": f"key{n} of{n % 10}", "properties": {"n": str(n), **named}}


def sent_of(topic: str, n: int) -> Sent:
    """What a reader must find of message number `n`."""
    body, fields = message_of(n)
    digest = hashlib.sha256(body).hexdigest()
    return Sent(topic, fields["tags"], fields["keys"], digest, tuple(sorted(fields["properties"].items())))


def read_of(topic: str, tags: str | None, keys: str, body_sha256: str, properties: dict[str, str]) -> Sent:
    """What a reader found."""
    own = {name: value for name, value in properties.items() if name not in ADDED_BY_BROKERS | {"KEYS", "TAGS"}}
    return Sent(topic, tags, keys, body_sha256, tuple(sorted(own.items())))


@dataclass
class GiveAndTake:
    """One store that goes back and forth."""

    home: Path
    version: str
    kills: Callable[[int], bool]  # by the number of the round
    acknowledged: set[tuple[str, int]] = field(default_factory=set)
    unknown: set[tuple[str, int]] = field(default_factory=set)  # sent, not answered: there once or not at all
    seconds: Counter[str] = field(default_factory=Counter)
    _next: int = 0

    def __post_init__(self) -> None:
        self.store = self.home / "ours" / "store"
        self._random = random.Random(self.version)

    # the rounds

    def run(self, rounds: int) -> None:
        """All rounds, then a last look with our own eyes."""
        with NameServer(self.home / "names", self.version) as names, self._client(names) as client:
            for number in range(rounds):
                with self._timed("ours"):
                    self._ours(number)
                if not self.kills(number):
                    self._verify()
                broker = RocketMQBroker(
                    self.home / f"theirs-{number}", self.version, store=self.store, namesrvAddr=names.address, **SIZES
                )
                with self._timed("theirs, start"), ExitStack() as running:
                    running.enter_context(broker)
                    running = running.pop_all()
                with running:
                    with self._timed("theirs, reading"):
                        self._consumed(client)
                        self._queried(client)
                    with self._timed("theirs, writing"):
                        self._theirs(client, broker, number)
                    stopping = time.monotonic()
                    broker.stop()
                self.seconds["theirs, stop"] += time.monotonic() - stopping  # type: ignore[assignment]
        with self._timed("ours"), self._our_broker():
            pass
        self._verify()
        self._audit()

    def _client(self, names: NameServer) -> RealClient:
        return RealClient(self.home / "client", names)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.seconds[what] += time.monotonic() - begun  # type: ignore[assignment]

    def _numbers(self, count: int) -> range:
        self._next += count
        return range(self._next - count, self._next)

    # our side

    def _our_broker(self) -> LocalBroker:
        compat = "5" if self.version.startswith("5") else "4.9"
        often = {"flushConsumeQueueThoroughInterval": 1000}  # so that a killed broker leaves a young checkpoint
        return LocalBroker(self.home / "ours", brokerClusterName="DefaultCluster", compat=compat, **SIZES, **often)

    def _ours(self, round_number: int) -> None:
        """Our broker opens the store and appends; everything acknowledged before is in the log already."""
        with self._our_broker() as broker, Producer(str(broker.store), timeout=120.0) as producer:
            for topic in TOPICS:
                if topic == TOPICS[0] or round_number:  # the other topic is theirs to begin
                    self._send(producer, topic)
            if self.kills(round_number):
                self._kill(broker, producer)

    def _send(self, producer: Producer, topic: str) -> None:
        numbers = self._numbers(OURS_A_ROUND)
        for n in numbers:
            body, fields = message_of(n)
            result = producer.send(topic, body, **fields)
            assert result.status.value == "PUT_OK", result
            self.acknowledged.add((topic, n))

    def _kill(self, broker: LocalBroker, producer: Producer) -> None:
        """SIGKILL of the supervisor, with which its processes die, while messages are on their way."""
        numbers = self._numbers(2000)
        futures = {}
        for n in numbers:
            body, fields = message_of(n)
            futures[n] = producer.send_async(TOPICS[0], body, **fields)
            if n == numbers[KILLED_AFTER] + self._random.randrange(1000):
                break
        kill_broker(broker)
        for n, future in futures.items():
            try:
                known = future.result(120).status.value == "PUT_OK"
            except (EngineError, IpcError):
                known = False
            (self.acknowledged if known else self.unknown).add((TOPICS[0], n))

    # their side

    def _theirs(self, client: RealClient, broker: RocketMQBroker, round_number: int) -> None:
        for topic in TOPICS:
            numbers = self._numbers(THEIRS_A_ROUND)
            client.tell("produce", topic=topic, first=numbers[0], count=len(numbers) - 30)
            self._acknowledge(topic, client)
            client.tell("produce", topic=topic, first=numbers[-30], count=30, batch=6)
            self._acknowledge(topic, client)
        if self.kills(round_number):
            numbers = self._numbers(UNTIL_KILLED)
            client.tell("produce", topic=TOPICS[1], first=numbers[0], count=len(numbers), timeout=20_000)
            told = [client.answer() for _ in range(KILLED_AFTER + self._random.randrange(200))]
            broker.kill()
            rest, error = client.rest()
            assert error is not None
            answered = {(TOPICS[1], answer["n"]) for answer in (*told, *rest)}
            self.acknowledged |= answered
            self.unknown |= {(TOPICS[1], n) for n in numbers[: len(answered) + 1]} - answered  # one after the other

    def _acknowledge(self, topic: str, client: RealClient) -> None:
        lines, error = client.rest()
        assert error is None, error
        assert all(line["status"] == "SEND_OK" for line in lines)
        self.acknowledged |= {(topic, line["n"]) for line in lines}

    def _consumed(self, client: RealClient) -> None:
        """Their consumers get every message, by tags, too."""
        for topic in sorted({topic for topic, _ in self.acknowledged}):
            for tags in ("*", "Tag1"):
                found = [
                    read_of(m["topic"], m["tags"], m["keys"], m["bodySha256"], m["properties"])
                    for m in client.ask("consume", topic=topic, tags=tags)
                    if "msgId" in m
                ]
                self._compare(topic, found, None if tags == "*" else tags)

    def _queried(self, client: RealClient) -> None:
        """Their key query finds messages of every round of both sides."""
        for topic in sorted({topic for topic, _ in self.acknowledged}):
            numbers = sorted(n for known, n in self.acknowledged if known == topic)
            numbers = sorted({numbers[0], numbers[-1], *self._random.sample(numbers, min(18, len(numbers)))})
            keys = ",".join(f"key{n}" for n in numbers)
            found = [
                (answer["key"], read_of(m["topic"], m["tags"], m["keys"], m["bodySha256"], m["properties"]))
                for answer in client.ask("query", topic=topic, keys=keys)
                for m in [answer["message"]]
            ]
            assert found == [(f"key{n}", sent_of(topic, n)) for n in numbers], topic

    # the account

    def _compare(self, topic: str, found: list[Sent], tags: str | None = None) -> None:
        """Everything acknowledged once; what got no answer once at most; nothing else."""

        def counted(numbers: set[tuple[str, int]]) -> Counter[Sent]:
            sent = (sent_of(known, n) for known, n in numbers if known == topic)
            return Counter(each for each in sent if tags is None or each.tags == tags)

        there, acknowledged, unknown = Counter(found), counted(self.acknowledged), counted(self.unknown)
        missing, extra = acknowledged - there, there - acknowledged - unknown
        assert not missing, f"{topic}: {missing.total()} of {acknowledged.total()} are missing: {next(iter(missing))}"
        assert not extra, f"{topic}: {extra.total()} too many of {there.total()}: {next(iter(extra))}"

    def _verify(self) -> None:
        found: list[Finding] = list(Verification(self.store).findings())
        assert not found, "\n".join(map(str, found[:5]))

    def _audit(self) -> None:
        """What our own decoder finds at the end."""
        end = recover_read_only(self.store).max_physical_offset
        messages: list[Message] = messages_of(self.store, end)
        assert_queue_offsets_dense(messages)
        for topic in TOPICS:
            found = [
                read_of(m.topic, m.tags, str(m.keys), hashlib.sha256(bytes(m.body)).hexdigest(), dict(m.properties))
                for m in messages
                if m.topic == topic
            ]
            self._compare(topic, found)


def report(given: GiveAndTake, rounds: int) -> str:
    """A line of the table."""
    seconds = ", ".join(f"{what} {took:.0f} s" for what, took in given.seconds.items())
    kills = "both killed in every round" if given.kills(0) else "orderly"
    return (
        f"| {given.version} | {kills} | {rounds} | {len(given.acknowledged)} | {len(given.unknown)} | 0 | 0 |"
        f" {seconds} |"
    )


def rows(rounds: int) -> Iterator[str]:
    """Every version and kind: the lines of the table."""
    for version in VERSIONS:
        for kills in (never, always):
            with tempfile.TemporaryDirectory(prefix="give-and-take-") as home:
                given = GiveAndTake(Path(home), version, kills)
                given.run(rounds)
                line = report(given, rounds)
                print(line, flush=True)
                yield line


HEAD = """## Give and take

`tests/interop/give_and_take.py` uses one store directory. In every round a Slipstream broker opens it, appends to two
topics and stops. Then RocketMQ opens it. Its client consumes everything (all, and by tag) and asks for messages by
key, and compares body, tags, keys and properties. It also appends single messages and batches. `log verify` finds
nothing after every orderly stop of the Slipstream broker and at the end, where queue offsets are dense.

| RocketMQ | ends | rounds | acknowledged | unanswered when killed | missing | twice | time |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
