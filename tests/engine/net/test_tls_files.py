"""tls.properties and the files that it names: what is refused before anything is served, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.net import tls
from engine.settings.tls_mode import TlsMode
from tests.harness.certificates import Authority, Issued, server_file, tls_file


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def own(authority: Authority) -> Issued:
    return authority.issue("server")


def test_an_enforcing_port_needs_a_certificate(tmp_path: Path) -> None:
    with pytest.raises(tls.TlsUnusable, match=r"no certificate; give tls\.config\.file"):
        tls.server_tls(TlsMode.ENFORCING, None)
    with pytest.raises(tls.TlsUnusable, match="no certificate for a server"):
        tls.server_tls(TlsMode.ENFORCING, tls_file(tmp_path / "empty"))
    with pytest.raises(tls.TlsUnusable, match="nothing says whom to trust"):
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


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("no file", "nothing.pem: cannot be read: No such file or directory"),
        ("no PEM", "text.pem with .*: no certificate and key"),
        ("another key", "KEY_VALUES_MISMATCH"),
    ],
)
def test_files_that_cannot_be_used_are_named(
    kind: str, says: str, tmp_path: Path, authority: Authority, own: Issued
) -> None:  # fmt: skip
    issued = spoilt(own, tmp_path, authority)(kind)
    with pytest.raises(tls.TlsUnusable, match=says):
        tls.server_tls(TlsMode.PERMISSIVE, server_file(tmp_path / "tls", issued))
