"""`slipstream namesrv`: a name server in the foreground, until SIGTERM or Ctrl-C.

Implements: NamesrvStartup, NamesrvController
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from pathlib import Path

import click
import uvloop

from engine.protocol.name_server import NameServer
from engine.protocol.remoting import RemotingCommand
from engine.remoting_server import RemotingServer
from store import file_io
from store.errors import NotAStore

SCAN_SECONDS = 5.0
KV_FILE = "kvConfig.json"
KV_BYTES_MAX = 64 * 1024 * 1024


@click.command()
@click.option("--host", default="0.0.0.0", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=9876, show_default=True, help="0: any that is free.")
@click.option("--compat", type=click.Choice(["4.9", "5"]), default="5", show_default=True, help="As which version.")
@click.option(
    "--directory", type=click.Path(path_type=Path, file_okay=False), default=Path.home() / "namesrv",
    show_default="~/namesrv", help=f"Where {KV_FILE} lies.",
)  # fmt: skip
@click.option("--order-message-enable", is_flag=True, help="orderMessageEnable: routes say which topics are ordered.")
@click.option("--support-acting-master", is_flag=True, help="supportActingMaster (5): slaves may stand in.")
def namesrv(
    host: str, port: int, compat: str, directory: Path, order_message_enable: bool, support_acting_master: bool
) -> int:
    """Run a name server: brokers register there, clients ask it where topics are.

    Once it serves, one line that begins with `ready:` goes to standard output.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(message)s")
    kv = read_kv(directory / KV_FILE)
    state = NameServer(
        compat, kv, lambda: write_kv(directory / KV_FILE, kv), order_message_enable=order_message_enable,
        support_acting_master=support_acting_master,
    )  # fmt: skip
    return uvloop.run(_serve(host, port, compat, state))


async def _serve(host: str, port: int, compat: str, state: NameServer) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def answer(request: RemotingCommand, connection: int) -> RemotingCommand | None:
        return state.answer(request, connection, _now_ms())

    server = RemotingServer(answer, state.routes.connection_closed)
    bound = await server.start(host, port)
    click.echo(f"ready: name server on {host}:{bound}, as RocketMQ {compat}, process {os.getpid()}")
    while not stop.is_set():
        for connection in state.routes.expire(_now_ms()):
            server.close_connection(connection)
        try:
            await asyncio.wait_for(stop.wait(), SCAN_SECONDS)
        except TimeoutError:
            continue
    await server.stop()
    return 0


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def read_kv(path: Path) -> dict[str, dict[str, str]]:
    """The key-value config that was saved; empty without a file. Raises NotAStore when it is none."""
    try:
        if path.stat().st_size > KV_BYTES_MAX:
            raise NotAStore(str(path), f"more than {KV_BYTES_MAX} bytes: no key-value config; remove it")
        table = json.loads(path.read_bytes())["configTable"]
        return {str(name): {str(key): str(value) for key, value in of.items()} for name, of in table.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as reason:
        raise NotAStore(str(path), f"not a key-value config of a name server ({reason}); remove it") from None


def write_kv(path: Path, table: dict[str, dict[str, str]]) -> None:
    """Save the key-value config, durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file_io.replace_file(path, json.dumps({"configTable": table}, ensure_ascii=False, separators=(",", ":")).encode())
