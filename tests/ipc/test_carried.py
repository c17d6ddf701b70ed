"""Carried code is taken where all that it was made of is as it was, and says what numba's code says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core.errors import TypingError

from ipc.compiled import atomics, carried
from ipc.compiled.atomics import Followed
from ipc.compiled.kernels import is_carried
from ipc.module_names import SOURCES

pytestmark = pytest.mark.skipif(not is_carried(), reason="no library of kernels was made here")

ASK = """
import sys
from ipc.compiled import carried
print(carried.library() is not None, 'numba' in sys.modules, carried.why_not(), sep='|')"""
PRODUCER = """
import sys
from engine.producer import Producer
print('numba' in sys.modules, 'llvmlite' in sys.modules, sep='|')
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources that the library was made of, with the library."""
    names = json.loads((carried.FOLDER / carried.LIST).read_bytes())["sources"]
    library = [carried.FOLDER / name for name in (carried.LIST, carried.LIBRARY)]
    for path in [*(SOURCES / name for name in names), *library]:
        target = tmp_path / path.relative_to(SOURCES)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return tmp_path


def ask(tree: Path, code: str = ASK, **environment: str) -> list[str]:
    """Return the words that a new process prints."""
    command = [sys.executable, "-B", "-c", code]
    home = {**os.environ, "HOME": str(tree), **environment}
    done = subprocess.run(command, cwd=tree, env=home, stdout=subprocess.PIPE, check=True, timeout=120)
    return done.stdout.decode().strip().split("|")


def test_a_process_that_runs_carried_code_loads_no_compiler(tree: Path) -> None:
    assert ask(tree) == ["True", "False", ""]
    assert ask(SOURCES, PRODUCER) == ["False", "False"]


def test_code_in_an_archive_is_taken(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("archive")
    archive = shutil.make_archive(str(elsewhere / "sent"), "zip", tree)
    publishing = (
        "import numpy as np\nfrom ipc.compiled import atomics\nwords = np.zeros(2, np.int64)\n"
        f"atomics.publish(words, 0, 7)\nassert words[0] == 7 and '.zip' in atomics.__file__{ASK}"
    )
    assert ask(elsewhere, publishing, PYTHONPATH=archive) == ["True", "False", ""]


def test_code_is_compiled_where_that_is_asked_for(tree: Path) -> None:
    assert ask(tree, **{carried.ASKED: "native"}) == ["False", "False", "SLIPSTREAM_COMPILE=native"]


def test_a_value_that_nobody_knows_is_refused() -> None:
    command = [sys.executable, "-m", "tools.cli", "warm"]
    asked = {**os.environ, carried.ASKED: "1"}
    ran = subprocess.run(command, cwd=SOURCES, env=asked, capture_output=True, text=True, check=False, timeout=120)
    said = "slipstream: COMPILE_UNKNOWN: SLIPSTREAM_COMPILE=1: not known; it can be baseline or native, or unset\n"
    assert (ran.returncode, ran.stderr) == (2, said)


@pytest.mark.parametrize("what", ["a source", "a source that is gone", "the library", "half a library", "the list"])
def test_carried_code_of_anything_else_is_not_taken(tree: Path, what: str) -> None:
    source, folder = tree / "ipc" / "ring.py", tree / "ipc" / "carried"
    library = folder / carried.LIBRARY
    if what == "a source":
        source.write_text(source.read_text() + "\n")
    elif what == "a source that is gone":
        source.unlink()
    elif what == "the library":
        content = bytearray(library.read_bytes())
        content[len(content) // 2] ^= 1
        library.write_bytes(content)
    elif what == "half a library":
        library.write_bytes(library.read_bytes()[: library.stat().st_size // 2])
    else:
        (folder / carried.LIST).write_text("{")
    taken, compiler, why = ask(tree)
    said = {"the list": "its list", "the library": "the file that was made", "half a library": "the file that was made"}
    assert (taken, compiler) == ("False", "False") and said.get(what, source.name) in why


def test_carried_code_of_another_machine_is_not_taken(tree: Path) -> None:
    path = tree / "ipc" / "carried" / carried.LIST
    listed = json.loads(path.read_bytes())
    path.write_text(json.dumps({**listed, "machine": "aarch64"}))
    assert ask(tree) == ["False", "False", "it is for another kind of processor (aarch64)"]
    path.write_text(json.dumps({name: listed[name] for name in listed if name != "library"}))
    assert ask(tree) == ["False", "False", "KeyError: 'library'"]


def test_an_older_cpu_takes_none(tree: Path) -> None:
    older = f"from pathlib import Path\nfrom ipc import machine\nmachine.CPU_FILE = Path('cpu')\n{ASK}"
    (tree / "cpu").write_text("processor : 0\nflags : fpu sse2 avx\n")
    assert ask(tree, older) == ["False", "False", "it is for another kind of processor (x86_64)"]


def test_symbols_are_those_of_any_build() -> None:
    listing = subprocess.run(
        ["nm", carried.FOLDER / carried.LIBRARY], stdout=subprocess.PIPE, text=True, check=True, timeout=60
    ).stdout
    symbols = [line.split()[-1] for line in listing.splitlines()]
    assert any(symbol.startswith("ipc.compiled.atomics.publish.") for symbol in symbols)
    assert not [symbol for symbol in symbols if re.search(r"B\d+v\d+B|\d{10,}$", symbol)], (
        "numba's count, or an address"
    )


def test_numbers_of_any_kind_are_taken_and_results_are_of_their_kinds() -> None:
    words = np.zeros(4, np.int64)
    assert atomics.publish(words, np.int32(0), Followed.WAITERS) is None
    assert words[0] == 1 and type(atomics.raise_to(words, 0, True)) is bool
    assert type(atomics.await_change(words, np.uint8(0), 5, 0)) is int
    with pytest.raises(OverflowError):
        atomics.publish(words, 0, 1 << 63)
    assert words[0] == 1


def test_what_no_carried_form_takes_is_compiled() -> None:
    words = np.arange(8)
    with pytest.raises(TypingError, match="read-only"):
        read_only = words.view()
        read_only.flags.writeable = False
        atomics.publish(read_only, 0, 1)
    assert atomics.await_change(words, 3, 5, 0.0) == 3, "by numba, in a form for such a time"


WITHOUT_COMPILER = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
import numpy as np
import spark_bridge.flight.client, spark_bridge.records.reader
from store.columns.records import Records
from store.columns.window import LogWindow
window = LogWindow("a segment", 0, np.zeros(200, np.uint8), 200)
try:
    print(Records(window, np.zeros(1, np.int64)).sizes)
except Exception as error:
    print(error.code, error, sep="|")
"""


@pytest.mark.parametrize("asked", ["", carried.BASELINE])
def test_without_numba_carried_code_runs_and_else_its_first_call_says_what_is_missing(asked: str) -> None:
    environment = {**os.environ, carried.ASKED: asked}
    command = [sys.executable, "-c", WITHOUT_COMPILER]
    said = subprocess.run(command, cwd=SOURCES, env=environment, capture_output=True, text=True, check=True).stdout
    if not asked:
        assert said == "[0]\n"
        return
    why = f"this package takes no compiled code that it carries ({carried.ASKED}={asked})"
    next_step = "install the wheel for this machine, or run `pip install numba`"
    assert said == f"COMPILER_MISSING|{why}, and numba, which would compile, is not installed; {next_step}\n"
