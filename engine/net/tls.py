"""TLS contexts from certificate files: made at the start, made again when the files change, and failures in words.

Implements: TlsHelper.buildSslContext; SslContexts renewed as the proxy's TlsCertificateManager does it
A file that changed is seen at the next handshake, beside which a look costs nothing; connections that stand keep what
they have. Files that cannot be used are logged once and change nothing: the last good context stays.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import EngineError
from engine.settings import tls_file
from engine.settings.config import BrokerConfig, ConfigError
from engine.settings.tls_file import ClientAuth, OwnCertificate, TlsFile
from engine.settings.tls_mode import TlsMode
from ipc.descriptors import closing_fd
from store.files.file_state import FileState, state_of

log = logging.getLogger("slipstream.tls")

NAME_CHARACTERS_MAX = 64  # of a common name
HANDSHAKE_SECONDS = 10.0
HELLO = 0x16  # the first byte of a TLS connection: a record of type handshake
CIPHERS_OF_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20"
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
Use = Callable[[TlsFile], ssl.SSLContext]
States = list[FileState | None]

HUNG_UP = "the other side closed the connection; its log says why: it may not use TLS, or not accept our certificate"
# What OpenSSL calls the failure of a handshake, and what it means here.
WORDS = {
    "WRONG_VERSION_NUMBER": "the other side speaks no TLS here; is it set to plaintext?",
    "HTTP_REQUEST": "the other side speaks plain HTTP",
    "RECORD_LAYER_FAILURE": "the other side speaks no TLS here; is it set to plaintext?",
    "UNSUPPORTED_PROTOCOL": "the other side supports only older versions of TLS; see tls.min.version",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the two sides support no common TLS version; see tls.min.version",
    "NO_SHARED_CIPHER": "the two sides support no common cipher",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the other side shows no certificate, and one is required",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side requires a certificate; see tls.client.certPath",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not trust the issuer of our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side says that our certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not accept our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not accept our certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the other side reports that our certificate has the wrong purpose",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other side accepts none of our versions, ciphers or certificates",
    "UNEXPECTED_EOF_WHILE_READING": HUNG_UP,
}


class TlsUnusable(EngineError):
    """Raised when TLS cannot be set up from the configured files.

    Next: check the file and the key that the error names; `openssl x509 -noout -text -in FILE` shows a
    certificate.
    """

    code = "TLS"

    def __init__(self, where: object, why: str, advice: str) -> None:
        super().__init__(f"{where}: {why}; {advice}")


UNUSABLE = (TlsUnusable, ConfigError)  # what a file is refused by


class LastWords(ssl.SSLObject):
    """A connection on an event loop that keeps the alert in which OpenSSL says why a handshake fails.

    The loop throws it away and hangs up: without it the peer would only see a connection reset.
    """

    outgoing: ssl.MemoryBIO
    said: list[bytes]

    def do_handshake(self) -> None:
        """Shake hands like the parent class, but keep the alert that a failure sends."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            self.said.append(self.outgoing.read())
            raise


class SpokenContext(ssl.SSLContext):
    """A context whose failures on an event loop leave their last words to who began the handshake."""

    _said: ContextVar[list[bytes]] = ContextVar("last words")

    @classmethod
    def collect(cls) -> list[bytes]:
        """Return the list that the next handshake of this task puts its last words into."""
        said: list[bytes] = []
        cls._said.set(said)
        return said

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> LastWords:
        """Wrap the buffers like the parent class, which every event loop calls, in a LastWords."""
        self.sslobject_class = LastWords
        made = super().wrap_bio(incoming, outgoing, *args, **options)
        assert isinstance(made, LastWords)
        made.outgoing, made.said = outgoing, self._said.get([])
        return made


