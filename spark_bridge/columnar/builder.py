"""Builds the side file of one sealed segment: Parquet file first, manifest last, both whole or not there.

It works in small steps, so that its caller can beat a heartbeat, show progress and stop between them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ipc.clock import wall_ms
from ipc.module_names import DISTRIBUTION, version_here
from spark_bridge.columnar import side_file
from spark_bridge.columnar.parquet_writer import ParquetFile
from spark_bridge.columnar.segment_rows import SegmentRows, Unfit
from spark_bridge.columnar.side_file import DataFile, Manifest
from spark_bridge.records.scan import LogWindow
from store.epochs import INT64_MAX, TEXT_MAX
from store.errors import CorruptRecord
from store.files import file_io
from store.files.segment import Segment, file_name
from store.files.segment_files import SegmentFiles
from store.upkeep import side_files


def build(root: Path | str, files: SegmentFiles, base_offset: int, compat: str) -> Iterator[int]:
    """Build, or build anew, the side file of that segment; yields how many bytes of the segment are done.

    A segment that cannot have one gets a manifest that says why. The caller holds the folder (`side_files.hold`), and
    knows that the segment is sealed. Raises SegmentRemoved, SegmentSizeMismatch, and OSError (ENOSPC): then nothing
    that was not whole is left.
    """
    path = side_files.data_path(root, base_offset)
    with files.open(base_offset) as segment:
        status = os.fstat(segment.fd)
        rows = SegmentRows(LogWindow(str(segment.path), base_offset, segment.array, segment.end_offset))
        data, why_not = None, ""
        writing = ParquetFile(path)
        try:
            for batch in rows.batches():
                writing.add(batch)
                yield rows.done_bytes
            data = writing.finish(path)
            side_files.give_to_owner(root, path)
        except (Unfit, CorruptRecord) as error:
            why_not = _in_one_line(error)
        finally:
            writing.close()
        manifest = _manifest(segment, status, rows, data, why_not, compat)
    side_file.write_manifest(root, base_offset, manifest)
    made = side_files.manifest_path(root, base_offset)
    os.chmod(made, file_io.FILE_MODE)
    side_files.give_to_owner(root, made)
    if data is None:
        file_io.unlink(path)  # of another time
    yield segment.size_bytes


def _manifest(
    segment: Segment, status: os.stat_result, rows: SegmentRows, data: DataFile | None, why_not: str, compat: str
) -> Manifest:
    base, is_whole = segment.base_offset, data is not None
    return Manifest(
        segment=file_name(base),
        segment_bytes=segment.size_bytes,
        inode=status.st_ino & INT64_MAX,
        mtime_ns=max(0, status.st_mtime_ns),
        rows=rows.rows if is_whole else 0,
        not_for_queues=rows.not_for_queues if is_whole else 0,
        first_offset=rows.first_offset if is_whole else base,
        last_offset=rows.last_offset if is_whole else base,
        end_offset=rows.end_offset if is_whole else base,
        topics=rows.topics if is_whole else None,
        samples=rows.samples() if is_whole else (),
        why_not=why_not,
        compat=compat,
        made_by=_program(),
        made_ms=wall_ms(),
        data=data,
    )


def _in_one_line(error: Exception) -> str:
    text = "".join(one if one.isprintable() else "?" for one in str(error))
    return text[:TEXT_MAX]


def _program() -> str:
    return f"{DISTRIBUTION} {version_here('')}".rstrip()
