"""What to type next for each reason why a connection of replication ended; STORE is the reader's own store.

Apart from `wire.py`, so that a better word here compiles no kernel anew.
"""

from __future__ import annotations

from engine.protocol.ha.wire import ADVICE, CloseReason, ReasonCode

STORE = "STORE"
STATUS = "slipstream ha status STORE"
DOCTOR = "slipstream doctor STORE"
COMPARE = "slipstream replica check STORE --with HOST:PORT"
OTHER_SIDE = "slipstream doctor HOST:PORT"
BEGIN_ANEW = "mv STORE STORE.old; slipstream broker -c FILE"

NEXT = {
    CloseReason.PEER_CLOSED: OTHER_SIDE,
    CloseReason.HOUSEKEEPING: OTHER_SIDE,
    CloseReason.STOPPED: "slipstream broker -c FILE",
    CloseReason.REQUEST_ABOVE_END: COMPARE,
    CloseReason.REQUEST_BELOW_MIN: BEGIN_ANEW,
    CloseReason.ACK_NOT_SENT: DOCTOR,
    CloseReason.ACK_FELL: "slipstream log verify STORE",
    CloseReason.GAP: BEGIN_ANEW,
    CloseReason.SLOTS_TAKEN: STATUS,
    CloseReason.KILLED: "slipstream status STORE",
    CloseReason.NOT_A_SLAVE: DOCTOR,
    CloseReason.GAVE_WAY: STATUS,
    CloseReason.OFFSET_MISMATCH: COMPARE,
    CloseReason.BODY_SIZE: DOCTOR,
    CloseReason.UNALIGNED_START: DOCTOR,
    CloseReason.SEGMENT_SIZE: DOCTOR,
    CloseReason.IMPLAUSIBLE_START: OTHER_SIDE,
    CloseReason.CONNECT_FAILED: OTHER_SIDE,
    CloseReason.NO_LISTENER: OTHER_SIDE,
    CloseReason.UNREACHABLE: "ip route get HOST",
    CloseReason.CONNECT_TIMEOUT: OTHER_SIDE,
    CloseReason.NO_ADDRESS: "getent hosts HOST",
    CloseReason.OWN_ADDRESS: "slipstream admin clusterList -n NAMESRV",
    CloseReason.REFUSED: STATUS,
    CloseReason.LOG_UNREADABLE: "slipstream log verify STORE",
    CloseReason.DISK_FAILED: "slipstream status STORE",
    CloseReason.NOT_ALLOWED: DOCTOR,
    CloseReason.TLS: OTHER_SIDE,
    CloseReason.DIVERGED: COMPARE,
    CloseReason.AHEAD: COMPARE,
    CloseReason.HANDSHAKE: OTHER_SIDE,
    CloseReason.SIGNATURE: DOCTOR,
    CloseReason.OTHER_CLUSTER: OTHER_SIDE,
    CloseReason.FENCED: "slipstream demote STORE",
    CloseReason.HISTORY_SEARCH: STATUS,
}
# Reasons that are no end of a connection: what they mean, and what to type.
PROGRESS = {
    ReasonCode.DISK: ("the disk failed, is full, or has no room for the next segment", "df -h STORE"),
    ReasonCode.BEHIND: ("connected, but more than haSlaveFallbehindMax behind its master", STATUS),
    ReasonCode.NO_REPORT: ("connected, but has not yet reported the end of its log", STATUS),
}
# Where what is to be typed is to be typed on the slave's host, of which the master that tells it has no store.
AT_THE_SLAVE = {
    CloseReason.REQUEST_ABOVE_END, CloseReason.REQUEST_BELOW_MIN, CloseReason.ACK_FELL, CloseReason.GAP,
}  # fmt: skip
AT_THE_MASTER = {CloseReason.REFUSED}


def advice_of(reason: CloseReason, store: str = STORE) -> str:
    """Return what a reason means, and the command to type next: the doctor's where no other is known."""
    if reason is CloseReason.NONE:
        return ADVICE[reason]
    command = NEXT.get(reason, DOCTOR)
    where = " (on the slave)" if reason in AT_THE_SLAVE else " (on the master)" if reason in AT_THE_MASTER else ""
    return f"{ADVICE[reason]}; next: `{command if where else command.replace(STORE, store, 1)}`{where}"
