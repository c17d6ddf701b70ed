"""What can go wrong in a running broker, as its users see it.

EngineError
├── BrokerGone         the broker that this producer was connected to has ended
├── MessageIllegal     topic, body or properties break RocketMQ's rules; refused before anything was sent
├── MessagesRefused    the writer could not append: disk full, failed fsync
├── ServiceNotAvailable the disk is read-only or full: refused before anything was sent
├── SendTimeout        no answer within the time; the message may still be appended
├── BatchIncomplete    a batch that did not fit the ring in time; says how many of its messages were published
└── StartRefused       the broker cannot start as configured
"""

from __future__ import annotations

import errno
import os


class EngineError(Exception):
    """Base of the engine's errors; `code` is stable, the text is for people."""

    code = "ENGINE"


class BrokerGone(EngineError):
    """Raised when the broker of a producer has ended, or another one has taken its place."""

    code = "BROKER_GONE"

    def __init__(self, store: str, pid: int) -> None:
        super().__init__(
            f"{store}: the broker (process {pid}) has ended; what was not acknowledged may or may not be in the log. "
            "Make a new Producer once it runs again"
        )


class MessageIllegal(EngineError):
    """Raised before sending, for a message that RocketMQ would refuse too."""

    code = "MESSAGE_ILLEGAL"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}; nothing was sent")


class MessagesRefused(EngineError):
    """Raised when the writer refused messages; they are not in the log and will not be."""

    code = "MESSAGES_REFUSED"

    def __init__(self, store: str, count: int, because: int) -> None:
        hint = {
            errno.ENOSPC: "the disk is full: make room, the broker goes on by itself",
            errno.EIO: "a flush to disk failed: make sure of the disk, then restart the broker",
            errno.EMSGSIZE: "with its queue offsets its record or its properties are too long: name fewer queues",
            errno.EBADMSG: "the record in the ring was damaged: the producer's memory is not sound",
        }.get(because, "see the broker's log")
        reason = os.strerror(because) if because else "unknown reason"
        super().__init__(f"{store}: {count} message(s) refused, not in the log: {reason}; {hint}")
        self.count, self.errno = count, because


class ServiceNotAvailable(EngineError):
    """Raised before sending while the broker's disk is read-only or full; the broker takes messages again by itself."""

    code = "SERVICE_NOT_AVAILABLE"

    def __init__(self, store: str, state: str, used_percent: int) -> None:
        super().__init__(
            f"{store}: the store is not writable: its disk is {state} (used to {used_percent} %); nothing was sent. "
            "Messages are taken again once old files are deleted or there is more room: see fileReservedTime, "
            "diskSpaceWarningLevelRatio, `slipstream status STORE`"
        )
        self.state = state


class InSyncReplicasNotEnough(EngineError):
    """Raised before sending while fewer replicas are in sync than a put of this broker must wait for."""

    code = "IN_SYNC_REPLICAS_NOT_ENOUGH"

    def __init__(self, store: str, in_sync: int, needed: int) -> None:
        super().__init__(
            f"{store}: {in_sync} of the {needed} replicas that a message needs are in sync, the master counted; "
            "nothing was sent. Look at the slaves with `slipstream ha status STORE`, or lower minInSyncReplicas"
        )
        self.in_sync, self.needed = in_sync, needed


class SendTimeout(EngineError):
    """Raised when the writer did not take a message within the caller's time."""

    code = "SEND_TIMEOUT"

    def __init__(self, store: str, waited_ms: int) -> None:
        super().__init__(
            f"{store}: no answer from the writer after {waited_ms} ms; the message is in its ring and may yet "
            "be appended. See `slipstream status STORE`"
        )


class BatchIncomplete(EngineError):
    """Raised when only the first `published` messages of a batch found room in the ring within the caller's time."""

    code = "BATCH_INCOMPLETE"

    def __init__(self, store: str, published: int, count: int, waited_ms: int) -> None:
        super().__init__(
            f"{store}: the first {published} of {count} messages were sent, no room for the rest after {waited_ms} ms; "
            "send the rest again, or give more time"
        )
        self.published = published


class StartRefused(EngineError):
    """Raised when a broker cannot start."""

    code = "START_REFUSED"

    def __init__(self, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{what}: {why}; {remedy}")
