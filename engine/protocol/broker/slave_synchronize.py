"""What a slave asks its master beside the log, and when: topics, consumer offsets, delay offsets, consumer groups.

Implements: SlaveSynchronize (spec: remoting, 11 real SLAVE broker)
In 5.x also modes of consuming and how far the timer wheel is. The topics and the wheel are asked for at the port two
below the master's, as RocketMQ's slaves do it. Time is passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.tables.metadata import Metadata, Steps
from ipc.host_port import host_port
from store.compat import LINES, line_of
from store.tables.fastjson import MalformedJson
from store.tables.json_steps import loads_in_steps
from store.tables.steps import freed

ORDER = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
)
FAST = (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_TIMER_METRICS, RequestCode.GET_TIMER_CHECK_POINT)
FIRST_MS, CHECKPOINT_MS = 3000, 3000
PERIOD_MS = {compat: line.broker.slave_period_ms for compat, line in LINES.items()}
RETRY_MS = 3000
FAST_PORT_BELOW = 2


class Question(NamedTuple):
    """A request, and at which of the master's ports to ask it."""

    address: str
    request: RemotingCommand


class Refused(Exception):
    """Raised when the master refuses a request for a table.

    Next: `slipstream doctor HOST:PORT` for the master; its log has the reason.
    """

    code = "PEER_REFUSED"

    def __init__(self, asked: int, answer: RemotingCommand) -> None:
        super().__init__(f"request {asked} is refused with code {answer.code}: {(answer.remark or '')[:200]}")


def is_address(text: str | None) -> bool:
    """Whether that is `host:port` with a port two below it: a name server's word is a stranger's."""
    return host_port(text, FAST_PORT_BELOW + 1) is not None


def fast_address(address: str) -> str:
    """The address of the port two below."""
    host, _colon, port = address.rpartition(":")
    return f"{host}:{int(port) - FAST_PORT_BELOW}"


class SlaveSynchronize:
    """The schedule of one slave's questions to its master."""

    def __init__(self, compat: str, now_ms: int, *, has_timers: bool = False) -> None:
        self._line, self._due_ms = line_of(compat), now_ms + FIRST_MS
        self._has_timers = has_timers and self._line.broker.serves_modes_and_timers
        self._checkpoint_due_ms = now_ms + FIRST_MS
        modes = (RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,) * self._line.broker.serves_modes_and_timers
        self._order = (*ORDER, *modes, *((RequestCode.GET_TIMER_METRICS,) * self._has_timers))
        self._again: dict[int, int] = {}  # what could not be asked: when it is asked again
        self.last_ms = 0  # when all answers were last taken in

    def due(self, master_address: str | None, now_ms: int) -> list[Question]:
        """Return the questions to ask now, in this order; none without a master."""
        if master_address is None:
            return []
        codes: list[int] = []
        if now_ms >= self._due_ms:
            self._due_ms = now_ms + self._line.broker.slave_period_ms
            self._again.clear()
            codes += self._order
        again = [code for code, due_ms in self._again.items() if due_ms <= now_ms]
        for code in again:
            del self._again[code]
        codes += again
        if self._has_timers and now_ms >= self._checkpoint_due_ms:
            self._checkpoint_due_ms = now_ms + CHECKPOINT_MS
            codes.append(RequestCode.GET_TIMER_CHECK_POINT)
        version = self._line.remoting.version
        return [
            Question(
                fast_address(master_address) if code in FAST else master_address, RemotingCommand(code, version=version)
            )
            for code in codes
        ]

    def failed(self, code: int, now_ms: int) -> None:
        """Note that a question had no valid answer: it alone is asked again soon."""
        if code != RequestCode.GET_TIMER_CHECK_POINT:
            self._again[code] = now_ms + RETRY_MS

    def done(self, now_ms: int) -> None:
        """Note that all answers were taken in."""
        self.last_ms = now_ms

    @staticmethod
    def take(metadata: Metadata, code: int, answer: RemotingCommand) -> Steps:
        """Take an answer in, in steps; whether it changed anything. Raises Refused, MalformedConfig, MalformedJson."""
        if answer.code != ResponseCode.SUCCESS:
            raise Refused(code, answer)
        if code == RequestCode.GET_TIMER_CHECK_POINT:
            return metadata.take_timer_checkpoint(bytes(answer.body))
        value = yield from loads_in_steps(answer.body, f"answer to request {code}")
        large: dict[int, Callable[[dict[str, Any]], Steps]] = {
            RequestCode.GET_ALL_TOPIC_CONFIG: metadata.take_topics,
            RequestCode.GET_ALL_CONSUMER_OFFSET: metadata.take_consumer_offsets,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: metadata.take_groups,
        }
        small: dict[int, Callable[[dict[str, Any]], bool]] = {
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: metadata.take_request_modes,
            RequestCode.GET_TIMER_METRICS: metadata.take_timer_metrics,
        }
        if not isinstance(value, dict):
            raise MalformedJson(f"answer to request {code}", "it is not an object")
        if code == RequestCode.GET_ALL_DELAY_OFFSET:
            return metadata.take_delay_offsets(value, bytes(answer.body))
        if code in small:
            return small[code](value)
        is_changed = yield from large[code](value)
        entries = [one for table in value.values() if isinstance(table, dict) for one in table.values()]
        value.clear()
        yield from freed(entries)
        return is_changed
