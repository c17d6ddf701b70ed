"""Who stands at the other end: slipstreams say it when a connection begins; a RocketMQ at either end sees none of it.

    slave  -> master   its first report, four times in one packet (a RocketMQ master takes the last of one read)
    master -> slave    a control frame: the challenge
    slave  -> master   the hello, in words with the sign bit set, which are no offsets
    master -> slave    a control frame: the welcome, or why not; then frames as ever

A control frame's header says offset -1 and a size; RocketMQ's slaves never get one, because they never report four
times at once. Its masters never get a word with the sign bit set, because they send no challenge.

A message is 32 bytes of signature and then JSON. The signature is HMAC-SHA256, with the secret that both sides keep in
a file (haSecretFile), over who speaks, what the other side said last, and the JSON: so none can be used again. Without
a secret it is zeros, and the name is but a claim: it makes one replica of two connections, never two of one.

Both sides also say at which address they answer clients (`remoting`), and a master where its other slaves do
(`peers`): a slave asks there for its master's tables, and both ask there who is the master once they have lost sight of
each other.
An earlier version ignores these fields and does not send them.
Pure: bytes in, bytes out; nonces are passed in.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from enum import IntEnum
from typing import Any, NamedTuple

from engine.protocol.ha.wire import FRAME_HEADER, REPORT, REPORT_BYTES, CloseReason, PeerError
from ipc.host_port import host_port
from store.epochs import Epoch, entries_of, entry_fields

CONTROL_OFFSET = -1  # of a control frame's header
CONTROL_BYTES_MAX = 4096
SIGNATURE_BYTES = 32
UNSIGNED = bytes(SIGNATURE_BYTES)
NONCE_BYTES = 16
REPEATED = 4  # how often a Slipstream slave sends its first report
EPOCHS_MAX = 16  # the newest; a slave keeps those before them
NAME_CHARACTERS_MAX = 255
PEERS_MAX, PEER_CHARACTERS_MAX = 4, 64  # addresses said of others: with all else they fit into one message
DETAIL_CHARACTERS_MAX = 500
LENGTH_BYTES, WORD_PAYLOAD_BYTES = 2, REPORT_BYTES - 1


class WordKind(IntEnum):
    """The first byte of a word that is no offset: what its other seven bytes are."""

    MESSAGE = 0x81  # of a message: its length in two bytes, then the message, then zeros
    FLUSHED = 0x82  # the end of what the slave has on its disk


class Identity(NamedTuple):
    """A broker of a cluster, by the name that a name server knows."""

    cluster: str
    broker_name: str
    broker_id: int

    @property
    def text(self) -> str:
        """Return the identity as text, `brokerName:brokerId`."""
        return f"{self.broker_name}:{self.broker_id}"

    @property
    def number(self) -> int:
        """Return the identity as one word: positive, and different for every broker."""
        whole = f"{self.cluster}\n{self.broker_name}\n{self.broker_id}".encode()
        return int.from_bytes(hashlib.blake2b(whole, digest_size=8).digest(), "big") >> 2 | 1


class Introduction(NamedTuple):
    """What a broker says of itself and of its log."""

    identity: Identity
    min_offset: int
    end_offset: int
    epochs: tuple[Epoch, ...] = ()
    remoting: str = ""  # HOST:PORT; "" from an earlier version
    peers: tuple[str, ...] = ()

    @property
    def last_epoch(self) -> int:
        """The newest epoch that its log knows; 0 for one that has never seen a promotion."""
        return self.epochs[-1].epoch if self.epochs else 0


def first_report(offset: int) -> bytes:
    """Return the bytes that a Slipstream slave sends first."""
    return REPORT.pack(offset) * REPEATED


def is_of_ours(reports: bytes) -> bool:
    """Return whether these bytes, all that a slave has sent, are a Slipstream slave's first ones."""
    return len(reports) == REPEATED * REPORT_BYTES and reports == reports[:REPORT_BYTES] * REPEATED


def flushed_word(offset: int) -> bytes:
    """Return what a slave says once it has its log on disk up to there."""
    return bytes([WordKind.FLUSHED]) + offset.to_bytes(WORD_PAYLOAD_BYTES, "big")


def control_frame(message: bytes) -> bytes:
    """A master's message as it goes over the wire."""
    assert len(message) <= CONTROL_BYTES_MAX
    return FRAME_HEADER.pack(CONTROL_OFFSET, len(message)) + message


def words_of(message: bytes) -> bytes:
    """A slave's message as it goes over the wire."""
    assert len(message) <= CONTROL_BYTES_MAX
    rest = len(message).to_bytes(LENGTH_BYTES, "big") + message
    rest += bytes(-len(rest) % WORD_PAYLOAD_BYTES)
    pieces = (rest[at : at + WORD_PAYLOAD_BYTES] for at in range(0, len(rest), WORD_PAYLOAD_BYTES))
    return b"".join(bytes([WordKind.MESSAGE]) + piece for piece in pieces)


