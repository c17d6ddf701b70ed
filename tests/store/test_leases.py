"""Leases: held while their reader lives and renews; what is damaged, expired or left behind holds nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.process import start_time
from store import leases

NOW = 1_000_000


def files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "slipstream.leases").iterdir())


def test_the_lowest_offset_of_all_readers_counts(tmp_path: Path) -> None:
    assert leases.held_from(tmp_path, NOW) is None
    first = leases.acquire(tmp_path, 700, 1000, NOW)
    second = leases.acquire(tmp_path, 300, 1000, NOW)
    assert leases.held_from(tmp_path, NOW) == 300
    second.renew(900, NOW)
    assert leases.held_from(tmp_path, NOW) == 700
    first.release()
    assert leases.held_from(tmp_path, NOW) == 900
    with second:
        pass
    assert leases.held_from(tmp_path, NOW) is None and not files(tmp_path)


def test_a_lease_expires_unless_it_is_renewed(tmp_path: Path) -> None:
    lease = leases.acquire(tmp_path, 5, 1000, NOW)
    assert leases.held_from(tmp_path, NOW + 999) == 5
    lease.renew(now_ms=NOW + 999)
    assert leases.held_from(tmp_path, NOW + 1998) == 5
    assert leases.held_from(tmp_path, NOW + 1999) is None
    assert not files(tmp_path), "it is cleared away"
    lease.release()


def test_a_dead_reader_holds_nothing(tmp_path: Path) -> None:
    code = "import sys; from store import leases; leases.acquire(sys.argv[1], 5, 10**12); print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], **pipes) as reader:  # type: ignore[call-overload]
        assert reader.stdout is not None
        reader.stdout.readline()
        assert leases.held_from(tmp_path, NOW) == 5
        reader.kill()
    assert leases.held_from(tmp_path, NOW) is None and not files(tmp_path)


def test_another_process_with_the_same_pid_does_not_hold_it(tmp_path: Path) -> None:
    lease = leases.acquire(tmp_path, 5, 1000, NOW)
    fields = json.loads(lease.path.read_text())
    assert fields["start_time"] == start_time(os.getpid())
    lease.path.write_text(json.dumps({**fields, "start_time": fields["start_time"] - 1}))
    assert leases.held_from(tmp_path, NOW) is None


DAMAGED = ["", "{", "[]", "null", "7", '{"pid": 1}', '{"pid": "1", "start_time": 1, "low_offset": 1, "expires_ms": 1}',
           "[" * 1000, "\udcff"]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_lease_holds_nothing_and_is_named(tmp_path: Path, text: str) -> None:
    good = leases.acquire(tmp_path, 5, 1000, NOW)
    bad = good.path.with_name("1-1")
    bad.write_bytes(text.encode("utf-8", "surrogateescape"))
    found = leases.look(tmp_path, NOW)
    assert found.from_offset == 5
    assert len(found.findings) == 1 and str(bad) in found.findings[0] and "remove it" in found.findings[0]
    assert bad.exists(), "it is not ours to delete"


def test_a_directory_in_a_leases_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "slipstream.leases" / "1-1").mkdir(parents=True)
    assert "cannot be read" in leases.look(tmp_path, NOW).findings[0]


def test_what_a_killed_reader_was_writing_is_cleared_away(tmp_path: Path) -> None:
    lease = leases.acquire(tmp_path, 5, 1000, NOW)
    dead, own = (lease.path.with_name(f"{pid}-9.creating") for pid in (2**22 + 1, os.getpid()))
    for path in (dead, own):
        path.write_bytes(b"{")
    assert leases.look(tmp_path, NOW) == leases.Held(5, [])
    assert not dead.exists() and own.exists()


def test_more_files_than_are_looked_at_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASES_MAX", 3)
    held = [leases.acquire(tmp_path, number, 1000, NOW) for number in range(5)]
    found = leases.look(tmp_path, NOW)
    assert found.from_offset is not None and "more than 3 files" in found.findings[0]
    assert len(held) == 5


@settings(deadline=None)
@given(content=st.binary(max_size=300) | st.dictionaries(
    st.sampled_from(["pid", "start_time", "low_offset", "expires_ms"]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
).map(lambda fields: json.dumps(fields).encode()))  # fmt: skip
def test_no_content_breaks_a_look(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    root = tmp_path_factory.mktemp("store")
    (root / "slipstream.leases").mkdir()
    (root / "slipstream.leases" / "1-1").write_bytes(content)
    assert leases.held_from(root, NOW) is None