class RenewedContext:
    """A context that follows its files. Raises TlsUnusable where the first one cannot be made."""

    def __init__(self, path: Path, use: Use) -> None:
        self._path, self._use = path, use
        self.file, self._seen, self._context = self._made()

    def current(self) -> ssl.SSLContext:
        """The context for a new connection."""
        seen = _states(self.file)
        if seen != self._seen:
            self._seen = seen
            self._renew()
        return self._context

    def _renew(self) -> None:
        try:
            self.file, self._seen, self._context = self._made()
        except UNUSABLE as error:
            log.error("%s; new connections still use the previous certificates", error)
            return
        log.info("%s: certificates reloaded for new connections", self._path)

    def _made(self) -> tuple[TlsFile, States, ssl.SSLContext]:
        """Make the context, with the files' states from before they were read: a change meanwhile is seen next time."""
        own_state = state_of(self._path)
        file = tls_file.load(self._path)
        states = [own_state, *_states(file)[1:]]
        return file, states, self._use(file)


def _states(file: TlsFile) -> States:
    """Tells one content of all the files from another."""
    return [state_of(path) for path in file.files()]


def of_server(file: TlsFile) -> ssl.SSLContext:
    """A context for connections that are accepted. Raises TlsUnusable."""
    if file.server_own is None and not file.is_test:
        raise TlsUnusable(file.path, "no certificate for a server", "give tls.server.certPath and tls.server.keyPath")
    context = _context(ssl.PROTOCOL_TLS_SERVER, file)
    if file.server_own is None:
        _show_made(context)
    else:
        _show(context, file.server_own)
    if file.client_auth is not ClientAuth.NONE:
        assert file.server_trusts is not None
        _trust(context, file.server_trusts)
        required = file.client_auth is ClientAuth.REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def of_client(file: TlsFile) -> ssl.SSLContext:
    """A context for connections that are made. Raises TlsUnusable."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, file)
    context.check_hostname = file.verifies_server and file.checks_host
    if not file.verifies_server:
        context.verify_mode = ssl.CERT_NONE
    elif file.client_trusts is not None:
        _trust(context, file.client_trusts)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if file.client_own is not None:
        _show(context, file.client_own)
    return context


def of_ha_server(file: TlsFile) -> ssl.SSLContext:
    """Make the context for slaves, which must show a certificate. Raises TlsUnusable."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, file)
    context.num_tickets = 0  # each connection is verified anew; nothing lies unread where a slave hangs up
    return _mutual(file, context, file.server_own, file.server_trusts)


def of_ha_client(file: TlsFile) -> ssl.SSLContext:
    """Make the context for a master, whose certificate is always verified. Raises TlsUnusable."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, file)
    context.check_hostname = file.checks_host
    return _mutual(file, context, file.client_own, file.client_trusts)


def _mutual(file: TlsFile, context: ssl.SSLContext, own: OwnCertificate | None, trusted: Path | None) -> ssl.SSLContext:
    """A broker is both a server and a client here: what the file says of one side serves for both."""
    own, trusted = own or file.server_own or file.client_own, trusted or file.server_trusts or file.client_trusts
    if own is None or trusted is None:
        lacks = "certPath and keyPath" if own is None else "trustCertPath"
        raise TlsUnusable(file.path, "haTlsMode=enforcing is mutual", f"give tls.server.{lacks}")
    _show(context, own)
    _trust(context, trusted)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _context(protocol: int, file: TlsFile) -> ssl.SSLContext:
    context = SpokenContext(protocol)
    context.minimum_version = VERSIONS[file.min_version]
    context.set_ciphers(CIPHERS_OF_1_2)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION  # TLS 1.3 has neither
    return context


def _show(context: ssl.SSLContext, own: OwnCertificate) -> None:
    """Set the certificate that the context shows. Raises TlsUnusable."""
    for path in (own.certificate, own.key):
        _readable(path)
    try:
        context.load_cert_chain(own.certificate, own.key, lambda: own.password)  # without: OpenSSL asks a terminal
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        advice = "both must be PEM files and belong together, and an encrypted key needs the right keyPassword"
        says = f"certificate and key cannot be used ({why})"
        raise TlsUnusable(f"{own.certificate} with {own.key}", says, advice) from None


def _show_made(context: ssl.SSLContext) -> None:
    """Set a certificate made now, which is kept in memory alone."""
    from engine.net.self_signed import self_signed  # loads `secrets`, and few brokers are in test mode

    pem = self_signed(socket.gethostname()[:NAME_CHARACTERS_MAX] or "localhost")
    with closing_fd(os.memfd_create("certificate", os.MFD_CLOEXEC)) as fd:
        os.write(fd, f"{pem.key}{pem.certificate}".encode())
        context.load_cert_chain(f"/proc/self/fd/{fd}")


def _trust(context: ssl.SSLContext, trusted: Path) -> None:
    _readable(trusted)
    try:
        context.load_verify_locations(trusted)
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        raise TlsUnusable(trusted, f"no usable trusted certificates ({why})", "give them in PEM") from None


def _readable(path: Path) -> None:
    try:
        with open(path, "rb"):
            return
    except OSError as error:
        raise TlsUnusable(path, f"cannot be read: {error.strerror}", "check the paths in tls.config.file") from None


def words_of(error: BaseException) -> str:
    """Return why a handshake failed, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the other side's certificate is not accepted: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or type(error).__name__
        return WORDS.get(reason, f"TLS: {reason.lower().replace('_', ' ')}")
    if isinstance(error, TimeoutError) or "taking longer" in str(error):
        return f"no handshake within {HANDSHAKE_SECONDS:g} s"
    if isinstance(error, ConnectionError | EOFError):
        return HUNG_UP
    return str(error) or type(error).__name__


