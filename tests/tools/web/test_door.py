"""Silent connections to the console: they go, and lock nobody out; numbers that a browser cannot hold are texts."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from tests.harness.logs import SmallLog
from tests.harness.served_console import ServedConsole
from tools.web import door
from tools.web.application import NUMBER_MAX, text_of
from tools.web.door import WAITING_MAX, WAITING_MAX_OF_ONE, Door
from tools.web.pages import STATIC

SILENT = 140  # more than uvicorn lets in


@pytest.fixture
def console(tmp_path: Path) -> Iterator[ServedConsole]:
    log = SmallLog(tmp_path / "store")
    log.append()
    with ServedConsole(log.root) as served:
        yield served


def test_silent_connections_lock_nobody_out(console: ServedConsole) -> None:
    with ExitStack() as stack:
        for number in range(SILENT):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", console.port), timeout=60))
            if number % 2:
                silent.sendall(b"GET / HT")  # nor do those that never come to an end
        for _ in range(3):
            assert console.ask("/api/pipeline").status == 200
        assert console.ask("/api/pipeline", token=False).status == 401


async def _nobody(_scope: object, _receive: object, _send: object) -> None:
    raise AssertionError("nobody asks")


@pytest.mark.parametrize("begins", [b"", b"GET / HTTP/1.1\r\nhost: localhost\r\n"])
def test_a_request_that_does_not_come_ends_its_connection(begins: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "REQUEST_SECONDS", 0.05)

    async def serve() -> bytes:
        config, state = Config(_nobody, lifespan="off", log_level="critical"), ServerState()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Door(config, state, {}), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(begins)
        said = b"?"
        try:
            said = await reader.read()
        except ConnectionResetError:
            said = b""
        writer.close()
        server.close()
        return said

    assert asyncio.run(serve()) == b""
    assert not Door.waiting


class Transport:
    """As much of one as a door needs."""

    def __init__(self, address: str) -> None:
        self._address, self.is_aborted = address, False

    def get_extra_info(self, name: str) -> object:
        return (self._address, 1) if name in ("peername", "sockname") else None

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted


def test_above_the_limit_the_oldest_of_the_busiest_address_is_closed() -> None:
    async def fill() -> list[list[bool]]:
        config, state = Config(_nobody, lifespan="off", log_level="critical"), ServerState()
        seen = []
        for addresses in (["10.0.0.1"] * (WAITING_MAX_OF_ONE + 2), [f"10.0.{n}.1" for n in range(WAITING_MAX - 1)]):
            transports = [Transport(address) for address in addresses]
            doors = [Door(config, state, {}) for _ in transports]
            for one, transport in zip(doors, transports, strict=True):
                one.connection_made(transport)  # type: ignore[arg-type]
            seen.append([transport.is_aborted for transport in transports])
            if len(seen) == 1:
                first = transports
        seen.append([transport.is_aborted for transport in first])
        for one in list(Door.waiting):
            one._go_on()
        return seen

    crowd, others, crowd_then = asyncio.run(fill())
    assert crowd == [True, True] + [False] * WAITING_MAX_OF_ONE
    assert not any(others), "each of them is alone"
    assert crowd_then.count(False) == 1


def test_numbers_that_a_browser_cannot_hold_are_texts() -> None:
    value = {"a": [NUMBER_MAX, NUMBER_MAX + 1, -NUMBER_MAX - 1], "b": (True, 1.5, None, {"c": (1 << 63) - 1})}
    assert json.loads(text_of(value)) == {
        "a": [NUMBER_MAX, "9007199254740992", "-9007199254740992"],
        "b": [True, 1.5, None, {"c": str((1 << 63) - 1)}],
    }


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here")
def test_the_pages_show_them_to_the_last_digit() -> None:
    script = """
    import { count } from "./format.js";
    const all = ["9223372036854775807", "-9007199254740993", 9007199254740991, 1.6, null, "12a", "1".repeat(99)];
    console.log(JSON.stringify(all.map(count)));
    """
    shown = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        cwd=STATIC / "js",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(shown.stdout) == [
        "9,223,372,036,854,775,807", "-9,007,199,254,740,993", "9,007,199,254,740,991", "2", "\u2013", "12a", "1" * 99,
    ]  # fmt: skip
