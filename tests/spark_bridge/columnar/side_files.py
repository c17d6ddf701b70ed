"""Side files for the tests of their readers, written apart from the builder that a store has."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_bridge.columnar import side_file
from spark_bridge.columnar.opened import OpenSide, SideDamaged
from spark_bridge.columnar.side_file import COLUMN_NAMES, DataFile, Manifest, Sample, SideFile
from spark_bridge.records.columns import Asked
from spark_bridge.records.walk import walked
from store.columns.window import LogWindow
from store.files.segment import file_name
from store.files.segment_files import SegmentFiles, segment_bytes_of
from store.message.record import SysFlag
from store.names import COMMIT_LOG
from store.upkeep import side_files
from tests.spark_bridge.stores import SmallStore

SEGMENT_BYTES = 8192
START_MS = 1_700_000_000_000
TAGS = (b"", b"TAGS\x01a\x02", b"TAGS\x01b\x02KEYS\x01k7 k8\x02UNIQ_KEY\x017F000001\x02")
FLAGS = (0, int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_COMMIT), int(SysFlag.TRANSACTION_ROLLBACK))
DICTIONARIES = ["topic", "queueId", "tags", "flag", "sysFlag", "bornHost", "storeHost", "reconsumeTimes"]


def damage_of(side_file: SideFile, names: Sequence[str]) -> str:
    """Return what a reader of these columns finds wrong; empty where he believes them."""
    try:
        opened = OpenSide(side_file, os.open(side_file.path, os.O_RDONLY | os.O_CLOEXEC))
    except SideDamaged as error:
        return str(error)
    try:
        opened.compare(names)
    except SideDamaged as error:
        return str(error)
    finally:
        opened.close()
    return ""


def write_side_files(root: Path, group_rows: int = 1 << 18, end: int | None = None) -> list[int]:
    """A side file for each segment below `end`; their bases."""
    commitlog = root / COMMIT_LOG
    files = SegmentFiles(commitlog, segment_bytes_of(commitlog))
    bases = [base for base in files.base_offsets() if end is None or base + files.segment_bytes <= end]
    side_files.make_folder(root)
    for base in bases:
        write_side_file(root, files, base, group_rows)
    return bases


def write_side_file(root: Path, files: SegmentFiles, base: int, group_rows: int = 1 << 18) -> None:
    """The side file of one segment that holds whole records and a blank one."""
    with files.open(base) as segment:
        window = LogWindow(segment.path, base, segment.array, base + files.segment_bytes)
        table, status = _table(window), segment.path
    path = side_files.data_path(root, base)
    pq.write_table(
        table,
        path,
        row_group_size=group_rows,
        compression="none",
        use_dictionary=DICTIONARIES,
        write_page_checksum=True,
        store_schema=False,
    )
    side_file.write_manifest(root, base, _manifest(Path(status), path, table, base, files.segment_bytes))


def _table(window: LogWindow) -> pa.Table:
    names = [name for name in COLUMN_NAMES if name != "size"]
    asked = Asked.of(names)
    batches, sizes = [], []
    for records in walked(window, 0, 0, window.length):
        batches.append(asked.batch_of(records))
        sizes.append(pa.array(records.sizes))
    table = pa.Table.from_batches(batches).append_column("size", pa.chunked_array(sizes, pa.int32()))
    return table.select(COLUMN_NAMES)


def _manifest(segment: Path, path: Path, table: pa.Table, base: int, segment_bytes: int) -> Manifest:
    offsets, sizes = table["physicalOffset"].to_pylist(), table["size"].to_pylist()
    data, raw, log = path.read_bytes(), segment.stat(), segment.read_bytes()
    samples = []
    for at in sorted({0, len(offsets) // 2, len(offsets) - 1}):
        begin = offsets[at] - base
        samples.append(Sample(offsets[at], 80, hashlib.sha256(log[begin : begin + 80]).hexdigest()))
    pending = pc.sum(pc.not_equal(pc.bit_wise_and(table["sysFlag"], 4), 0)).as_py()
    return Manifest(
        file_name(base),
        segment_bytes,
        raw.st_ino,
        raw.st_mtime_ns,
        len(table),
        pending,
        offsets[0],
        offsets[-1],
        offsets[-1] + sizes[-1],
        tuple(sorted(set(table["topic"].to_pylist()))),
        tuple(samples),
        "",
        "5",
        "test",
        0,
        _data(data, pq.ParquetFile(path).metadata),
    )


def _data(data: bytes, metadata: pq.FileMetaData) -> DataFile:
    footer = 8 + int.from_bytes(data[-8:-4], "little")
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    lengths: dict[str, list[int]] = {name: [] for name in COLUMN_NAMES}
    sums: dict[str, list[str]] = {name: [] for name in COLUMN_NAMES}
    at = 4
    for group in groups:
        for number, name in enumerate(COLUMN_NAMES):
            length = group.column(number).total_compressed_size
            lengths[name].append(length)
            sums[name].append(hashlib.sha256(data[at : at + length]).hexdigest()[: side_file.SUM_HEX_DIGITS])
            at += length
    assert at + footer == len(data)
    return DataFile(
        len(data),
        footer,
        hashlib.sha256(data[-footer:]).hexdigest(),
        hashlib.sha256(data).hexdigest(),
        tuple(group.num_rows for group in groups),
        {name: tuple(of) for name, of in lengths.items()},
        {name: "".join(of) for name, of in sums.items()},
    )


def make(root: Path, *, transactions: bool = True) -> SmallStore:
    """300 messages over several segments: tags, keys, transactions, a broker's topic, some compressed."""
    store = SmallStore(root, SEGMENT_BYTES)
    for number in range(300):
        body, sys_flag = (
            bytes([number % 251]) * (number % 90),
            FLAGS[number % 7] if transactions and number % 7 < 4 else 0,
        )
        if number % 10 == 0:
            body, sys_flag = zlib.compress(body), sys_flag | SysFlag.COMPRESSED
        topic = "RMQ_SYS_TRACE_TOPIC" if number % 41 == 0 else ("orders", "returns", "zoo")[number % 5 % 3]
        store.put(
            topic,
            body,
            number % 4,
            sys_flag=int(sys_flag),
            properties=TAGS[number % 3],
            flag=number % 2,
            born_timestamp_ms=START_MS + number,
            store_timestamp_ms=START_MS + 2 * number,
            reconsume_times=number % 3,
        )
    return store
