"""`slipstream namesrv`, at work: a name server in the foreground, until SIGTERM or Ctrl-C.

Implements: NamesrvStartup
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click
import uvloop

from engine import addresses, log_lines, name_server_keys
from engine.errors import StartRefused
from engine.listening import bind_address
from engine.name_server import ServingNames
from engine.protocol.name_server import NameServer
from ipc.stop_signals import stop_signals
from store import fastjson, file_io
from store.errors import MalformedData, NotAStore
from tools.namesrv_command import KV_FILE

KV_BYTES_MAX = 64 * 1024 * 1024
EVERY_HOST = "0.0.0.0"  # whose name server it is cannot be told from a file: brokers of all hosts may be meant


def serve(
    file: str | None, host: str | None, port: int | None, compat: str, directory: Path, order_message_enable: bool,
    support_acting_master: bool,
) -> int:  # fmt: skip
    """Serve until SIGTERM, SIGINT or SIGHUP. Raises ConfigError; NotAStore when the key-value config is none."""
    written, warnings = name_server_keys.load(file) if file is not None else ({}, [])
    log_lines.configure()
    for warning in warnings:
        click.echo(f"slipstream: warning: {warning}", err=True)
    kv_path = written.get("kv_path", directory / KV_FILE)
    state = NameServer(
        compat, read_kv(kv_path),
        order_message_enable=order_message_enable or written.get("order_message_enable", False),
        support_acting_master=support_acting_master or written.get("support_acting_master", False),
    )  # fmt: skip
    at = bind_address(host or written.get("host"), EVERY_HOST)
    return uvloop.run(_until_stopped(at, written.get("port", 9876) if port is None else port, compat, state, kv_path))


async def _until_stopped(host: str, port: int, compat: str, state: NameServer, kv_path: Path) -> int:
    stop = asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = ServingNames(state, lambda content: write_kv(kv_path, content))
    try:
        bound = await server.start(host, port)
    except OSError as error:
        raise StartRefused("the name server", error.strerror or str(error), "see --port and --host") from None
    at = addresses.told(host, bound)
    click.echo(f"ready: name server on {at}, as RocketMQ {compat}, process {os.getpid()}")
    await server.serve(stop)
    return 0


def read_kv(path: Path) -> dict[str, dict[str, str]]:
    """The key-value config that was saved; empty without a file. Raises NotAStore when it is none."""
    try:
        if path.stat().st_size > KV_BYTES_MAX:
            raise NotAStore(str(path), f"more than {KV_BYTES_MAX} bytes: no key-value config; remove it")
        table = fastjson.loads(path.read_bytes(), str(path), KV_BYTES_MAX)["configTable"]
        return {str(name): {str(key): str(value) for key, value in of.items()} for name, of in table.items()}
    except FileNotFoundError:
        return {}
    except (MalformedData, LookupError, TypeError, AttributeError) as reason:
        raise NotAStore(str(path), f"not a key-value config of a name server ({reason}); remove it") from None


def write_kv(path: Path, content: bytes) -> None:
    """Save the key-value config, durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file_io.replace_file(path, content)
