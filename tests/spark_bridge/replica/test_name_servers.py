"""What Spark asks name servers and brokers: answers in either header form, cut anywhere; what is no answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from engine.protocol.remoting.codes import RequestCode
from engine.protocol.remoting.frame import RemotingCommand, Serialize, decode, encode
from spark_bridge.replica import name_servers
from spark_bridge.replica.name_servers import NameServersUnreachable, ask, find_replicas

WAIT_S = 120.0
Answering = Callable[[socket.socket, RemotingCommand], None]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_servers, "TIMEOUT_S", WAIT_S)  # a busy machine is no silent server


@pytest.fixture
def server() -> Iterator[Callable[[Answering], str]]:
    """Begins a server for one connection, which does with a request as told; gives its address."""
    opened: list[Any] = []

    def begin(answering: Answering) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(WAIT_S)

        def serve() -> None:
            connection, _peer = listener.accept()
            with connection:
                connection.settimeout(WAIT_S)
                request = b""
                while len(request) < 4 or len(request) < 4 + int.from_bytes(request[:4]):
                    if not (part := connection.recv(1 << 16)):
                        return  # whoever asks was too slow for its own deadline
                    request += part
                answering(connection, decode(request[4:]))

        thread = threading.Thread(target=serve)
        thread.start()
        opened.append((listener, thread))
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield begin
    for listener, thread in opened:
        thread.join(WAIT_S)
        listener.close()
        assert not thread.is_alive()


@pytest.mark.parametrize("form", list(Serialize))
def test_an_answer_is_taken_in_either_header_form_however_it_is_cut(server, form):
    def answering(connection: socket.socket, request: RemotingCommand) -> None:
        assert (request.code, request.is_oneway) == (RequestCode.GET_BROKER_CONFIG, False)
        frame = encode(request.answer(0, body=b"a=b", version=407, serialize=form))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(frame)):
            connection.sendall(frame[at : at + 1])

    assert ask(server(answering), RequestCode.GET_BROKER_CONFIG) == b"a=b"


def test_a_refusal_is_reported_with_its_remark(server):
    def answering(connection: socket.socket, request: RemotingCommand) -> None:
        connection.sendall(encode(request.answer(16, "no permission", version=407)))

    with pytest.raises(ValueError, match="answers with code 16 no permission"):
        ask(server(answering), RequestCode.GET_BROKER_CONFIG)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x08\0\0\0\x04nono", b""])
def test_an_invalid_answer_of_a_name_server_is_reported(server, said):
    address = server(lambda connection, _request: connection.sendall(said))
    with pytest.raises(NameServersUnreachable, match=f"no name server answers \\({address}: "):
        find_replicas([address])


def test_a_server_that_never_ends_its_answer_is_waited_for_until_the_deadline(server, monkeypatch):
    monkeypatch.setattr(name_servers, "TIMEOUT_S", 0.2)
    hung_up = threading.Event()

    def answering(connection: socket.socket, _request: RemotingCommand) -> None:
        connection.sendall(b"\0\0\x10\0")
        with suppress(OSError):  # it hung up
            while not hung_up.wait(0.05):  # each byte comes in time for a wait of its own
                connection.sendall(b"\0")

    address = server(answering)
    try:
        with pytest.raises(TimeoutError):
            ask(address, RequestCode.GET_BROKER_CONFIG)
    finally:
        hung_up.set()
