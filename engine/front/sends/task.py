"""A request that puts something into the log, from its admission to its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from engine.front.connections.peer import Peer
from engine.front.sends.front_ring import PutOutcome
from engine.protocol.remoting.frame import RemotingCommand
from ipc.waiting import NS_PER_MS

QUESTION_LIMIT_MS = 3000  # for the clients role; a client waits no longer


@dataclass(slots=True, eq=False)
class Task:
    """One request and its state, until it is answered."""

    request: RemotingCommand
    peer: Peer
    now_ms: int  # wall time of its arrival
    began_ns: int
    size: int
    is_answered: bool = False
    question_limit_ms: int = QUESTION_LIMIT_MS

    @property
    def waited_ms(self) -> int:
        """Return how long ago it came."""
        return (time.monotonic_ns() - self.began_ns) // NS_PER_MS


def _nothing() -> None:
    """Do nothing: the default callback."""


def _not_noted(_by: int) -> None:
    """Do nothing: the default count."""


class OnPut(NamedTuple):
    """Who hears of a draft that is put."""

    done: Callable[[PutOutcome], None]  # its outcome, unless it waits for too long to be published
    expired: Callable[[], None] = _nothing  # called then: it is not published, and the task is answered
    number: Callable[[int], None] | None = None  # as `on_number` of `FrontRing.put`
    note: Callable[[int], None] = _not_noted  # 1 before the draft can be seen by anybody, -1 where it is not stored
