"""`slipstream warm` leaves kernels on disk, says what that gains, and takes all of them away again.

That it leaves every kernel is seen where `make setup` has run the same steps.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ipc.compiled import carried
from ipc.compiled.kernel_folders import folder_of
from ipc.module_names import PACKAGES, SOURCES
from tests.tools.kernels.few_kernels import OURS

ALL = "tools.cli"


def _slipstream(
    module: str, *arguments: str, asked: str = carried.NATIVE, **given: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, carried.ASKED: asked, **given},
        capture_output=True,
        text=True,
        check=True,
        timeout=1500,
    )


def _kernels() -> Iterator[tuple[Path, str]]:
    """(file, function) of all kernels, but those of machines without carry-less multiplication."""
    for path in (path for package in PACKAGES for path in (SOURCES / package).rglob("*.py")):
        for name in re.findall(r"^@(?:bare_)?kernel\ndef (\w+)", path.read_text(), re.MULTILINE):
            if not name.startswith("crc32_of_"):
                yield path, name


def test_setup_has_left_every_kernel_and_warm_compiles_none_again() -> None:
    _slipstream(ALL, "warm", asked=carried.BASELINE)  # `slipstream warm --remove` may have been there since
    assert _slipstream(ALL, "warm", asked=carried.BASELINE).stderr == ""
    for path, name in _kernels():
        folder = folder_of(path)
        assert folder is not None and list(folder.rglob(f"*.{name}-*.nbc")), f"{path}: {name}"


def test_warm_keeps_kernels_says_what_they_gain_and_removes_them(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    own = {"NUMBA_CACHE_DIR": str(kernels)}
    kept, gains, following = _slipstream(OURS, "warm", "--native", asked="", **own).stdout.splitlines()
    assert kept == f"warm: kernels for this CPU are in {kernels}" and "SLIPSTREAM_COMPILE=native" in following
    assert re.search(r": 128 B \d+\.\d\d, 4096 B \d+\.\d\d, 65536 B \d+\.\d\d$", gains)
    assert list(kernels.iterdir())
    assert _slipstream(OURS, "warm", **own).stderr == ""  # nothing is compiled again
    assert "removed " in _slipstream(ALL, "warm", "--remove", **own).stdout
    assert not list(kernels.iterdir())


def test_to_compile_and_to_remove_exclude_each_other() -> None:
    asked = [sys.executable, "-m", "tools.cli", "warm", "--remove", "--native"]
    refused = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=300)
    assert refused.returncode == 2 and "--remove and --native exclude each other" in refused.stderr


def test_removing_where_there_is_nothing_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = subprocess.run(
        [sys.executable, "-m", "tools.cli", "warm", "--remove"],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "file" / "kernels")},
    )
    assert (told.returncode, told.stdout) == (0, "removed 0 folders of kernels\n")
