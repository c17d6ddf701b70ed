"""What can go wrong in a running broker, as its users see it.

EngineError
├── BrokerGone         the broker that this producer was connected to has ended
├── ProducerClosed     the producer was closed before
├── ForeignProducer    another process made this producer: it was forked, or the producer pickled
├── MessageIllegal     topic, body or properties break RocketMQ's rules; refused before anything was sent
│   ├── NoPermission   the topic, or the broker, is not to be written to
│   ├── QueueIdIllegal the topic has fewer queues
│   └── TopicNotExist  nobody made the topic, and messages do not (autoCreateTopicEnable=false)
├── StoreIllegal       what is named as a store cannot be a path
├── MessagesRefused    the writer could not append: disk full, failed fsync
├── NoQueueLeft        the broker has as many queues as it can have, or no memory for one more
├── ServiceNotAvailable the disk is read-only or full: refused before anything was sent
│   └── NotAMaster     the store is a slave's
├── SendTimeout        no answer within the time; says whether the message may still be appended
├── BatchIncomplete    a batch that did not fit the ring in time; says how many of its messages were published
├── StartRefused       the broker cannot start as configured
└── StopIncomplete     the broker stopped, and something was lost or may have been
"""

from __future__ import annotations

import errno
import os

from engine.protocol.remoting.codes import ResponseCode


class EngineError(Exception):
    """Base of the engine's errors; `code` is stable, the text is for people.

    `may_be_appended`: whether what was to be sent may be in the log, or come there yet; False: it is not, nor will be.

    Next: `slipstream status STORE`; the text says what was asked for.
    """

    code = "ENGINE"
    may_be_appended = False


class BrokerGone(EngineError):
    """Raised when the broker of a producer has ended, or another one has taken its place.

    Next: `slipstream status STORE`; once a broker runs, call the same Producer again: it attaches to that broker. The
    producer sends nothing again by itself; send again what may be repeated.
    """

    code = "BROKER_GONE"
    may_be_appended = True

    def __init__(self, store: str, pid: int) -> None:
        super().__init__(
            f"{store}: the broker (process {pid}) has ended; what was not acknowledged may or may not be in the log; "
            "nothing is sent again by itself; this producer attaches to the next broker once that runs"
        )


class ProducerClosed(EngineError):
    """Raised by every call of a producer that was closed.

    Next: make a new Producer; nothing was sent.
    """

    code = "PRODUCER_CLOSED"

    def __init__(self, store: str) -> None:
        super().__init__(f"{store}: this producer is closed; nothing was sent. Make a new Producer")


class ForeignProducer(EngineError):
    """Raised by every call of a producer in a process that did not make it, and by pickling one.

    Next: make a Producer in each process, after the fork.
    """

    code = "FOREIGN_PRODUCER"

    def __init__(self, store: str, owner: int) -> None:
        super().__init__(
            f"{store}: this producer belongs to process {owner} and cannot be used by another one; nothing was sent. "
            "Make a Producer of its own in each process"
        )


class MessageIllegal(EngineError):
    """Raised before sending, for a message that RocketMQ would refuse too; `response_code` is what it answers.

    Next: change what the text names; nothing was sent.
    """

    code = "MESSAGE_ILLEGAL"
    response_code = ResponseCode.MESSAGE_ILLEGAL

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}; nothing was sent")


class NoPermission(MessageIllegal):
    """Raised before sending to a topic that is the broker's own, or that may not be written to.

    Next: `slipstream admin topicRoute -n NAMESRV -t TOPIC` shows the topic's permission; `updateTopic -p 6` opens
    it.
    """

    code, response_code = "NO_PERMISSION", ResponseCode.NO_PERMISSION


class TopicNotExist(MessageIllegal):
    """Raised before sending to a topic that nobody made, where messages make none.

    Next: `slipstream admin updateTopic -b HOST:PORT -t TOPIC`.
    """

    code, response_code = "TOPIC_NOT_EXIST", ResponseCode.TOPIC_NOT_EXIST

    def __init__(self, topic: str) -> None:
        what = "not there, and autoCreateTopicEnable is false: create it first, `slipstream admin updateTopic`"
        super().__init__(f"topic {topic}", what)


class QueueIdIllegal(MessageIllegal):
    """Raised before sending to a queue that the topic does not have; `code` is the line's for that.

    Next: name a queue that the topic has, or `slipstream admin updateTopic` with more queues.
    """

    def __init__(self, topic: str, queue_id: int, queue_ids: int, code: int) -> None:
        self.response_code = ResponseCode(code)
        self.code = self.response_code.name
        super().__init__(f"topic {topic!r} queue id {queue_id}", f"the topic has queues 0 to {queue_ids - 1}")


class StoreIllegal(EngineError):
    """Raised when a producer is made for what cannot be a store's directory.

    Next: name the directory of a running broker's store.
    """

    code = "STORE_ILLEGAL"

    def __init__(self, store: str, why: str) -> None:
        super().__init__(f"store {store}: {why}; name the directory of a running broker's store")


