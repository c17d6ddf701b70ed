"""TLS on a remoting port over real sockets: modes, certificates of all kinds, renewal, renegotiation, floods."""

from __future__ import annotations

import ast
import asyncio
import gc
import os
import socket
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from engine.net import tls
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.peers.link import NoAnswer, RemotingLink
from engine.remoting.sockets import opening
from engine.remoting.sockets.client import PeerUnreachable, RemotingClient
from engine.remoting.sockets.server import RemotingServer, ServerLimits
from engine.settings.tls_mode import TlsMode
from engine.shared_memory.cursors import TlsOutcome
from tests.harness.certificates import Authority, Issued, server_file, tls_file
from tests.harness.conditions import await_that

SECONDS = 120.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "other", "somebody else")


@pytest.fixture(scope="module")
def own(authority: Authority) -> Issued:
    return authority.issue("server")


class Served:
    """A server on a thread of its own."""

    def __init__(self, how: tls.ServerTls, limits: ServerLimits | None = None) -> None:
        self.outcomes: Counter[TlsOutcome] = Counter()
        self.port = 0
        self._how, self._limits = how, limits
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: uvloop.run(self._run()))

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()

        def answer(request: RemotingCommand, _connection: int) -> RemotingCommand:
            return request.answer(0, body=bytes(request.body), version=407)

        def count(outcome: TlsOutcome) -> None:
            self.outcomes[outcome] += 1

        server = RemotingServer(answer, lambda _connection: None, self._limits, how=self._how, on_tls=count)
        self.port = await server.start("127.0.0.1", 0)
        self._ready.set()
        await self._stop.wait()
        await server.stop()

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._ready.wait(SECONDS)
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def count(self, outcome: TlsOutcome) -> int:
        return self.outcomes[outcome]


@contextmanager
def serving(mode: TlsMode, path: Path | None, limits: ServerLimits | None = None) -> Iterator[Served]:
    with Served(tls.server_tls(mode, path), limits) as served:
        yield served


def open_files() -> int:
    uvloop.new_event_loop().close()  # the first loop of a process has it keep some files of its own
    gc.collect()  # what other tests left is none of ours
    return len(os.listdir("/proc/self/fd"))


def ask(served: Served, path: Path | None, body: bytes = b"hello") -> bytes:
    """One request, over TLS where a file is given, by the blocking client and by the one of the event loop."""
    how = None if path is None else tls.client_tls(True, path)
    with RemotingClient(served.address, SECONDS, how) as client:
        answer = bytes(client.invoke(RemotingCommand(1, body=body)).body)

    async def linked() -> bytes:
        link = RemotingLink(served.address, SECONDS, how)
        try:
            return bytes((await link.ask(RemotingCommand(1, body=body))).body)
        finally:
            link.close()

    assert uvloop.run(linked()) == answer
    return answer


def refusal(served: Served, path: Path | None) -> str:
    """Why a request gets no answer; the event loop's client says the same."""
    how = None if path is None else tls.client_tls(True, path)
    with pytest.raises(PeerUnreachable) as blocking, RemotingClient(served.address, SECONDS, how) as client:
        client.invoke(RemotingCommand(1))

    async def linked() -> None:
        await RemotingLink(served.address, SECONDS, how).ask(RemotingCommand(1))

    with pytest.raises(NoAnswer):
        uvloop.run(linked())
    return str(blocking.value)


def trusting(directory: Path, authority: Authority, **more: object) -> Path:
    return tls_file(directory / "client.properties", client_trustCertPath=authority.certificate, **more)


def test_the_first_byte_chooses(tmp_path: Path, authority: Authority, own: Issued) -> None:
    large = os.urandom(3 << 20)
    with serving(TlsMode.PERMISSIVE, server_file(tmp_path / "tls", own)) as served:
        assert ask(served, None, large) == ask(served, trusting(tmp_path, authority), large) == large
        assert served.outcomes == {TlsOutcome.SERVED: 2}


