"""JSON texts as clients may write them, read by RocketMQ's classes with fastjson and by ours, and what came of each.

A text is a value of one of RocketMQ's classes, written by a seeded hand: names in any case, enums as ordinals, numbers
as texts, single quotes, comments, commas to spare; every fourth one is then broken somewhere. Run by `make fastjson`.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.protocol.clients.heartbeat import heartbeat_of
from engine.protocol.clients.lock_bodies import request_of
from engine.protocol.remoting.frame import LANGUAGES, MalformedFrame, decode
from store.tables import fastjson
from store.tables.fastjson import MalformedJson
from store.tables.java_fields import JavaFields
from tests.interop import jars, rocketmq

JAVA_SECONDS = 900.0
JAVA_OPAQUES_MAX = 1 << 20
BYTES_MAX = 1 << 20
NOW_MS = -7  # stands for the moment at which a subscription without a version was read
WRONG = 0.02  # how many values no Java class takes
HALF = "half of a surrogate pair"
CONSUME_TYPES, MODELS = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY"), ("BROADCASTING", "CLUSTERING")
FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
TEXTS = ("a", "name with space", "ä€", "\U0001f600", 'q"uo\\te', "it's", "/*", "0", "true", "null", "", "x,y")
TOPIC = {"topicName": "text", "readQueueNums": 16, "writeQueueNums": 16, "perm": 6, "topicSysFlag": 0, "order": False}
GROUP = {
    "groupName": "text", "consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True,
    "retryQueueNums": 1, "retryMaxTimes": 16, "notifyConsumerIdsChangedEnable": True,
}  # fmt: skip


class Text(NamedTuple):
    """A text, and the class whose value it may say."""

    java_class: str
    content: bytes
    is_broken: bool


class Verdict(NamedTuple):
    """What came of one text."""

    kind: str
    text: Text
    java: str
    ours: str


class Writer:
    """Writes values as a client's hand might."""

    def __init__(self, seed: random.Random) -> None:
        self._seed = seed
        self._is_plain = seed.random() < 0.3  # JSON to everybody
        self._bare = not self._is_plain and seed.random() < 0.5

    def value(self, value: Any) -> str:
        """The text of a value."""
        if isinstance(value, dict):
            pairs = [f"{self._name(name)}{self._blank()}:{self._blank()}{self.value(of)}" for name, of in value.items()]
            return "{" + self._joined(pairs) + "}"
        if isinstance(value, list):
            return "[" + self._joined([self.value(item) for item in value]) + "]"
        if value == HALF:
            return r'"x\ud83d"'
        if isinstance(value, str):
            return self._text(value)
        if type(value) is int and not self._is_plain and 0 < value < 2**31 and self._chance(0.1):
            return self._seed.choice([f"+{value}", f"{value}L", f"{value}."])
        return json.dumps(value)

    def _chance(self, share: float) -> bool:
        return self._seed.random() < share

    def _blank(self) -> str:
        if not self._chance(0.1):
            return ""
        return self._seed.choice([" ", "\n", "\t"] if self._is_plain else [" ", "/*c*/", "//c\n", "\r\n", "\f", "\b"])

    def _joined(self, parts: list[str]) -> str:
        comma = ",," if not self._is_plain and self._chance(0.03) and parts and parts[0][:1] in "\"'a" else ","
        end = "," if not self._is_plain and parts and self._chance(0.05) else ""
        return self._blank() + comma.join(part + self._blank() for part in parts) + end

    def _name(self, name: str) -> str:
        return name if self._bare and name.isascii() and name.isidentifier() else self._text(name)

    def _text(self, text: str) -> str:
        written = json.dumps(text, ensure_ascii=self._chance(0.5))
        if self._is_plain or not self._chance(0.3):
            return written
        return "'" + written[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"


class Maker:
    """Makes values of RocketMQ's classes, with what other languages make of their fields."""

    def __init__(self, seed: random.Random) -> None:
        self._seed = seed

    def text(self) -> Text:
        """The next one."""
        make = self._seed.choice([self._header, self._header, self._heartbeat, self._locks, self._topic, self._group])
        java_class, value = make()
        content, is_broken = Writer(self._seed).value(value), self._seed.random() < 0.25
        if is_broken:
            content = self._broken(content)
        if self._seed.random() < 0.05:
            content = "\ufeff" + content
        return Text(java_class, content.encode("utf-8", "replace"), is_broken)

    def _broken(self, text: str) -> str:
        at = self._seed.randrange(len(text))
        end = at + self._seed.choice((0, 1, 1, 2))
        return text[:at] + self._seed.choice(("", "", *"{}],:/x-\"'\\")) + text[end:]

    def _some(self, fields: dict[str, Callable[[], Any]], always: str = "") -> dict[str, Any]:
        """These fields, in any order, some left out, some by another spelling, and perhaps one that no class has."""
        names = [name for name in fields if name == always or self._seed.random() < 0.8]
        self._seed.shuffle(names)
        value = {self._spelled(name): fields[name]() for name in names}
        if self._seed.random() < 0.2:
            value["unknown"] = self._any(2)
        return value

    def _spelled(self, name: str) -> str:
        if self._seed.random() < 0.93:
            return name
        words = "".join(f"_{one.lower()}" if one.isupper() else one for one in name)
        return self._seed.choice([name.upper(), name.capitalize(), words])

    def _any(self, depth: int) -> Any:
        seed = self._seed
        if depth and seed.random() < 0.3:
            return [self._any(depth - 1) for _ in range(seed.randrange(3))]
        if depth and seed.random() < 0.3:
            return {name: self._any(depth - 1) for name in seed.sample("abc", seed.randrange(3))}
        return seed.choice([None, True, False, 5, 1.5, "x", 10**12])

    def _number(self) -> Any:
        number = self._seed.choice((0, 1, 5, 34, 1000, 2**31 - 1, -3))
        if self._seed.random() < WRONG:
            return self._seed.choice([2**31, "x", [], "1.9", {}])
        return self._seed.choice([number] * 6 + [str(number), float(f"{number}.0"), True, None, "", 1.9])

    def _flag(self) -> Any:
        if self._seed.random() < WRONG:
            return self._seed.choice(["yes", {}, "t", 2**40])
        return self._seed.choice([True, False, 1, 0, "true", "FALSE", "Y", "1", None, ""])

    def _enum(self, names: Sequence[str]) -> Any:
        name = self._seed.choice(names)
        if self._seed.random() < WRONG:
            return self._seed.choice([len(names) + 40, -1, [], True])
        return self._seed.choice([name, name.lower(), names.index(name), "UNKNOWN", "", None])

    def _name(self) -> Any:
        return None if self._seed.random() < WRONG else self._seed.choice(["g", "topic", "a" * 20, 5, True, 1.5])

    def _said(self) -> Any:
        return self._seed.choice((*TEXTS, *TEXTS, 5, 1.25, True, None, {"a": [1, None, "x"]}, [], {}))

    def _header(self) -> tuple[str, Any]:
        fields: dict[str, Callable[[], Any]] = dict.fromkeys(("code", "flag", "version"), self._number)
        fields |= {"opaque": lambda: self._seed.randrange(1 << 31), "remark": self._said}
        fields |= {"language": lambda: self._enum(LANGUAGES[:12]), "extFields": self._ext_fields}
        return "RemotingCommand", self._some(fields, "opaque")

    def _ext_fields(self) -> Any:
        if self._seed.random() < 0.05:
            return self._any(1)
        value = {name: self._said() for name in self._seed.sample(("a", "topic", "b c", "ä", "i"), 3)}
        return value | ({"half": HALF} if self._seed.random() < 0.05 else {})

    def _heartbeat(self) -> tuple[str, Any]:
        return "HeartbeatData", self._some(
            {
                "clientID": self._name,
                "producerDataSet": lambda: [self._some({"groupName": self._name}, "groupName") for _ in range(2)],
                "consumerDataSet": lambda: [self._consumer() for _ in range(self._seed.randrange(3))],
            },
            "clientID",
        )

    def _consumer(self) -> Any:
        return self._some(
            {
                "groupName": self._name,
                "consumeType": lambda: self._enum(CONSUME_TYPES),
                "messageModel": lambda: self._enum(MODELS),
                "unitMode": self._flag,
                "subscriptionDataSet": lambda: [self._subscription()],
            },
            "groupName",
        )

    def _subscription(self) -> Any:
        return self._some(
            {
                "topic": self._name,
                "subString": self._said,
                "subVersion": self._number,
                "classFilterMode": self._flag,
                "tagsSet": lambda: [self._seed.choice(("a", 5, True))],
                "codeSet": lambda: [self._number()],
            },
            "topic",
        )

    def _locks(self) -> tuple[str, Any]:
        queue = {"topic": self._name, "brokerName": self._name, "queueId": self._number}
        return "LockBatchRequestBody", self._some(
            {
                "consumerGroup": self._name,
                "clientId": self._name,
                "mqSet": lambda: [self._some(queue, "topic") for _ in range(self._seed.randrange(3))],
            },
            "clientId",
        )

    def _topic(self) -> tuple[str, Any]:
        fields = self._by_default(TOPIC) | {"topicFilterType": lambda: self._enum(FILTER_TYPES)}
        return "TopicConfig", self._some(fields)

    def _group(self) -> tuple[str, Any]:
        return "SubscriptionGroupConfig", self._some(self._by_default(GROUP))

    def _by_default(self, defaults: dict[str, Any]) -> dict[str, Callable[[], Any]]:
        kinds = {bool: self._flag, int: self._number, str: self._said}
        return {name: kinds[type(default)] for name, default in defaults.items()}


def texts(seed: int, count: int) -> list[Text]:
    """So many of them."""
    maker = Maker(random.Random(seed))
    return [maker.text() for _ in range(count)]


def by_java(version: str, asked: Iterable[Text]) -> list[Any]:
    """What RocketMQ's classes read: a JSON value each, {"error": ...} for a text that is refused."""
    lines = "".join(f"{one.java_class} {base64.b64encode(one.content).decode()}\n" for one in asked)
    command = ["java", *rocketmq.JVM, "-cp", jars.of_broker(version).class_path(rocketmq.JAVA_PROGRAMS), "Reading"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=JAVA_SECONDS, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def by_ours(one: Text) -> Any:
    """What we read, in the form of Java's; {"error": ...} for a text that is refused."""
    try:
        return _READERS[one.java_class](one.content)
    except (MalformedJson, MalformedFrame) as refused:
        return {"error": str(refused)}


def _of_header(content: bytes) -> Any:
    said = decode(len(content).to_bytes(4) + content)
    ext = None if said.ext_fields is None else dict(said.ext_fields)
    return {
        "code": said.code, "language": said.language, "version": said.version, "opaque": said.opaque,
        "flag": said.flag, "remark": said.remark, "extFields": ext,
    }  # fmt: skip


def _of_heartbeat(content: bytes) -> Any:
    said = heartbeat_of(content, NOW_MS)
    consumers = [
        {
            "groupName": one.group, "consumeType": one.consume_type, "messageModel": one.message_model,
            "unitMode": one.unit_mode, "subscriptionDataSet": [
                {
                    "topic": of.topic, "subString": of.sub_string, "subVersion": of.sub_version,
                    "classFilterMode": of.class_filter_mode, "tagsSet": list(of.tags), "codeSet": list(of.codes),
                }
                for of in one.subscriptions
            ],
        }
        for one in said.consumers
    ]  # fmt: skip
    producers = [{"groupName": group} for group in said.producers]
    return {"clientID": said.client_id, "producerDataSet": producers, "consumerDataSet": consumers}


def _of_locks(content: bytes) -> Any:
    said = request_of(content)
    queues = [one.value() for one in said.queues]
    return {"consumerGroup": said.group, "clientId": said.client_id, "mqSet": queues}


def _of_fields(content: bytes, defaults: dict[str, Any], enum: str = "") -> Any:
    fields = JavaFields(fastjson.sent(content, "it", BYTES_MAX), "it")
    said: dict[str, Any] = {}
    for name, default in defaults.items():
        if isinstance(default, bool):
            said[name] = fields.flag(name, default)
        elif isinstance(default, int):
            said[name] = fields.number(name, default)
        else:
            said[name] = fields.text(name)
    return said | ({enum: fields.one_of(enum, FILTER_TYPES)} if enum else {})


_READERS: dict[str, Callable[[bytes], Any]] = {
    "RemotingCommand": _of_header,
    "HeartbeatData": _of_heartbeat,
    "LockBatchRequestBody": _of_locks,
    "TopicConfig": lambda content: _of_fields(content, TOPIC, "topicFilterType"),
    "SubscriptionGroupConfig": lambda content: _of_fields(content, GROUP),
}


def compared(one: Text, java: Any, ours: Any) -> Verdict:
    """Which of KINDS a text is."""
    told = one, json.dumps(java)[:2000], json.dumps(ours)[:2000]
    java_refuses, we_refuse = (not isinstance(said, dict) or "error" in said for said in (java, ours))
    if java_refuses:
        return Verdict("refused by both" if we_refuse else "read here alone", *told)
    if we_refuse:
        is_ours = any(rule in ours["error"] for rule in ("printable text", "not a text of 1 to"))
        if is_ours:
            return Verdict("refused here for a name that nobody may have", *told)
        return Verdict("broken, and refused here alone" if one.is_broken else "refused here alone", *told)
    return Verdict("the same" if _masked(java, ours) == ours else "another value", *told)


def _masked(java: Any, ours: Any) -> Any:
    """Java's value with what ours does not have left out, as far as both have the same form."""
    if isinstance(ours, dict) and isinstance(java, dict):
        return {name: _in_our_form(name, java.get(name), of) for name, of in ours.items()}
    return java.encode("utf-8", "replace").decode() if isinstance(java, str) else java


def _in_our_form(name: str, java: Any, ours: Any) -> Any:
    if name == "language" and java is None:
        return "OTHER"
    if name == "topicFilterType" and ours is None and java == FILTER_TYPES[0]:
        return None  # a class's default, which a broker of ours takes where nothing is said
    if name == "opaque" and ours == 0 and java < JAVA_OPAQUES_MAX:
        return 0  # none was said, and Java counts on
    if name == "subVersion" and ours == NOW_MS:
        return NOW_MS
    if name == "extFields" and isinstance(java, dict):
        return {key: _masked(value, None) for key, value in java.items() if value is not None}
    if isinstance(ours, list) and isinstance(java, list | None):
        return _listed(java or [], ours)
    return _masked(java, ours)


def _listed(java: list[Any], ours: list[Any]) -> list[Any]:
    """A set of Java's in the order of ours; equal members count once."""
    left = [each for each in java if each is not None]
    matched = [one for one in ours if any(_masked(each, one) == one for each in left)]
    return matched + [each for each in left if not any(_masked(each, one) == one for one in ours)]


KINDS = (
    "the same", "refused by both", "refused here for a name that nobody may have", "read here alone",
    "broken, and refused here alone", "refused here alone", "another value",
)  # fmt: skip
FAULTS = KINDS[-2:]


def compare(version: str, asked: list[Text]) -> list[Verdict]:
    """All of them."""
    said = by_java(version, asked)
    return [compared(one, java, by_ours(one)) for one, java in zip(asked, said, strict=True)]


def main() -> int:
    """Write the ledger; 1 where a text is read otherwise."""
    parser = argparse.ArgumentParser(prog="make fastjson")
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    asked = texts(given.seed, given.count)
    verdicts = {version: compare(version, asked) for version in rocketmq.VERSIONS}
    counted = {version: Counter(one.kind for one in each) for version, each in verdicts.items()}
    wrong = [(version, one) for version, each in verdicts.items() for one in each if one.kind in FAULTS]
    rows = [f"| {kind} | " + " | ".join(f"{counts[kind]:,}" for counts in counted.values()) + " |" for kind in KINDS]
    given.ledger.write_text(
        f"{HEAD}\nSeed {given.seed}, {given.count:,} texts of {len(_READERS)} classes.\n\n"
        f"| a text is | {' | '.join(counted)} |\n| --- |{' --- |' * len(counted)}\n" + "\n".join(rows) + "\n"
    )
    for version, one in wrong[:20]:
        print(version, one.kind, one.text.java_class, one.text.content, one.java, one.ours, sep="\n  ")
    return 1 if wrong else 0


HEAD = """# JSON as fastjson reads it

Made by `make fastjson`. The texts are those that clients can write: names in any case, enums as ordinals, numbers as
texts, single quotes, comments, extra commas, and every fourth text broken somewhere. RocketMQ's own classes with
their own fastjson read them, and so does a Slipstream broker.

"Read here alone" does no harm: RocketMQ refuses the text. "Broken, and refused here alone": fastjson skips a
character that is not allowed there, as in `{"perm":6],"order":1}`. Not among the texts: `@type`, `$ref`, `new
Date()`,`x'41'`, and two names that mean the same field.
"""

if __name__ == "__main__":
    raise SystemExit(main())
