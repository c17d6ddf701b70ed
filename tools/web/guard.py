"""Who may ask the console, and what a browser may do with its answers: nothing passes to a page but through here.

A request must name this server as a browser here would (a page of another site that was given our address by its name
server names that site), carry the token or the cookie that it was exchanged for, and, where it changes anything, come
from one of our own pages. Static files say nothing of stores, and need no token.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tools.web.pages import ENTER_PAGE, LOCKED_PAGE, STATIC_PREFIX

BODY_BYTES_MAX = 64 * 1024
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY, "x-content-type-options": "nosniff", "x-frame-options": "DENY",
    "referrer-policy": "no-referrer", "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin", "cache-control": "no-store",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}  # fmt: skip
SAFE_METHODS = frozenset({"GET", "HEAD"})


class Hosts:
    """Names by which this server may be asked. An address is nobody's name, so no name server can give it away."""

    def __init__(self, port: int, names: Iterable[str] = (), *, exposed: bool = False) -> None:
        self._port, self._exposed = port, exposed
        self._names = {"localhost", *(name.lower() for name in names)}

    def allows(self, host: str) -> bool:
        """Return whether a Host header names this server."""
        name, port = _parted(host)
        if port not in ("", str(self._port)) and not self._exposed:
            return False
        if name.lower() in self._names:
            return True
        try:
            address = ipaddress.ip_address(name[1:-1] if name[:1] + name[-1:] == "[]" else name)
        except ValueError:
            return False
        return self._exposed or address.is_loopback


def _parted(host: str) -> tuple[str, str]:
    if host.startswith("["):
        name, bracket, rest = host.partition("]")
        return name + bracket, rest.removeprefix(":")
    name, _colon, port = host.partition(":")
    return name, port


class Guard:
    """The outermost part of the application."""

    def __init__(self, app: ASGIApp, hosts: Hosts, token: str, port: int) -> None:
        self._app, self._hosts, self._token = app, hosts, token
        self._session = secrets.token_urlsafe(32)  # the cookie is not the token: neither gives the other away
        self._cookie = f"slipstream_{port}"  # cookies are shared by all ports of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._refusal(scope) or self._entrance(scope)
        if answer is not None:
            await answer(scope, receive, send_guarded)
            return
        await self._app(scope, _Bounded(receive).receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the refusal for a request that is not allowed; None for any other."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._hosts.allows(hosts[0]):
            return _refused(
                421, "HOST", "this server does not serve that host name; see --name in `slipstream web --help`"
            )
        if headers.get("sec-fetch-site", "none") in ("cross-site", "same-site") and _is_fetch(headers):
            return _refused(403, "ORIGIN", "a page of another site may not send requests")
        if scope["method"] in SAFE_METHODS:
            return None
        if headers.get("origin") not in (f"http://{hosts[0]}", f"https://{hosts[0]}"):
            return _refused(403, "ORIGIN", "only a page of this server may send this request")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return _refused(415, "CONTENT_TYPE", "send application/json")
        length = headers.get("content-length", "")
        if not length.isdecimal() or len(length) > 9 or int(length) > BODY_BYTES_MAX:
            return _refused(413, "TOO_LARGE", f"a request must state its length, at most {BODY_BYTES_MAX} bytes")
        return None

    def _entrance(self, scope: Scope) -> Response | None:
        """Return None for a request that may come in.

        Else a page that leaves the token behind, or the answer that a token is needed.
        """
        path, headers = scope["path"], Headers(scope=scope)
        if path.startswith(STATIC_PREFIX) or self._is_known(headers):
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[-1]
        if given and scope["method"] == "GET" and secrets.compare_digest(given.encode(), self._token.encode()):
            answer = FileResponse(ENTER_PAGE)
            answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
            return answer
        if path.startswith(("/api/", "/events/")) or scope["method"] not in SAFE_METHODS:
            return _refused(401, "TOKEN", "open the address that `slipstream web` printed; it contains the token")
        return FileResponse(LOCKED_PAGE, status_code=401)

    def _is_known(self, headers: Headers) -> bool:
        scheme, _space, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return secrets.compare_digest(bearer.strip().encode(), self._token.encode())
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return cookie is not None and secrets.compare_digest(cookie.value.encode(), self._session.encode())


def _is_fetch(headers: Headers) -> bool:
    """Return whether a script or a picture asks, rather than somebody who follows a link."""
    return headers.get("sec-fetch-mode", "navigate") != "navigate"


def _refused(status: int, code: str, error: str) -> Response:
    return JSONResponse({"code": code, "error": error}, status)


class _Bounded:
    """The body of a request, up to a bound, whatever its header said."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._left = receive, BODY_BYTES_MAX

    async def receive(self) -> Message:
        """The next part; past the bound the client is taken as gone."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                return {"type": "http.disconnect"}
        return message
