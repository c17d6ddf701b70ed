"""What can go wrong with bytes on disk: every error names what, where, why and what to do.

StoreError
├── CorruptRecord        a record fails its own checks
│   └── BitRot           … with sound records behind it, or below what was on disk: never cut off
├── MalformedData        bytes that are not of the format they should be (compressed body, properties, frame)
├── MalformedConfig      a file of `config` that is not what RocketMQ's brokers write
├── OffsetOutOfRange     asked for bytes before the oldest segment or behind the end
├── NotAStore            the directory does not hold a store
├── AccessDenied         this process's user may not read (or write) a file of the store
├── OwnFileDamaged       a small Slipstream file beside the store is not as it was written
├── ForeignFile          something else has the name of one of the store's files
├── SegmentSizeMismatch  a file of the log has another length than its store's segments
├── MissingSegment       the log has a gap
├── SegmentRemoved       a file of the log went while it was to be read: mostly it expired
├── QueueEntriesRemoved  … entries of a consume queue
├── QueueFileMismatch    a consume queue's files do not fit together
├── QueueGap             a consume queue lacks entries
├── IndexFileDamaged     an index file contradicts itself
├── NotOnDisk            the disk does not take what the log holds
├── StoreLocked          another broker owns the store
├── NoBroker             no broker runs on the store
│   └── BrokerOutOfReach … or its shared memory is not to be seen from here
├── InvalidMessage       a message that the format cannot hold
└── PropertiesTooLarge   properties that do not fit a record
"""

from __future__ import annotations


class StoreError(Exception):
    """Base class of the store's errors; programs may match `code`, which is stable.

    Next: `slipstream log verify STORE`; the error says what is wrong and where.
    """

    code = "STORE_ERROR"


class CorruptRecord(StoreError):
    """Raised for a record that fails its checks; the log is sound up to `offset`.

    Next: `slipstream log verify STORE`, then `slipstream log repair --from REPLICA STORE`.
    """

    code = "CORRUPT_RECORD"

    def __init__(
        self, path: str, offset: int, reason: str, advice: str = "compare this segment with a replica's"
    ) -> None:
        place = f"{path}: " if path else ""
        super().__init__(f"{place}record at offset {offset}: {reason}; {advice}")
        self.path, self.offset, self.reason = path, offset, reason


class MalformedData(StoreError):
    """Raised for bytes that do not have the format that they should have.

    Next: `slipstream log find --offset OFFSET STORE` shows the message and its sender; the record is as it was
    sent.
    """

    code = "MALFORMED_DATA"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}; the record is stored as its sender made it; ask the sender")
        self.what, self.reason = what, reason


class MalformedConfig(StoreError):
    """Raised for a file in the broker's `config` directory that cannot be read.

    Next: restore the file, or remove it; the broker then reads its `.bak`.
    """

    code = "MALFORMED_CONFIG"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}; restore the file, or remove it; the broker then reads its .bak, if any")
        self.path, self.reason = path, reason


class OffsetOutOfRange(StoreError):
    """Raised for an offset outside of the log: already deleted, or not yet written.

    Next: `slipstream log stat STORE` says which offsets the log holds.
    """

    code = "OFFSET_OUT_OF_RANGE"

    def __init__(self, path: str, offset: int, min_offset: int, max_offset: int) -> None:
        super().__init__(
            f"{path}: offset {offset} is outside the log, which holds {min_offset} up to {max_offset};"
            " start at an offset in that range"
        )
        self.path, self.offset, self.min_offset, self.max_offset = path, offset, min_offset, max_offset


class NotAStore(StoreError):
    """Raised for a directory or file that is not a store or a part of one.

    Next: give the directory that holds `commitlog`: the broker's `storePathRootDir`.
    """

    code = "NOT_A_STORE"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: not a store: {reason}; give the directory that holds `commitlog`")
        self.path, self.reason = path, reason


class AccessDenied(StoreError, PermissionError):
    """Raised for a file or directory that this process's user may not open.

    Next: add this user to the group that the error names, or set `storeGroup` and restart the broker.
    """

    code = "ACCESS_DENIED"

    def __init__(self, path: str, user: int, owner: int, group: int, mode: int) -> None:
        super().__init__(
            f"{path}: user {user} may not open it: it belongs to user {owner} and group {group}, mode {mode:04o}; add"
            f" user {user} to group {group}, or set storeGroup in the broker's file to a group of that user and restart"
            " the broker"
        )
        self.path = path


