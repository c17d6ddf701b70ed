"""`slipstream flight`, at work: one store, one port, until a signal to stop."""

from __future__ import annotations

import ipaddress
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ipc.extras import require_arrow
from ipc.module_names import version_here
from ipc.stop_signals import handle_stop_signals
from store.files.directory import store_directory

if TYPE_CHECKING:
    from engine.protocol.access.allow_list import AllowList

TOKEN_BYTES = 32  # of one that is made here
TOKEN_CHARACTERS_MIN, TOKEN_CHARACTERS_MAX = 16, 4096
LOOK_SECONDS = 0.5
GRPC_TALKS = "GRPC_VERBOSITY"


class Setting(NamedTuple):
    """The settings of a store to be served, as its broker's file has them."""

    store: Path
    tls_config: Path | None = None
    allowed: AllowList | None = None


def serve(
    store: Path | None,
    file: str | None,
    host: str,
    port: int,
    token_file: Path | None,
    no_token: bool,
    tls_config: Path | None,
    expose: bool,
    allow: str | None,
    topics: tuple[str, ...],
    streams: int,
    idle_seconds: int,
    writable: bool,
    write_token_file: Path | None,
) -> int:
    """Serve until a signal to stop. Raises FlightRefused, TlsUnusable, ConfigError, NotAStore."""
    require_arrow("slipstream flight")
    setting = _setting(store, file)
    store_directory(setting.store)
    tls = _tls(tls_config or setting.tls_config)
    _check_exposure(host, has_tls=tls is not None, has_token=token_file is not None, no_token=no_token, expose=expose)
    token = None if no_token else _token(token_file)
    write_token = _write_token(writable, write_token_file, token)
    allowed = setting.allowed if allow is None else _allow_list(allow)
    os.environ.setdefault(GRPC_TALKS, "NONE")  # it would tell of each handshake that fails, on our standard error
    from engine.net import log_lines  # wrong arguments are reported without Arrow, which is loaded here
    from spark_bridge.flight.served import ServedStore
    from spark_bridge.flight.server import Certificate, FlightServer, Writers
    from spark_bridge.flight.streams import Limits

    certificate = None if tls is None else Certificate(*tls)
    writers = Writers(write_token) if writable else None
    served = ServedStore(os.fspath(setting.store), frozenset(topics) or None)
    limits = Limits(streams=streams, streams_of_peer=max(1, streams // 2), idle_s=idle_seconds)
    server = FlightServer(
        served,
        (host, port),
        token=token,
        certificate=certificate,
        may_enter=_entrance(allowed, host),
        limits=limits,
        version=version_here(),
        writers=writers,
    )
    # What is the whole process's is set when nothing can be refused any more: others run this command in theirs.
    stopped = threading.Event()
    handle_stop_signals(lambda _number, _frame: stopped.set())
    log_lines.configure()
    sys.tracebacklimit = 0  # PyArrow would send clients the stack of what is raised in some calls
    try:
        _say_ready(server, token if token_file is None else None)
        while not stopped.wait(LOOK_SECONDS):  # a signal may have come to a thread of gRPC's, and waits for us
            pass
    finally:
        server.stop()
    return 0


def _setting(store: Path | None, file: str | None) -> Setting:
    """Return the store, and what its broker's file says. Raises FlightRefused, ConfigError."""
    from spark_bridge.flight.errors import FlightRefused

    if (store is None) == (file is None):
        raise FlightRefused("give either STORE or -c with the file of its broker")
    if store is not None:
        return Setting(store)
    from engine.settings.config import load
    from engine.settings.tls_mode import TlsMode

    assert file is not None
    config, warnings = load(file)
    for warning in warnings:
        click.echo(f"slipstream: warning: {warning}", err=True)
    tls = None if config.tls_server_mode is TlsMode.DISABLED else config.tls_config_file
    return Setting(config.store_path_root_dir, tls, config.remoting_allow_list)


def _check_exposure(host: str, *, has_tls: bool, has_token: bool, no_token: bool, expose: bool) -> None:
    """Raise FlightRefused for settings that would let others read what they should not."""
    from spark_bridge.flight.errors import FlightRefused

    if has_token and no_token:
        raise FlightRefused("--token-file and --no-token: give one of them")
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if is_loopback:
        return
    if not has_token:
        raise FlightRefused(
            f"--host {host} can be reached from other hosts: give --token-file with the token of its clients,"
            " or stay on loopback"
        )
    if not has_tls and not expose:
        raise FlightRefused(
            f"--host {host} can be reached from other hosts without TLS: anyone who sees the token on the network"
            " can read all messages. Give --tls-config; or give --expose to accept this"
        )


def _token(file: Path | None) -> str:
    """The file's, else a new one. Raises FlightRefused."""
    from spark_bridge.flight.errors import FlightRefused

    if file is None:
        import secrets

        return secrets.token_urlsafe(TOKEN_BYTES)
    with file.open("rb") as opened:
        text = opened.read(TOKEN_CHARACTERS_MAX + 2).decode("ascii", "replace").strip()
    if not TOKEN_CHARACTERS_MIN <= len(text) <= TOKEN_CHARACTERS_MAX or not text.isascii() or not text.isprintable():
        what = f"{file}: a token has {TOKEN_CHARACTERS_MIN} to {TOKEN_CHARACTERS_MAX} printable ASCII characters"
        raise FlightRefused(f"{what}; make one with `openssl rand -base64 32`")
    if " " in text:
        raise FlightRefused(f"{file}: a token may not contain blanks; make one with `openssl rand -base64 32`")
    return text


def _write_token(writable: bool, file: Path | None, token: str | None) -> str | None:
    """The token of who may write, where that is another one. Raises FlightRefused."""
    from spark_bridge.flight.errors import FlightRefused

    if file is None:
        return None
    if not writable:
        raise FlightRefused("--write-token-file is only for writers: also give --writable")
    if token is None:
        raise FlightRefused(
            "--write-token-file cannot be combined with --no-token: without tokens, writers and readers cannot be told"
            " apart"
        )
    own = _token(file)
    if own == token:
        raise FlightRefused(f"{file}: writers and readers have the same token; make another one, or leave the file out")
    return own


def _tls(path: Path | None) -> tuple[bytes, bytes, bytes | None] | None:
    """Certificate, key and who issues those of clients; None without a file. Raises TlsUnusable, ConfigError."""
    if path is None:
        return None
    from engine.net.tls import TlsUnusable, of_server
    from engine.settings import tls_file

    file = tls_file.load(path)
    of_server(file)  # an unusable file fails here as at every other port
    own = file.server_own
    assert own is not None
    if own.password:
        advice = "give one in a file that only this user can read"
        raise TlsUnusable(path, "gRPC needs a private key without a password", advice)
    clients = None
    if file.client_auth is tls_file.ClientAuth.REQUIRE:
        assert file.server_trusts is not None
        clients = file.server_trusts.read_bytes()
    return own.certificate.read_bytes(), own.key.read_bytes(), clients


def _allow_list(text: str) -> AllowList:
    """Parse the addresses of `--allow`. Raises FlightRefused."""
    from engine.protocol.access.allow_list import parsed
    from spark_bridge.flight.errors import FlightRefused

    try:
        return parsed(text)
    except ValueError as error:
        raise FlightRefused(f"--allow {text}: {error}") from None


def _entrance(allowed: AllowList | None, host: str) -> Callable[[str], bool]:
    """Whether an address may enter: as at the broker's ports, this host always may."""
    from engine.protocol.access.allow_list import may_enter

    try:
        own = "127.0.0.1" if ipaddress.ip_address(host).is_unspecified else host
    except ValueError:
        own = "127.0.0.1"
    return lambda peer: may_enter(allowed, peer, own)


def _say_ready(server: Any, token: str | None) -> None:
    from tools.run.readiness import ServiceManager, announce

    what = f"Flight of {server.broker_name} at {server.location}"
    announce(f"ready: {what}, process {os.getpid()}" + (f", token {token}" if token else ""))
    ServiceManager().ready(what)
