"""A Slipstream broker on another host, asked about its log: who it is, what it holds, digests of ranges."""

from __future__ import annotations

from engine.errors import EngineError
from engine.protocol.broker.log_requests import Extent, Wanted, digests_fields, digests_of, extent_of
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.remoting.sockets.client import PeerRefused, RemotingClient
from store.reading import log_ranges

ANSWER_SECONDS = 30.0  # 64 MiB from a slow disk


class NotOurs(EngineError):
    """Raised when a peer does not know a request of Slipstream: a RocketMQ broker, or an older Slipstream.

    Next: `slipstream log diff STORE COPY` with a copy of the other side's `commitlog` directory.
    """

    code = "PEER_IS_NO_SLIPSTREAM"

    def __init__(self, address: str) -> None:
        super().__init__(
            f"{address}: this broker does not know the request (RocketMQ brokers do not); copy its commitlog directory"
            " to this host and give the directory that holds it, or compare two copies with `slipstream log diff`"
        )


class LogPeer:
    """The log of the broker at one address (its listenPort); it goes on growing while it is looked at."""

    def __init__(self, client: RemotingClient) -> None:
        """Ask for the log's extent. Raises PeerUnreachable, PeerRefused, NotOurs, MalformedData."""
        self._client, self.name = client, client.address
        self.extent = asked_extent(client)
        self.min_offset, self.max_offset = self.extent.min_offset, self.extent.max_offset
        self.segment_bytes = self.extent.segment_bytes

    def digests(self, start: int, end: int, parts: int) -> list[str]:
        """Return the digests of a range's parts. Raises PeerUnreachable, PeerRefused, MalformedData."""
        count = len(log_ranges.bounds(start, end, parts)) - 1
        answer = self._client.ask(RequestCode.GET_LOG_DIGESTS, digests_fields(Wanted(start, end, parts)))
        return digests_of(answer.body, count)


def asked_extent(client: RemotingClient) -> Extent:
    """Return what a broker says of itself. Raises PeerUnreachable, PeerRefused, NotOurs, MalformedData."""
    try:
        return extent_of(client.ask(RequestCode.GET_LOG_EXTENT).body)
    except PeerRefused as refused:
        if refused.response_code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise NotOurs(client.address) from None
        raise
