"""Rows from side files against the same rows in place: columns, conditions, selections, and files not to trust."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_bridge.columnar import opened, reader, rounds, side_file
from spark_bridge.columnar.side_file import COLUMN_NAMES, read_manifest
from spark_bridge.options.rows import RowOptions
from spark_bridge.records import reader as records_reader
from spark_bridge.records.columns import BY_NAME, KAFKA_COLUMNS, Asked
from spark_bridge.scanning import scan
from spark_bridge.split.splits import LogExtent, RangeSplit, Selection
from store.columns import bodies
from store.columns.columns import COLUMNS
from store.errors import CorruptRecord, SegmentRemoved
from store.files import small_files
from store.files.segment import file_name
from store.upkeep.side_files import data_path, manifest_path
from tests.spark_bridge.columnar.side_files import SEGMENT_BYTES, START_MS, make, write_side_files
from tests.spark_bridge.stores import SmallStore, unpack_golden

ALL = [column.name for column in COLUMNS]
ASKED = [column for column in COLUMNS if column.name not in ("body", "properties")]
WITH_SIDE_FILES = RowOptions(side_files=True)


@pytest.fixture(scope="module", params=["made", "rocketmq-4.9.7", "rocketmq-5.3.3"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with side files for all segments that are full, in several row groups."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "made":
        end = make(folder).end
        write_side_files(folder, group_rows=7, end=end)
        return folder
    path = Path(unpack_golden(request.param, "master", folder))
    write_side_files(path, group_rows=64, end=3 * 262144)
    return path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    store = make(tmp_path_factory.mktemp("template"))
    write_side_files(store.root, group_rows=7, end=store.end)
    return store


@pytest.fixture
def made(template: SmallStore, tmp_path: Path) -> SmallStore:
    """A copy, whose side files are as good as the original's."""
    shutil.copytree(template.root, tmp_path / "store")
    return replace(template, root=tmp_path / "store", records=list(template.records))


