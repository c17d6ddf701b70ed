"""What one console knows while it runs: its stores, its name servers, what it remembers, what is under way."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tools.web.state.asked import Watched
from tools.web.state.history import Sampling
from tools.web.state.jobs import Jobs
from tools.web.state.members import Members
from tools.web.state.sharing import Streams

if TYPE_CHECKING:
    from engine.net.tls import RenewedContext

# How fast topics grow: the difference of what was counted at two moments, kept for those who look.
Counts = dict[str, tuple[int, int]]
APART_SECONDS = 2.0
FORGET_SECONDS = 60.0  # nobody looked for so long: a mean over that time says nothing of now


class Rates:
    """Rates of all stores' topics; bounded by what a broker counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[int, tuple[float, Counts]] = {}
        self._rates: dict[int, dict[str, tuple[float, float]]] = {}

    def of(self, store: int, counts: Counts) -> dict[str, tuple[float, float]]:
        """(messages, bytes) a second by topic; nothing at the first look."""
        now = time.monotonic()
        with self._lock:
            at, before = self._last.get(store, (-FORGET_SECONDS, {}))
            elapsed = now - at
            if elapsed >= APART_SECONDS:
                self._last[store] = now, counts
                self._rates[store] = (
                    {}
                    if elapsed > FORGET_SECONDS
                    else {
                        topic: (
                            max(0, messages - before[topic][0]) / elapsed,
                            max(0, size - before[topic][1]) / elapsed,
                        )
                        for topic, (messages, size) in counts.items()
                        if topic in before
                    }
                )
            return self._rates.get(store, {})


Json = dict[str, Any]


class Console:
    """State of one `slipstream web`."""

    def __init__(
        self,
        stores: Sequence[Watched],
        name_servers: str = "",
        how: RenewedContext | None = None,
        *,
        tls_config: str | None = None,
        may_digest: bool = False,
    ) -> None:
        """`how` to connect is what the file `tls_config` says, if there is one."""
        self.stores, self.name_servers, self.how, self.may_digest = stores, name_servers, how, may_digest
        self.streams, self.members = Streams(), Members(name_servers, how)
        self.sampling, self.rates = Sampling(stores), Rates()
        self.jobs = Jobs(name_servers, tls_config, may_digest=may_digest)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Run the sampling while the console serves."""
        self.sampling.start()
        try:
            yield
        finally:
            self.sampling.stop()
            self.jobs.stop()