class ForeignFile(StoreError):
    """Raised for a file of the wrong kind where one of the store's files should be.

    Next: move the file away; nothing was changed.
    """

    code = "FOREIGN_FILE"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}; move it away, nothing was changed")
        self.path, self.what = path, what


class OwnFileDamaged(StoreError):
    """Raised for a damaged file that Slipstream wrote next to RocketMQ's files.

    Next: do what the end of the error says; the log itself is not affected.
    """

    code = "OWN_FILE_DAMAGED"

    def __init__(self, path: str, reason: str, advice: str) -> None:
        super().__init__(f"{path}: {reason}; {advice}")
        self.path, self.reason = path, reason


class SegmentSizeMismatch(StoreError):
    """Raised for a file of the log whose size differs from the segment size of its store.

    Next: set `mappedFileSizeCommitLog` to the size that the store was made with; `ls -l STORE/commitlog` shows it.
    """

    code = "SEGMENT_SIZE_MISMATCH"

    def __init__(self, path: str, found_bytes: int, expected_bytes: int) -> None:
        super().__init__(
            f"{path}: {found_bytes} bytes long, but segments here have {expected_bytes};"
            " set mappedFileSizeCommitLog to the size the store was made with, or restore the file from a replica"
        )
        self.path, self.found_bytes, self.expected_bytes = path, found_bytes, expected_bytes


class MissingSegment(StoreError):
    """Raised for a missing segment between two others.

    Next: restore the file from a replica, then `slipstream log verify STORE`.
    """

    code = "MISSING_SEGMENT"

    def __init__(self, path: str, offset: int) -> None:
        super().__init__(f"{path}: missing, the log has a gap at offset {offset}; restore the file from a replica")
        self.path, self.offset = path, offset


class SegmentRemoved(StoreError, FileNotFoundError):
    """Raised when a segment that a reader needs no longer exists.

    Next: read again from the present beginning of the log; keep messages longer than a read takes
    (`fileReservedTime`).
    """

    code = "SEGMENT_REMOVED"

    def __init__(self, path: str, base_offset: int) -> None:
        super().__init__(
            f"{path}: the segment at offset {base_offset} was deleted during the read, or is not on this host; read"
            " again from the present beginning of the log, or keep messages longer than a read takes (fileReservedTime)"
        )
        self.path, self.base_offset = path, base_offset


class QueueEntriesRemoved(StoreError):
    """Raised when queue entries that a reader needs no longer exist.

    Next: read again; keep messages longer than a read takes (`fileReservedTime`).
    """

    code = "QUEUE_ENTRIES_REMOVED"

    def __init__(self, path: str, start: int, end: int) -> None:
        super().__init__(
            f"{path}: some of entries {start} to {end} are gone: their messages expired; read again, or keep"
            " messages longer than a read takes (fileReservedTime)"
        )
        self.path, self.start, self.end = path, start, end


class StoreLocked(StoreError):
    """Raised when another process has locked the store.

    Next: `slipstream status STORE` names the broker that runs there; stop that one first.
    """

    code = "STORE_LOCKED"

    def __init__(self, path: str, owner_pid: int | None) -> None:
        owner = f"process {owner_pid}" if owner_pid is not None else "another process"
        super().__init__(f"{path}: locked by {owner}; stop the broker that runs on this store first")
        self.path, self.owner_pid = path, owner_pid


class NoBroker(StoreError):
    """Raised when no broker runs on the store.

    Next: `slipstream broker -c FILE`.
    """

    code = "NO_BROKER"

    def __init__(self, path: str, reason: str = "no broker runs on this store") -> None:
        super().__init__(f"{path}: {reason}; start one with `slipstream broker -c FILE`")
        self.path, self.reason = path, reason


class BrokerOutOfReach(NoBroker):
    """Raised when the shared memory of a running broker cannot be reached from this process.

    Next: give this process the broker's shared memory (docker: `--ipc`, or the same `-v` on both sides), or set
    `regionPath`.
    """

    code = "BROKER_OUT_OF_REACH"

    def __init__(self, path: str, region_directory: str) -> None:
        self.path, self.region_directory = path, region_directory
        self.reason = (
            f"a broker runs on this store, but its shared memory {region_directory} cannot be reached from here"
            " (another container or machine?)"
        )
        parent = region_directory.rpartition("/")[0] or "/"
        StoreError.__init__(
            self,
            f"{path}: {self.reason}; give this process the broker's {parent} (docker: --ipc, or -v {parent}:{parent} on"
            " both sides), or set regionPath to a directory that both can reach",
        )


