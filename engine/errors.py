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
    """Base class of the engine's errors; `code` is stable, the text is for people.

    `may_be_appended`: whether the message may be in the log now or later; False: it is not and will not be.

    Next: `slipstream status STORE`; the error says which call failed.
    """

    code = "ENGINE"
    may_be_appended = False


class BrokerGone(EngineError):
    """Raised when the broker of a producer has ended or was replaced by another one.

    Next: `slipstream status STORE`; once a broker runs, call the same Producer again: it attaches to that broker. The
    producer repeats nothing by itself; send unacknowledged messages again if duplicates are acceptable.
    """

    code = "BROKER_GONE"
    may_be_appended = True

    def __init__(self, store: str, pid: int) -> None:
        super().__init__(
            f"{store}: the broker (process {pid}) has ended; unacknowledged messages may or may not be in the log and "
            "are not sent again; this producer attaches to the next broker once it runs"
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
            "Make a new Producer in each process"
        )


class MessageIllegal(EngineError):
    """Raised before sending a message that RocketMQ would refuse, too, with `response_code`.

    Next: change what the error names; nothing was sent.
    """

    code = "MESSAGE_ILLEGAL"
    response_code = ResponseCode.MESSAGE_ILLEGAL

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}; nothing was sent")


class NoPermission(MessageIllegal):
    """Raised before sending to a topic that belongs to the broker or has no write permission.

    Next: `slipstream admin topicRoute -n NAMESRV -t TOPIC` shows the topic's permission; `updateTopic -p 6` opens
    it.
    """

    code, response_code = "NO_PERMISSION", ResponseCode.NO_PERMISSION


class TopicNotExist(MessageIllegal):
    """Raised before sending to a topic that does not exist, while autoCreateTopicEnable=false.

    Next: `slipstream admin updateTopic -b HOST:PORT -t TOPIC`.
    """

    code, response_code = "TOPIC_NOT_EXIST", ResponseCode.TOPIC_NOT_EXIST

    def __init__(self, topic: str) -> None:
        what = "it does not exist, and autoCreateTopicEnable is false; create it with `slipstream admin updateTopic`"
        super().__init__(f"topic {topic}", what)


class QueueIdIllegal(MessageIllegal):
    """Raised before sending to a queue that the topic does not have; `code` is the one of the RocketMQ version.

    Next: use a queue that the topic has, or add queues with `slipstream admin updateTopic`.
    """

    def __init__(self, topic: str, queue_id: int, queue_ids: int, code: int) -> None:
        self.response_code = ResponseCode(code)
        self.code = self.response_code.name
        super().__init__(f"topic {topic!r} queue id {queue_id}", f"the topic has queues 0 to {queue_ids - 1}")


class StoreIllegal(EngineError):
    """Raised when a producer is made with a path that cannot be a store.

    Next: give the directory of a running broker's store.
    """

    code = "STORE_ILLEGAL"

    def __init__(self, store: str, why: str) -> None:
        super().__init__(f"store {store}: {why}; give the directory of a running broker's store")


class MessagesRefused(EngineError):
    """Raised when the writer refused messages; they are not in the log and will not be.

    `earlier`: the writer refused earlier messages, sent without waiting; the present call sent nothing.

    Next: `slipstream status STORE`; free space on a full disk; after a failed flush check the disk and restart.
    """

    code = "MESSAGES_REFUSED"

    def __init__(self, store: str, count: int, because: int, *, earlier: bool = False) -> None:
        hint = {
            errno.ENOSPC: "the disk is full; free some space, and the broker continues by itself",
            errno.EIO: "a flush to disk failed; check the disk, then restart the broker",
            errno.EMSGSIZE: "the record or its properties are too long with all queue offsets; name fewer queues",
            errno.EBADMSG: "the record in the ring was damaged; check the memory of the producer's host",
        }.get(because, "see the broker's log")
        reason = os.strerror(because) if because else "unknown reason"
        which = "earlier message(s)" if earlier else "message(s)"
        now = "; this call sent nothing" if earlier else ""
        super().__init__(f"{store}: {count} {which} refused, not in the log: {reason}; {hint}{now}")
        self.count, self.errno = count, because