def test_plaintext_to_a_port_that_enforces_tls_is_closed_and_counted(
    tmp_path: Path, authority: Authority, own: Issued
) -> None:
    with serving(TlsMode.ENFORCING, server_file(tmp_path / "tls", own)) as served:
        assert "closed the connection" in refusal(served, None) or "reset" in refusal(served, None)
        await_that(lambda: served.count(TlsOutcome.PLAINTEXT_REFUSED) >= 2, "it is counted")
        assert ask(served, trusting(tmp_path, authority)) == b"hello"


@pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.PERMISSIVE])
def test_tls_to_a_port_without_it_is_closed_and_counted(
    mode: TlsMode, tmp_path: Path, authority: Authority, own: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    path = server_file(tmp_path / "tls", own) if mode is TlsMode.DISABLED else None
    with serving(mode, path) as served:
        refusal(served, trusting(tmp_path, authority))
        await_that(lambda: served.outcomes == {TlsOutcome.TLS_REFUSED: 2}, "it is counted")
        assert ask(served, None) == b"hello"
    assert "but TLS is not served" in caplog.text


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("expired", "certificate has expired"),
        ("unknown authority", "unable to get local issuer certificate"),
        ("another host", "IP address mismatch"),
    ],
)
def test_a_client_refuses_a_server(
    kind: str, says: str, tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    shown = {
        "expired": lambda: authority.issue("expired", is_expired=True),
        "unknown authority": lambda: stranger.issue("server"),
        "another host": lambda: authority.issue("elsewhere", names="IP:192.0.2.1"),
    }[kind]()
    with serving(TlsMode.PERMISSIVE, server_file(tmp_path / "tls", shown)) as served:
        assert says in refusal(served, trusting(tmp_path, authority))
        await_that(lambda: served.count(TlsOutcome.FAILED) == 2, "both failures are counted")
        unverified = tls_file(tmp_path / "trusting", test_mode_enable="true")
        assert ask(served, unverified) == b"hello"
        if kind == "another host":
            assert ask(served, trusting(tmp_path, authority, client_checkHost="false")) == b"hello"


@pytest.mark.parametrize("required", ["require", "optional"])
def test_a_server_refuses_a_client(
    required: str,
    tmp_path: Path,
    authority: Authority,
    stranger: Authority,
    own: Issued,
    caplog: pytest.LogCaptureFixture,
) -> None:
    verifying = {"server_trustCertPath": authority.certificate, "server_need_client_auth": required}

    def showing(issued: Issued) -> Path:
        files = {"client_certPath": issued.certificate, "client_keyPath": issued.key}
        return trusting(tmp_path, authority, **files)

    with serving(TlsMode.ENFORCING, server_file(tmp_path / "tls", own, **verifying)) as served:
        assert ask(served, showing(own)) == b"hello"
        assert "does not trust the issuer of our certificate" in refusal(served, showing(stranger.issue("me")))
        assert "our certificate has expired" in refusal(served, showing(authority.issue("old", is_expired=True)))
        await_that(lambda: served.count(TlsOutcome.FAILED) == 4, "each is counted")
        assert "unable to get local issuer certificate" in caplog.text
        without = trusting(tmp_path, authority)
        if required == "require":
            assert "requires a certificate" in refusal(served, without)
        else:
            assert ask(served, without) == b"hello"


def peer_certificate(served: Served, authority: Authority) -> bytes | None:
    context = ssl.create_default_context(cafile=os.fspath(authority.certificate))
    sock = socket.create_connection(("127.0.0.1", served.port), SECONDS)
    with context.wrap_socket(sock, server_hostname="127.0.0.1") as wrapped:
        return wrapped.getpeercert(binary_form=True)


def der(issued: Issued) -> bytes:
    return ssl.PEM_cert_to_DER_cert(issued.certificate.read_text())


def test_a_renewed_certificate_is_shown_to_new_connections_and_a_broken_one_is_not(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = authority.issue("first"), authority.issue("second")
    shown = Issued(tmp_path / "own.pem", tmp_path / "own.key")
    shown.replace(first)
    path, client = server_file(tmp_path / "tls", shown), trusting(tmp_path, authority)
    with (
        serving(TlsMode.ENFORCING, path) as served,
        RemotingClient(served.address, SECONDS, tls.client_tls(True, client)) as standing,
    ):
        assert bytes(standing.invoke(RemotingCommand(1, body=b"before")).body) == b"before"
        assert peer_certificate(served, authority) == der(first)
        shown.replace(second)
        assert peer_certificate(served, authority) == der(second)
        shown.certificate.write_text("broken")
        assert [peer_certificate(served, authority) for _ in range(3)] == [der(second)] * 3
        assert caplog.text.count("new connections still use the previous certificates") == 1
        shown.replace(first)
        assert peer_certificate(served, authority) == der(first)
        assert bytes(standing.invoke(RemotingCommand(1, body=b"after")).body) == b"after"


def test_a_renewal_under_load_fails_nobody(tmp_path: Path, authority: Authority) -> None:
    issued = [authority.issue("first"), authority.issue("second")]
    shown = Issued(tmp_path / "own.pem", tmp_path / "own.key")
    shown.replace(issued[0])
    path, client = server_file(tmp_path / "tls", shown), trusting(tmp_path, authority)
    answered, renewed = Counter[int](), threading.Event()

    def load(number: int) -> None:
        while not renewed.is_set():
            how = tls.client_tls(True, client)
            with RemotingClient(served.address, SECONDS, how) as asking:
                answered[number] += asking.invoke(RemotingCommand(1)).code == 0

    with serving(TlsMode.ENFORCING, path) as served, ThreadPoolExecutor() as pool:
        loads = [pool.submit(load, number) for number in range(3)]
        try:
            for turn in range(20):
                before = sum(answered.values())
                shown.replace(issued[turn % 2])
                await_that(lambda: sum(answered.values()) > before + 3, "it goes on", SECONDS)  # noqa: B023
        finally:
            renewed.set()
        for each in loads:
            each.result(SECONDS)
        assert served.count(TlsOutcome.FAILED) == 0


def test_tls_1_3_is_what_is_spoken_unless_1_2_is_admitted(
    tmp_path: Path, authority: Authority, own: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    older = ssl.create_default_context(cafile=os.fspath(authority.certificate))
    older.maximum_version = ssl.TLSVersion.TLSv1_2

    def version(served: Served) -> str | None:
        sock = socket.create_connection(("127.0.0.1", served.port), SECONDS)
        with older.wrap_socket(sock, server_hostname="127.0.0.1") as wrapped:
            return wrapped.version()

    with serving(TlsMode.ENFORCING, server_file(tmp_path / "tls", own)) as served, pytest.raises(ssl.SSLError) as error:
        version(served)
    assert error.value.reason == "TLSV1_ALERT_PROTOCOL_VERSION"
    assert "supports only older versions of TLS; see tls.min.version" in caplog.text
    with serving(TlsMode.ENFORCING, server_file(tmp_path / "tls", own, min_version="1.2")) as served:
        assert version(served) == "TLSv1.2"
        older.maximum_version = ssl.TLSVersion.TLSv1_3
        assert version(served) == "TLSv1.3"


def test_nobody_renegotiates(tmp_path: Path, authority: Authority, own: Issued) -> None:
    with serving(TlsMode.ENFORCING, server_file(tmp_path / "tls", own, min_version="1.2")) as served:
        command = ["openssl", "s_client", "-connect", served.address, "-tls1_2", "-CAfile", str(authority.certificate)]
        talk = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert talk.stdin is not None and talk.stdout is not None
        talk.stdin.write(b"R\n")  # s_client's order to renegotiate
        talk.stdin.flush()
        said = talk.stdout.read()  # it ends by itself: nobody typed Q
        talk.stdin.close()
        talk.stdout.close()
        assert talk.wait(SECONDS) != 0
        assert b"RENEGOTIATING" in said and b"no renegotiation" in said, said
        assert b"Verify return code: 0 (ok)" in said


def test_handshakes_that_nobody_finishes_hold_up_nobody(
    tmp_path: Path, authority: Authority, own: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "HANDSHAKES_MAX", 8)
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 600.0)  # nobody's time is over before he has to make room
    client = trusting(tmp_path, authority)
    before = open_files()
    with serving(TlsMode.ENFORCING, server_file(tmp_path / "tls", own)) as served:
        strangers = [socket.create_connection(("127.0.0.1", served.port), SECONDS) for _ in range(40)]
        for stranger in strangers:
            stranger.sendall(b"\x16\x03\x01")  # and nothing more
        await_that(lambda: served.count(TlsOutcome.FAILED) == 32, "the oldest are hung up on")
        assert ask(served, client) == b"hello"
        for stranger in strangers:
            stranger.close()
        await_that(lambda: served.count(TlsOutcome.FAILED) == 40, "and those that went")
        assert served.count(TlsOutcome.SERVED) == 2
    await_that(lambda: open_files() <= before, "nothing is left open")


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x00\x05\x01\x00\x00"])
def test_a_silent_or_slow_hello_has_a_deadline(
    sent: bytes, tmp_path: Path, own: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_SECONDS", 0.2)
    # Of who has said something, the handshake's time alone counts.
    limits = ServerLimits(idle_seconds=1000 if sent else 0.2)
    with serving(TlsMode.ENFORCING, server_file(tmp_path / "tls", own), limits) as served:
        with socket.create_connection(("127.0.0.1", served.port), SECONDS) as sock:
            sock.sendall(sent)
            with suppress(ConnectionResetError):
                assert sock.recv(100) == b""
        await_that(lambda: served.count(TlsOutcome.FAILED) == bool(sent), "it is counted")


def test_connections_of_every_step_are_closed_with_the_server(tmp_path: Path, own: Issued) -> None:
    before = open_files()
    socks: list[socket.socket] = []
    with serving(TlsMode.PERMISSIVE, server_file(tmp_path / "tls", own)) as served:
        for sent in (b"", b"\x16\x03", b"\x00\x00"):
            socks.append(socket.create_connection(("127.0.0.1", served.port), SECONDS))
            socks[-1].sendall(sent)
        assert ask(served, None) == b"hello"
    for sock in socks:
        with suppress(ConnectionResetError):
            assert sock.recv(1) == b""
        sock.close()
    await_that(lambda: open_files() <= before, "nothing is left open")


@pytest.mark.parametrize("is_tls", [False, True])
def test_connections_that_leave_before_they_are_served_leave_nothing(is_tls: bool, tmp_path: Path, own: Issued) -> None:
    path = server_file(tmp_path / "tls", own) if is_tls else None
    with serving(TlsMode.PERMISSIVE, path, ServerLimits(connections=8)) as served:
        assert ask(served, None) == b"hello"  # the loop keeps a file of its own from the first connection on
        idle = open_files()
        socks = [socket.create_connection(("127.0.0.1", served.port), SECONDS) for _ in range(200)]
        await_that(lambda: open_files() - idle - len(socks) <= 8, "no more are held than are allowed", SECONDS)
        assert ask(served, None) == b"hello"
        for sock in socks:
            sock.close()
        await_that(lambda: open_files() <= idle, "all are gone", SECONDS)


def test_every_client_connection_is_made_with_the_tls_setting() -> None:
    """Who forgets TLS would speak plaintext to a port that takes none."""
    root, made = Path(__file__).resolve().parents[4], []
    for path in (*root.glob("engine/**/*.py"), *root.glob("tools/**/*.py")):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            if ast.unparse(call.func) in ("RemotingClient", "RemotingLink"):
                made.append((f"{path.name}:{call.lineno}", len(call.args)))
    assert len(made) > 5
    assert not [place for place, arguments in made if arguments < 3]