class InvalidMessage(StoreError):
    """Raised for a message that does not fit the record format.

    `thrown` is the exception of RocketMQ's broker, which checks less.

    Next: change the message as the error says; nothing was sent.
    """

    code = "MESSAGE_ILLEGAL"

    def __init__(self, field: str, reason: str, thrown: str | None = None) -> None:
        super().__init__(f"message refused: {field}: {reason}; change the message")
        self.field, self.reason, self.thrown = field, reason, thrown


class PropertiesTooLarge(StoreError):
    """Raised when the properties of a message, including those that the broker adds, exceed the limit of a record.

    Next: shorten the properties; nothing was sent.
    """

    code = "PROPERTIES_SIZE_EXCEEDED"

    def __init__(self, found_bytes: int, max_bytes: int) -> None:
        super().__init__(
            f"message refused: its properties and those that the broker adds have {found_bytes} bytes, the limit is"
            f" {max_bytes}; shorten the properties"
        )
        self.found_bytes, self.max_bytes = found_bytes, max_bytes


class QueueFileMismatch(StoreError):
    """Raised when the files of a consume queue have different sizes or leave a gap. Recovery rebuilds such a queue.

    Next: set the key that the error names, or `slipstream log rebuild queue STORE` while no broker runs.
    """

    code = "QUEUE_FILE_MISMATCH"

    def __init__(
        self, path: str, found_bytes: int, expected_bytes: int, key: str = "mappedFileSizeConsumeQueue"
    ) -> None:
        super().__init__(
            f"{path}: {found_bytes} bytes at this name, but the queue's files have {expected_bytes} each, without gaps;"
            f" set {key} to the size they were made with, or remove the queue's directory,"
            " and the next start rebuilds it from the log"
        )
        self.path, self.found_bytes, self.expected_bytes = path, found_bytes, expected_bytes


class QueueGap(StoreError):
    """Raised when a consume queue lacks entries of records in the log. Recovery rebuilds such a queue.

    Next: restart the broker, whose recovery rebuilds the queue; or stop it and run `slipstream log rebuild queue
    STORE`.
    """

    code = "QUEUE_GAP"

    def __init__(self, path: str, end: int, queue_offset: int) -> None:
        super().__init__(
            f"{path}: ends at {end}, but the next message of the queue in the log is {queue_offset};"
            " restart the broker, whose recovery rebuilds the queue from the log"
        )
        self.path, self.end, self.queue_offset = path, end, queue_offset


class IndexFileDamaged(StoreError):
    """Raised for an index file with the wrong size or contradictory content. Recovery rebuilds such files.

    Next: `slipstream log rebuild index STORE` while no broker runs.
    """

    code = "INDEX_FILE_DAMAGED"

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(
            f"{path}: byte {offset}: {reason}; check that maxHashSlotNum and maxIndexNum are what the file was made"
            " with; if they are, remove the directory of index files, and the next start rebuilds it from the log"
        )
        self.path, self.offset, self.reason = path, offset, reason


class NotOnDisk(StoreError):
    """Raised when a file of the log cannot be flushed to disk.

    Next: `dmesg | tail` and `df -h STORE`; repair the disk and start again, or restore the segment from a replica.
    """

    code = "NOT_ON_DISK"

    def __init__(self, path: str, because: str) -> None:
        super().__init__(
            f"{path}: cannot be flushed to disk ({because}), nothing was changed; check the disk and start again,"
            " or restore the segment from a replica"
        )
        self.path = path


class BitRot(CorruptRecord):
    """Raised for a damaged record that was on disk or has sound records after it. Recovery never cuts it off.

    Next: `slipstream log repair --from REPLICA STORE`; without a replica `slipstream log repair --cut OFFSET
    --dry-run STORE` says what would be removed.
    """

    code = "BIT_ROT"

    def __init__(self, path: str, offset: int, reason: str, behind: str) -> None:
        text = (
            f"{reason}, and {behind}; nothing was changed. Restore this segment from a replica (`slipstream log repair"
            f" --from`), or give up the log from that offset on (`--cut {offset}`)"
        )
        super().__init__(path, offset, text)
        self.behind = behind
