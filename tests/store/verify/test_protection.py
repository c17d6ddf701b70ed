"""Every byte of a store, changed: the check finds it, or the byte is one that the check itself calls unprotected."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.files import checkpoint
from store.files.segment import Segment
from store.verify import digests
from store.verify.protection import Protection, Span, open_spans
from store.verify.verification import Finding, Verification
from tests.harness.dispatched import dispatch_all
from tests.harness.logs import SmallLog
from tests.store.golden import STORES, unpack

SEGMENT_BYTES = 1024


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments, queues, an index file, a checkpoint of ours, a table: small enough to change every byte of it."""
    log = SmallLog(tmp_path_factory.mktemp("protection") / "store", segment_bytes=SEGMENT_BYTES)
    for number in range(8):
        texts = {"TAGS": f"t{number % 3}", "KEYS": f"k{number} all", "UNIQ_KEY": f"U{number:04d}"}
        body = b"body %d" % number if number != 3 else b""
        log.append("topic", body, queue_id=number % 2, properties=texts if number != 5 else {"other": "x"})
    log.append("half", properties={"TAGS": "h"}, sys_flag=4)
    dispatch_all(log)
    checkpoint.write(log.directory.checkpoint, checkpoint.Checkpoint(1, 2, 3, flushed_offset=0, index_offset=0))
    (log.directory.config / "delayOffset.json").write_text('{"offsetTable":{1:2}}')
    return log.root


def findings(root: Path) -> list[Finding]:
    return list(Verification(root, threads=1).findings())


@dataclass
class Flipped:
    """One byte of one file, changed for a while."""

    path: Path
    position: int
    change: int

    def __enter__(self) -> None:
        self._apply()

    def __exit__(self, *_exc: object) -> None:
        self._apply()

    def _apply(self) -> None:
        with self.path.open("r+b") as file:
            file.seek(self.position)
            (value,) = file.read(1)
            file.seek(self.position)
            file.write(bytes((value ^ self.change,)))


def open_bytes(root: Path) -> dict[Path, np.ndarray]:
    """For each file, which bytes the check declares as none that it can vouch for."""
    masks = {path: np.zeros(path.stat().st_size, np.bool_) for path in root.rglob("*") if path.is_file()}
    for span in open_spans(root):
        masks[span.path][span.start : span.end] = True
    return masks


def protected_places(root: Path) -> Iterator[tuple[Path, int]]:
    for path, mask in sorted(open_bytes(root).items()):
        for position in np.flatnonzero(~mask).tolist():
            yield path, position


def test_the_store_is_sound(store: Path) -> None:
    assert findings(store) == []


@pytest.mark.slow
def test_a_change_of_any_protected_byte_is_found(store: Path) -> None:
    """Exhaustive over the bytes, one change of each."""
    changes = random.Random(4)
    missed, looked_at = [], 0
    for path, position in protected_places(store):
        looked_at += 1
        with Flipped(path, position, change := changes.randrange(1, 256)):
            if not findings(store):
                missed.append((str(path.relative_to(store)), position, change))
    assert not missed
    assert looked_at > 1000


def test_what_is_declared_is_no_more_than_what_the_format_leaves_open(store: Path) -> None:
    """Among records' bytes, those of bodies, sizes and places are never called unprotected."""
    spans = [span for span in open_spans(store) if span.path.parent.name == "commitlog"]
    told = {span.what for span in spans if span.protection is Protection.UNPROTECTED}
    assert told == {
        "flag", "system flag, times, hosts, reconsume times, half message's offset", "properties", "CRC of no body",
        "queue id", "queue offset", "topic",
    }  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_no_changed_bytes_make_the_check_crash(store: Path, data: st.DataObject) -> None:
    """Unprotected and unused bytes too, several at once."""
    paths = sorted(path for path in store.rglob("*") if path.is_file() and path.stat().st_size)
    flips = []
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from(paths))
        flips.append(Flipped(path, data.draw(st.integers(0, path.stat().st_size - 1)), data.draw(st.integers(1, 255))))
    for flip in flips:
        flip.__enter__()
    try:
        findings(store)
    finally:
        for flip in flips:
            flip.__exit__()


def bytes_of(spans: list[Span], protection: Protection) -> int:
    return sum(span.end - span.start for span in spans if span.protection is protection)


@pytest.mark.parametrize("which", ["small", *STORES])
def test_the_sums_are_those_of_the_map(store: Path, tmp_path: Path, which: str | tuple[str, str]) -> None:
    root = store if isinstance(which, str) else unpack(*which, tmp_path)
    verification = Verification(root)
    assert list(verification.findings()) == []
    spans = [span for span in open_spans(root) if span.path.parent.name == "commitlog"]
    assert bytes_of(spans, Protection.UNPROTECTED) == verification.coverage.unprotected
    assert bytes_of(spans, Protection.UNUSED) == verification.coverage.unused
    assert verification.coverage.crc > 0


def test_a_digest_protects_what_no_crc_does(store: Path) -> None:
    verification = Verification(store)
    assert list(verification.findings()) == []
    segment = store / "commitlog" / ("0" * 20)
    with Flipped(segment, 16, 1):
        assert findings(store) == []
    with Segment.open(segment) as opened:
        digests.write(store, {0: digests.digest_of(opened, lambda _done: None)})
    try:
        assert findings(store) == []
        assert not [span for span in open_spans(store) if span.path == segment]
        for position in range(0, SEGMENT_BYTES, 7):
            with Flipped(segment, position, 64):
                assert "DIGEST" in [finding.code for finding in findings(store)]
    finally:
        digests.path_of(store).unlink()
