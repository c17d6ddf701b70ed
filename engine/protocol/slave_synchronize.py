"""What a slave asks its master beside the log, and when: topics, consumer offsets, delay offsets, consumer groups.

Implements: SlaveSynchronize (spec: remoting, 11 real SLAVE broker)
In 5.x also modes of consuming and how far the timer wheel is. The topics and the wheel are asked for at the port two
below the master's, as RocketMQ's slaves do it. Time is passed in.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.protocol.metadata import Metadata
from engine.protocol.remoting import RemotingCommand
from engine.protocol.requests import SUCCESS, VERSIONS
from store import fastjson
from store.errors import MalformedData

TOPICS, CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS = 21, 43, 45, 201
REQUEST_MODES, TIMER_METRICS, TIMER_CHECKPOINT = 402, 61, 60
ORDER = (TOPICS, CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS)
FAST = (TOPICS, TIMER_METRICS, TIMER_CHECKPOINT)
FIRST_MS, PERIOD_MS, CHECKPOINT_MS = 3000, {"4.9": 10_000, "5": 60_000}, 3000
RETRY_MS = 3000
FAST_PORT_BELOW = 2


class Question(NamedTuple):
    """A request, and at which of the master's ports to ask it."""

    address: str
    request: RemotingCommand


def fast_address(address: str) -> str:
    """The address of the port two below."""
    host, _colon, port = address.rpartition(":")
    return f"{host}:{int(port) - FAST_PORT_BELOW}"


class SlaveSynchronize:
    """One slave's questions."""

    def __init__(self, compat: str, now_ms: int, *, has_timers: bool = False) -> None:
        self._compat, self._due_ms = compat, now_ms + FIRST_MS
        self._has_timers = has_timers and compat == "5"
        self._checkpoint_due_ms = now_ms + FIRST_MS
        self._order = (*ORDER, *((REQUEST_MODES,) if compat == "5" else ()), *((TIMER_METRICS,) * self._has_timers))
        self.last_ms = 0  # when all answers were last taken in

    def due(self, master_address: str | None, now_ms: int) -> list[Question]:
        """What to ask now, in this order; nothing without a master."""
        if master_address is None:
            return []
        codes: list[int] = []
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + PERIOD_MS[self._compat]
            codes += self._order
        if self._has_timers and now_ms >= self._checkpoint_due_ms:
            self._checkpoint_due_ms = now_ms + CHECKPOINT_MS
            codes.append(TIMER_CHECKPOINT)
        version = VERSIONS[self._compat]
        return [
            Question(fast_address(master_address) if code in FAST else master_address,
                     RemotingCommand(code, version=version))
            for code in codes
        ]  # fmt: skip

    def failed(self, now_ms: int) -> None:
        """Not all could be asked: again soon."""
        self._due_ms = min(self._due_ms, now_ms + RETRY_MS)

    def done(self, now_ms: int) -> None:
        """All answers are taken in."""
        self.last_ms = now_ms

    @staticmethod
    def take(metadata: Metadata, code: int, answer: RemotingCommand) -> bool:
        """Take an answer in; whether it changed anything. Raises MalformedConfig, MalformedData."""
        if answer.code != SUCCESS:
            return False
        if code == TIMER_CHECKPOINT:
            return metadata.take_timer_checkpoint(bytes(answer.body))
        value = fastjson.loads(answer.body, f"answer to request {code}", as_written=True)
        take = {
            TOPICS: metadata.take_topics, CONSUMER_OFFSETS: metadata.take_consumer_offsets,
            DELAY_OFFSETS: metadata.take_delay_offsets, GROUPS: metadata.take_groups,
            REQUEST_MODES: metadata.take_request_modes, TIMER_METRICS: metadata.take_timer_metrics,
        }[code]  # fmt: skip
        if not isinstance(value, dict):
            raise MalformedData(f"answer to request {code}", "it is no object")
        return take(value)
