"""A conversation with one name server or broker: questions sent together, answered in any order, before a deadline.

In plaintext, or over TLS. Frames and codes are the engine's, from its room that does no I/O and needs nothing compiled.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from engine.protocol.remoting.codes import REQUEST_VERSION, RequestCode, ResponseCode
from engine.protocol.remoting.frame import FrameSplitter, MalformedFrame, RemotingCommand, decode, encode
from ipc.host_port import host_port
from spark_bridge.replica.tls import Tls

READ_BYTES = 1 << 16
PORT_DEFAULT = 9876
TOGETHER_MAX = 200  # questions that wait for answers: neither side's buffers are full of the other's
HUNG_UP = "closed the connection before its whole answer; if it needs TLS, give a tls.properties as tlsConfigFile"


class NoCommonTls(OSError):
    """Raised when a TLS connection to a name server or broker cannot be made.

    Next: check the file that the error names: `tls.client.trustCertPath` has the trusted issuers, `tls.client.certPath`
    and `tls.client.keyPath` are what a server that asks for a certificate is shown; without `tlsConfigFile` plaintext
    is spoken.
    """

    code = "NO_COMMON_TLS"

    def __init__(self, why: str, file: Path, advice: str) -> None:
        super().__init__(f"{why}; {advice} (tlsConfigFile={str(file)!r})")


class Question(NamedTuple):
    """A request: its code, fields and body."""

    code: RequestCode
    fields: Mapping[str, str] | None = None
    body: bytes = b""


class Conversation:
    """With `address` (`host:port`), for `seconds` in all; a context manager that hangs up. Raises OSError."""

    def __init__(self, address: str, seconds: float, tls: Tls | None = None) -> None:
        self.address, self._seconds, self._tls = address, seconds, tls
        self._deadline = time.monotonic() + seconds
        self._opaques = itertools.count(1)
        self._splitter = FrameSplitter()
        place = place_of(address)
        self._connection: socket.socket = socket.create_connection(place, seconds)
        if tls is not None:
            self._speak_tls(tls, place[0])

    def _speak_tls(self, tls: Tls, host: str) -> None:
        """Shake hands, before the deadline."""
        try:
            with self._in_words():
                self._connection.settimeout(self._left())
                self._connection = tls.current().wrap_socket(self._connection, server_hostname=host)
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._connection.close()

    def ask(self, question: Question) -> RemotingCommand:
        """Return the answer, whatever its code. Raises OSError (late, closed) and ValueError (malformed)."""
        return self.ask_all([question])[0]

    def need(self, question: Question) -> RemotingCommand:
        """Return the answer if its code is SUCCESS. Raises OSError, ValueError."""
        answer = self.ask(question)
        if answer.code != ResponseCode.SUCCESS:
            raise ValueError(refusal(self.address, answer))
        return answer

    def ask_all(self, questions: Sequence[Question]) -> list[RemotingCommand]:
        """The answers in the order of the questions. Raises as `ask`."""
        answers: list[RemotingCommand] = []
        for start in range(0, len(questions), TOGETHER_MAX):
            answers += self._ask(questions[start : start + TOGETHER_MAX])
        return answers

    def _ask(self, questions: Sequence[Question]) -> list[RemotingCommand]:
        numbered = dict(zip(self._opaques, questions, strict=False))
        requests = [
            RemotingCommand(
                one.code, opaque, ext_fields=one.fields, body=one.body, language="PYTHON", version=REQUEST_VERSION
            )
            for opaque, one in numbered.items()
        ]
        answered: dict[int, RemotingCommand] = {}
        try:
            with self._in_words():
                self._connection.settimeout(self._left())
                self._connection.sendall(b"".join(map(encode, requests)))
                while len(answered) < len(numbered):
                    for command in map(decode, self._frames()):
                        if command.is_response and command.opaque in numbered:  # else a notice: nobody waits for it
                            answered[command.opaque] = command
        except MalformedFrame as malformed:
            raise ValueError(f"{self.address}: {malformed}") from malformed
        return [answered[opaque] for opaque in numbered]

    def _frames(self) -> list[bytes]:
        """The frames that the next bytes complete. Raises OSError, MalformedFrame."""
        self._connection.settimeout(self._left())
        part = self._connection.recv(READ_BYTES)
        if not part:
            raise ConnectionResetError
        return list(self._splitter.feed(part))

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Give what fails on the connection a text that says what to do. Raises OSError."""
        try:
            yield
        except TimeoutError:
            raise TimeoutError(f"no answer within {self._seconds:g} s") from None
        except OSError as error:
            if self._tls is not None:
                raise _no_common_tls(error, self._tls.file.path) from None
            if isinstance(error, ConnectionResetError | BrokenPipeError):
                raise ConnectionResetError(HUNG_UP) from None
            raise

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _no_common_tls(error: OSError, file: Path) -> NoCommonTls:
    import ssl  # loaded by now, as is the next

    from engine.net.tls import words_of

    if isinstance(error, ssl.SSLCertVerificationError):
        advice = "tls.client.trustCertPath says who may have issued it"
    else:
        advice = "look there, and leave the option out where plaintext is spoken"
    return NoCommonTls(words_of(error), file, advice)


def refusal(address: str, answer: RemotingCommand) -> str:
    """Return what an answer says that is no success."""
    return f"{address} answers with code {answer.code} {answer.remark or ''}".rstrip()


def place_of(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; a name server's port without one. Raises ValueError."""
    has_port = ":" in address and not address.endswith("]")
    place = host_port(address if has_port else f"{address}:{PORT_DEFAULT}")
    if place is None:
        raise ValueError(f"{address[:100]!r} is not HOST:PORT")
    return place


def properties(body: bytes | memoryview) -> dict[str, str]:
    """`name=value` lines, as MixAll.properties2String writes them."""
    pairs = [line.partition("=") for line in bytes(body).decode("utf-8", "replace").splitlines() if "=" in line]
    return {name.strip(): value.strip() for name, _, value in pairs}
