"""Who may ask a Flight server: a token in each call's header, and the address that it comes from."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyarrow import flight

from spark_bridge.flight.errors import NotLetIn

HEADER, SCHEME = "authorization", "bearer"
CALL = "slipstream-call"  # the name of a call's own object among its middleware


class Call(flight.ServerMiddleware):  # type: ignore[misc]
    """One call: what is to be done when it has ended, however it ends."""

    def __init__(self, may_write: bool = True) -> None:
        super().__init__()
        self.may_write = may_write  # where the server takes messages
        self._at_end: list[Callable[[], None]] = []

    def at_end(self, done: Callable[[], None]) -> None:
        """Call `done` when the call ends."""
        self._at_end.append(done)

    def call_completed(self, exception: BaseException | None) -> None:
        """Flight says that it has ended."""
        while self._at_end:
            self._at_end.pop()()


class Door(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets in calls with the token; without one everybody's. With a writers' token the other one is for readers."""

    def __init__(
        self, token: str | None, sent_as: Callable[[BaseException], BaseException], writers_token: str | None = None
    ) -> None:
        super().__init__()
        self._token, self._writers, self._sent_as = token, writers_token, sent_as

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str | bytes]]) -> Call:
        """The call's own object. Raises Flight's error for who is not let in."""
        given = headers.get(HEADER, ())
        if self._writers is not None and _is_known(given, self._writers):
            return Call()
        if self._token is not None and not _is_known(given, self._token):
            what = "this server wants its token: send the header authorization: Bearer TOKEN"
            raise self._sent_as(NotLetIn(what))
        return Call(may_write=self._writers is None)


def _is_known(given: Sequence[str | bytes], token: str) -> bool:
    """Whether the one header says the token; compared in a time that tells nothing of it."""
    if len(given) != 1:
        return False
    text = given[0].encode("utf-8", "replace") if isinstance(given[0], str) else bytes(given[0])
    scheme, _space, bearer = text.partition(b" ")
    return scheme.lower() == SCHEME.encode() and hmac.compare_digest(bearer.strip(), token.encode())


def bearer(token: str | None) -> list[tuple[bytes, bytes]]:
    """The header that a client sends."""
    return [] if token is None else [(HEADER.encode(), f"Bearer {token}".encode())]
