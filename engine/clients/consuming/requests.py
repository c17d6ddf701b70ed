"""The headers and bodies of what a member of a consumer group asks brokers.

Implements: HeartbeatData, SubscriptionData, FilterAPI, PullMessageRequestHeader, PullSysFlag (spec: remoting, 7)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.protocol.remoting.frame import RemotingCommand
from store.message.properties import java_hash

EVERYTHING = "*"
FIRST, LAST = "first", "last"
WHERE = {FIRST: "CONSUME_FROM_FIRST_OFFSET", LAST: "CONSUME_FROM_LAST_OFFSET"}
AT_TIME = "CONSUME_FROM_TIMESTAMP"
COMMIT_FLAG, SUSPEND_FLAG, SUBSCRIPTION_FLAG = 1, 2, 4
MESSAGES_A_PULL = 32
SUSPEND_MS = 15_000


class Subscription(NamedTuple):
    """What a member wants of a topic: tags like `a || b`, or with `kind` SQL92 a condition on properties."""

    expression: str = EVERYTHING
    kind: str = "TAG"

    @property
    def is_by_tags(self) -> bool:
        """Whether tags choose, or nothing does; else the broker has to filter."""
        return self.kind == "TAG"

    @property
    def tags(self) -> frozenset[str] | None:
        """The tags that are wanted; None where messages are not chosen by tags."""
        return None if not self.is_by_tags or self.expression == EVERYTHING else frozenset(tags_in(self.expression))


def tags_in(tags: str) -> list[str]:
    """Return the tags of an expression like `a || b`."""
    return [tag for tag in (part.strip() for part in tags.split("||")) if tag]


def subscription_of(topic: str, wanted: Subscription, version_ms: int) -> dict[str, Any]:
    """Return what a heartbeat says of one topic: a SubscriptionData."""
    chosen = tags_in(wanted.expression) if wanted.tags is not None else []
    return {
        "classFilterMode": False,
        "codeSet": [java_hash(tag) for tag in chosen],
        "expressionType": wanted.kind,
        "subString": wanted.expression,
        "subVersion": version_ms,
        "tagsSet": chosen,
        "topic": topic,
    }


def heartbeat_of(
    client_id: str, group: str, begin: str | int, subscriptions: list[dict[str, Any]], *, broadcasts: bool = False
) -> bytes:
    """The body in which a consumer says that it lives."""
    consumer = {
        "consumeFromWhere": AT_TIME if isinstance(begin, int) else WHERE[begin],
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": "BROADCASTING" if broadcasts else "CLUSTERING",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    return json.dumps({"clientID": client_id, "producerDataSet": [], "consumerDataSet": [consumer]}).encode()


class Pull(NamedTuple):
    """A pull: from where, what is committed with it (None: nothing), and whether the broker may hold it."""

    offset: int
    commit: int | None
    may_wait: bool


def pull_fields(queue: Mapping[str, str], pull: Pull, wanted: Subscription, version_ms: int) -> dict[str, str]:
    """The header of a pull. `queue`: its fields, the group's among them."""
    flags = SUBSCRIPTION_FLAG | SUSPEND_FLAG * pull.may_wait | COMMIT_FLAG * (pull.commit is not None)
    return {
        **queue,
        "queueOffset": str(pull.offset),
        "maxMsgNums": str(MESSAGES_A_PULL),
        "sysFlag": str(flags),
        "commitOffset": str(pull.commit or 0),
        "suspendTimeoutMillis": str(SUSPEND_MS),
        "subscription": wanted.expression,
        "subVersion": str(version_ms),
        "expressionType": wanted.kind,
    }


def number_of(answer: RemotingCommand, name: str, otherwise: int) -> int:
    """A number of an answer's header."""
    return int((answer.ext_fields or {}).get(name, otherwise))