class NoQueueLeft(EngineError):
    """Raised before sending to a new queue for which the broker has no room.

    Next: delete unused topics with `slipstream admin deleteTopic` and restart; or enlarge `regionPath`.
    """

    code = "NO_QUEUE_LEFT"

    def __init__(self, store: str, topic: str, queue_id: int, because: int) -> None:
        why = {
            errno.ENOSPC: "the broker has its maximum number of queues; delete unused topics and restart it",
            errno.ENOMEM: "the shared memory (regionPath) is full; enlarge it",
            errno.EDQUOT: "maxLmqConsumeQueueNum light queues exist; raise that key and restart the broker",
        }.get(because, os.strerror(because))
        super().__init__(f"{store}: queue {queue_id} of topic {topic!r} cannot be created: {why}; nothing was sent")
        self.errno = because


class ServiceNotAvailable(EngineError):
    """Raised before sending while the broker's disk is read-only or full.

    Next: `slipstream status STORE` and `df -h STORE`; the broker accepts messages again once there is room.
    """

    code, response_code = "SERVICE_NOT_AVAILABLE", ResponseCode.SERVICE_NOT_AVAILABLE

    def __init__(self, store: str, state: str, used_percent: int) -> None:
        super().__init__(
            f"{store}: the store is not writable: its disk is {state} (used to {used_percent} %); nothing was sent. "
            "The broker accepts messages again once there is room: see fileReservedTime, "
            "diskSpaceWarningLevelRatio, `slipstream status STORE`"
        )
        self.state = state


class NotAMaster(ServiceNotAvailable):
    """Raised when a producer is made on a slave's store, which receives messages only from its master."""

    def __init__(self, store: str, master: str) -> None:
        EngineError.__init__(
            self,
            f"{store}: this is the store of a slave, which copies the log of its master at {master}; nothing was sent. "
            "Make the Producer on the master's host and store",
        )
        self.state = "SLAVE"


class InSyncReplicasNotEnough(EngineError):
    """Raised before sending while fewer replicas are in sync than a put of this broker must wait for.

    Next: `slipstream ha status STORE`; bring a slave back, or lower `minInSyncReplicas`.
    """

    code = "IN_SYNC_REPLICAS_NOT_ENOUGH"

    def __init__(self, store: str, in_sync: int, needed: int) -> None:
        super().__init__(
            f"{store}: {in_sync} of the {needed} replicas that a message needs are in sync, including the master; "
            "nothing was sent. Check the slaves with `slipstream ha status STORE`, or lower minInSyncReplicas"
        )
        self.in_sync, self.needed = in_sync, needed


class SendTimeout(EngineError):
    """Raised when the writer did not answer in time; `may_be_appended` says whether it may still do so.

    Next: `slipstream status STORE`; `may_be_appended` says whether sending again may repeat the message.
    """

    code = "SEND_TIMEOUT"

    def __init__(self, store: str, waited_ms: int, *, may_be_appended: bool) -> None:
        left = "the message is in its ring and may still be appended" if may_be_appended else "nothing was sent"
        super().__init__(
            f"{store}: no answer from the writer after {waited_ms} ms; {left}. See `slipstream status STORE`"
        )
        self.may_be_appended = may_be_appended


class BatchIncomplete(EngineError):
    """Raised when only the first `published` messages of a batch found room in the ring within the caller's time.

    Next: send the messages from number `published` on again, or allow more time.
    """

    code = "BATCH_INCOMPLETE"

    def __init__(self, store: str, published: int, count: int, waited_ms: int) -> None:
        super().__init__(
            f"{store}: the first {published} of {count} messages were sent, no room for the rest after {waited_ms} ms; "
            "send the rest again, or allow more time"
        )
        self.published, self.may_be_appended = published, published > 0


class StartRefused(EngineError):
    """Raised when a broker cannot start.

    Next: do what the end of the error says, and start again: `slipstream broker -c FILE`.
    """

    code = "START_REFUSED"

    def __init__(self, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{what}: {why}; {remedy}")


class StopIncomplete(EngineError):
    """Raised at the end of a stop that did not flush everything to disk, or cannot tell.

    Next: `slipstream log verify STORE`, then start; recovery continues with what is on disk.
    """

    code = "STOP_INCOMPLETE"

    def __init__(self, store: str, what: list[str]) -> None:
        super().__init__(
            f"{store}: not stopped in order: {'; '.join(what)}. The next start recovers what is on disk; if the "
            "cause is not clear, first read the broker's log and run `slipstream log verify STORE`"
        )
