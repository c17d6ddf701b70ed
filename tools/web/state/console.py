"""What one console knows while it runs: its stores, its name servers, what it remembers, what is under way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tools.web.state.asked import Watched
from tools.web.state.history import Sampling
from tools.web.state.jobs import Jobs
from tools.web.state.members import Members
from tools.web.state.rates import Rates
from tools.web.state.sharing import Streams

if TYPE_CHECKING:
    from engine.net.tls import RenewedContext

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
