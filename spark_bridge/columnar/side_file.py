"""What a side file is, and whether it may be believed: its columns, its manifest, and the checks before any use.

`check` is cheap and reads no column: manifest (with its own sum), the Parquet file's length, the digest of its footer,
and digests of some records' heads against the segment, which tell a log that was cut and written anew. Parquet's own
page checksums leave out the headers of pages, so the bytes of each column chunk have a sum here, too: `OpenSide`
compares those that a reader is about to use. Nothing else of a side file is trusted, and what fails is read in the log.

Each of `COLUMN_NAMES` but `size` is a `Column` of `spark_bridge.records.columns.COLUMNS`, whose function makes its
values for side files, too. Other names are another `FORMAT`; the topic stays first.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from store.epochs import number_of, require_fields, text_of
from store.errors import StoreError
from store.files import small_files
from store.files.segment import file_name
from store.files.segment_files import SegmentFiles
from store.notes import summed_json
from store.upkeep.side_files import data_path, folder_of, manifest_path, refuse_foreign

FORMAT = 1
COLUMN_NAMES = (
    "topic", "queueId", "queueOffset", "physicalOffset", "size", "msgId", "tags", "keys", "flag", "sysFlag",
    "bornTimestamp", "bornHost", "storeTimestamp", "storeHost", "reconsumeTimes", "bodyLength",
)  # fmt: skip
ROW_GROUP_ROWS_MAX = 1 << 18
ROW_GROUPS_MAX = 1 << 12
ROWS_MAX = (1 << 31) // 64
MANIFEST_BYTES_MAX = 8 << 20
FOOTER_BYTES_MAX = 16 << 20
SAMPLES_MAX = 8
SAMPLE_BYTES_MAX = 4096
TOPICS_MAX, TOPIC_CHARACTERS_MAX = 1000, 255
SUM_HEX_DIGITS = 16  # of the SHA-256 of a column chunk
MAGIC = b"PAR1"
MAGIC_BYTES, FOOTER_TAIL_BYTES = len(MAGIC), 4 + len(MAGIC)  # behind the footer: its length, and the same
READ_BYTES = 1 << 20
SHA256_HEX = re.compile(r"[0-9a-f]{64}")
SUMS_HEX = re.compile(r"(?:[0-9a-f]{16})*")


class State(Enum):
    """The state of a segment's side file; all but VALID are read in the log."""

    VALID = "valid"
    MISSING = "missing"
    STALE = "stale"  # made from other bytes than the segment's
    DAMAGED = "damaged"  # not what was written
    REFUSED = "refused"  # the segment holds what columns cannot say; not tried again while it is the same file


@dataclass(frozen=True, slots=True)
class Sample:
    """One record's head, all before its body: where it lies in the log, how long it is, its SHA-256."""

    offset: int
    head_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file as it was written: the digests of its footer and of all of it; the rows of its row groups.

    `sums` has for each column the sums of its chunks, SUM_HEX_DIGITS for each row group, one behind the other; a
    chunk's bytes begin where the one before ended, row group by row group, each with the columns in their order.
    """

    file_bytes: int
    footer_bytes: int  # the last bytes of the file: footer, its length, magic number
    footer_sha256: str
    sha256: str
    group_rows: tuple[int, ...]
    chunk_bytes: Mapping[str, tuple[int, ...]] = field(repr=False)
    sums: Mapping[str, str] = field(repr=False)

    def chunks(self, names: Sequence[str]) -> list[tuple[str, int, int, str]]:
        """(column, first byte in the file, bytes, sum) of every chunk of these columns."""
        wanted, chunks, at = set(names), [], MAGIC_BYTES
        for group in range(len(self.group_rows)):
            for name in COLUMN_NAMES:
                length = self.chunk_bytes[name][group]
                if name in wanted:
                    begin = group * SUM_HEX_DIGITS
                    chunks.append((name, at, length, self.sums[name][begin : begin + SUM_HEX_DIGITS]))
                at += length
        return chunks


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a side file. Offsets are the log's; `rows` is all records, one row each.

    `not_for_queues` of them are prepared or rolled back (sysFlag); `topics` is None where there are more than
    TOPICS_MAX. `inode` and `mtime_ns` are the segment's when it was read; a copy has others. `why_not` is empty, or
    why there is no Parquet file. `made_ms` is of the wall clock.
    """

    segment: str
    segment_bytes: int
    inode: int
    mtime_ns: int
    rows: int
    not_for_queues: int
    first_offset: int
    last_offset: int
    end_offset: int
    topics: tuple[str, ...] | None = field(repr=False)
    samples: tuple[Sample, ...] = field(repr=False)
    why_not: str
    compat: str
    made_by: str
    made_ms: int
    data: DataFile | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class SideFile:
    """One segment's side file as `check` has found it; `reason` says why it is not valid."""

    state: State
    reason: str
    path: Path
    manifest: Manifest | None

    @property
    def data(self) -> DataFile:
        """The Parquet file of a valid one."""
        assert self.manifest is not None and self.manifest.data is not None
        return self.manifest.data


