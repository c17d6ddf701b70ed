"""What crosses the wire between a master and a slave, and the reasons for which either side hangs up.

Implements: the formats of HAConnection and HAClient (DefaultHAConnection, DefaultHAClient)
spec: ha-protocol, 2 wire format

master → slave   physical_offset i64, body_bytes i32, body   (0 bytes: a heartbeat; bodies are cut anywhere)
slave → master   slave_max_offset i64                        (the first: where to start; the others acknowledge)
Big-endian. Towards RocketMQ nothing else is ever sent: no length prefix, no checksum, no identity; what ours tell each
other when a connection begins is in `hello.py`.
"""

from __future__ import annotations

import errno
from enum import IntEnum, StrEnum
from struct import Struct
from typing import Any, NamedTuple

FRAME_HEADER = Struct(">qi")
FRAME_HEADER_BYTES = FRAME_HEADER.size
REPORT = Struct(">q")
REPORT_BYTES = REPORT.size
assert (FRAME_HEADER_BYTES, REPORT_BYTES) == (12, 8)


# No log is as long: 36 years of a gigabyte a second. What talks in text, or in TLS, is above it.
LOG_OFFSET_MAX = 1 << 60


class OwnWord:
    """An attribute that is one of its object's `words`, an int64 array, so that compiled code works on the same."""

    def __init__(self, index: int) -> None:
        self._index = int(index)

    def __get__(self, owner: Any, _type: object = None) -> int:
        number: int = owner.words.item(self._index)
        return number

    def __set__(self, owner: Any, value: int) -> None:
        owner.words[self._index] = value


class Frame(NamedTuple):
    """One transfer: `body_bytes` of the log from `physical_offset` on; 0 is a heartbeat."""

    physical_offset: int
    body_bytes: int


class CloseReason(IntEnum):
    """Reasons why a connection ended. The numbers are published in counters: never renumber, only append."""

    NONE = 0
    PEER_CLOSED = 1
    HOUSEKEEPING = 2
    STOPPED = 3
    # the slave's reports, judged by the master
    REQUEST_ABOVE_END = 10
    REQUEST_BELOW_MIN = 11
    ACK_NOT_SENT = 12
    ACK_FELL = 13
    GAP = 14
    SLOTS_TAKEN = 15
    KILLED = 16
    NOT_A_SLAVE = 17
    GAVE_WAY = 18
    # the master's frames, judged by the slave
    OFFSET_MISMATCH = 20
    BODY_SIZE = 21
    UNALIGNED_START = 22
    SEGMENT_SIZE = 23
    IMPLAUSIBLE_START = 24
    # the slave's own trouble
    CONNECT_FAILED = 30
    NO_LISTENER = 31
    UNREACHABLE = 32
    CONNECT_TIMEOUT = 33
    NO_ADDRESS = 34
    OWN_ADDRESS = 35
    REFUSED = 36
    LOG_UNREADABLE = 37
    DISK_FAILED = 38
    # who may connect at all
    NOT_ALLOWED = 40
    TLS = 41
    # which history, whose: found when a connection begins
    DIVERGED = 50
    AHEAD = 51
    HANDSHAKE = 52
    SIGNATURE = 53
    OTHER_CLUSTER = 54
    FENCED = 55
    HISTORY_SEARCH = 56


class ReasonCode(StrEnum):
    """The groups of reasons, as people and alarms want them: what to look at first."""

    OK = "OK"
    CLOSED = "CLOSED"
    STOPPED = "STOPPED"
    KILLED = "KILLED"
    TIMEOUT = "TIMEOUT"
    NO_LISTENER = "NO_LISTENER"
    UNREACHABLE = "UNREACHABLE"
    NO_ADDRESS = "NO_ADDRESS"
    REFUSED = "REFUSED"
    NOT_ALLOWED = "NOT_ALLOWED"
    TLS = "TLS"
    GAP = "GAP"
    IDENTITY = "IDENTITY"
    DIVERGED = "DIVERGED"
    SEGMENT_SIZE = "SEGMENT_SIZE"
    AHEAD = "AHEAD"
    FENCED = "FENCED"
    SEARCHING = "SEARCHING"
    UNREADABLE = "UNREADABLE"
    DISK = "DISK"  # this and those below are no end of a connection, but of progress
    BEHIND = "BEHIND"
    NO_REPORT = "NO_REPORT"


