"""`slipstream log` verify, digest, rebuild, repair, export, map: output, exit codes, interruptions."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import threading
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from engine.producer import Producer
from store.message.record import SysFlag
from store.names import REPAIR_JOURNAL
from store.upkeep import leases
from store.verify import digests
from store.verify.verification import Verification
from tests.harness import command_line
from tests.harness.command_line import Ran
from tests.harness.conditions import await_that
from tests.harness.dispatched import content, copy_of, dispatch_all, small_store
from tests.harness.logs import FIRST_STORE_MS, SEGMENT_BYTES, SmallLog
from tests.store.golden import STORES, unpack
from tools.cli import run_command
from tools.common import progress
from tools.common.local_broker import LocalBroker
from tools.common.moments import time_text
from tools.log import export_columns

NEW = ("verify", "digest", "rebuild queue", "rebuild index", "repair", "export", "map")


@pytest.fixture
def log(tmp_path: Path) -> SmallLog:
    return small_store(tmp_path / "store")


def run(*arguments: object) -> Ran:
    return command_line.run("log", *arguments)


def exit_code(*arguments: object) -> int:
    """As the console script ends."""
    return run_command(["log", *(str(argument) for argument in arguments)])


@pytest.mark.parametrize("command", NEW)
def test_a_path_that_is_no_store(tmp_path: Path, command: str) -> None:
    more = {"repair": ["--from", tmp_path], "export": ["--json", tmp_path / "out"]}.get(command, [])
    ran = run(*command.split(), *more, tmp_path)
    assert ran.exit_code == 2
    assert "NOT_A_STORE" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [
    ("rebuild", "queue", "--queue", "1"), ("rebuild", "queue", "--topic", "nobody"),
    ("rebuild", "index", "--slots", "5"),
    ("export",), ("export", "--json", "/nowhere/at/all"), ("export", "--columns", "topic,what", "--json", "out"),
    ("export", "--json", "out", "--parquet", "out"), ("verify", "--delay-levels", "1 fortnight"),
])  # fmt: skip
def test_wrong_arguments_are_one_line(
    log: SmallLog, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(log.root.parent)
    before = content(log.root.parent)
    ran = run(*arguments, log.root)
    assert ran.exit_code == 2
    assert len(ran.stderr.splitlines()) == 1
    assert content(log.root.parent) == before


def test_every_command_is_listed_with_what_it_does() -> None:
    listed = run("--help").stdout
    for name in ("verify", "digest", "rebuild", "repair", "export", "map", "cat", "find"):
        assert f"  {name} " in listed


def test_verify_says_how_much_is_covered(log: SmallLog) -> None:
    shown = run("verify", "--coverage", log.root)
    assert shown.exit_code == 0
    assert "are under a CRC" in shown.stdout.splitlines()[1]
    sums = json.loads(run("verify", "--json", log.root).stdout)
    assert sums["indexEntries"] == 180
    covered = sums["bytes"]
    assert sum(covered[name] for name in ("crc", "structure", "unprotected", "unused")) == SEGMENT_BYTES * 3
    listed = run("verify", "--unprotected", "--json", log.root).stdout.splitlines()
    spans = [span for span in map(json.loads, listed) if "commitlog" in span["file"]]
    told = sum(span["end"] - span["start"] for span in spans if span["protection"] == "unprotected")
    assert told == covered["unprotected"]


def test_verify_with_delay_levels(tmp_path: Path) -> None:
    made = SmallLog(tmp_path / "store")
    made.append("SCHEDULE_TOPIC_XXXX", properties={"DELAY": "2"}, queue_id=1)
    dispatch_all(made)
    assert run("verify", made.root).exit_code == 0
    assert run("verify", "--delay-levels", "1s 7s", made.root).exit_code == 1


def test_delay_levels_are_those_that_the_broker_noted(tmp_path: Path) -> None:
    made = SmallLog(tmp_path / "store")
    made.append("SCHEDULE_TOPIC_XXXX", properties={"DELAY": "2"}, queue_id=1)
    dispatch_all(made)
    regions = str(tmp_path / "regions")
    settings = {"storePathCommitLog": str(made.directory.commitlog), "messageDelayLevel": "1s 7s"}
    pid, fields = 2**22, {"region_directory": regions, "settings": settings}  # a pid that no process has: it was killed
    made.directory.write_pointer({"pid": pid, "start_time": 1, **fields})
    assert run("verify", made.root).exit_code == 1
    assert run("verify", "--delay-levels", "1s 5s", made.root).exit_code == 0
    assert run("rebuild", "queue", made.root).exit_code == 0
    assert run("verify", made.root).exit_code == 0
    assert run("verify", "--delay-levels", "1s 5s", made.root).exit_code == 1


def test_digests_are_made_once_and_compared(log: SmallLog) -> None:
    assert run("digest", log.root).stdout == "2 digests made, 2 in all\n"
    assert run("digest", log.root).stdout == "2 digests, no sealed segment without one\n"
    assert "2 digests" in run("verify", log.root).stdout
    log.flip(log.records[3].offset + 16)
    found = run("verify", log.root)
    assert (found.exit_code, found.stdout.startswith("DIGEST: ")) == (1, True)
    assert run("verify", "--no-digests", log.root).exit_code == 0


def test_a_damaged_segment_gets_no_digest(log: SmallLog) -> None:
    log.flip(log.records[3].offset + 90)
    ran = run("digest", log.root)
    assert (ran.exit_code, ran.stdout) == (1, "1 digests made, 1 in all, 1 refused\n")
    assert list(digests.read(log.root)) == [SEGMENT_BYTES]


def test_an_invalid_file_of_digests_is_reported(log: SmallLog) -> None:
    run("digest", log.root)
    path = digests.path_of(log.root)
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    ran = run("verify", log.root)
    assert ran.exit_code == 2
    assert "not a file of digests" in ran.stderr


def test_rebuild(log: SmallLog) -> None:
    before = content(log.root, "consumequeue")
    for name in before:
        (log.root / name).write_bytes(bytes(len(before[name])))
    assert run("rebuild", "queue", log.root).stdout.startswith("6 queues rebuilt")
    assert content(log.root, "consumequeue") == before
    assert run("rebuild", "index", log.root).stdout.startswith("3 index files rebuilt")
    assert list(Verification(log.root).findings()) == []


def test_repair_and_queues_that_lack_the_repaired_records(log: SmallLog, tmp_path: Path) -> None:
    other = copy_of(log, tmp_path / "other")
    before = content(log.root, "commitlog", "consumequeue")
    log.flip(log.records[10].offset + 90)
    (log.directory.consumequeue / "topic0" / "1" / ("0" * 20)).unlink()
    planned = run("repair", "--dry-run", "--from", other, log.root)
    assert (planned.exit_code, "would be repaired" in planned.stdout) == (1, True)
    ran = run("repair", "--from", other, log.root)
    assert ran.exit_code == 0
    assert f"repaired: offsets {log.records[10].offset} to {log.records[11].offset}" in ran.stdout
    assert "queues rebuilt" in ran.stdout
    assert content(log.root, "commitlog", "consumequeue") == before
    assert run("repair", "--from", other, log.root).stdout == "0 ranges repaired, 0 left as they are\n"
    assert run("repair", "--from", log.root, log.root).exit_code == 2


@pytest.mark.parametrize("command", ["rebuild queue", "rebuild index", "repair --from {other}"])
def test_a_running_broker_is_left_alone(tmp_path: Path, command: str) -> None:
    other = small_store(tmp_path / "other").root
    with LocalBroker(tmp_path / "broker", mappedFileSizeCommitLog=1 << 20) as broker:
        assert exit_code(*command.format(other=other).split(), broker.store) == 4
        assert exit_code("verify", broker.store) == 0
        shown = json.loads(run("map", "--json", broker.store).stdout)
        assert (shown["live"], "confirm_offset" in shown["cursors"]) == (True, True)


def test_a_store_that_is_written_meanwhile_is_sound(tmp_path: Path) -> None:
    """Segments roll, queues and index grow while they are looked at."""
    stop, more = threading.Event(), threading.Event()

    def produce(store: Path) -> None:
        with Producer(store, timeout=60.0) as producer:
            while not stop.is_set():
                producer.send_batch("T", [b"x" * 200] * 20, tags="a", keys=["k"] * 20)
                more.wait(0.001)

    with LocalBroker(tmp_path, mappedFileSizeCommitLog=1 << 20, maxHashSlotNum=100, maxIndexNum=20000) as broker:
        writing = threading.Thread(target=produce, args=(broker.store,))
        writing.start()
        try:
            seen = []
            while len(seen) < 4 or seen[-1] < 5000:
                ran = run("verify", "--json", broker.store)
                assert ran.exit_code == 0, ran.stdout
                seen.append(json.loads(ran.stdout)["records"])
        finally:
            stop.set()
            writing.join()
    assert seen == sorted(seen)
    final = json.loads(run("verify", "--json", broker.store).stdout)
    assert (final["findings"], final["indexEntries"]) == (0, final["records"])


# export


def test_export_as_json(log: SmallLog, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    ran = run("export", "--json", out, "--topic", "topic1", "--columns", "queueOffset,topic,body", log.root)
    assert (ran.exit_code, ran.stdout) == (0, f"30 messages in {out}\n")
    first = json.loads(out.read_text().splitlines()[0])
    assert first == {"queueOffset": 0, "topic": "topic1", "body": "body 1"}
    part = run("export", "--json", out, "--from", log.records[3].offset, "--to", log.records[6].offset, log.root)
    assert part.stdout == f"3 messages in {out}\n"


def test_export_of_a_span_of_time(log: SmallLog, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    since, until = (time_text(FIRST_STORE_MS + number) for number in (10, 15))
    assert run("export", "--json", out, "--since", since, "--until", until, log.root).stdout == f"5 messages in {out}\n"
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["storeTimestamp"] - FIRST_STORE_MS for row in rows] == [10, 11, 12, 13, 14]


def test_export_decompresses(tmp_path: Path) -> None:
    made = SmallLog(tmp_path / "store")
    made.append(body=zlib.compress(b"many words" * 9), sys_flag=int(SysFlag.COMPRESSED))
    made.append(body=b"\xff\xfe")
    made.append(body=b"no zlib at all", sys_flag=int(SysFlag.COMPRESSED))
    out = tmp_path / "out"
    ran = run("export", "--json", out, "--columns", "body", made.root)
    assert (ran.exit_code, f"offset {made.records[2].offset}" in ran.stderr) == (1, True)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows[0] == {"body": "many words" * 9}
    assert base64.b64decode(rows[1]["bodyBase64"]) == b"\xff\xfe"
    assert rows[2] == {"body": "no zlib at all"}
    run("export", "--json", out, "--columns", "body", "--raw-bodies", "--limit", 1, made.root)
    raw = base64.b64decode(json.loads(out.read_text())["bodyBase64"])
    assert zlib.decompress(raw) == b"many words" * 9


@pytest.mark.parametrize(("version", "name"), STORES)
def test_export_as_parquet(tmp_path: Path, version: str, name: str) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    root = unpack(version, name, tmp_path)
    out = tmp_path / "out.parquet"
    assert run("export", "--parquet", out, root).exit_code == 0
    table = pq.read_table(out)
    assert table.column_names == list(export_columns.COLUMNS)
    verification = Verification(root)
    list(verification.findings())
    assert len(table) == verification.records
    lines = tmp_path / "out.jsonl"
    run("export", "--json", lines, root)
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    for column in ("topic", "queueOffset", "tags", "msgId", "storeHost"):
        assert table[column].to_pylist() == [row[column] for row in rows]
    assert [dict(pairs) for pairs in table["properties"].to_pylist()] == [row["properties"] for row in rows]
    bodies = [row["body"].encode() if "body" in row else base64.b64decode(row["bodyBase64"]) for row in rows]
    assert table["body"].to_pylist() == bodies


def test_parquet_without_pyarrow(log: SmallLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ran = run("export", "--parquet", tmp_path / "out", log.root)
    assert ran.exit_code == 2
    assert ran.stderr.startswith("slipstream: EXTRA_MISSING: --parquet needs the package pyarrow")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


# the map


def test_map(log: SmallLog) -> None:
    run("digest", log.root)

    def seen() -> dict[str, Any] | None:
        """Once all of it lies in the page cache: who is short of memory takes it from there."""
        for base in log.files.base_offsets():
            log.files.path_of(base).read_bytes()
        found: dict[str, Any] = json.loads(run("map", "--json", log.root).stdout)
        is_there = all(segment["residentBytes"] == SEGMENT_BYTES for segment in found["segments"])
        return found if is_there else None

    with leases.acquire(log.root, log.records[40].offset, 3_600_000):
        shown = await_that(seen, "all of the log is resident")
        lines = run("map", log.root).stdout.splitlines()
    assert [segment["sealed"] for segment in shown["segments"]] == [True, True, False]
    assert [segment["digest"] for segment in shown["segments"]] == [True, True, False]
    assert shown["leasedFrom"] == log.records[40].offset
    assert [segment["leased"] for segment in shown["segments"]] == [False, True, True]
    assert shown["cursors"]["max_physical_offset"] == log.end
    assert [segment["usedBytes"] for segment in shown["segments"]] == [4096, 4096, log.end - 2 * SEGMENT_BYTES]
    assert "sealed leased digest" in lines[2]
    assert "█" in lines[1]
    assert "·" in lines[3]


# progress and Ctrl-C


def test_progress_goes_to_standard_error_when_asked_for(log: SmallLog) -> None:
    quiet, shown = run("verify", log.root), run("verify", "--progress", log.root)
    assert quiet.stderr == ""
    assert "verify" in shown.stderr
    assert shown.stdout == quiet.stdout


def test_progress_of_what_only_reads(log: SmallLog, tmp_path: Path) -> None:
    other = copy_of(log, tmp_path / "other")
    for command in (["stat"], ["diff", other]):
        quiet, shown = run(*command, log.root), run(*command, "--progress", log.root)
        assert (quiet.stderr, shown.exit_code, shown.stdout) == ("", 0, quiet.stdout)
        assert command[0] in shown.stderr
        assert run(*command, "--no-progress", log.root) == quiet


def test_progress_of_every_part_of_a_repair(log: SmallLog, tmp_path: Path) -> None:
    other = copy_of(log, tmp_path / "other")
    log.flip(log.records[10].offset + 90)
    shutil.rmtree(log.directory.consumequeue)
    shown = run("repair", "--progress", "--from", other, log.root)
    assert shown.exit_code == 0
    assert "queues rebuilt" in shown.stdout
    assert all(part in shown.stderr for part in ("repair", "verify", "rebuild queue", "100%"))


class Interrupted:
    """A progress bar at which somebody presses Ctrl-C."""

    def __enter__(self) -> progress.Update:
        return self._update

    def __exit__(self, *_exc: object) -> None:
        """Nothing to clear away."""

    def _update(self, _done: int, _total: int) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("command", ["verify", "digest", "rebuild queue", "rebuild index", "repair", "export"])
def test_ctrl_c_leaves_nothing_half_done(
    log: SmallLog, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, out = copy_of(log, tmp_path / "other"), tmp_path / "out"
    if command == "repair":
        log.flip(log.records[10].offset + 90)
    before = content(log.root)
    more = {"repair": ["--from", other], "export": ["--json", out]}.get(command, [])
    module = import_module(f"tools.log.{command.split()[0]}")
    monkeypatch.setattr(module, "progress", lambda _title, _shown: Interrupted())
    assert exit_code(*command.split(), *more, log.root) == 130
    after = content(log.root)
    assert {name: after[name] for name in before} == before
    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir() if "unfinished" in path.name] == []
    assert not (log.root / REPAIR_JOURNAL).exists()


def test_a_real_ctrl_c_ends_with_130(log: SmallLog, tmp_path: Path) -> None:
    """SIGINT to a process of its own, at its first message."""
    program = (
        "import os, signal, sys; from tools import cli; from tools.log import export; real = export._row\n"
        "def row(*a):\n    os.kill(os.getpid(), signal.SIGINT)\n    return real(*a)\n"
        "export._row = row; sys.exit(cli.run_command(sys.argv[1:]))"
    )
    out = tmp_path / "out"
    command = [sys.executable, "-c", program, "log", "export", "--json", str(out), str(log.root)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    told = "slipstream: INTERRUPTED: interrupted by Ctrl-C; run the command again"
    assert (ran.returncode, ran.stderr.strip()) == (130, told)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
