"""Proxies that the environment names see nothing of what stays on this host, nor a token in plain bytes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spark_bridge.flight.client import RemoteStore, channel_options
from spark_bridge.lake import tables
from spark_bridge.lake.errors import LakeError
from spark_bridge.lake.request import catalog_properties
from spark_bridge.lake.tables import lake
from spark_bridge.options.values import InvalidOption
from tests.spark_bridge.flights import FlightProcess
from tests.spark_bridge.stores import SmallStore

TOKEN = "not for a proxy"
SAID = tuple(name for lower in (*tables.PROXIES, "grpc_proxy") for name in (lower, lower.upper()))


class Answers(BaseHTTPRequestHandler):
    """Refuses everything, and keeps who asked with which token."""

    asked: list[tuple[str, str]]

    def do_GET(self) -> None:
        """Also CONNECT, HEAD and PUT."""
        self.asked.append((self.path, self.headers.get("Authorization", "")))
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_CONNECT = do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *_values: Any) -> None:
        """Nothing is printed."""


@contextmanager
def serving() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server's address, and what it was asked."""
    asked: list[tuple[str, str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Kept", (Answers,), {"asked": asked}))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """A proxy that all of the environment names; what it was asked."""
    with serving() as (address, asked):
        for name in SAID:
            monkeypatch.setenv(name, f"http://{address}")
        for name in tables.EXCEPTIONS:
            monkeypatch.setenv(name, "intranet.example")
        yield asked


def test_flight_asks_its_server_past_the_proxy(tmp_path: Path, proxy: list[tuple[str, str]]) -> None:
    store = SmallStore(tmp_path / "store")
    store.put("t", b"x")
    store.dispatch()
    token = "a-token-of-some-length"
    (tmp_path / "token").write_text(token)
    with FlightProcess(store.root, "--token-file", tmp_path / "token") as server:  # noqa: SIM117
        with RemoteStore(server.location, token) as remote:
            assert remote.topics() == {"t": 1}
    assert proxy == []


@pytest.mark.parametrize(
    ("location", "is_direct"),
    [
        ("grpc://127.0.0.1:1", True), ("grpc+tls://127.8.0.1:1", True), ("grpc+tls://[::1]:1", True),
        ("grpc+tls://localhost:1", True), ("grpc://lake.example:1", True), ("grpc+tls://lake.example:1", False),
        ("grpc+tls://localhost.example:1", False),
    ],
)  # fmt: skip
def test_plain_channels_and_those_of_this_host_are_direct(location: str, is_direct: bool) -> None:
    assert channel_options(location) == ([("grpc.enable_http_proxy", 0)] if is_direct else [])


def test_a_catalog_on_this_host_is_asked_past_the_proxy(tmp_path: Path, proxy: list[tuple[str, str]]) -> None:
    store = SmallStore(tmp_path / "store")
    store.put("t", b"x")
    store.dispatch()
    with serving() as (address, asked), pytest.raises(LakeError):
        catalog = {"uri": f"http://{address}", "type": "rest", "token": TOKEN}
        lake(str(store.root), "raw.t", to="iceberg", catalog=catalog)
    assert asked and f"Bearer {TOKEN}" in dict(asked).values()
    assert proxy == []


def test_a_storage_on_this_host_is_asked_past_the_proxy(tmp_path: Path, proxy: list[tuple[str, str]]) -> None:
    store = SmallStore(tmp_path / "store")
    store.put("t", b"x")
    store.dispatch()
    with serving() as (address, asked), pytest.raises(LakeError):
        storage = {
            "AWS_ENDPOINT_URL": f"http://{address}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "r",
        }
        lake(str(store.root), "s3://bucket/t", to="delta", storage=storage)
    assert asked
    assert proxy == []


def test_this_host_is_added_to_the_exceptions_of_a_process_with_a_proxy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SAID, *tables.EXCEPTIONS):
        monkeypatch.delenv(name, raising=False)
    tables.leave_out_this_host()
    assert "no_proxy" not in os.environ
    monkeypatch.setenv("no_proxy", "a.example, b.example")
    monkeypatch.setenv("NO_PROXY", "c.example")
    monkeypatch.setenv("https_proxy", "http://proxy.example")
    for _ in range(2):
        tables.leave_out_this_host()
        expected = ["a.example", "b.example", "c.example", *tables.OF_THIS_HOST]
        assert os.environ["no_proxy"].split(",") == os.environ["NO_PROXY"].split(",") == expected
    monkeypatch.setenv("no_proxy", "*")
    tables.leave_out_this_host()
    assert os.environ["no_proxy"] == "*"


def test_a_catalog_is_named_by_its_uri_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SmallStore(tmp_path / "store")
    store.put("t", b"x")
    store.dispatch()
    monkeypatch.chdir(tmp_path)
    for uri in (f"sqlite:///{tmp_path}/a.db", "sqlite:///b.db", "sqlite:c.db", f"sqlite:{tmp_path}/d.db"):
        assert sum(one.rows for one in lake(str(store.root), "raw.t", to="iceberg", catalog=uri)) == 1
        assert lake(str(store.root), "raw.t", to="iceberg", catalog=uri) == []
    assert sorted(path.name for path in tmp_path.glob("?.*")) == [
        f"{name}.{kind}" for name in "abcd" for kind in ("db", "warehouse")
    ]
    assert catalog_properties("https://catalog.example") == {"uri": "https://catalog.example"}
    with pytest.raises(InvalidOption, match=r"catalog='lake.db': not a URI"):
        lake(str(store.root), "raw.t", to="iceberg", catalog="lake.db")
