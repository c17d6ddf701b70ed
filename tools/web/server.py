"""`slipstream web`, at work: one socket, one token, one process, until a signal to stop."""

from __future__ import annotations

import ipaddress
import os
import socket
from contextlib import suppress
from pathlib import Path

import click

from ipc.extras import require_web

TOKEN_BYTES = 32
CONNECTIONS_MAX, BACKLOG = 128, 64
GRACE_SECONDS, KEEP_ALIVE_SECONDS = 2, 10
HEAD_BYTES_MAX = 32 * 1024


def serve(
    stores: tuple[Path, ...],
    port: int,
    host: str,
    expose: bool,
    names: tuple[str, ...],
    name_servers: str,
    allow_digest: bool,
    tls_config: str | None,
) -> int:
    """Serve until SIGINT or SIGTERM."""
    require_web("slipstream web")
    _check(stores, host, expose, names)
    from tools.common.tls import tls_of

    how = tls_of(tls_config)
    with _listening(host, port) as listener:
        import secrets  # this and the console are not loaded to say what is wrong with the arguments

        from tools.web.state.asked import Watched
        from tools.web.state.console import Console

        watched = [Watched(number, path, _label(path)) for number, path in enumerate(stores)]
        console = Console(watched, name_servers, how, tls_config=tls_config, may_digest=allow_digest)
        token = secrets.token_urlsafe(TOKEN_BYTES)
        port = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"slipstream web: http://{shown}:{port}/?token={token}")
        click.echo(_means(expose, allow_digest), err=True)
        _run(console, listener, token, port, names, expose)
    return 0


def _check(stores: tuple[Path, ...], host: str, expose: bool, names: tuple[str, ...]) -> None:
    """Check the arguments. Raises NotAStore, WebError."""
    from store.files.directory import store_directory
    from tools.web.command import STORES_MAX
    from tools.web.state.errors import WebError

    if len(stores) > STORES_MAX:
        raise WebError(f"{len(stores)} stores: one console shows at most {STORES_MAX}; start another one with --port")
    for path in stores:
        store_directory(path)
    _check_exposure(host, expose, names)


def _label(path: Path) -> str:
    """The store as the user called it; what no page can show is escaped."""
    return os.fspath(path).encode("utf-8", "backslashreplace").decode()


def _check_exposure(host: str, expose: bool, names: tuple[str, ...]) -> None:
    """Refuse a host beyond loopback without --expose, and names without it. Raises WebError."""
    from tools.web.state.errors import WebError

    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if not is_loopback and not expose:
        raise WebError(
            f"--host {host} can be reached from other hosts without TLS: anyone who sees the token on the network"
            " can read all messages. Stay on loopback and use `ssh -L` or a TLS proxy; or give --expose to accept this"
        )
    if names and not expose:
        raise WebError("--name needs --expose: on loopback browsers use localhost or the address")


def _means(expose: bool, allow_digest: bool) -> str:
    may = "it may write digests" if allow_digest else "read-only"
    reach = "other hosts can reach it; only the token protects it, unencrypted" if expose else "this host only"
    return f"slipstream web: {may}; {reach}; Ctrl-C ends it"


def _listening(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises WebError."""
    from tools.web.state.errors import WebError

    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise WebError(f"{host}:{port}: {error.strerror or error}; choose another --port (0: any free one)") from error
    return listener


def _run(console: object, listener: socket.socket, token: str, port: int, names: tuple[str, ...], expose: bool) -> None:
    import uvicorn

    from tools.web.application import application
    from tools.web.door import Door
    from tools.web.guard import Guard, Hosts
    from tools.web.state.console import Console

    assert isinstance(console, Console)
    app = Guard(application(console), Hosts(port, names, exposed=expose), token, port)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            access_log=False,
            log_level="critical",
            server_header=False,
            date_header=False,
            proxy_headers=False,
            lifespan="off",
            ws="none",
            http=Door,
            limit_concurrency=CONNECTIONS_MAX,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )
    with console.working(), suppress(KeyboardInterrupt):  # uvicorn stops in order, and then passes Ctrl-C on
        server.run(sockets=[listener])
