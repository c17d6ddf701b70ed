"""What the housekeeper tells the audit: each file once, slice by slice, to the end of a stop."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from engine.keeping import audit_rounds, housekeeper
from store.files import file_times
from store.upkeep import audit
from tests.harness.housekeeping import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, 100)


def test_creates_and_seals_are_audited_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)
    assert bench.audit()[0]["event"] == "start" and bench.audit()[0]["segment"] == 0
    for _ in range(3):
        bench.put(40)
        bench.run(12_000)
    segments = [f"commitlog/{base:020d}" for base in bench.log.files.base_offsets()]
    for event, expected in (("create", segments), ("seal", segments[:-1])):
        assert [line["path"] for line in bench.audit(event) if line["kind"] == "segment"] == expected
    queues = sorted(path for path in bench.log.directory.consumequeue.rglob("0*") if path.is_file())
    told = sorted(line["path"] for line in bench.audit("create") if line["kind"] == "queue")
    assert told == [str(path.relative_to(bench.log.root)) for path in queues]
    sealed = [line["path"] for line in bench.audit("seal") if line["kind"] == "queue"]
    assert len(sealed) == len(set(sealed)) == len(queues) - 2
    indexes = [line["path"] for line in bench.audit("create") if line["kind"] == "index"]
    assert indexes == [f"index/{path.name}" for path in bench.index.files()]
    assert all(line["reason"] for line in bench.audit())


def test_the_last_changes_are_audited_at_the_stop(bench: Bench) -> None:
    bench.run(1000)
    bench.put(40)
    bench.role.close()
    assert bench.audit()[-1]["event"] == "stop"
    assert {"segment", "queue", "index"} == {line["kind"] for line in bench.audit("create")}


def test_a_look_at_many_queues_is_a_slice_a_turn_and_beats_at_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, 1)
    for number in range(30):
        bench.log.append("topic", b"x", queue_id=number)
    monkeypatch.setattr(audit_rounds, "SLICE", 4)
    bench.put(1)
    seen: list[int] = []
    heartbeat = bench.counters.heartbeats["housekeeper"]

    def look_ns() -> int:
        seen.append(heartbeat.read())
        return file_times.look_ns()

    monkeypatch.setattr(audit, "look_ns", look_ns)
    turns = 0
    bench.now_ms += 20_000
    while bench.role.do_work(bench.now_ms):
        turns += 1
        assert len(seen) <= 4 + 5, "besides the slice: the queues' three roots, their topic, the log"
        seen.clear()
    assert turns >= 30 // 4
    assert len([line for line in bench.audit("create") if line["kind"] == "queue"]) == 29
    ticks = itertools.count(1)
    monkeypatch.setattr(housekeeper, "monotonic_ms", lambda: next(ticks))
    seen.clear()
    bench.role.close()
    assert len(seen) >= 30 and max(Counter(seen).values()) <= 4 + 5, "the heartbeat moves as the look goes on"
    assert bench.audit()[-1]["event"] == "stop"


def test_a_first_look_that_takes_several_turns_tells_of_what_came_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, 1)
    for number in range(30):
        bench.log.append("topic", b"x", queue_id=number)
    bench.put(1)
    bench.log.directory.audit.unlink()
    monkeypatch.setattr(audit_rounds, "SLICE", 4)
    bench.role = bench.open()
    assert not bench.log.directory.audit.exists()
    bench.role.close()
    assert [line["event"] for line in bench.audit()] == ["start", "stop"] and bench.audit()[0]["queue"] == 30


def test_files_that_somebody_else_removes_are_audited(bench: Bench) -> None:
    bench.run(1000)
    (bench.log.directory.consumequeue / "topic" / "0" / f"{0:020d}").unlink()
    bench.put(1)
    bench.run(11_000)
    (line,) = bench.audit("vanish")
    assert line["kind"] == "queue" and "not by retention" in line["reason"]
    assert bench.counters.vanished_files.read() == 1


@pytest.mark.parametrize("kind", ["index", "segment"])
def test_a_file_that_somebody_removes_is_counted(bench: Bench, kind: str) -> None:
    bench.run(1000)
    assert bench.counters.vanished_files.read() == 0
    gone = bench.index.files()[0] if kind == "index" else bench.log.files.path_of(0)
    gone.unlink()
    if kind == "index":
        bench.put(1)
    bench.run(11_000)
    assert [line["kind"] for line in bench.audit("vanish")] == [kind]
    assert bench.counters.vanished_files.read() == 1
