"""What crosses the wire between a master and a slave, and the reasons for which either side hangs up.

Implements: the formats of HAConnection and HAClient (DefaultHAConnection, DefaultHAClient)
spec: ha-protocol, 2 wire format

master → slave   physical_offset i64, body_bytes i32, body   (0 bytes: a heartbeat; bodies are cut anywhere)
slave → master   slave_max_offset i64                        (the first: where to start; the others acknowledge)
Big-endian. Nothing else is ever sent: no length prefix, no checksum, no identity.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

FRAME_HEADER = Struct(">qi")
FRAME_HEADER_BYTES = FRAME_HEADER.size
REPORT = Struct(">q")
REPORT_BYTES = REPORT.size
assert (FRAME_HEADER_BYTES, REPORT_BYTES) == (12, 8)


class Frame(NamedTuple):
    """One transfer: `body_bytes` of the log from `physical_offset` on; 0 is a heartbeat."""

    physical_offset: int
    body_bytes: int


class CloseReason(IntEnum):
    """Why a connection ended. The numbers are published in counters: never renumber, only append."""

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
    # the master's frames, judged by the slave
    OFFSET_MISMATCH = 20
    BODY_SIZE = 21
    UNALIGNED_START = 22
    # the slave's own trouble
    CONNECT_FAILED = 30


ADVICE = {
    CloseReason.NONE: "nothing ended",
    CloseReason.PEER_CLOSED: "the other side hung up, or the network did",
    CloseReason.HOUSEKEEPING: "the other side said nothing for haHousekeepingInterval",
    CloseReason.STOPPED: "this side stops",
    CloseReason.REQUEST_ABOVE_END: "the slave has more than the master; compare both logs and remove the wrong one",
    CloseReason.REQUEST_BELOW_MIN: "the master no longer keeps what the slave lacks; empty the slave's store",
    CloseReason.ACK_NOT_SENT: "this connection never sent that; whoever acknowledges it is no slave of this master",
    CloseReason.ACK_FELL: "the slave's end went back while it was connected; look for a truncation of its log",
    CloseReason.GAP: "what the slave lacks expired before it was sent; empty its store, or keep messages longer",
    CloseReason.OFFSET_MISMATCH: "the master does not go on from this log's end; compare both logs",
    CloseReason.BODY_SIZE: "it does not fit its segment; mappedFileSizeCommitLog must be equal on master and slave",
    CloseReason.UNALIGNED_START: "a new log begins with a segment; mappedFileSizeCommitLog must be equal on both sides",
    CloseReason.CONNECT_FAILED: "nobody listens on haMasterAddress yet",
}


class PeerError(Exception):
    """Raised when the other side sent what the protocol does not allow; the connection must be closed."""

    code = "HA_PEER"

    def __init__(self, reason: CloseReason, offset: int, detail: str) -> None:
        self.reason = reason
        self.offset = offset
        self.detail = f"at offset {offset}: {detail}"
        super().__init__(f"{reason.name} {self.detail}; {ADVICE[reason]}")