@pytest.fixture
def compared(made: SmallStore, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Reads one column of all and tells how many pieces of side files were compared with their sums for that."""
    really = side_file.digest_of
    starts: list[int] = []
    monkeypatch.setattr(opened, "digest_of", lambda fd, start, end: starts.append(start) or really(fd, start, end))

    def read_again() -> int:
        starts.clear()
        scan(made.root, columns=["queueId"]).read_all()
        return len(starts)

    return read_again


def either_way(root: Path, **asked: Any) -> tuple[pa.Table, dict[str, int]]:
    """What a scan gives, the same with side files and without; and how many segments came from where."""
    figures: dict[str, int] = {}
    by_side, plain = scan(root, figures=figures, **asked), scan(root, columnarSidecar=False, **asked)
    assert by_side.schema == plain.schema
    rows = by_side.read_all().combine_chunks()
    assert rows.equals(plain.read_all().combine_chunks())
    return rows, figures


def in_three_or_more(figures: dict[str, int]) -> bool:
    return figures["fromSideFiles"] >= 3


def test_dictionaries_hold_the_same_texts(root):
    plain, encoded = (scan(root, dictionaries=asked).read_all() for asked in (False, True))
    assert encoded.schema.field("bornHost").type == pa.dictionary(pa.int32(), pa.string())
    assert encoded.cast(plain.schema).equals(plain)


def test_every_column_is_the_same_alone_and_with_the_others(root):
    rows, figures = either_way(root)
    assert rows.num_rows > 200
    assert in_three_or_more(figures)
    assert figures["inPlace"] == 1, "the segment that is written"
    for column in (*COLUMNS, *KAFKA_COLUMNS, BY_NAME["headers"], BY_NAME["_replica"]):
        assert in_three_or_more(either_way(root, columns=[column.name])[1])
    assert either_way(root, includeSystemTopics=True)[0].num_rows > rows.num_rows
    either_way(root, schema="kafka", includeHeaders=True)
    assert either_way(root, columns=["body", "queueId"], zero_copy=True)[0].schema.field(0).type == pa.binary_view()
    assert either_way(root, columns=["brokerName"])[0].num_rows == rows.num_rows


@pytest.mark.parametrize("column", [column.name for column in ASKED])
def test_conditions_on_a_column_keep_the_same_rows(root, column):
    values = [value for value in scan(root, columns=[column]).read_all()[column].to_pylist() if value is not None]
    for value in {values[len(values) // 2]} if values else {"none"}:
        for operator in ("==", "!=", "<", "<=", ">", ">="):
            figures = either_way(root, columns=["body", column], where=[(column, operator, value)])[1]
            assert figures["inPlace"] <= 1
        either_way(root, columns=["queueOffset"], where=[(column, "in", [value]), ("queueId", "<=", 2)])
        either_way(root, columns=["properties"], where=[(column, "not in", [value])])


SELECTIONS: list[dict[str, Any]] = [
    {"where": [("physicalOffset", ">=", 9000), ("physicalOffset", "<", 30_001)]},
    {"where": [("queueOffset", ">", 3), ("queueOffset", "<=", 20)]},
    {"where": [("bornTimestamp", ">=", "2023-11-14T22:13:20.100+00:00")]},
    {"where": [("storeTimestamp", ">=", "2023-11-14T22:13:20.100+00:00"), ("storeTimestamp", "<", "2035-01-01")]},
    {"topics": ["orders"]},
    {"topics": ["orders", "RMQ_SYS_TRACE_TOPIC"]},
    {"subscribePattern": "(orders|zoo)"},
    {"assign": '{"orders":[1,2],"zoo":[0]}'},
    {"startingOffsets": '{"orders":{"1":5}}', "endingOffsets": '{"orders":{"1":9},"zoo":{"0":3}}'},
    {"topics": ["orders", "zoo"], "startingOffsetsByTimestamp": f'{{"orders":{{"1":{START_MS + 200}}}}}'},
    {"startingTimestamp": str(START_MS + 100), "endingTimestamp": str(START_MS + 350)},
    {"topics": ["orders"], "startingTimestamp": str(START_MS + 100)},
    {"subExpression": "a || c"},
    {"keys": "k8,7F000001"},
    {"where": [("tags", "==", "a"), ("queueId", "in", [0, 3])]},
    {"where": [("brokerName", "!=", "x")]},
    {"maxBytesPerPartition": "5000"},
    {"splitBytes": "4096"},
    {"verifyCrc": "body"},
    {"decode": "json", "mode": "permissive"},
]


@pytest.mark.parametrize("asked", SELECTIONS, ids=str)
@pytest.mark.parametrize("columns", [["topic", "physicalOffset"], ["body", "tags"]], ids=str)
def test_selections_take_the_same_rows(made, asked, columns):
    if asked.get("mode") == "permissive":
        columns = [*columns, "_error"]
    rows, figures = either_way(made.root, columns=columns, **asked)
    assert rows.num_rows
    in_place_only = {"keys", "verifyCrc", "mode", "decode"} & asked.keys()
    assert bool(figures["fromSideFiles"]) is not bool(in_place_only)


def test_bodies_stay_with_their_rows_where_batches_are_cut(made, monkeypatch):
    monkeypatch.setattr(records_reader, "BATCH_BYTES_MAX", 700)
    monkeypatch.setattr(records_reader, "BATCH_ROWS_MAX", 3)
    monkeypatch.setattr(bodies, "INFLATED_BYTES_MAX", 10)
    names = ["physicalOffset", "body", "queueOffset"]
    batches = list(scan(made.root, columns=names))
    assert len(batches) > 80
    for where in (None, [("queueId", ">", 0)], [("storeTimestamp", ">", START_MS_TEXT), ("flag", "==", 1)]):
        assert either_way(made.root, columns=names, where=where)[1]["fromSideFiles"]


def test_what_row_groups_rule_out_is_not_read(made, monkeypatch):
    read: list[tuple[int, tuple[str, ...]]] = []
    really = opened.OpenSide.read

    def spied(self: opened.OpenSide, group: int, names: list[str]) -> pa.Table:
        read.append((group, tuple(names)))
        return really(self, group, names)

    monkeypatch.setattr(opened.OpenSide, "read", spied)
    assert either_way(made.root, columns=["body"], where=[("bornTimestamp", "==", START_MS_TEXT)])[0].num_rows == 1
    assert len(read) == 2, "the group that has it, what is asked of it and then where its record lies"
    read.clear()
    assert not either_way(made.root, columns=["body"], where=[("keys", "==", "k7 k7")])[0].num_rows
    assert all("physicalOffset" not in names for _, names in read if "keys" in names)


START_MS_TEXT = "2023-11-14T22:13:20.095+00:00"
Harm = Callable[[SmallStore], None]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def flip_chunk(name: str, into: int) -> Harm:
    def harm(store: SmallStore) -> None:
        manifest = read_manifest(store.root, SEGMENT_BYTES)
        assert manifest is not None
        assert manifest.data is not None
        _, at, length, _ = manifest.data.chunks([name])[1]
        flip(data_path(store.root, SEGMENT_BYTES), at + into % length)

    return harm


def of_second(change: Callable[[Path, Path], None]) -> Harm:
    """Something done to the Parquet file and the manifest of the second segment."""
    return lambda store: change(data_path(store.root, SEGMENT_BYTES), manifest_path(store.root, SEGMENT_BYTES))


def cut(path: Path, keep: int) -> None:
    os.truncate(path, keep if keep >= 0 else path.stat().st_size + keep)


def rewrite_segment(store: SmallStore) -> None:
    """Another history: the same records with other bodies and queue ids from the second segment on."""
    path = store.root / "commitlog" / file_name(SEGMENT_BYTES)
    data = bytearray(path.read_bytes())
    for offset, *_ in store.records:
        if SEGMENT_BYTES <= offset < 2 * SEGMENT_BYTES:
            data[offset - SEGMENT_BYTES + 15] ^= 1  # the last byte of queueId
    path.write_bytes(data)


def swap(store: SmallStore) -> None:
    for name in (data_path, manifest_path):
        shutil.copy(name(store.root, 0), name(store.root, SEGMENT_BYTES))


def foreign_folder(store: SmallStore) -> None:
    folder = data_path(store.root, 0).parent
    folder.rename(store.root / "elsewhere")
    folder.symlink_to(store.root / "elsewhere")


HARMS: dict[str, tuple[Harm, int]] = {  # and of how many segments less the rows come from side files
    "no manifest": (of_second(lambda data, manifest: manifest.unlink()), 1),
    "no data": (of_second(lambda data, manifest: data.unlink()), 1),
    "truncated": (of_second(lambda data, manifest: cut(data, -1)), 1),
    "empty": (of_second(lambda data, manifest: cut(data, 0)), 1),
    "longer": (of_second(lambda data, manifest: data.write_bytes(data.read_bytes() + b"PAR1")), 1),
    "footer flipped": (of_second(lambda data, manifest: flip(data, -30)), 1),
    "footer's length flipped": (of_second(lambda data, manifest: flip(data, -7)), 1),
    "manifest flipped": (of_second(lambda data, manifest: flip(manifest, 40)), 1),
    "manifest truncated": (of_second(lambda data, manifest: cut(manifest, 10)), 1),
    "manifest a folder": (of_second(lambda data, manifest: (manifest.unlink(), manifest.mkdir())), 1),
    "data a pipe": (of_second(lambda data, manifest: (data.unlink(), os.mkfifo(data))), 1),
    "data a link": (of_second(lambda data, manifest: (data.rename(f"{data}.x"), data.symlink_to(f"{data}.x"))), 1),
    "another segment's": (swap, 1),
    "segment rewritten": (rewrite_segment, 1),
    "folder a link": (foreign_folder, 99),
}


@pytest.mark.parametrize("harm", HARMS, ids=str)
def test_what_cannot_be_trusted_is_read_in_place(made, harm):
    whole = either_way(made.root)[1]
    change, less = HARMS[harm]
    change(made)
    for columns in (ALL, ["queueId"], ["queueOffset", "body"]):
        figures = either_way(made.root, columns=columns)[1]
        assert figures["fromSideFiles"] == max(0, whole["fromSideFiles"] - less), columns
    either_way(made.root, columns=["body"], where=[("queueId", "==", 1)])


@pytest.mark.parametrize(
    ("column", "into"),
    [*zip(COLUMN_NAMES, itertools.cycle((0, 3, 9, -1)), strict=False), ("topic", -1), ("queueId", 9)],
)
def test_a_flipped_byte_of_a_column_is_noticed_by_who_reads_it(made, column, into, caplog):
    flip_chunk(column, into)(made)
    asked = ["body"] if column in ("size", "physicalOffset") else [column]
    rows, figures = either_way(made.root, columns=asked)
    assert rows.num_rows > 200
    assert "read in the segment instead" in caplog.text
    assert figures["inPlace"] == 2, "the last one, and the rest of that one behind its first row group"
    others = [name for name in ("flag", "reconsumeTimes") if name != column]
    if column not in ("sysFlag", "topic"):
        assert either_way(made.root, columns=others)[1]["inPlace"] == 1


def test_a_segment_that_retention_deleted_is_an_error_as_ever(made):
    (made.root / "commitlog" / file_name(0)).unlink()
    rows = either_way(made.root, columns=["queueId"])[0]  # planned without it
    assert rows.num_rows < 270
    split = RangeSplit(extent_of(made), 0, 0, 0, SEGMENT_BYTES, Selection())
    with pytest.raises(SegmentRemoved):
        read(split, ["queueId"])
    loss = RowOptions(side_files=True, fail_on_data_loss=False)
    assert read(split, ["queueId"], loss) == []


def test_a_segment_that_vanishes_between_columns_and_bodies_is_an_error(made, monkeypatch):
    split = RangeSplit(extent_of(made), 0, 0, 0, SEGMENT_BYTES, Selection())
    really = opened.OpenSide.of

    def gone(log: LogExtent, base: int) -> opened.OpenSide | None:
        side = really(log, base)
        (made.root / "commitlog" / file_name(0)).unlink()
        return side

    monkeypatch.setattr(opened.OpenSide, "of", gone)
    with pytest.raises(SegmentRemoved):
        read(split, ["body"])


def test_a_record_that_is_not_the_one_of_its_row_gives_no_body(made):
    """Damage in the segment between the heads that are sampled: told when the record itself is needed."""
    offset = next(at for at, *_ in made.records[2:])
    flip(made.root / "commitlog" / file_name(0), offset + 3)  # its size
    assert either_way_of_side(made, ["queueId"]) > 0
    with pytest.raises(CorruptRecord, match=f"offset {offset}: size"):
        scan(made.root, columns=["body"]).read_all()


def either_way_of_side(store: SmallStore, columns: list[str]) -> int:
    figures: dict[str, int] = {}
    scan(store.root, columns=columns, figures=figures).read_all()
    return figures["fromSideFiles"]


def test_only_segments_below_the_planned_end_come_from_side_files(made):
    """Wherever the log's end lies, inside of a record, too: what is cut is left for the next read."""
    offsets = [at for at in made.offsets if at < SEGMENT_BYTES]
    for end in (offsets[5], offsets[5] + 7, offsets[-1] + 1, SEGMENT_BYTES - 1, SEGMENT_BYTES):
        split = RangeSplit(extent_of(made, end), 0, 0, 0, end, Selection())
        figures = reader.SideFigures()
        asked = Asked.of(["physicalOffset"], RowOptions(side_files=True))
        batches = [batch for job in reader.split_jobs(split, asked, figures) for batch in job()]
        plain = read(split, ["physicalOffset"], RowOptions())
        assert [row for batch in batches for row in batch.to_pylist()] == plain
        assert bool(figures.from_side_files) is (end == SEGMENT_BYTES)


def test_a_tail_that_grows_is_read_in_place_until_it_is_sealed(made):
    before = either_way(made.root, columns=["queueId"])[1]
    for number in range(200):
        made.put("orders", b"more", number % 4)
    after = either_way(made.root, columns=["queueId"])[1]
    assert after["fromSideFiles"] == before["fromSideFiles"]
    assert after["inPlace"] > before["inPlace"]
    write_side_files(made.root, end=made.end)
    assert either_way(made.root, columns=["queueId"])[1]["inPlace"] == 1


def test_bytes_are_compared_once_for_a_file_as_it_is(made, compared):
    assert compared() >= made.end // SEGMENT_BYTES
    assert compared() == 0


def test_a_side_file_is_opened_and_its_footer_read_once_for_a_split(made, monkeypatch):
    opens, footers = Counter[Path](), Counter[int]()
    open_plain, digest_of = small_files.open_plain, side_file.digest_of
    monkeypatch.setattr(small_files, "open_plain", lambda path: opens.update([path]) or open_plain(path))
    monkeypatch.setattr(side_file, "digest_of", lambda fd, at, end: footers.update([end]) or digest_of(fd, at, end))
    columns, figures = ["queueId"], dict[str, int]()
    scan(made.root, columns=columns, figures=figures).read_all()
    paths = [data_path(made.root, base) for base in range(0, made.end - SEGMENT_BYTES + 1, SEGMENT_BYTES)]
    assert [opens[path] for path in paths] == [1] * figures["fromSideFiles"]
    assert all(footers[path.stat().st_size] for path in paths)
    assert sum(footers[size] for size in {path.stat().st_size for path in paths}) == len(paths)


def test_bytes_are_compared_again_where_another_file_has_the_inode_the_time_and_the_size(made, compared):
    """As a copy that keeps its times may, which comes to lie where a deleted one lay."""
    compared()
    again = compared()
    for base in range(0, made.end - SEGMENT_BYTES + 1, SEGMENT_BYTES):
        path = data_path(made.root, base)
        status = path.stat()
        while path.stat().st_ctime_ns == status.st_ctime_ns:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert compared() > again


def test_what_the_builder_of_stores_made_is_read_the_same(made):
    shutil.rmtree(data_path(made.root, 0).parent)
    assert not either_way(made.root)[1]["fromSideFiles"]
    sealed = sum(built.after.state is side_file.State.VALID for built in rounds.build_all(made.root))
    figures = either_way(made.root, includeSystemTopics=True)[1]
    assert figures["fromSideFiles"] == sealed >= 3
    for asked in ({"where": [("tags", "==", "a")]}, {"subExpression": "b"}, {"startingTimestamp": str(START_MS + 99)}):
        assert either_way(made.root, columns=[*ALL, "headers"], **asked)[1]["fromSideFiles"]


def test_polars_and_duckdb_take_them(made):
    import duckdb
    import polars as pl

    log = scan(made.root, columns=["queueId", "bodyLength", "storeTimestamp"])  # noqa: F841 - a table to DuckDB
    plain: Any = pl.from_arrow(scan(made.root, columns=["queueId", "bodyLength"], columnarSidecar=False).read_all())
    ask: Any = duckdb.sql
    assert ask("SELECT sum(bodyLength), count(*) FROM log").fetchall() == [(plain["bodyLength"].sum(), len(plain))]


def extent_of(store: SmallStore, end: int | None = None) -> LogExtent:
    """With its root, as plans have it."""
    end = store.end if end is None else end
    return LogExtent(str(store.root / "commitlog"), SEGMENT_BYTES, 0, end, end, root=str(store.root))


def read(split: RangeSplit, names: list[str], rows: RowOptions = WITH_SIDE_FILES) -> list[dict[str, Any]]:
    return [row for batch in reader.read_split(split, Asked.of(names, rows)) for row in batch.to_pylist()]