CODES = {
    CloseReason.NONE: ReasonCode.OK,
    CloseReason.PEER_CLOSED: ReasonCode.CLOSED,
    CloseReason.HOUSEKEEPING: ReasonCode.TIMEOUT,
    CloseReason.STOPPED: ReasonCode.STOPPED,
    CloseReason.REQUEST_ABOVE_END: ReasonCode.DIVERGED,
    CloseReason.REQUEST_BELOW_MIN: ReasonCode.GAP,
    CloseReason.ACK_NOT_SENT: ReasonCode.IDENTITY,
    CloseReason.ACK_FELL: ReasonCode.DIVERGED,
    CloseReason.GAP: ReasonCode.GAP,
    CloseReason.SLOTS_TAKEN: ReasonCode.REFUSED,
    CloseReason.KILLED: ReasonCode.KILLED,
    CloseReason.NOT_A_SLAVE: ReasonCode.IDENTITY,
    CloseReason.GAVE_WAY: ReasonCode.REFUSED,
    CloseReason.OFFSET_MISMATCH: ReasonCode.DIVERGED,
    CloseReason.BODY_SIZE: ReasonCode.SEGMENT_SIZE,
    CloseReason.UNALIGNED_START: ReasonCode.SEGMENT_SIZE,
    CloseReason.SEGMENT_SIZE: ReasonCode.SEGMENT_SIZE,
    CloseReason.IMPLAUSIBLE_START: ReasonCode.IDENTITY,
    CloseReason.CONNECT_FAILED: ReasonCode.UNREACHABLE,
    CloseReason.NO_LISTENER: ReasonCode.NO_LISTENER,
    CloseReason.UNREACHABLE: ReasonCode.UNREACHABLE,
    CloseReason.CONNECT_TIMEOUT: ReasonCode.TIMEOUT,
    CloseReason.NO_ADDRESS: ReasonCode.NO_ADDRESS,
    CloseReason.OWN_ADDRESS: ReasonCode.IDENTITY,
    CloseReason.REFUSED: ReasonCode.REFUSED,
    CloseReason.LOG_UNREADABLE: ReasonCode.UNREADABLE,
    CloseReason.DISK_FAILED: ReasonCode.DISK,
    CloseReason.NOT_ALLOWED: ReasonCode.NOT_ALLOWED,
    CloseReason.TLS: ReasonCode.TLS,
    CloseReason.DIVERGED: ReasonCode.DIVERGED,
    CloseReason.AHEAD: ReasonCode.AHEAD,
    CloseReason.HANDSHAKE: ReasonCode.IDENTITY,
    CloseReason.SIGNATURE: ReasonCode.IDENTITY,
    CloseReason.OTHER_CLUSTER: ReasonCode.IDENTITY,
    CloseReason.FENCED: ReasonCode.FENCED,
    CloseReason.HISTORY_SEARCH: ReasonCode.SEARCHING,
}
NOT_CONNECTED = {  # by the error of connect()
    errno.ECONNREFUSED: CloseReason.NO_LISTENER,
    errno.EHOSTUNREACH: CloseReason.UNREACHABLE,
    errno.ENETUNREACH: CloseReason.UNREACHABLE,
    errno.EADDRNOTAVAIL: CloseReason.UNREACHABLE,
    errno.EHOSTDOWN: CloseReason.UNREACHABLE,
    errno.ETIMEDOUT: CloseReason.CONNECT_TIMEOUT,
}
# The other side may be back at any moment: tried again soon, then ever more seldom.
TRIED_SOON = frozenset(
    {
        CloseReason.PEER_CLOSED, CloseReason.REFUSED, CloseReason.CONNECT_FAILED, CloseReason.NO_LISTENER,
        CloseReason.UNREACHABLE, CloseReason.CONNECT_TIMEOUT, CloseReason.NO_ADDRESS,
    }
)  # fmt: skip