class ServerTls:
    """The rule by which a listening port handles the first byte of a connection."""

    def __init__(self, mode: TlsMode, context: RenewedContext | None) -> None:
        self.mode, self.context = mode, context

    @property
    def refuses_plaintext(self) -> bool:
        """Whether a first byte that is no TLS ends the connection."""
        return self.mode is TlsMode.ENFORCING


PLAINTEXT = ServerTls(TlsMode.PERMISSIVE, None)  # as without a file that names a certificate


def server_tls(mode: TlsMode, path: Path | None) -> ServerTls:
    """Return how a server's ports are served. Raises TlsUnusable, ConfigError."""
    if mode is TlsMode.DISABLED:
        return ServerTls(mode, None)
    if path is None:
        if mode is TlsMode.ENFORCING:
            raise TlsUnusable("tls.server.mode=enforcing", "no certificate is configured", "give tls.config.file")
        return ServerTls(mode, None)
    file = tls_file.load(path)
    for warning in file.warnings:
        log.warning("%s", warning)
    if mode is TlsMode.PERMISSIVE and file.server_own is None and not file.is_test:
        return ServerTls(mode, None)  # a client's file
    return ServerTls(mode, RenewedContext(path, of_server))


def client_tls(is_used: bool, path: Path | None) -> RenewedContext | None:
    """Return how this process makes connections. Raises TlsUnusable, ConfigError."""
    if not is_used:
        return None
    if path is None:
        raise TlsUnusable("useTLS=true", "no trusted certificates are configured", "give tls.config.file")
    return RenewedContext(path, of_client)


class BrokerTls(NamedTuple):
    """A broker's TLS contexts, made before its processes are forked: one started again has those that worked."""

    server: ServerTls
    client: RenewedContext | None
    ha_server: RenewedContext | None
    ha_client: RenewedContext | None


def of_broker(config: BrokerConfig) -> BrokerTls:
    """Make a broker's TLS contexts from its settings. Raises TlsUnusable, ConfigError."""
    server = server_tls(config.tls_server_mode, config.tls_config_file)
    client = client_tls(config.use_tls, config.tls_config_file)
    if config.ha_tls_mode is TlsMode.DISABLED:
        return BrokerTls(server, client, None, None)
    path = config.ha_tls_config_file or config.tls_config_file
    if path is None:
        raise TlsUnusable("haTlsMode=enforcing", "no certificate configured", "give haTlsConfigFile or tls.config.file")
    return BrokerTls(server, client, RenewedContext(path, of_ha_server), RenewedContext(path, of_ha_client))
