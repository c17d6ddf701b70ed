"""A name server while something takes long: others are answered; and its key-value config when the disk fails."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from engine.net import log_lines
from engine.net.listeners import listen
from engine.protocol.naming.name_server import NameServer
from engine.protocol.remoting.frame import FrameSplitter, RemotingCommand, decode, encode
from engine.remoting.name_server import ServingNames
from engine.settings.config import ConfigError
from engine.settings.name_server_keys import load

SECONDS = 120.0
NAMES = {"clusterName": "c", "brokerName": "a", "brokerId": "0", "brokerAddr": "h:1", "haServerAddr": "h:2"}
BODY = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": {"t1": {"perm": 6}, "t2": {}}}}).encode()
Asker = Callable[..., Awaitable[RemotingCommand]]


def served(state: NameServer, write: Callable[[bytes], None], check: Callable[[Asker], Awaitable[None]]) -> None:
    """Run `check(ask)` beside a name server; every question is a connection of its own."""

    async def run() -> None:
        server, stop = ServingNames(state, write), asyncio.Event()
        port = await server.start_on(listen("127.0.0.1", 0))
        serving = asyncio.ensure_future(server.serve(stop))

        async def ask(code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(encode(RemotingCommand(code, ext_fields=ext, body=body, version=479)))
            splitter, found = FrameSplitter(), list[bytes]()
            while not found:
                data = await asyncio.wait_for(reader.read(65536), SECONDS)
                assert data, "hung up"
                found = splitter.feed(data)
            writer.close()
            return decode(found[0])

        await check(ask)
        stop.set()
        await serving

    uvloop.run(run())


def test_a_registration_that_takes_long_holds_nobody_up() -> None:
    state, begun, goes_on = NameServer("5"), threading.Event(), threading.Event()
    work_ahead = state.work_ahead

    def slowly(request: RemotingCommand) -> object:
        begun.set()
        assert goes_on.wait(SECONDS)
        return work_ahead(request)

    state.work_ahead = slowly  # type: ignore[method-assign, assignment]

    async def check(ask: Asker) -> None:
        registration = asyncio.ensure_future(ask(103, BODY, **NAMES))
        assert await asyncio.to_thread(begun.wait, SECONDS)
        assert (await ask(106)).code == 0
        assert not registration.done()
        goes_on.set()
        assert (await registration).code == 0

    served(state, lambda _content: None, check)


def test_changes_of_key_values_are_answered_once_on_disk_and_written_together() -> None:
    written: list[bytes] = []
    begun, goes_on = threading.Event(), threading.Event()

    def write(content: bytes) -> None:
        begun.set()
        assert goes_on.wait(SECONDS)
        written.append(content)

    async def check(ask: Asker) -> None:
        puts = [asyncio.ensure_future(ask(100, namespace="n", key="0", value="v"))]
        assert await asyncio.to_thread(begun.wait, SECONDS)
        puts += [asyncio.ensure_future(ask(100, namespace="n", key=str(n), value="v")) for n in range(1, 30)]
        while len(json.loads((await ask(219, namespace="n")).body.tobytes())["table"]) < 30:  # type: ignore[union-attr]
            pass
        assert not any(put.done() for put in puts)
        goes_on.set()
        assert [put.code for put in await asyncio.gather(*puts)] == [0] * 30

    served(NameServer("5"), write, check)
    assert len(written) == 2
    assert len(json.loads(written[-1])["configTable"]["n"]) == 30


def test_a_full_disk_is_reported_and_the_server_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "AGAIN_SECONDS", 600.0)

    def write(_content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def check(ask: Asker) -> None:
        for n in range(20):
            answer = await ask(100, namespace="n", key=str(n), value="v")
            assert (answer.code, answer.remark) == (1, "the change is not on disk: No space left on device")
        assert (await ask(106)).code == 0

    served(NameServer("5"), write, check)
    assert caplog.text.count("cannot be saved") == 1


def test_a_name_servers_file_is_taken_key_by_key(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("listenPort=1234\nbindAddress=127.0.0.2\nserverWorkerThreads=8\norderMessageEnable=true\n")
    found, warnings = load(file)
    assert found == {"port": 1234, "host": "127.0.0.2", "order_message_enable": True}
    assert warnings == [f"{file}:3: serverWorkerThreads: a Slipstream name server does not use this key; accepted"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("listenport=1", "unknown key; did you mean listenPort?"), ("listenPort=x", "allowed: a whole number"),
        ("enableControllerInNamesrv=true", "this name server has no controller"), ("bindAddress=", "allowed: an IPv4"),
    ],
)  # fmt: skip
def test_what_a_name_servers_file_may_not_say(line: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text(f"# comment\n{line}\n")
    with pytest.raises(ConfigError, match=says) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}:2: ")
