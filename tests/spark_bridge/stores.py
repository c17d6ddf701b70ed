"""Stores for the tests of the bridge: RocketMQ's own, and small ones written record by record."""

from __future__ import annotations

import json
import lzma
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql.pandas.types import to_arrow_schema

from spark_bridge.options.rows import DEFAULT_ROWS, RowOptions
from spark_bridge.records.columns import Asked
from spark_bridge.records.reader import read_split
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.split.splits import LogExtent, Split
from store.files.segment import file_name
from store.message.host import Host
from store.message.record import BLANK_BYTES, blank, encode
from store.queues.consume_queue import CQ_DTYPE, ConsumeQueue

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
GOLDEN_STORES = [(version, name) for version in ("rocketmq-4.9.7", "rocketmq-5.3.3") for name in ("master", "features")]
HOST = Host("10.0.0.7", 10911)

Row = dict[str, Any]


def unpack_golden(version: str, name: str, directory: Path) -> str:
    """RocketMQ's store under `directory`; its root."""
    with tarfile.open(GOLDEN / version / f"{name}-store.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return str(directory / "store")


def golden_lines(version: str, name: str, kind: str) -> list[Row]:
    """The manifest's lines of one kind, as RocketMQ's own classes printed them."""
    with lzma.open(GOLDEN / version / f"{name}-manifest.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [line for line in map(json.loads, lines) if line["kind"] == kind]


def expected_host(text: str) -> str:
    """The manifest writes "address|port"."""
    address, port = text.rsplit("|", 1)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@dataclass
class SmallStore:
    """A store in the making: every record that was put, and where."""

    root: Path
    segment_bytes: int = 4096
    end: int = 0
    records: list[tuple[int, int, str, int, int]] = field(
        default_factory=list
    )  # offset, size, topic, queue, its offset

    def put(self, topic: str, body: bytes = b"body", queue_id: int = 0, **fields: Any) -> int:
        """Append a message (and a blank record where it does not fit); its physical offset."""
        queue_offset = sum(1 for _, _, t, q, _ in self.records if (t, q) == (topic, queue_id))
        place = {"topic": topic, "queue_id": queue_id, "queue_offset": queue_offset, "born_host": HOST, **fields}
        place = {"store_host": HOST, **place}
        size = len(encode(body=body, physical_offset=0, **place))
        rest = self.segment_bytes - self.end % self.segment_bytes
        if size + BLANK_BYTES > rest:
            self._write(blank(rest))
            self.end += rest
        offset = self.end
        self._write(encode(body=body, physical_offset=offset, **place))
        self.end += size
        self.records.append((offset, size, topic, queue_id, queue_offset))
        return offset

    def _write(self, data: bytes) -> None:
        base = self.end - self.end % self.segment_bytes
        path = self.root / "commitlog" / file_name(base)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = bytearray(path.read_bytes() if path.exists() else self.segment_bytes)
        content[self.end - base : self.end - base + len(data)] = data
        path.write_bytes(content)

    def dispatch(self) -> None:
        """Build the consume queues of all records."""
        for offset, size, topic, queue_id, queue_offset in self.records:
            directory = self.root / "consumequeue" / topic / str(queue_id)
            queue = ConsumeQueue.open(directory, 20 * 64)
            entry = np_entry(offset, size)
            queue.append(queue_offset, entry)

    def extent(self, reput: int | None = None, end: int | None = None) -> LogExtent:
        """The log's ends, the reput limit by default at the end."""
        end = self.end if end is None else end
        return LogExtent(str(self.root / "commitlog"), self.segment_bytes, 0, end if reput is None else reput, end)

    @property
    def offsets(self) -> list[int]:
        """Where every record starts."""
        return [offset for offset, *_ in self.records]


def np_entry(offset: int, size: int) -> bytes:
    """One entry of a consume queue."""
    return np.array([(offset, size, 0)], CQ_DTYPE).tobytes()


def read_rows(splits: list[Split], names: list[str] | None = None, rows: RowOptions = DEFAULT_ROWS) -> list[Row]:
    """What executors would give Spark, and in which batches it would not matter."""
    asked = Asked.of(names, rows, to_arrow_schema(schema_of(names, rows), timezone="UTC"))
    batches = [batch for split in splits for batch in read_split(split, asked)]
    return [row for batch in batches for row in batch.to_pylist()]