def check(root: Path | str, commitlog: Path | str, base_offset: int, segment_bytes: int) -> SideFile:
    """Whether the side file of that segment may be believed; reads little, writes nothing, needs no broker.

    The caller knows that all of the segment lies in the log, from its first byte to its last: a side file cannot.
    A valid one's columns are believed once `OpenSide.compare` has compared them. Whatever lies under the names
    is an answer; raises SegmentRemoved, SegmentSizeMismatch and OSError for the segment itself.
    """
    side_file, fd = check_open(root, commitlog, base_offset, segment_bytes)
    if fd is not None:
        os.close(fd)
    return side_file


def check_open(
    root: Path | str, commitlog: Path | str, base_offset: int, segment_bytes: int
) -> tuple[SideFile, int | None]:
    """Check like `check`, and return the Parquet file of a valid one, too: open, to be closed by the caller."""
    path = data_path(root, base_offset)
    try:
        refuse_foreign(folder_of(root))
        manifest = read_manifest(root, base_offset)
    except (ValueError, StoreError, OSError) as error:
        return SideFile(State.DAMAGED, str(error), path, None), None
    if manifest is None:
        return SideFile(State.MISSING, "it was not made yet", path, None), None
    stale = _staleness(manifest, Path(commitlog), base_offset, segment_bytes)
    if stale:
        return SideFile(State.STALE, stale, path, manifest), None
    if manifest.data is None:
        return SideFile(State.REFUSED, manifest.why_not, path, manifest), None
    fd, damage = _opened(path, manifest.data)
    return SideFile(State.DAMAGED if damage else State.VALID, damage, path, manifest), fd


def read_manifest(root: Path | str, base_offset: int) -> Manifest | None:
    """Return what the manifest says, each field checked; None without one. Raises ValueError, AccessDenied, OSError."""
    fields = summed_json.read(manifest_path(root, base_offset), MANIFEST_BYTES_MAX)
    return None if fields is None else _manifest(fields, base_offset)


def write_manifest(root: Path | str, base_offset: int, manifest: Manifest) -> None:
    """Replace it: all or nothing, and on disk when this returns. Raises OSError; ValueError for too large a one."""
    summed_json.write(manifest_path(root, base_offset), _fields(manifest), MANIFEST_BYTES_MAX)


def digest_of(fd: int, start: int, end: int) -> str:
    """The SHA-256 of a part of a file, as far as the file goes. Raises OSError."""
    digest = hashlib.sha256()
    while start < end:
        part = os.pread(fd, min(READ_BYTES, end - start), start)
        if not part:
            break
        digest.update(part)
        start += len(part)
    return digest.hexdigest()


def _staleness(manifest: Manifest, commitlog: Path, base_offset: int, segment_bytes: int) -> str:
    """Return why the manifest is not of the segment there; empty when it is. Raises SegmentRemoved, OSError."""
    fd = SegmentFiles(commitlog, segment_bytes).descriptor(base_offset)
    try:
        if manifest.segment_bytes != segment_bytes:
            return f"it is of a segment of {manifest.segment_bytes} bytes, this one has {segment_bytes}"
        if manifest.data is None:
            status = os.fstat(fd)
            is_same = (status.st_ino, status.st_mtime_ns) == (manifest.inode, manifest.mtime_ns)
            return "" if is_same else "the segment was written after the check"
        for sample in manifest.samples:
            at = sample.offset - base_offset
            if digest_of(fd, at, at + sample.head_bytes) != sample.sha256:
                return f"the record at offset {sample.offset} differs from the one it was made from"
    finally:
        os.close(fd)
    return ""


def _opened(path: Path, data: DataFile) -> tuple[int | None, str]:
    """The Parquet file, open, and an empty text; or None, and why it is not what was written."""
    fd: int | None = None
    try:
        fd = small_files.open_plain(path)
        damage = _footer_damage(fd, data)
    except OSError as error:
        damage = f"it cannot be read ({error.strerror})"
    if damage and fd is not None:
        os.close(fd)
    return None if damage else fd, damage


def _footer_damage(fd: int, data: DataFile) -> str:
    length = os.fstat(fd).st_size
    if length != data.file_bytes:
        return f"it has {length} bytes, {data.file_bytes} were written"
    if os.pread(fd, MAGIC_BYTES, 0) != MAGIC:
        return "it does not begin as a Parquet file"
    if digest_of(fd, data.file_bytes - data.footer_bytes, data.file_bytes) != data.footer_sha256:
        return "its footer has other bytes than were written"
    return ""


