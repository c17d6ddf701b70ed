"""Leases: held while their reader lives and renews; what is damaged, expired or left behind holds nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipc.process import start_time
from store.files import file_io
from store.upkeep import leases

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


def test_a_lease_that_is_kept_is_renewed_three_times_while_it_lasts(tmp_path: Path) -> None:
    lease = leases.acquire(tmp_path, 5, 900, NOW)
    lease.keep(NOW + 299)
    assert json.loads(lease.path.read_bytes())["expires_ms"] == NOW + 900
    lease.keep(NOW + 300)
    assert json.loads(lease.path.read_bytes())["expires_ms"] == NOW + 1200
    lease.release()


def test_a_lease_expires_unless_it_is_renewed(tmp_path: Path) -> None:
    lease = leases.acquire(tmp_path, 5, 1000, NOW)
    assert leases.held_from(tmp_path, NOW + 999) == 5
    lease.renew(now_ms=NOW + 999)
    assert leases.held_from(tmp_path, NOW + 1998) == 5
    assert leases.held_from(tmp_path, NOW + 1999) is None
    assert not files(tmp_path), "it is cleared away"
    lease.release()


def test_a_dead_reader_holds_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from store.upkeep import leases; "
        "leases.acquire(sys.argv[1], 5, 10**12); print(flush=True); input()"
    )
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
@given(
    content=st.binary(max_size=300)
    | st.dictionaries(
        st.sampled_from(["pid", "start_time", "low_offset", "expires_ms"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    ).map(lambda fields: json.dumps(fields).encode())
)
def test_no_content_breaks_a_look(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    root = tmp_path_factory.mktemp("store")
    (root / "slipstream.leases").mkdir()
    (root / "slipstream.leases" / "1-1").write_bytes(content)
    assert leases.held_from(root, NOW) is None


def rewritten(lease: leases.Lease, **changed: object) -> None:
    """As another process would have written it: what holds the file stays."""
    lease.path.write_text(json.dumps({**json.loads(lease.path.read_text()), **changed}))


def test_a_reader_in_another_pid_namespace_holds_by_the_file(tmp_path: Path) -> None:
    """Whatever pid it says: nobody here can look at that."""
    lease = leases.acquire(tmp_path, 5, 1000, NOW)
    rewritten(lease, namespace="1-1", pid=2**22 + 1)
    assert leases.held_from(tmp_path, NOW) == 5
    lease.renew(7, NOW)
    rewritten(lease, namespace="1-1", pid=2**22 + 1)
    assert leases.held_from(tmp_path, NOW) == 7
    left = leases.acquire(tmp_path, 3, 1000, NOW)
    rewritten(left, namespace="1-1")
    content = left.path.read_bytes()
    left.release()
    left.path.write_bytes(content)  # as one that was killed leaves it: nobody holds it
    assert leases.held_from(tmp_path, NOW) == 7 and not left.path.exists()
    lease.release()


def test_what_stands_for_another_process_holds_until_it_expires_where_that_cannot_be_seen(tmp_path: Path) -> None:
    """A driver's lease is made by a short-lived process for its JVM."""
    lease = leases.acquire(tmp_path, 5, 1000, NOW, owner_pid=os.getppid())
    rewritten(lease, namespace="1-1")
    content = lease.path.read_bytes()
    lease.release()
    lease.path.write_bytes(content)
    assert leases.held_from(tmp_path, NOW + 999) == 5
    assert leases.held_from(tmp_path, NOW + 1000) is None and not lease.path.exists()


def test_a_lease_in_a_copied_folder_holds_nothing_there(tmp_path: Path) -> None:
    lease = leases.acquire(tmp_path, 5, 1000, NOW)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "slipstream.leases", copy / "slipstream.leases")
    linked = tmp_path / "linked"
    (linked / "slipstream.leases").mkdir(parents=True)
    os.link(lease.path, linked / "slipstream.leases" / lease.path.name)
    for other in (copy, linked):
        assert leases.look(other, NOW) == leases.Held(None, [])
        assert not files(other)
    assert leases.held_from(tmp_path, NOW) == 5


def test_a_folder_that_is_a_link_is_another_stores(tmp_path: Path) -> None:
    dead = leases.acquire(tmp_path, 5, 1000, NOW)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "slipstream.leases").symlink_to(tmp_path / "slipstream.leases")
    found = leases.look(copy, NOW + 1000)
    assert found.from_offset is None and "symbolic link" in found.findings[0]
    with pytest.raises(NotADirectoryError, match="symbolic link"):
        leases.acquire(copy, 5, 1000, NOW)
    assert files(tmp_path) == [dead.path.name]


def test_a_lease_of_another_boot_holds_nothing(tmp_path: Path) -> None:
    lease = leases.acquire(tmp_path, 5, 1000, NOW)
    rewritten(lease, boot_id="another")
    assert leases.held_from(tmp_path, NOW) is None


def test_what_strangers_put_there_blocks_nobody(tmp_path: Path) -> None:
    lease = leases.acquire(tmp_path, 5, 1000, NOW)
    os.mkfifo(lease.path.with_name("1-1-1"))
    lease.path.with_name("1-1-2").symlink_to(lease.path)
    (lease.path.with_name("9" * 200 + ".creating")).write_bytes(b"")
    found = leases.look(tmp_path, NOW)
    assert found.from_offset == 5 and len(found.findings) == 2


def test_a_lease_that_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies in a folder of another user's."""
    lease = leases.acquire(tmp_path, 5, 1000, NOW)

    def refuse(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(file_io, "unlink", refuse)
    found = leases.look(tmp_path, NOW + 1000)
    assert found.from_offset is None and str(lease.path) in found.findings[0]
    monkeypatch.undo()


def test_what_an_unseen_reader_is_writing_stays_for_a_while(tmp_path: Path) -> None:
    lease = leases.acquire(tmp_path, 5, 1000, NOW)
    foreign = lease.path.with_name(f"{2**22 + 1}-9-0-1-1.creating")
    foreign.write_bytes(b"{")
    leases.look(tmp_path, NOW)
    assert foreign.exists()
    os.utime(foreign, (1, 1))
    leases.look(tmp_path, NOW)
    assert not foreign.exists()
