"""Index files as other versions of RocketMQ write them: with tags (5.4 and later), and with another count of slots."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from store.index import index_kernel, service
from store.index.index_file import HEADER_DTYPE, hash_of
from store.index.index_kernel import PutStop
from store.index.service import IndexService
from store.message import properties
from store.message.record import decode
from store.message.rows_kernel import Row
from store.recovery.dispatch import Dispatcher
from store.verify.finding import Finding
from store.verify.index import IndexCheck
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog

MESSAGES: tuple[dict[str, str], ...] = (
    {"TAGS": "a"}, {"KEYS": "k1 k2", "TAGS": "a"}, {"KEYS": "k3"}, {"UNIQ_KEY": "u", "KEYS": "k4", "TAGS": "tägé"},
    {"TAGS": "ä", "KEYS": "ö"}, {}, {"KEYS": "k5"}, {"UNIQ_KEY": "v", "TAGS": "a b"},
)  # fmt: skip


def log_of(tmp_path: Path) -> SmallLog:
    log = SmallLog(tmp_path / "store")
    for fields in MESSAGES:
        log.append(properties=fields)
    return log


def indexed(log: SmallLog, monkeypatch: pytest.MonkeyPatch, *, tags: bool) -> Path:
    """The log's index, each key put by the hash that Python works out; the file."""
    taken_as_text = index_kernel.keys_of_rows

    def never_in_the_kernel(array: Any, rows: Any, first: int, count: int, *rest: Any) -> tuple[int, int, int]:
        row, number, why = taken_as_text(array, rows, first, first, *rest)
        return (row, number, why) if first == count else (first, int(rest[1]), PutStop.NOT_ASCII)

    def hashes(segment: Any, row: Any) -> list[int]:
        message = decode(segment.view, int(row[Row.POSITION]), check_body_crc=False)
        found = [hash_of(message.topic, key) for key in chain(*properties.keys_of(message.properties))]
        tag = message.properties.get("TAGS")
        return [*found, hash_of(message.topic, f"T#{tag}")] if tags and tag else found

    monkeypatch.setattr(index_kernel, "keys_of_rows", never_in_the_kernel)
    monkeypatch.setattr(service, "_hashes_of", hashes)
    index = IndexService(log.root / "index", 50, 300)
    one = Dispatcher(log.files, log.root / "consumequeue", QUEUE_FILE_BYTES, index=index)
    one.dispatch(0, log.end)
    one.close()
    (path,) = index.files()
    return path


def findings(log: SmallLog) -> tuple[list[Finding], int]:
    check = IndexCheck(log.root / "index", log.files, [0], log.end, live=False, aborted=False, on_progress=lambda: None)
    return list(check.findings()), check.entries


def test_tags_in_the_index_are_sound_and_their_absence_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(tmp_path)
    indexed(log, monkeypatch, tags=True)
    assert findings(log) == ([], 8 + 5)


def test_a_key_without_an_entry_is_found_beside_tags_that_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(tmp_path)
    monkeypatch.setattr(properties, "keys_of", lambda texts: ([], texts.get("KEYS", "").split()[1:]))
    indexed(log, monkeypatch, tags=True)
    monkeypatch.undo()
    found, entries = findings(log)
    assert entries == 1 + 5
    assert [finding.code for finding in found] == ["NOT_IN_INDEX"]


def test_an_entry_of_another_records_tag_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(tmp_path)
    path = indexed(log, monkeypatch, tags=True)
    data = np.memmap(path, np.uint8, "r+")
    first = HEADER_DTYPE.itemsize + 50 * 4 + 20  # of the first message, by its tag
    data[first : first + 4] = np.frombuffer(hash_of("other", "T#a").to_bytes(4, "big"), np.uint8)
    data.flush()
    codes = {finding.code for finding in findings(log)[0]}
    assert "INDEX_ENTRY" in codes


@pytest.mark.parametrize(("slots", "is_sound"), [("used", True), ("entries", True), ("fewer", False), ("more", False)])
def test_versions_before_4_6_count_a_slot_for_each_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: str, is_sound: bool
) -> None:
    log = log_of(tmp_path)
    path = indexed(log, monkeypatch, tags=False)
    header = np.memmap(path, HEADER_DTYPE, "r+", shape=1)
    used, entries = int(header["hash_slot_count"][0]), int(header["index_count"][0]) - 1
    header["hash_slot_count"] = {"used": used, "entries": entries, "fewer": used - 1, "more": entries + 1}[slots]
    header.flush()
    assert (findings(log)[0] == []) == is_sound
