"""What a member of a group tells administrators of itself: request 307, which `mqadmin consumerStatus` asks.

Implements: ConsumerRunningInfo, ProcessQueueInfo, as DefaultMQPushConsumerImpl.consumerRunningInfo fills them
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.protocol.broker.admin_bodies import by_queue
from engine.protocol.remoting.places import Place
from store.tables import fastjson

CLIENT_VERSION = "SLIPSTREAM"
STACK_CHARACTERS_MAX = 64 * 1024


class QueueState(NamedTuple):
    """The state of one queue of the member: offsets, messages that wait to be taken, and times in ms since 1970."""

    consumed_to: int
    pulled_to: int
    waiting: int
    pulled_ms: int
    consumed_ms: int
    is_locked: bool = False


class MemberState(NamedTuple):
    """The member: what it subscribes to, its name servers, since when it runs, whether it keeps the order."""

    subscriptions: list[dict[str, Any]]
    name_servers: str
    began_ms: int
    in_order: bool = False


def running_info(queues: Mapping[Place, QueueState], member: MemberState, *, with_stack: bool) -> bytes:
    """The body of the answer. `with_stack`: also what every thread is doing."""
    fields: dict[str, Any] = {
        "properties": {
            "PROP_CLIENT_VERSION": CLIENT_VERSION, "PROP_CONSUME_ORDERLY": str(member.in_order).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(member.began_ms), "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_NAMESERVER_ADDR": member.name_servers, "PROP_THREADPOOL_CORE_SIZE": "1",
        },
        "statusTable": {}, "subscriptionSet": member.subscriptions,
    }  # fmt: skip
    if with_stack:
        fields["jstack"] = _stacks()
    table = by_queue({queue: fastjson.dumps(_process_queue(state)) for queue, state in queues.items()})
    return f'{{"mqTable":{table},{fastjson.dumps(fields)[1:]}'.encode("utf-8", "replace")


def _process_queue(state: QueueState) -> dict[str, Any]:
    return {
        "cachedMsgCount": state.waiting,
        "cachedMsgMaxOffset": max(0, state.pulled_to - 1) if state.waiting else 0,
        "cachedMsgMinOffset": state.consumed_to if state.waiting else 0,
        "commitOffset": state.consumed_to,
        "droped": False,
        "lastConsumeTimestamp": state.consumed_ms,
        "lastLockTimestamp": 0,
        "lastPullTimestamp": state.pulled_ms,
        "locked": state.is_locked,
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }


def _stacks() -> str:
    frames = sys._current_frames().items()
    stacks = (f"thread {number}\n{''.join(traceback.format_stack(frame))}" for number, frame in frames)
    return "\n".join(stacks)[:STACK_CHARACTERS_MAX]