class MessagesRefused(EngineError):
    """Raised when the writer refused messages; they are not in the log and will not be.

    `earlier`: it refused messages that were sent before without waiting; what was to be sent now was not.

    Next: `slipstream status STORE`; a full disk needs room, a failed flush a look at the disk and a restart.
    """

    code = "MESSAGES_REFUSED"

    def __init__(self, store: str, count: int, because: int, *, earlier: bool = False) -> None:
        hint = {
            errno.ENOSPC: "the disk is full: make room, the broker goes on by itself",
            errno.EIO: "a flush to disk failed: make sure of the disk, then restart the broker",
            errno.EMSGSIZE: "with its queue offsets its record or its properties are too long: name fewer queues",
            errno.EBADMSG: "the record in the ring was damaged: the producer's memory is not sound",
        }.get(because, "see the broker's log")
        reason = os.strerror(because) if because else "unknown reason"
        which = "message(s) sent before" if earlier else "message(s)"
        now = "; nothing was sent now" if earlier else ""
        super().__init__(f"{store}: {count} {which} refused, not in the log: {reason}; {hint}{now}")
        self.count, self.errno = count, because


class NoQueueLeft(EngineError):
    """Raised before sending, to a queue that the broker has no place for.

    Next: `slipstream admin deleteTopic` for topics that nobody needs, and a restart; or more room at `regionPath`.
    """

    code = "NO_QUEUE_LEFT"

    def __init__(self, store: str, topic: str, queue_id: int, because: int) -> None:
        why = {
            errno.ENOSPC: "the broker has all the queues that it can; delete topics that nobody needs, and restart it",
            errno.ENOMEM: "the shared memory (regionPath) has no room for its place; enlarge that",
            errno.EDQUOT: "there are as many light queues as maxLmqConsumeQueueNum allows; raise that, and restart it",
        }.get(because, os.strerror(because))
        super().__init__(f"{store}: no queue {queue_id} of topic {topic!r} can be made: {why}; nothing was sent")
        self.errno = because


class ServiceNotAvailable(EngineError):
    """Raised before sending while the broker's disk is read-only or full; the broker takes messages again by itself.

    Next: `slipstream status STORE` and `df -h STORE`; once there is room messages are taken again by themselves.
    """

    code, response_code = "SERVICE_NOT_AVAILABLE", ResponseCode.SERVICE_NOT_AVAILABLE

    def __init__(self, store: str, state: str, used_percent: int) -> None:
        super().__init__(
            f"{store}: the store is not writable: its disk is {state} (used to {used_percent} %); nothing was sent. "
            "Messages are taken again once old files are deleted or there is more room: see fileReservedTime, "
            "diskSpaceWarningLevelRatio, `slipstream status STORE`"
        )
        self.state = state


class NotAMaster(ServiceNotAvailable):
    """Raised by making a producer on a slave's store: messages come there from the master alone."""

    def __init__(self, store: str, master: str) -> None:
        EngineError.__init__(
            self,
            f"{store}: this is a slave's store, whose log comes from its master at {master}; nothing was sent. "
            "Send there: with a Producer on the master's host and store",
        )
        self.state = "SLAVE"


class InSyncReplicasNotEnough(EngineError):
    """Raised before sending while fewer replicas are in sync than a put of this broker must wait for.

    Next: `slipstream ha status STORE`; bring a slave back, or lower `minInSyncReplicas`.
    """

    code = "IN_SYNC_REPLICAS_NOT_ENOUGH"

    def __init__(self, store: str, in_sync: int, needed: int) -> None:
        super().__init__(
            f"{store}: {in_sync} of the {needed} replicas that a message needs are in sync, the master counted; "
            "nothing was sent. Look at the slaves with `slipstream ha status STORE`, or lower minInSyncReplicas"
        )
        self.in_sync, self.needed = in_sync, needed


class SendTimeout(EngineError):
    """Raised when the writer did not answer within the caller's time; `may_be_appended` says what that leaves open.

    Next: `slipstream status STORE`; `may_be_appended` says whether sending again may repeat the message.
    """

    code = "SEND_TIMEOUT"

    def __init__(self, store: str, waited_ms: int, *, may_be_appended: bool) -> None:
        left = "the message is in its ring and may yet be appended" if may_be_appended else "nothing was sent"
        super().__init__(
            f"{store}: no answer from the writer after {waited_ms} ms; {left}. See `slipstream status STORE`"
        )
        self.may_be_appended = may_be_appended


class BatchIncomplete(EngineError):
    """Raised when only the first `published` messages of a batch found room in the ring within the caller's time.

    Next: send the rest again (`published` says from where), or give more time.
    """

    code = "BATCH_INCOMPLETE"

    def __init__(self, store: str, published: int, count: int, waited_ms: int) -> None:
        super().__init__(
            f"{store}: the first {published} of {count} messages were sent, no room for the rest after {waited_ms} ms; "
            "send the rest again, or give more time"
        )
        self.published, self.may_be_appended = published, published > 0


class StartRefused(EngineError):
    """Raised when a broker cannot start.

    Next: do what the message ends with, and start again: `slipstream broker -c FILE`.
    """

    code = "START_REFUSED"

    def __init__(self, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{what}: {why}; {remedy}")


class StopIncomplete(EngineError):
    """Raised at the end of a stop that did not bring everything to disk, or cannot say that it did.

    Next: `slipstream log verify STORE`, then start: recovery goes on from what is on disk.
    """

    code = "STOP_INCOMPLETE"

    def __init__(self, store: str, what: list[str]) -> None:
        super().__init__(
            f"{store}: not stopped in order: {'; '.join(what)}. What is on disk is recovered by the next start; if the "
            "cause is not plain, look at the broker's log and run `slipstream log verify STORE` first"
        )
