"""RocketMQ's tls.properties: certificates, private keys and trusted authorities, as a server and as a client.

Implements: TlsSystemConfig, TlsHelper.extractTlsConfigFromFile
Where RocketMQ is lenient without a word, this is not: its test mode, in which a server makes a certificate and every
one passes, must be written to be on; a client's certificate that is asked for is verified; a server's is verified where
the file says against what.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from engine.settings.config import ConfigError, entries_of
from engine.settings.properties_file import Entry

BOOLEANS = {"true": True, "false": False}
VERSIONS = ("1.2", "1.3")
PATHS = frozenset(
    f"tls.{side}.{what}" for side in ("server", "client") for what in ("keyPath", "certPath", "trustCertPath")
)
FLAGS = frozenset({"tls.test.mode.enable", "tls.server.authClient", "tls.client.authServer", "tls.client.checkHost"})
KEYS = PATHS | FLAGS | {
    "tls.server.keyPassword", "tls.client.keyPassword", "tls.server.need.client.auth", "tls.min.version",
}  # fmt: skip
ELSEWHERE = {
    "tls.server.mode": "that is a key of the broker's or name server's own file",
    "tls.enable": "use useTLS in the broker's file, --tls-config of a command, or Spark's tlsConfigFile",
    "tls.config.file": "that is a key of the broker's or name server's own file",
}


class ClientAuth(StrEnum):
    """Whether a server asks for its callers' certificates, and goes on without."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """A certificate chain and its private key, in PEM."""

    certificate: Path
    key: Path
    password: str = field(repr=False)


class TlsFile(NamedTuple):
    """Content of the file. `own` certificates are None if not given; `is_test`: a server makes one by itself."""

    path: Path
    min_version: str
    server_own: OwnCertificate | None
    server_trusts: Path | None
    client_auth: ClientAuth
    client_own: OwnCertificate | None
    client_trusts: Path | None
    verifies_server: bool
    checks_host: bool
    is_test: bool
    warnings: tuple[str, ...]

    def files(self) -> list[Path]:
        """Return every file that says something, this one first."""
        own = [path for one in (self.server_own, self.client_own) if one for path in (one.certificate, one.key)]
        return [self.path, *own, *(path for path in (self.server_trusts, self.client_trusts) if path)]


def load(path: str | os.PathLike[str]) -> TlsFile:
    """The file as it is now. Raises ConfigError."""
    file = os.fspath(path)
    entries = {entry.key: entry._replace(value=entry.value.strip()) for entry in entries_of(file)}
    for entry in entries.values():
        _check(file, entry)
    texts = {key: entry.value for key, entry in entries.items() if entry.value}
    warnings: list[str] = []
    is_test = _flag(texts, "tls.test.mode.enable", False)
    if is_test:
        own = "tls.server.certPath" in texts
        shows = "the server uses the certificate in this file" if own else "the server makes its own certificate"
        warnings.append(f"{file}: tls.test.mode.enable=true is for tests only: {shows}, clients verify none")
    trusts = _path(file, texts, "tls.client.trustCertPath")
    auth = ClientAuth(texts.get("tls.server.need.client.auth", "none").lower())
    server_trusts = _path(file, texts, "tls.server.trustCertPath")
    if auth is not ClientAuth.NONE and server_trusts is None:
        line = entries["tls.server.need.client.auth"].line
        what = f"tls.server.need.client.auth={auth}: needs tls.server.trustCertPath, the issuers to trust"
        raise ConfigError(file, line, what)
    if _flag(texts, "tls.server.authClient", False) and auth is ClientAuth.NONE:
        what = "tls.server.authClient: has no effect without tls.server.need.client.auth=require, as in RocketMQ"
        warnings.append(f"{file}:{entries['tls.server.authClient'].line}: {what}")
    verifies = not is_test and _flag(texts, "tls.client.authServer", trusts is not None)
    return TlsFile(
        Path(file),
        texts.get("tls.min.version", VERSIONS[-1]),
        _own(file, entries, texts, "server"),
        server_trusts,
        auth,
        _own(file, entries, texts, "client"),
        trusts,
        verifies,
        _flag(texts, "tls.client.checkHost", True),
        is_test,
        tuple(warnings),
    )


def made_by_itself(path: Path | None) -> bool:
    """Whether a server with this file makes its certificate: test mode, and none is given. False for a bad file."""
    try:
        file = None if path is None else load(path)
    except (ConfigError, OSError):
        return False
    return file is not None and file.is_test and file.server_own is None


def _check(file: str, entry: Entry) -> None:
    """Raise ConfigError for an unknown key or a value that is not allowed."""
    where, allowed = f"{entry.key}={entry.value}", ""
    if "assword" in entry.key:
        where = entry.key
    if entry.key in ELSEWHERE:
        raise ConfigError(file, entry.line, f"{where}: not a key of this file; {ELSEWHERE[entry.key]}")
    if entry.key not in KEYS:
        import difflib  # rarely: a file is mostly right

        nearest = difflib.get_close_matches(entry.key, KEYS, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else "no known key is similar"
        shown = entry.key if entry.key.startswith("tls.") else "this line"  # what else may that be? A key, perhaps
        raise ConfigError(file, entry.line, f"{shown}: unknown key; {hint}")
    if entry.key in FLAGS and entry.value.lower() not in BOOLEANS:
        allowed = "true or false"
    elif entry.key == "tls.server.need.client.auth" and entry.value.lower() not in tuple(ClientAuth):
        allowed = "none, optional or require"
    elif entry.key == "tls.min.version" and entry.value not in VERSIONS:
        allowed = " or ".join(VERSIONS)
    if allowed:
        raise ConfigError(file, entry.line, f"{where}: not allowed; allowed: {allowed}")


def _flag(texts: Mapping[str, str], key: str, default: bool) -> bool:
    return BOOLEANS[texts[key].lower()] if key in texts else default


def _path(file: str, texts: Mapping[str, str], key: str) -> Path | None:
    """An absolute path, or one beside the file."""
    return Path(os.path.abspath(file)).parent / Path(texts[key]).expanduser() if key in texts else None


def _own(file: str, entries: Mapping[str, Entry], texts: Mapping[str, str], side: str) -> OwnCertificate | None:
    certificate, key = (_path(file, texts, f"tls.{side}.{what}") for what in ("certPath", "keyPath"))
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        given, lacks = ("keyPath", "certPath") if certificate is None else ("certPath", "keyPath")
        line = entries[f"tls.{side}.{given}"].line
        raise ConfigError(file, line, f"tls.{side}.{given}: needs tls.{side}.{lacks}, too")
    return OwnCertificate(certificate, key, texts.get(f"tls.{side}.keyPassword", ""))
