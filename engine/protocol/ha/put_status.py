"""The status of a put: RocketMQ's names, when a put that waits for disk and slaves has which, and for which errno.

Implements: PutMessageStatus, CommitLog.handleDiskFlushAndHA's statuses
spec: ha-protocol, 7 status mapping
"""

from __future__ import annotations

import errno
from enum import Enum
from typing import NamedTuple

from engine.protocol.ha.policy import PutPolicy, replicas_needed


class PutMessageStatus(Enum):
    """RocketMQ's names (5.x spelling); the first four mean that the message is in the log."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the master's log all the same."""
        return self in STORED


STORED = frozenset(
    {
        PutMessageStatus.PUT_OK,
        PutMessageStatus.FLUSH_DISK_TIMEOUT,
        PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
        PutMessageStatus.SLAVE_NOT_AVAILABLE,
    }
)
TOO_LARGE = (errno.EMSGSIZE, errno.EBADMSG)  # what the writer says of a record that it cannot append


def status_of_errno(number: int) -> PutMessageStatus:
    """Return the status for a record that the writer refused with this errno, ENOSPC among others.

    A local producer raises `MessagesRefused` instead, which shows the errno.
    """
    if number in TOO_LARGE:
        return PutMessageStatus.MESSAGE_ILLEGAL
    if number == errno.EIO:  # a flush failed: nothing is acknowledged any more
        return PutMessageStatus.SERVICE_NOT_AVAILABLE
    return PutMessageStatus.CREATE_MAPPED_FILE_FAILED


class Reached(NamedTuple):
    """How far the log is safe: on disk, and on as many replicas as a put needs."""

    flushed_offset: int
    confirm_offset: int
    flush_failed: bool = False  # a failed fsync ends all good news: bytes may be lost


def put_status(
    end_offset: int,
    now_ms: int,
    flush_deadline_ms: int,
    slave_deadline_ms: int,
    reached: Reached,
    in_sync_slaves: int,
    policy: PutPolicy,
) -> PutMessageStatus | None:
    """Return the status of a put that ends at `end_offset`; None: keep waiting.

    `in_sync_slaves` is the number at the moment of the put: 4.9 checks once, then only the deadline counts; 5.x may let
    it decide how many replicas are needed. The slave's bad news overrides the disk's.
    """
    slave = PutMessageStatus.PUT_OK
    needed = replicas_needed(policy, in_sync_slaves)
    if needed > 1 and reached.confirm_offset < end_offset:
        if policy.refuse_without_slave and in_sync_slaves < needed - 1:
            slave = PutMessageStatus.SLAVE_NOT_AVAILABLE
        elif now_ms >= slave_deadline_ms:
            slave = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        else:
            return None
    disk = PutMessageStatus.PUT_OK
    if reached.flush_failed:
        disk = PutMessageStatus.FLUSH_DISK_TIMEOUT
    elif policy.wait_for_flush and reached.flushed_offset < end_offset:
        if now_ms < flush_deadline_ms:
            return None
        disk = PutMessageStatus.FLUSH_DISK_TIMEOUT
    return slave if slave is not PutMessageStatus.PUT_OK else disk
