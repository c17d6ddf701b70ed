"""One seeded list of operations: what a client asks of a broker, before any broker has seen it.

Everything that a client decides is in the list: also the born timestamps. An operation names an earlier one by its
number (send-back, end of a transaction); only the drivers know where that one came to lie.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.harness.batches import batch_body

BODY_BYTES_MAX = 65_536  # the maxMessageSize of both sides
BORN_MS = 1_700_000_000_000
GROUP = "diff-producers"
COMMIT, ROLLBACK = 8, 12
SEND_MESSAGE, SEND_MESSAGE_V2, SEND_BATCH = 10, 310, 320
NAME, PAIR = "\x01", "\x02"


class Topic(NamedTuple):
    """A topic made before the first operation."""

    name: str
    queues: int
    batch_queue: bool = False


@dataclass(frozen=True)
class Put:
    """One SEND_MESSAGE: the fields of its header, and the body."""

    topic: str
    queue_id: int
    properties: str | None
    body: bytes
    born_timestamp_ms: int
    sys_flag: int = 0
    flag: int = 0
    reconsume_times: int = 0
    batch: bool = False
    code: int = SEND_MESSAGE_V2
    oneway: bool = False
    ipv6: bool = False
    what: str = "plain"


@dataclass(frozen=True)
class SendBack:
    """CONSUMER_SEND_MSG_BACK of the message that an earlier operation put."""

    origin: int
    group: str
    delay_level: int
    max_reconsume_times: int | None = None
    what: str = "send back"


@dataclass(frozen=True)
class EndTransaction:
    """END_TRANSACTION of the half message that an earlier operation put."""

    half: int
    decision: int
    what: str = "end of transaction"


Operation = Put | SendBack | EndTransaction

UNICODE = ("héllo", "消息队列", "メッセージ", "сообщение", "🚀🐘", "plain", "a b", "ключ")
TAGS = ("TagA", "TagB", "tag-ü", "标签", "AaAa", "BBBB", "A||B", "🚀", "t" * 200)
# Names whose hashes meet in one bucket, names of the broker's own, names of everybody.
COLLIDING = ("AaAa", "BBBB", "AaBB", "BBAa", "AaAaAa", "BBBBBB", "AaBBAa", "BBAaBB")
SYSTEM = {
    "CLUSTER": ("other",), "MSG_REGION": ("elsewhere",), "TRACE_ON": ("false", "true"), "BUYER_ID": ("7",),
    "POP_CK": ("1 2 3 4 5 6 7 8",), "RETRY_TOPIC": ("diff-four",), "ORIGIN_MESSAGE_ID": ("7F000001000070EF00000000",),
    "REAL_TOPIC": ("diff-four",), "REAL_QID": ("3",), "INSTANCE_ID": ("inst",), "__SHARDINGKEY": ("shard",),
    "PGROUP": ("x",), "INNER_BASE": ("3",), "DUP_INFO": ("a_1",), "__CRC32#": ("0123456789",), "1ST_POP_TIME": ("5",),
    "TRANSACTION_CHECK_TIMES": ("2",), "__transactionId__": ("tx",), "RECONSUME_TIME": ("1",),
    "MAX_RECONSUME_TIMES": ("3",),
}  # fmt: skip
REFUSED_BY_ONE = {"INNER_NUM": ("2",), "TIMER_DELAY_SEC": ("3600",), "DELAY": ("abc", "", "99999999999")}


def topics(*, five: bool, features: bool) -> list[Topic]:
    """The topics of a run: names of all lengths, one queue and many."""
    made = [Topic("x", 1), Topic("diff-four", 4), Topic("diff-eight", 8), Topic("T" * 127, 2), Topic("%odd|name_", 3)]
    made += [Topic("t" * length, 1) for length in (2, 63, 64, 126)]
    if five and features:
        made += [Topic("diff-batch-queue", 2, batch_queue=True)]
    return made


class _Maker:
    """The generator's state: the random numbers, and which operations later ones may name."""

    def __init__(self, seed: int, *, five: bool, features: bool) -> None:
        self.rng = random.Random(seed)
        self.five, self.features = five, features
        self.topics = [topic for topic in topics(five=five, features=features) if not topic.batch_queue]
        self.born_ms = BORN_MS
        self.number = 0
        self.ipv6 = False
        self.halves: list[int] = []
        self.messages: list[int] = []

    def next(self) -> Operation:
        """One more operation."""
        rng = self.rng
        self.born_ms += rng.choice((0, 0, 1, 7, 1500))
        if rng.random() < 0.004:
            self.ipv6 = not self.ipv6
        kinds = [
            (self._plain, 62),
            (self._batch, 10),
            (self._delayed, 7),
            (self._half, 6),
            (self._odd, 6),
            (self._flags, 3),
        ]
        kinds += [(self._end, 5), (self._back, 4), (self._refused, 1), (self._lmq, 6), (self._inner_batch, 4)]
        (make,) = rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
        operation = make()
        self.number += 1
        return operation

    def _put(self, what: str, properties: str | None, body: bytes, **fields: object) -> Put:
        topic = self.rng.choice(self.topics)
        put = Put(
            topic=topic.name,
            queue_id=self.rng.randrange(topic.queues),
            properties=properties,
            body=body,
            born_timestamp_ms=self.born_ms,
            what=what,
            ipv6=self.ipv6,
            code=self.rng.choice((SEND_MESSAGE, SEND_MESSAGE_V2, SEND_MESSAGE_V2)),
        )
        return Put(**{**put.__dict__, **fields})

    def body(self, limit: int = BODY_BYTES_MAX) -> bytes:
        """A body, seldom a large one."""
        rng = self.rng
        kind = rng.random()
        size = 1 if kind < 0.1 else rng.randrange(1, 300) if kind < 0.9 else rng.randrange(300, 5000)
        if kind > 0.995:
            size = rng.choice((limit, limit - 1, rng.randrange(limit // 2, limit)))
        if kind < 0.5:
            return ("".join(rng.choices(UNICODE, k=1 + size // 8))).encode()[:size]
        return rng.randbytes(min(size, limit))

    def uniq_key(self) -> str:
        """A client's unique key; of another form now and then."""
        return f"7F0000010A2B3C4D5E6F{self.number:012X}" if self.rng.random() < 0.95 else f"u{self.number}"

    def keys(self) -> str:
        """Keys with one space, several, leading and trailing ones."""
        rng = self.rng
        parts = [
            rng.choice((f"k{self.number}", rng.choice(UNICODE), "shared", "AaAa", "BBBB"))
            for _ in range(rng.randrange(1, 6))
        ]
        return rng.choice(("", " ", "  ")) + rng.choice((" ", "  ", "   ")).join(parts) + rng.choice(("", " "))

    def pairs(self) -> list[tuple[str, str]]:
        """The properties of one message in the order of its client."""
        rng = self.rng
        pairs = [("UNIQ_KEY", self.uniq_key())]
        if rng.random() < 0.7:
            pairs.append(("TAGS", rng.choice(TAGS)))
        if rng.random() < 0.6:
            pairs.append(("KEYS", self.keys()))
        if rng.random() < 0.5:
            pairs.append(("WAIT", rng.choice(("true", "true", "false"))))
        many = rng.random()
        count = rng.randrange(4) if many < 0.9 else rng.randrange(5, 40) if many < 0.99 else rng.randrange(40, 300)
        pairs += [(f"p{rng.randrange(1000)}", rng.choice(UNICODE) + str(rng.randrange(100))) for _ in range(count)]
        if rng.random() < 0.05:
            pairs += [(name, str(rng.randrange(10))) for name in rng.sample(COLLIDING, rng.randrange(2, 8))]
        if rng.random() < 0.1:
            name = rng.choice(list(SYSTEM))
            pairs.append((name, rng.choice(SYSTEM[name])))
        rng.shuffle(pairs)
        return pairs

    def text(self, pairs: list[tuple[str, str]]) -> str:
        """The property string, with or without its last separator."""
        return PAIR.join(NAME.join(pair) for pair in pairs) + self.rng.choice(("", PAIR))

    def _plain(self) -> Put:
        oneway = self.rng.random() < 0.06
        if not oneway:
            self.messages.append(self.number)
        times = self.rng.choice((0, 0, 0, 0, 1, 3, 16, 40)) if self.rng.random() < 0.2 else 0
        flag = self.rng.randrange(-(2**31), 2**31) if self.rng.random() < 0.2 else 0
        what = "oneway" if oneway else "plain"
        return self._put(what, self.text(self.pairs()), self.body(), oneway=oneway, flag=flag, reconsume_times=times)

    def _flags(self) -> Put:
        """System flags as clients of all times set them; bodies are not looked at by a broker."""
        compression = self.rng.choice((0, 0x100, 0x200, 0x300)) | self.rng.choice((0, 1, 2, 3))
        transaction = self.rng.choice((0, 0, 0, 4, 8, 12))
        return self._put("system flags", self.text(self.pairs()), self.body(), sys_flag=compression | transaction)

    def _odd(self) -> Put:
        """Property strings that no client should send."""
        rng = self.rng
        good = self.text(self.pairs())
        bits = (
            PAIR, PAIR * 3, NAME, "noseparator", "a" + NAME, NAME + "b", "x" + NAME + "y",
            "m" + NAME + "n" + NAME + "o",
            "\x00" + NAME + "\x03", "same" + NAME + "1" + PAIR + "same" + NAME + "2", "lone" + NAME + "\ud800",
            "w" + NAME + " ",
            "\udc00q" + NAME + "v", "e" + NAME + PAIR + "f" + NAME + "g", "名" + NAME + "值",
            "a" * 300 + NAME + "b" * 1000,
        )  # fmt: skip
        parts = [*good.split(PAIR), *rng.sample(bits, rng.randrange(1, 5))]
        rng.shuffle(parts)
        return self._put("odd properties", PAIR.join(parts), self.body())

    def _batch(self) -> Put:
        rng = self.rng
        count = rng.choice((1, 2, 3, 10, 30))
        body = batch_body([self._item(rng) for _ in range(count)])
        outer = rng.choice((None, "", self.text([("WAIT", "true")]), self.text([("b", "1"), ("a", "2")])))
        return self._put("classic batch", outer, body, batch=True, code=SEND_BATCH)

    def _item(self, rng: random.Random) -> tuple[int, bytes, bytes]:
        properties = rng.choice((self.text(self.pairs()[:5]), "", "TAGS" + NAME + "TagB"))
        return rng.choice((0, 0, rng.randrange(2**31))), self.body(2000), properties.encode()

    def _delayed(self) -> Put:
        rng = self.rng
        level = rng.choice(("17", "18", "18", "19", "100", "0", "-1", "2147483647"))
        pairs = [*self.pairs(), ("DELAY", level)]
        if rng.random() < 0.05:
            pairs.append(("TIMER_DELIVER_MS", "1"))
        rng.shuffle(pairs)
        return self._put("delayed", self.text(pairs), self.body(), sys_flag=rng.choice((0, 0, 0, 8)))

    def _half(self) -> Put:
        rng = self.rng
        value = rng.choice(("true", "true", "true", "TRUE"))
        pairs = [pair for pair in self.pairs() if pair[0] not in ("PGROUP", "REAL_TOPIC", "REAL_QID")]
        pairs += [("TRAN_MSG", value), ("PGROUP", GROUP)]
        delayed = rng.random() < 0.05
        if delayed:
            pairs.append(("DELAY", "18"))
        else:
            self.halves.append(self.number)
        rng.shuffle(pairs)
        what = "half with a delay" if delayed else "half"
        return self._put(what, self.text(pairs), self.body(), sys_flag=rng.choice((4, 4, 5, 0x104)))

    def _end(self) -> Operation:
        if not self.halves:
            return self._half()
        half = self.halves.pop(self.rng.randrange(len(self.halves)))
        return EndTransaction(half, self.rng.choice((COMMIT, COMMIT, ROLLBACK)))

    def _back(self) -> Operation:
        if not self.messages:
            return self._plain()
        rng = self.rng
        group = rng.choice(("diff-group", "g", "diff-other-group"))
        return SendBack(
            rng.choice(self.messages), group, rng.choice((17, 18, 18, 40, -1)), rng.choice((None, None, 0, 3, 100))
        )

    def _refused(self) -> Put:
        """What a broker refuses, or one version of it."""
        rng = self.rng
        kind = rng.randrange(4)
        if kind == 0:
            return self._put("body too large", self.text(self.pairs()), b"x" * (BODY_BYTES_MAX + 1 + rng.randrange(10)))
        if kind == 1:
            return self._put(
                "properties too large", self.text([*self.pairs(), ("big", "v" * rng.randrange(32_600, 33_000))]), b"b"
            )
        if kind == 2:
            return self._put("empty body", self.text(self.pairs()), b"")
        name = rng.choice(list(REFUSED_BY_ONE))
        return self._put(
            f"{name} by a client", self.text([*self.pairs(), (name, rng.choice(REFUSED_BY_ONE[name]))]), self.body()
        )

    def _lmq(self) -> Put:
        rng = self.rng
        queues = ",".join(
            rng.choices(("%LMQ%one", "%LMQ%two", "%LMQ%three", "%LMQ%four", "%LMQ%five"), k=rng.randrange(1, 4))
        )
        pairs = [*self.pairs(), ("INNER_MULTI_DISPATCH", queues)]
        rng.shuffle(pairs)
        return self._put("multi-dispatch", self.text(pairs), self.body())

    def _inner_batch(self) -> Put:
        if not (self.five and self.features):
            return self._batch()
        rng = self.rng
        queue_id = rng.randrange(2)
        if rng.random() < 0.3:
            return self._put(
                "plain to a batch queue",
                self.text(self.pairs()),
                self.body(),
                topic="diff-batch-queue",
                queue_id=queue_id,
            )
        body = batch_body([self._item(rng) for _ in range(rng.choice((1, 2, 5, 20)))])
        outer = self.text(
            [("UNIQ_KEY", self.uniq_key()), *([("TAGS", "TagA"), ("KEYS", self.keys())] if rng.random() < 0.5 else [])]
        )
        return self._put(
            "inner batch", outer, body, batch=True, code=SEND_BATCH, topic="diff-batch-queue", queue_id=queue_id
        )


def operations(seed: int, count: int, *, five: bool, features: bool) -> Iterator[Operation]:
    """The list: the same for the same arguments, wherever it is made."""
    maker = _Maker(seed, five=five, features=features)
    for _ in range(count):
        yield maker.next()