def _fields(manifest: Manifest) -> dict[str, Any]:
    return {"format": FORMAT, **asdict(manifest)}


def _manifest(fields: dict[str, Any], base_offset: int) -> Manifest:
    """Make a manifest of its JSON fields. Raises ValueError."""
    if fields.pop("format", None) != FORMAT:
        raise ValueError(f"it is of another format than {FORMAT}")
    require_fields(fields, *Manifest.__slots__)
    samples, topics = fields["samples"], fields["topics"]
    if fields["segment"] != file_name(base_offset):
        raise ValueError("it is of another segment")
    if not isinstance(samples, list) or len(samples) > SAMPLES_MAX:
        raise ValueError("its samples are not a valid list")
    numbers = {
        name: number_of(fields, name)
        for name in ("segment_bytes", "inode", "mtime_ns", "rows", "not_for_queues", "made_ms")
    }
    end = base_offset + numbers["segment_bytes"]
    first, last, behind = (number_of(fields, name) for name in ("first_offset", "last_offset", "end_offset"))
    manifest = Manifest(
        fields["segment"],
        numbers["segment_bytes"],
        numbers["inode"],
        numbers["mtime_ns"],
        numbers["rows"],
        numbers["not_for_queues"],
        first,
        last,
        behind,
        _topics(topics),
        tuple(_sample(one, base_offset, end) for one in samples),
        text_of(fields, "why_not"),
        text_of(fields, "compat"),
        text_of(fields, "made_by"),
        numbers["made_ms"],
        None if fields["data"] is None else _data(fields["data"]),
    )
    if (manifest.data is None) is not bool(manifest.why_not):
        raise ValueError("it names no Parquet file and no reason, or both")
    if manifest.data is not None:
        if not base_offset <= first <= last < behind <= end or not 0 <= manifest.not_for_queues <= manifest.rows:
            raise ValueError("its records do not lie in its segment")
        if not samples or sum(manifest.data.group_rows) != manifest.rows:
            raise ValueError("its rows do not add up")
    return manifest


def _topics(said: Any) -> tuple[str, ...] | None:
    if said is None:
        return None
    if not isinstance(said, list) or len(said) > TOPICS_MAX:
        raise ValueError("its topics are not a valid list")
    if not all(isinstance(one, str) and len(one) <= TOPIC_CHARACTERS_MAX for one in said):
        raise ValueError("its topics are not valid texts")
    return tuple(said)


def _sample(said: Any, base_offset: int, end: int) -> Sample:
    require_fields(said, *Sample.__slots__)
    sample = Sample(number_of(said, "offset", base_offset), number_of(said, "head_bytes", 1), said["sha256"])
    if sample.head_bytes > SAMPLE_BYTES_MAX or sample.offset + sample.head_bytes > end or not _is_sha256(sample.sha256):
        raise ValueError("a sample is invalid")
    return sample


def _data(said: Any) -> DataFile:
    require_fields(said, *DataFile.__slots__)
    rows, lengths, sums = said["group_rows"], said["chunk_bytes"], said["sums"]
    if not _are_numbers(rows, 1, ROWS_MAX) or not 0 < len(rows) <= ROW_GROUPS_MAX:
        raise ValueError("its row groups are invalid")
    for what in (lengths, sums):
        if not isinstance(what, dict) or set(what) != set(COLUMN_NAMES):
            raise ValueError("its columns are not those of this format")
    file_bytes = number_of(said, "file_bytes")
    footer_bytes = number_of(said, "footer_bytes", FOOTER_TAIL_BYTES)
    if not all(_are_numbers(each, 1, file_bytes) and len(each) == len(rows) for each in lengths.values()):
        raise ValueError("its column chunks are invalid")
    digits = SUM_HEX_DIGITS * len(rows)
    if not all(isinstance(each, str) and len(each) == digits and SUMS_HEX.fullmatch(each) for each in sums.values()):
        raise ValueError("its checksums are invalid")
    if MAGIC_BYTES + sum(map(sum, lengths.values())) + footer_bytes != file_bytes or footer_bytes > FOOTER_BYTES_MAX:
        raise ValueError("its parts do not add up to its length")
    if not _is_sha256(said["footer_sha256"]) or not _is_sha256(said["sha256"]):
        raise ValueError("its digests are invalid")
    return DataFile(
        file_bytes,
        footer_bytes,
        said["footer_sha256"],
        said["sha256"],
        tuple(rows),
        {name: tuple(each) for name, each in lengths.items()},
        dict(sums),
    )


def _are_numbers(values: Any, low: int, high: int) -> bool:
    return isinstance(values, list) and all(type(value) is int and low <= value <= high for value in values)


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and SHA256_HEX.fullmatch(value) is not None