class Welcome(NamedTuple):
    """The grants of a master: whether it counts what is on the slave's disk alone, and whether puts wait for that;
    whether it proved that it knows the secret."""

    counts_flushed: bool
    is_signed: bool
    puts_wait: bool = False


class Replica(NamedTuple):
    """A slave that has said hello."""

    facts: Introduction
    is_signed: bool


class SlaveGreeting:
    """The slave's side of one connection's beginning."""

    def __init__(self, facts: Introduction, secret: bytes, nonce: bytes, *, is_required: bool = False) -> None:
        """`is_required`: nothing is taken of who has not proved that it knows the secret, nor of RocketMQ's."""
        self._facts, self._secret, self._nonce, self._is_required = facts, secret, nonce, is_required
        self._hello = b""
        self.master: Introduction | None = None
        self.welcome: Welcome | None = None

    def take(self, message: bytes) -> bytes:
        """Return what to answer to a control frame's message. Raises PeerError."""
        said, text = message[:SIGNATURE_BYTES], message[SIGNATURE_BYTES:]
        fields = _fields(text)
        if "refused" in fields:
            why = str(fields.get("why", ""))[:DETAIL_CHARACTERS_MAX]
            raise PeerError(_reason(fields["refused"]), self._facts.end_offset, why)
        if self.master is None:
            return self._answer(text, fields)
        if self.welcome is not None or not self._hello:
            raise _malformed("an unexpected message")
        self._require_newest()
        is_proved = is_signed(self._secret, b"master", self._hello, text, said)
        if self._secret and not is_proved:
            why = "the master does not have the secret of haSecretFile"
            raise PeerError(CloseReason.SIGNATURE, self._facts.end_offset, why)
        counts_flushed = bool(fields.get("flushed"))
        self.welcome = Welcome(counts_flushed, is_proved, counts_flushed and bool(fields.get("waits", True)))
        return b""

    def require_known(self) -> None:
        """Raise PeerError for a master without the required proof, or with an older epoch than this log has seen."""
        if self._is_required and (self.welcome is None or not self.welcome.is_signed):
            why = "the master did not prove that it knows the secret (haSecretRequired)"
            raise PeerError(CloseReason.SIGNATURE, self._facts.end_offset, why)
        self._require_newest()

    def _require_newest(self) -> None:
        if self.master is not None and self.master.last_epoch < self._facts.last_epoch:
            own = self._facts
            why = f"its epoch is {self.master.last_epoch}, this log has seen {own.last_epoch}: another master took over"
            raise PeerError(CloseReason.FENCED, own.end_offset, why)

    def _answer(self, challenge: bytes, fields: dict[str, Any]) -> bytes:
        self.master, own = _introduction_of(fields), self._facts
        if self.master.identity.cluster != own.identity.cluster:
            raise _other_cluster(own.identity, self.master.identity, own.end_offset)
        self._hello = _json(own, self._nonce)
        return words_of(signature(self._secret, b"slave", challenge, self._hello) + self._hello)


class MasterGreeting:
    """The master's side: the challenge is sent first, then `hear` gets each word that is no offset."""

    def __init__(
        self,
        facts: Introduction,
        secret: bytes,
        nonce: bytes,
        *,
        counts_flushed: bool = False,
        puts_wait: bool = True,
        is_required: bool = False,
    ) -> None:
        """`is_required`: who has not proved that it knows the secret is not served, nor are RocketMQ's slaves."""
        self._facts, self._secret, self.is_required = facts, secret, is_required
        self._says = json.dumps({"flushed": counts_flushed, "waits": puts_wait}).encode()
        self._challenge = _json(facts, nonce)
        self._message = b""
        self.replica: Replica | None = None
        self.newer_epoch = 0  # that of a newer master, from one that has proved who it is

    def challenge(self) -> bytes:
        """The control frame that asks who is there."""
        return control_frame(UNSIGNED + self._challenge)

    def hear(self, payload: bytes) -> bytes:
        """The next seven bytes of the slave's message; the frame to answer with, once it is whole. Raises PeerError."""
        if self.replica is not None:
            raise _malformed("a second hello")
        self._message += payload
        length = int.from_bytes(self._message[:LENGTH_BYTES], "big")
        if not SIGNATURE_BYTES < length <= CONTROL_BYTES_MAX:
            raise _malformed(f"a message of {length} bytes")
        if len(self._message) < LENGTH_BYTES + length:
            return b""
        message = self._message[LENGTH_BYTES : LENGTH_BYTES + length]
        self.replica = self._judge(message[:SIGNATURE_BYTES], message[SIGNATURE_BYTES:])
        return self._welcome(message[SIGNATURE_BYTES:])

    def _judge(self, said: bytes, hello: bytes) -> Replica:
        facts = _introduction_of(_fields(hello))
        if facts.identity.cluster != self._facts.identity.cluster:
            raise _other_cluster(self._facts.identity, facts.identity, facts.end_offset)
        is_proved = is_signed(self._secret, b"slave", self._challenge, hello, said)
        if not is_proved and (self.is_required or (self._secret and said != UNSIGNED)):
            why = f"{facts.identity.text} signs with another secret, or with no secret"
            raise PeerError(CloseReason.SIGNATURE, facts.end_offset, why)
        if facts.last_epoch > self._facts.last_epoch:
            self.newer_epoch = facts.last_epoch if is_proved else 0
            why = f"{facts.identity.text} has seen epoch {facts.last_epoch}, this master's is {self._facts.last_epoch}"
            raise PeerError(CloseReason.FENCED, facts.end_offset, why)
        return Replica(facts, is_proved)

    def _welcome(self, hello: bytes) -> bytes:
        return control_frame(signature(self._secret, b"master", hello, self._says) + self._says)


