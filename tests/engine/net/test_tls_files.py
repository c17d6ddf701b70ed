"""tls.properties and the files that it names: what is refused before anything is served, and in which words."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from engine.net import tls
from engine.net.self_signed import self_signed
from engine.settings.tls_file import load
from engine.settings.tls_mode import TlsMode
from tests.harness.certificates import Authority, Issued, server_file, tls_file


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def own(authority: Authority) -> Issued:
    return authority.issue("server")


def test_an_enforcing_port_needs_a_certificate(tmp_path: Path) -> None:
    with pytest.raises(tls.TlsUnusable, match=r"no certificate is configured; give tls\.config\.file"):
        tls.server_tls(TlsMode.ENFORCING, None)
    with pytest.raises(tls.TlsUnusable, match="no certificate for a server"):
        tls.server_tls(TlsMode.ENFORCING, tls_file(tmp_path / "empty"))
    with pytest.raises(tls.TlsUnusable, match="no trusted certificates are configured"):
        tls.client_tls(True, None)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"server_certpath": "x"}, "unknown key; did you mean tls.server.certPath?"),
        ({"server_certPath": "x"}, "needs tls.server.keyPath"),
        ({"client_keyPath": "x"}, "needs tls.client.certPath"),
        ({"server_mode": "enforcing"}, "a key of the broker's or name server's own file"),
        ({"server_need_client_auth": "yes"}, "allowed: none, optional or require"),
        ({"server_need_client_auth": "require"}, "needs tls.server.trustCertPath"),
        ({"test_mode_enable": "on"}, "allowed: true or false"),
        ({"min_version": "1.1"}, "allowed: 1.2 or 1.3"),
    ],
)
def test_what_no_tls_file_may_say(settings: dict[str, object], says: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=says) as error:
        tls.client_tls(True, tls_file(tmp_path / "tls.properties", **settings))
    assert f"{tmp_path}/tls.properties:1: " in str(error.value)


def spoilt(own: Issued, directory: Path, authority: Authority) -> Callable[[str], Issued]:
    def make(kind: str) -> Issued:
        if kind == "no file":
            return Issued(directory / "nothing.pem", own.key)
        if kind == "no PEM":
            (directory / "text.pem").write_text("text")
            return Issued(directory / "text.pem", own.key)
        return Issued(own.certificate, authority.issue("another").key)

    return make


def test_in_test_mode_a_server_makes_its_own_certificate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    testing = tls_file(tmp_path / "testing", test_mode_enable="true")
    served = tls.server_tls(TlsMode.ENFORCING, testing)
    assert served.context is not None and "for tests only" in caplog.text
    server, client = served.context.current(), tls.of_client(load(testing))
    wires = [ssl.MemoryBIO() for _ in range(2)]
    ends = [
        server.wrap_bio(wires[0], wires[1], server_side=True),
        client.wrap_bio(wires[1], wires[0], server_side=False),
    ]
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    ends[1].write(b"hello")
    assert ends[0].read() == b"hello"
    assert served.context.current() is server, "one certificate as long as the file is the same"


def test_a_certificate_made_for_tests_is_signed_by_its_own_key(tmp_path: Path) -> None:
    pem = self_signed("localhost")
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.load_verify_locations(cadata=pem.certificate)
    both = tmp_path / "both.pem"
    both.write_text(pem.key + pem.certificate)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(both)
    wires = [ssl.MemoryBIO() for _ in range(2)]
    ends = [server.wrap_bio(*wires, server_side=True), trusting.wrap_bio(*reversed(wires))]
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()  # the client verifies the signature
    assert ends[1].version() == "TLSv1.3"


def test_without_test_mode_no_certificate_is_made(tmp_path: Path) -> None:
    plain = tls_file(tmp_path / "plain", test_mode_enable="false")
    assert tls.server_tls(TlsMode.PERMISSIVE, plain).context is None
    with pytest.raises(tls.TlsUnusable, match="no certificate for a server"):
        tls.server_tls(TlsMode.ENFORCING, plain)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("no file", "nothing.pem: cannot be read: No such file or directory"),
        ("no PEM", "text.pem with .*: certificate and key cannot be used"),
        ("another key", "KEY_VALUES_MISMATCH"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    kind: str, says: str, tmp_path: Path, authority: Authority, own: Issued
) -> None:
    issued = spoilt(own, tmp_path, authority)(kind)
    with pytest.raises(tls.TlsUnusable, match=says):
        tls.server_tls(TlsMode.PERMISSIVE, server_file(tmp_path / "tls", issued))
