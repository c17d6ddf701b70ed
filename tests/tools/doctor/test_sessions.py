"""The doctor says when systemd-logind would delete a running broker's shared memory, as logind.conf(5) has it."""

from __future__ import annotations

import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.shared_memory.region_directory import leftovers
from tools.doctor import memory, sessions
from tools.doctor.rows import Level


@pytest.fixture
def regions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in what stands for /dev/shm, of a user who is nobody special, where logind runs."""
    monkeypatch.setattr(sessions, "SHARED", tmp_path / "shm")
    monkeypatch.setattr(sessions, "USERS", tmp_path / "users")
    monkeypatch.setattr(sessions, "LINGERING", tmp_path / "linger")
    monkeypatch.setattr(sessions, "SETTINGS", (tmp_path / "usr", tmp_path / "etc"))
    monkeypatch.setattr(sessions, "FIRST_USER", 0)
    for name in ("shm/slipstream-x", "users", "linger", "usr/logind.conf.d", "etc/logind.conf.d"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "shm" / "slipstream-x"


def test_the_user_is_named_unless_the_host_keeps_what_he_has(
    regions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = pwd.getpwuid(regions.stat().st_uid).pw_name
    assert sessions.user_who_takes_it(regions) == user
    assert sessions.user_who_takes_it(tmp_path / "usr") is None, "not in /dev/shm"
    assert sessions.user_who_takes_it(regions / "gone") is None
    (tmp_path / "linger" / user).touch()
    assert sessions.user_who_takes_it(regions) is None
    (tmp_path / "linger" / user).unlink()
    (tmp_path / "users").rmdir()
    assert sessions.user_who_takes_it(regions) is None, "no logind"
    (tmp_path / "users").mkdir()
    monkeypatch.setattr(sessions, "FIRST_USER", regions.stat().st_uid + 1)
    assert sessions.user_who_takes_it(regions) is None, "a system user"


def test_the_last_setting_that_says_it_counts(regions: Path, tmp_path: Path) -> None:
    assert sessions.removes()
    (tmp_path / "usr" / "logind.conf").write_text("[Login]\n#RemoveIPC=yes\nRemoveIPC=no\n")
    assert not sessions.removes()
    (tmp_path / "etc" / "logind.conf").write_text("[Login]\nRemoveIPC = ignored by us\nRemoveIPC=yes\n")
    assert sessions.removes()
    (tmp_path / "usr" / "logind.conf.d" / "10-a.conf").write_text("[Login]\nRemoveIPC=off\n")
    assert not sessions.removes()
    (tmp_path / "etc" / "logind.conf.d" / "10-a.conf").write_text("[Login]\n")
    assert sessions.removes(), "a file of the same name replaces the other"


def test_the_row_says_what_to_do(regions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "leftovers", lambda _path: list[leftovers.Leftover]())
    node: Any = SimpleNamespace(running=SimpleNamespace(region_directory=regions))
    (row,) = memory.rows(node)
    assert row.level is Level.OK
    assert str(regions) in row.what and "`loginctl enable-linger" in row.next
