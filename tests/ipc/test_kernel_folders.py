"""Kernels are kept for the sources they were made of, where this user may write, and nowhere that others may."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ipc.compiled import kernel_folders
from ipc.compiled.sources import state_of
from ipc.module_names import SOURCES

PROBE = """
from ipc.compiled.compiler import kernel
from engine.deep import numbers
from engine.middle import doubled

@kernel
def answer():
    return doubled(numbers.STEP)
"""
MIDDLE = """
from ipc.compiled.compiler import inlined

@inlined
def doubled(value):
    return 2 * value
"""
ASK = "from engine.probe import answer; print(answer(), sum(answer.stats.cache_hits.values()))"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of `ipc`, and a kernel whose constant is two folders down."""
    shutil.copytree(SOURCES / "ipc", tmp_path / "ipc", ignore=shutil.ignore_patterns("__pycache__"))
    for package in ("engine", "engine/deep"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "engine/probe.py").write_text(PROBE)
    (tmp_path / "engine/middle.py").write_text(MIDDLE)
    (tmp_path / "engine/deep/numbers.py").write_text("STEP = 3\n")
    return tmp_path


def _ask(tree: Path, **environment: str) -> tuple[int, int]:
    """What the kernel answers, and how many of its forms were found on disk."""
    kept = {name: os.environ[name] for name in ("PATH", "OPENBLAS_CORETYPE") if name in os.environ}
    answered = subprocess.run(
        [sys.executable, "-B", "-c", ASK],
        cwd=tree,
        env={**kept, "HOME": str(tree), **environment},
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    value, hits = answered.stdout.split()
    return int(value), int(hits)


def test_what_is_compiled_is_shown_while_it_takes_time(tree: Path) -> None:
    asked = (
        "from ipc.compiled import compiler; compiler.TOLD_EACH_SECONDS = 0.0; compiler.tell_progress_to(print); "
        "from engine.probe import answer; answer()"
    )
    command, home = [sys.executable, "-B", "-c", asked], {**os.environ, "HOME": str(tree)}
    first = subprocess.run(command, cwd=tree, env=home, capture_output=True, text=True, check=True, timeout=120)
    assert re.search("for this machine, once for each version: 1 of [1-9][0-9]* functions are ready", first.stdout)
    again = subprocess.run(command, cwd=tree, env=home, capture_output=True, text=True, check=True, timeout=120)
    assert again.stdout == "", "what is on disk is not compiled"


def test_one_of_two_processes_compiles_and_the_other_waits(tree: Path) -> None:
    """The first stands still in the midst of compiling until the second was seen to wait."""
    slow = (
        "import pathlib, time; from ipc.compiled import compiler; compiler.tell_progress_to(print)\n"
        "class Still(compiler.event.Listener):\n"
        "    def on_start(self, event):\n"
        "        print('compiles', flush=True)\n"
        "        while not pathlib.Path('go').exists(): time.sleep(0.01)\n"
        "    def on_end(self, event): pass\n"
        "compiler.numba_event.register(compiler.COMPILING, Still())\n"
    )
    telling = "from ipc.compiled import compiler; compiler.tell_progress_to(lambda text: print(text, flush=True))\n"
    home = {**os.environ, "HOME": str(tree), "PYTHONUNBUFFERED": "1"}
    commands = [[sys.executable, "-B", "-c", first + ASK] for first in (slow, telling)]
    with subprocess.Popen(commands[0], cwd=tree, env=home, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None and one.stdout.readline() == "compiles\n"
        with subprocess.Popen(commands[1], cwd=tree, env=home, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None and "waiting for another process" in other.stdout.readline()
            (tree / "go").touch()
            assert one.stdout.read().split()[-2:] == ["6", "0"]
            assert other.stdout.read().split() == ["6", "1"]


def test_a_process_that_dies_while_it_compiles_leaves_nobody_waiting(tree: Path) -> None:
    dying = (
        "import os; from ipc.compiled import compiler\n"
        "class Death(compiler.event.Listener):\n"
        "    def on_start(self, event): os._exit(3)\n"
        "    def on_end(self, event): pass\n"
        "compiler.numba_event.register(compiler.STEP, Death())\n"
    )
    ended = subprocess.run([sys.executable, "-B", "-c", dying + ASK], cwd=tree, check=False, timeout=120)
    assert ended.returncode == 3
    assert _ask(tree) == (6, 0)


def test_compiling_that_fails_leaves_nobody_waiting(tree: Path) -> None:
    failing = (
        "from ipc.compiled import compiler\n"
        "class Failure(compiler.event.Listener):\n"
        "    def on_start(self, event): raise KeyboardInterrupt\n"
        "    def on_end(self, event): pass\n"
        "failure = Failure(); compiler.numba_event.register(compiler.STEP, failure)\n"
        "from engine.probe import answer\n"
        "try: answer()\n"
        "except KeyboardInterrupt: pass\n"
        "assert not compiler._folders._held\n"
        "compiler.numba_event.unregister(compiler.STEP, failure)\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", failing + ASK], cwd=tree, check=True, timeout=120, stdout=subprocess.PIPE
    )
    assert done.stdout.split() == [b"6", b"0"]


def test_a_constant_two_folders_down_makes_a_new_kernel(tree: Path) -> None:
    assert _ask(tree) == (6, 0)
    assert _ask(tree) == (6, 1)
    (tree / "engine/deep/numbers.py").write_text("STEP = 4\n")
    assert _ask(tree) == (8, 0)
    assert _ask(tree) == (8, 1)


def test_what_a_kernel_inlines_from_another_file_makes_a_new_kernel(tree: Path) -> None:
    assert _ask(tree) == (6, 0)
    (tree / "engine/middle.py").write_text(MIDDLE.replace("2 *", "5 *"))
    assert _ask(tree) == (15, 0)


def test_a_file_that_no_kernel_needs_leaves_the_kernels_as_they_are(tree: Path) -> None:
    assert _ask(tree) == (6, 0)
    (tree / "engine/other.py").write_text("STEP = 5\n")
    assert _ask(tree) == (6, 1)


def test_sources_that_went_back_find_their_kernels_again(tree: Path) -> None:
    constants = tree / "engine/deep/numbers.py"
    for step in (3, 4):
        constants.write_text(f"STEP = {step}\n")
        assert _ask(tree) == (2 * step, 0)
    constants.write_text("STEP = 3\n")
    assert _ask(tree) == (6, 1)


def test_a_service_without_a_home_still_keeps_its_kernels(tree: Path) -> None:
    (tree / "ipc/__pycache__").touch()  # no folder can be made there
    (tree / "temporary").mkdir()
    nowhere, service = str(tree / "ipc/__pycache__" / "home"), str(tree / "service")
    for places in ({"CACHE_DIRECTORY": service}, {"TMPDIR": str(tree / "temporary")}):
        assert _ask(tree, HOME=nowhere, **places) == (6, 0)
        assert _ask(tree, HOME=nowhere, **places) == (6, 1)


def test_kernels_run_where_nothing_may_be_written(tree: Path) -> None:
    blocked, temporary = tree / "ipc/__pycache__", tree / "temporary"
    temporary.mkdir()
    for file in (blocked, temporary / f"slipstream-{os.geteuid()}"):
        file.touch()  # no folder can be made there
    places = {"HOME": str(blocked / "home"), "NUMBA_CACHE_DIR": str(blocked / "kernels"), "TMPDIR": str(temporary)}
    assert _ask(tree, **places) == (6, 0)
    assert _ask(tree, **places) == (6, 0)


def test_where_the_folder_that_a_user_names_cannot_be_written_kernels_are_kept_elsewhere(tree: Path) -> None:
    (tree / "file").touch()
    assert _ask(tree, NUMBA_CACHE_DIR=str(tree / "file" / "kernels")) == (6, 0)
    assert _ask(tree, NUMBA_CACHE_DIR=str(tree / "file" / "kernels")) == (6, 1)


def test_kernels_beside_the_sources_serve_who_may_only_read_them(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_folders, "BESIDE_SOURCES", tree / "beside")
    filled = tree / "beside" / f"{kernel_folders.FOLDER}probe-{state_of(tree / 'engine/probe.py')}"
    filled.mkdir(parents=True)
    (filled / "kernel").write_text("compiled")
    kernel_folders.folder_of.cache_clear()
    taken = kernel_folders.folder_of(tree / "engine/probe.py", str(tree / "own"))
    assert taken is not None and (taken / "kernel").read_text() == "compiled" and taken.parent == tree / "own"


def test_a_folder_that_others_may_write_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    squatted = tmp_path / f"slipstream-{os.geteuid()}"
    squatted.mkdir()
    squatted.chmod(0o777)
    monkeypatch.setattr(kernel_folders, "BESIDE_SOURCES", blocked / "beside")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(blocked))
    for name in ("CACHE_DIRECTORY", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    kernel_folders.base_folder.cache_clear()
    with pytest.warns(UserWarning, match="compiled code can be kept nowhere"):
        assert kernel_folders.base_folder() is None
    squatted.chmod(0o700)
    kernel_folders.base_folder.cache_clear()
    assert kernel_folders.base_folder() == squatted
    kernel_folders.base_folder.cache_clear()


def test_old_states_go_and_removal_leaves_nothing(tree: Path) -> None:
    for step in range(kernel_folders.STATES_KEPT + 3):
        (tree / "engine/deep/numbers.py").write_text(f"STEP = {step}\n")
        asked = "from engine import probe"
        subprocess.run(
            [sys.executable, "-B", "-c", asked],
            cwd=tree,
            check=True,
            env={**os.environ, "HOME": str(tree)},
            timeout=120,
        )
    cache = tree / "ipc/__pycache__"
    assert len(list(cache.glob("kernels-engine.probe-*"))) == kernel_folders.STATES_KEPT
    remove = "from ipc.compiled.kernel_folders import remove_kernels; print(len(remove_kernels()))"
    subprocess.run(
        [sys.executable, "-B", "-c", remove], cwd=tree, check=True, env={**os.environ, "HOME": str(tree)}, timeout=120
    )
    assert not list(cache.glob("kernels-*"))


def test_kernels_beside_installed_sources_are_on_the_list_of_what_an_uninstallation_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "ipc" / "__pycache__"
    monkeypatch.setattr(kernel_folders, "IMPORTED_FROM", tmp_path)
    monkeypatch.setattr(kernel_folders, "BESIDE_SOURCES", beside)
    kernels = [beside / f"kernels-engine.drain-{state}" / "engine_0" / "drain.nbi" for state in ("old", "new")]
    for kernel in kernels:
        kernel.parent.mkdir(parents=True)
        kernel.touch()
    assert kernel_folders.note_as_installed() == 0  # a checkout has no such list
    record = tmp_path / "slipstream_log-0.1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.write_text("ipc/__init__.py,sha256=x,1\n")
    assert kernel_folders.note_as_installed() == 2
    assert kernel_folders.note_as_installed() == 0
    assert record.read_text().splitlines() == [
        "ipc/__init__.py,sha256=x,1",
        *(f"{kernel.relative_to(tmp_path)},," for kernel in sorted(kernels)),
    ]