SEEN_BY_SLAVE = {  # a master's reasons, as the slave calls the same
    CloseReason.REQUEST_ABOVE_END: CloseReason.AHEAD,
    CloseReason.REQUEST_BELOW_MIN: CloseReason.GAP,
}


def refusal(error: PeerError) -> bytes:
    """The control frame that tells a slave why it is not served."""
    reason = SEEN_BY_SLAVE.get(error.reason, error.reason)
    text = json.dumps({"refused": reason.name, "why": error.detail[:DETAIL_CHARACTERS_MAX]}).encode()
    return control_frame(UNSIGNED + text)


def signature(secret: bytes, who: bytes, said_before: bytes, text: bytes) -> bytes:
    """Return the proof that who says `text`, in the part `who` and after hearing `said_before`, knows the secret."""
    if not secret:
        return UNSIGNED
    parts = (who, said_before, text)
    whole = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(secret, whole, "sha256")


def is_signed(secret: bytes, who: bytes, said_before: bytes, text: bytes, said: bytes) -> bool:
    """Whether `said` is that signature; never without a secret."""
    return bool(secret) and hmac.compare_digest(signature(secret, who, said_before, text), said)


def _json(facts: Introduction, nonce: bytes) -> bytes:
    identity = facts.identity
    fields = {
        "v": 1,
        "nonce": nonce.hex(),
        "cluster": identity.cluster[:NAME_CHARACTERS_MAX],
        "name": identity.broker_name[:NAME_CHARACTERS_MAX],
        "id": identity.broker_id,
        "min": facts.min_offset,
        "end": facts.end_offset,
        "epochs": [entry_fields(epoch) for epoch in facts.epochs[-EPOCHS_MAX:]],
    }
    if facts.remoting:
        fields |= {"remoting": facts.remoting, "peers": list(facts.peers[-PEERS_MAX:])}
    return json.dumps(fields, ensure_ascii=False).encode()


def _fields(text: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise _malformed("it is not JSON") from None
    if not isinstance(fields, dict):
        raise _malformed("it is not an object")
    return fields


def _introduction_of(fields: dict[str, Any]) -> Introduction:
    texts: list[Any] = [fields.get("cluster"), fields.get("name")]
    numbers: list[Any] = [fields.get(name) for name in ("id", "min", "end")]
    if not all(isinstance(text, str) and 0 < len(text) <= NAME_CHARACTERS_MAX for text in texts):
        raise _malformed("no names")
    if not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
        raise _malformed("not numbers")
    try:
        epochs = entries_of(fields.get("epochs"))
    except ValueError as wrong:
        raise _malformed(str(wrong)) from None
    broker_id, min_offset, end_offset = numbers
    peers = fields.get("peers")
    return Introduction(
        Identity(texts[0], texts[1], broker_id),
        min_offset,
        end_offset,
        epochs,
        _address(fields.get("remoting")),
        tuple(filter(None, map(_address, peers[:PEERS_MAX]))) if isinstance(peers, list) else (),
    )


def _address(said: object) -> str:
    """An address that a stranger says; "" for anything else."""
    is_one = isinstance(said, str) and len(said) <= PEER_CHARACTERS_MAX and host_port(said) is not None
    return str(said) if is_one else ""


def _reason(name: object) -> CloseReason:
    return CloseReason[name] if isinstance(name, str) and name in CloseReason.__members__ else CloseReason.REFUSED


def _malformed(what: str) -> PeerError:
    return PeerError(CloseReason.HANDSHAKE, 0, f"the other side's greeting: {what}")


def _other_cluster(own: Identity, other: Identity, offset: int) -> PeerError:
    why = f"it is {other.text} of cluster {other.cluster}, this is {own.text} of cluster {own.cluster}"
    return PeerError(CloseReason.OTHER_CLUSTER, offset, why)
