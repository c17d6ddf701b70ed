"""Requests that a client signs, and the signatures that RocketMQ's clients of 4.9.7 and 5.3.3 added to them.

To record them again, run `python -m tests.interop.client_rules`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

SIGNATURES = Path(__file__).parent.parent / "engine" / "clients" / "signatures.jsonl"


class SignedCase(NamedTuple):
    """A request and the credentials of its client."""

    fields: dict[str, str]
    body: str
    access_key: str
    secret_key: str
    security_token: str | None = None


SEND = {
    "a": "group", "b": "topic", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
    "i": "UNIQ_KEY\x010A\x02TAGS\x01tag\x02", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
SIGNED_CASES = (
    SignedCase({"topic": "topic"}, "", "RocketMQ", "12345678"),
    SignedCase({"topic": "topic"}, "body", "RocketMQ", "12345678"),
    SignedCase({"topic": "topic"}, "body", "RocketMQ", "12345678", "token"),
    SignedCase({"topic": "topic"}, "body", "RocketMQ", "12345678", ""),
    SignedCase(SEND, "bödy €", "producer-1", "sëcret €"),
    SignedCase({"b": "second", "B": "capital", "a": "first", "_": "mark", "Z": ""}, "\n", "key", "s" * 200),
    SignedCase({"consumerGroup": "%RETRY%gruppe", "queueId": "-1"}, "\U0001f600", "\u20ac\U0001f600", "\U0001f600"),
    SignedCase({"Signature": "an old one", "topic": "topic"}, "", "RocketMQ", "12345678"),
    SignedCase({"AccessKey": "another", "topic": "topic"}, "", "RocketMQ", "12345678"),
)


def recorded_signatures() -> list[tuple[SignedCase, str]]:
    """Return each request with the signature that Java's client added."""
    lines = [json.loads(line) for line in SIGNATURES.read_text().splitlines()]
    return [(SignedCase(*case), signature) for *case, signature in lines]
