"""The manual pages: those of this tree are what commands say, sound for the programs that show them, and shipped."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.printed import leaves
from tools.dev.docs.man_pages import MAN, pages, roff, write
from tools.dev.packaging.backend import nest

SECONDS = 120


def test_the_manual_pages_say_what_the_commands_say(tmp_path: Path) -> None:
    """As a process of its own says it: click keeps a command's --help as who looked first had it."""
    script = "import sys, pathlib; from tools.dev.docs import man_pages; man_pages.write(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=MAN.parent.parent, check=True, timeout=SECONDS)
    made = {file.name: file.read_text() for file in tmp_path.glob("*.1")}
    assert {file.name: file.read_text() for file in MAN.glob("*.1")} == made, "run `make man`"


def test_every_command_has_its_place() -> None:
    text = "".join(pages().values()).replace("\\-", "-")
    missing = [path for path in leaves() if f"\n.B slipstream {path}\n" not in text]
    assert not missing


def test_pages_of_commands_that_are_gone_go(tmp_path: Path) -> None:
    (tmp_path / "slipstream-nothing.1").touch()
    write(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == set(pages())


@pytest.mark.parametrize(("text", "escaped"), [
    (".so /etc/passwd", "\\&.so /etc/passwd"), ("'\nbr", "\\&' br"), ("--a\\n", "\\-\\-a\\en"), ("", ""),
])  # fmt: skip
def test_text_means_itself(text: str, escaped: str) -> None:
    assert roff(text) == escaped


def test_mandoc_finds_nothing() -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not on this machine")
    command = ["mandoc", "-Tlint", "-Wwarning", *map(str, sorted(MAN.glob("*.1")))]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_man_shows_the_manual_pages() -> None:
    if shutil.which("man") is None:
        pytest.skip("man is not on this machine")
    command = ["man", "--warnings", "-l", str(MAN / "slipstream-log.1")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env={
        "PATH": "/usr/local/bin:/usr/bin:/bin", "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "PAGER": "cat", "TERM": "dumb",
    })  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "SLIPSTREAM-LOG(1)" in ran.stdout and "slipstream log cat" in ran.stdout


def test_the_wheel_has_the_manual_pages(tmp_path: Path) -> None:
    nest(MAN.parents[1], tmp_path)
    assert {file.name for file in (tmp_path / "docs" / "man").iterdir()} == set(pages())
