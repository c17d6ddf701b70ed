"""Name servers that DNS or an address server names: followed as they change, and kept while nobody answers."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.remoting.peers import name_servers
from engine.remoting.peers.name_servers import LookupFailed, looked_up
from engine.settings.config import BrokerConfig, ConfigError, from_mapping, load
from tests.harness.clients_turns import role, turn_until
from tests.harness.conditions import await_that
from tests.harness.served_names import Serving


class AddressServer:
    """RocketMQ's address server: a web server with one line of text."""

    def __init__(self) -> None:
        self.answer, self.status, self.asked = b"", 200, list[str]()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(handler) -> None:  # noqa: N805
                self.asked.append(handler.path)
                handler.send_response(self.status)
                handler.send_header("Content-Length", str(len(self.answer)))
                handler.end_headers()
                handler.wfile.write(self.answer)

            def log_message(self, *_args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.place = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def address_server() -> Iterator[AddressServer]:
    server = AddressServer()
    yield server
    server.close()


def asking(address_server: AddressServer, **keys: object) -> BrokerConfig:
    return from_mapping(
        {"fetchNamesrvAddrByAddressServer": True, "rocketmq.namesrv.domain": address_server.place, **keys}
    )


def test_a_broker_follows_the_name_servers_that_an_address_server_names(
    store_dir: Path, region_dir: Path, address_server: AddressServer
) -> None:
    first, second = Serving(), Serving()
    settings = {
        "fetchNamesrvAddrByAddressServer": True,
        "rocketmq.namesrv.domain": address_server.place,
        "fetchNamesrvAddrInterval": 1000,
    }
    try:
        with role(store_dir, region_dir, "", **settings) as (server, _config):
            turn_until(server, lambda: len(address_server.asked) >= 2)
            assert not first.state.routes.brokers, "its list is empty"
            for one, other in ((first, second), (second, first)):
                address_server.answer = f"127.0.0.1:{one.port}\r\nnot a name server".encode()
                turn_until(server, lambda one=one: "a" in one.state.routes.brokers)
                turn_until(server, lambda other=other: "a" not in other.state.routes.brokers)
            address_server.status = 500
            asked = len(address_server.asked)
            turn_until(server, lambda: len(address_server.asked) >= asked + 2)
            assert "a" in second.state.routes.brokers, "who gives no answer changes nothing"
        await_that(lambda: not second.state.routes.brokers, "the goodbye is heard")
    finally:
        first.stop()
        second.stop()
    assert {*address_server.asked} == {"/rocketmq/nsaddr"}


def test_a_broker_registers_where_dns_says(store_dir: Path, region_dir: Path) -> None:
    name_server = Serving()
    names = f"localhost:{name_server.port}"
    try:
        with role(store_dir, region_dir, names, fetchNameSrvAddrByDnsLookup=True) as (server, _config):
            turn_until(server, lambda: "a" in name_server.state.routes.brokers)
    finally:
        name_server.stop()


def test_dns_gives_each_address_once_with_the_port_of_the_name() -> None:
    config = from_mapping({"fetchNameSrvAddrByDnsLookup": True, "namesrvAddr": "localhost:9876"})
    assert {*looked_up(config)} <= {"127.0.0.1:9876", "[::1]:9876"}
    assert "127.0.0.1:9876" in looked_up(config)
    missing = from_mapping({"fetchNameSrvAddrByDnsLookup": True, "namesrvAddr": "missing.invalid:9876"})
    with pytest.raises(LookupFailed, match=r"namesrvAddr=missing\.invalid:9876: DNS has no address of it"):
        looked_up(missing)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"10.0.0.1:9876", ("10.0.0.1:9876",)),
        (b"\n 10.0.0.1:9876; 10.0.0.2:9876;10.0.0.1:9876 \nmore", ("10.0.0.1:9876", "10.0.0.2:9876")),
        (b"ns.example:9876\r", ("ns.example:9876",)),
    ],
)
def test_the_first_line_lists_the_name_servers(
    address_server: AddressServer, answer: bytes, found: tuple[str, ...]
) -> None:
    address_server.answer = answer
    assert looked_up(asking(address_server, **{"rocketmq.namesrv.domain.subgroup": "nsaddr-unit"})) == found
    assert address_server.asked == ["/rocketmq/nsaddr-unit"]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\n\n",
        b"<html>welcome</html>",
        b"10.0.0.1",
        b"10.0.0.1:9876;x\x1b[2J:1;nowhere",
        b"a:1;" * 65,
        b"\xff\xfe",
    ],
)
def test_what_is_no_list_is_refused_in_one_printable_line(address_server: AddressServer, answer: bytes) -> None:
    address_server.answer = answer
    with pytest.raises(LookupFailed, match="no list of HOST:PORT") as refusal:
        looked_up(asking(address_server))
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "RemoteDisconnected|Remote end closed|is it running"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf", "IncompleteRead"),
        (b"+OK not HTTP\r\n", "BadStatusLine|not HTTP"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "it answers 404"),
    ],
)
def test_a_stranger_in_its_place_is_refused(sent: bytes, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answered() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(sent)

        answering = threading.Thread(target=answered)
        answering.start()
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        config = from_mapping({"fetchNamesrvAddrByAddressServer": True, "rocketmq.namesrv.domain": place})
        with pytest.raises(LookupFailed, match=why):
            looked_up(config)
        answering.join()


def test_an_address_server_that_drips_or_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_servers, "LOOKUP_SECONDS", 0.2)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                while not ended.wait(0.01):
                    connection.sendall(b"H")

        dripping = threading.Thread(target=drip)
        dripping.start()
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(LookupFailed, match="timed out"):
            looked_up(from_mapping({"fetchNamesrvAddrByAddressServer": True, "rocketmq.namesrv.domain": place}))
        ended.set()
        dripping.join()


def test_keys_without_effect_are_refused_or_warned_about(tmp_path: Path) -> None:
    file = tmp_path / "broker.properties"
    for names, count in (("", 0), ("namesrvAddr=a:1;b:2\n", 2)):
        file.write_text(f"{names}fetchNameSrvAddrByDnsLookup=true\n")
        with pytest.raises(ConfigError, match=f"needs one HOST:PORT in namesrvAddr, which has {count}"):
            load(file)
    file.write_text("namesrvAddr=a:1\nfetchNamesrvAddrByAddressServer=true\nrocketmq.namesrv.domain=b\n")
    _config, warnings = load(file)
    named = sorted(warning.split(": ")[1] for warning in warnings)
    assert named == ["fetchNamesrvAddrByAddressServer", "rocketmq.namesrv.domain"]
    assert all("an empty namesrvAddr" in warning for warning in warnings)
