"""`slipstream warm` leaves every kernel on disk, says what that gains, and takes all of them away again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ipc.compiled import carried
from ipc.module_names import PACKAGES, SOURCES


def _slipstream(kernels: Path, *arguments: str, asked: str = carried.NATIVE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.cli", *arguments],
        env={**os.environ, carried.ASKED: asked, "NUMBA_CACHE_DIR": str(kernels)},
        capture_output=True,
        text=True,
        check=True,
        timeout=1500,
    )


def _kernels() -> Iterator[tuple[str, str]]:
    """(module, function) of all kernels, but those of machines without carry-less multiplication."""
    for path in (path for package in PACKAGES for path in (SOURCES / package).rglob("*.py")):
        module = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
        for name in re.findall(r"^@(?:bare_)?kernel\ndef (\w+)", path.read_text(), re.MULTILINE):
            if not name.startswith("crc32_of_"):
                yield module, name


def test_warm_leaves_every_kernel_once_and_removes_what_it_made(tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    first = _slipstream(kernels, "warm", "--native", asked="")
    kept, gains, following = first.stdout.splitlines()
    assert kept == f"warm: kernels for this CPU are in {kernels}" and "SLIPSTREAM_COMPILE=native" in following
    assert re.search(r": 128 B \d+\.\d\d, 4096 B \d+\.\d\d, 65536 B \d+\.\d\d$", gains)
    folders = {folder.name.rpartition("-")[0].removeprefix("kernels-"): folder for folder in kernels.iterdir()}
    for module, name in _kernels():
        assert list(folders[module].rglob(f"*.{name}-*.nbc")), f"{module}.{name}"
    assert _slipstream(kernels, "warm").stderr == ""  # nothing is compiled again
    assert "removed " in _slipstream(kernels, "warm", "--remove").stdout
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
