"""The console as an application: pages, their data once and live, and what may be started from them."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from ipc.module_names import is_ours
from tools.web.actions import ACTIONS, Action, said_by
from tools.web.pages import NOWHERE_PAGE, PAGES, SHELL_PAGE, STATIC, STATIC_PREFIX
from tools.web.state.asked import Asked
from tools.web.state.console import Console, Json
from tools.web.state.errors import Refused
from tools.web.threads import Threads
from tools.web.views.table import VIEWS, View

RETRY_MS = 2000
NUMBER_MAX = (1 << 53) - 1  # JavaScript's Number.MAX_SAFE_INTEGER
log = logging.getLogger(__name__)


def application(console: Console) -> Starlette:
    """The application, without the guard before it."""
    threads = Threads()
    routes = [Route(path, _page) for path in PAGES]
    for name, view in VIEWS.items():
        routes.append(Route(f"/api/{name}", partial(_data, console, threads, view)))
        if view.seconds is not None:
            routes.append(Route(f"/events/{name}", partial(_live, console, threads, name, view)))
    for name, action in ACTIONS.items():
        routes.append(Route(f"/api/{name}", partial(_act, console, threads, action), methods=["POST"]))
    static = Mount(STATIC_PREFIX.rstrip("/"), StaticFiles(directory=STATIC))
    return Starlette(routes=[*routes, static], exception_handlers={404: _nowhere})


def text_of(value: Any) -> str:
    """JSON on one line; what is no text in UTF-8 is escaped. A browser's numbers are exact up to NUMBER_MAX: a larger
    one is a text."""
    return json.dumps(_exact(value), separators=(",", ":"), default=str)


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _exact(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(one) for one in value]
    return str(int(value)) if isinstance(value, int) and abs(value) > NUMBER_MAX else value


def problem(error: Exception) -> tuple[int, Json]:
    """Return the status and words of a Slipstream error, or the system's. A bug is logged; its text is not sent."""
    if isinstance(error, Refused):
        return error.status, {"code": error.code, "error": str(error)}
    code = getattr(error, "code", None)
    if isinstance(code, str) and is_ours(type(error).__module__):
        return 409, {"code": code, "error": " ".join(str(error).split())}
    if isinstance(error, OSError):
        return 409, {"code": "IO", "error": f"{error.filename or 'input or output'}: {error.strerror or error}"}
    log.error("a page failed", exc_info=error)
    return 500, {"code": "BUG", "error": "the console failed; see its terminal for details"}


async def _page(_request: Request) -> Response:
    return FileResponse(SHELL_PAGE)


async def _nowhere(_request: Request, _error: Exception) -> Response:
    return FileResponse(NOWHERE_PAGE, status_code=404)


async def answered(work: Callable[[], Awaitable[Json]]) -> Response:
    """Return what `work` makes, or what is wrong, as JSON."""
    try:
        status, value = 200, await work()
    except Exception as error:
        status, value = problem(error)
    return Response(text_of(value), status, media_type="application/json")


async def _data(console: Console, threads: Threads, view: View, request: Request) -> Response:
    asked = Asked(console.stores, request.query_params)
    return await answered(lambda: threads.run(partial(view.make, console, asked)))


async def _act(console: Console, threads: Threads, action: Action, request: Request) -> Response:
    async def act() -> Json:
        said = said_by(await request.body())
        return await threads.run(partial(action, console, said))

    return await answered(act)


class _LiveResponse(StreamingResponse):
    """Server-sent events, counted as long as somebody reads them."""

    def __init__(self, console: Console, events: AsyncIterator[str]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._streams = console.streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the other side goes."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave()


async def _live(console: Console, threads: Threads, name: str, view: View, request: Request) -> Response:
    asked = Asked(console.stores, request.query_params)
    try:
        console.streams.enter()
    except Refused as refused:
        status, value = problem(refused)
        return Response(text_of(value), status, media_type="application/json")

    async def make() -> str:
        try:
            return f"data: {text_of(await threads.run(partial(view.make, console, asked)))}\n\n"
        except Exception as error:
            return f"event: problem\ndata: {text_of(problem(error)[1])}\n\n"

    async def events() -> AsyncIterator[str]:
        yield f"retry: {RETRY_MS}\n\n"
        key = text_of([name, sorted(request.query_params.items())])
        async for text in console.streams.texts(key, make, view.seconds or 1.0):
            yield text

    return _LiveResponse(console, events())