ADVICE = {
    CloseReason.NONE: "nothing ended",
    CloseReason.PEER_CLOSED: "the other side or the network closed the connection",
    CloseReason.HOUSEKEEPING: "the other side sent nothing for haHousekeepingInterval",
    CloseReason.STOPPED: "this side was stopped",
    CloseReason.REQUEST_ABOVE_END: "the slave has more than the master; compare both logs before you change either",
    CloseReason.REQUEST_BELOW_MIN: "the master has deleted what this slave lacks; move its store away, begin anew",
    CloseReason.ACK_NOT_SENT: "it acknowledged bytes that were never sent to it, so it is not a slave of this master",
    CloseReason.ACK_FELL: "the slave's end moved back while it was connected; check whether its log was truncated",
    CloseReason.GAP: "what the slave lacks expired before it was sent; begin a new store, or keep messages longer",
    CloseReason.OFFSET_MISMATCH: "the master did not continue at this log's end; compare both logs",
    CloseReason.BODY_SIZE: "the frame does not fit its segment; mappedFileSizeCommitLog must be equal on both sides",
    CloseReason.UNALIGNED_START: "a new log must begin with a segment; mappedFileSizeCommitLog must be equal on both",
    CloseReason.SEGMENT_SIZE: "mappedFileSizeCommitLog must be equal on master and slave; nothing was copied",
    CloseReason.IMPLAUSIBLE_START: "no log begins there, or the peer named another offset; is it a master's HA port?",
    CloseReason.SLOTS_TAKEN: "all slots for slaves are taken; stop a slave that is no longer needed",
    CloseReason.KILLED: "the sender of this slave was killed; the slave connects again",
    CloseReason.NOT_A_SLAVE: "not an offset of any log: another program connects to the HA port; the logs are fine",
    CloseReason.GAVE_WAY: "another slave needed the slot: this one was silent, or its address held too many slots",
    CloseReason.CONNECT_FAILED: "cannot connect to the master's HA address; see the error",
    CloseReason.NO_LISTENER: "connection refused: is the master running, is this its haListenPort (listenPort + 1)?",
    CloseReason.UNREACHABLE: "no route to that host; check brokerIP2 of the master, routes and firewalls",
    CloseReason.CONNECT_TIMEOUT: "connection attempt timed out: a firewall, or a host that is down or overloaded",
    CloseReason.NO_ADDRESS: "the master's host name does not resolve; check haMasterAddress and DNS",
    CloseReason.OWN_ADDRESS: "this is the slave's own HA port: set haMasterAddress to its master's",
    CloseReason.REFUSED: "the master closed the connection before its first frame; its log and `ha status` say why",
    CloseReason.LOG_UNREADABLE: "this slave's dispatcher cannot read what was received; `slipstream status` says why",
    CloseReason.DISK_FAILED: "this slave cannot flush its log to disk; `slipstream status` says why, then restart it",
    CloseReason.NOT_ALLOWED: "its address may not follow; if it is one of your replicas, add it to haAllowList here",
    CloseReason.TLS: "haTlsMode must be the same on both sides, and each must trust the other's certificate issuer",
    CloseReason.DIVERGED: "the master's log differs from this one: nothing more is copied until you decide",
    CloseReason.AHEAD: "the master lacks what this log has; wait if it is catching up itself, else compare both logs",
    CloseReason.HANDSHAKE: "unknown version of the greeting; run the same Slipstream version on both sides",
    CloseReason.SIGNATURE: "haSecretFile must name the same secret on master and slave",
    CloseReason.OTHER_CLUSTER: "a broker of another cluster; check haMasterAddress and brokerClusterName",
    CloseReason.FENCED: "another broker was promoted later; the older master must become its slave",
    CloseReason.HISTORY_SEARCH: "searching for the beginning of the master's history; continues by itself",
}


class PeerError(Exception):
    """Raised when the other side breaks the protocol; the connection must be closed.

    Next: `slipstream ha status STORE`; it shows the reason code.
    """

    code = "HA_PEER"

    def __init__(self, reason: CloseReason, offset: int, detail: str) -> None:
        self.reason = reason
        self.offset = offset
        self.detail = f"at offset {offset}: {detail}"
        super().__init__(f"{reason.name} {self.detail}; {ADVICE[reason]}")
