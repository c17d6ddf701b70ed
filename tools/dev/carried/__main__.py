"""`python -m tools.dev.carried`: compiles all kernels, and makes the library of them that the package carries.

What is compiled is kept for numba, too, as `slipstream warm` keeps it. Without a C compiler, or without Python's
headers, it does as that command does, and says so: everything is compiled, and each process loads it by numba.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from ipc.compiled import carried, kernel_folders
from ipc.compiled.kernel_folders import BESIDE_SOURCES, FOLDER


def main() -> int:
    """Make the library, unless there is one of these sources."""
    if carried.library() is not None:
        return 0
    cc = os.environ.get("CC", "cc")
    if why := _why_not(cc):
        print(f"kernels are compiled, and no library is made of them: {why}", file=sys.stderr)
        os.execl(sys.executable, sys.executable, "-m", "tools.cli", "warm")
    os.environ[carried.ASKED] = carried.BASELINE
    with tempfile.TemporaryDirectory(prefix="slipstream-carried-") as scratch:
        os.environ["NUMBA_CACHE_DIR"] = scratch
        kernel_folders.BESIDE_SOURCES = Path(scratch)  # kernels from there have no intermediate form any more
        from tools.dev.carried.linking import write_library  # numba reads its environment when it is imported
        from tools.dev.carried.objects import compile_all

        compiled = compile_all()
        size = write_library(compiled, cc)
        _keep(Path(scratch))
    print(f"carried: {len(compiled)} forms of kernels in {carried.FOLDER / carried.LIBRARY}, {size} bytes")
    return 0


def _why_not(cc: str) -> str:
    from ipc.machine import baseline

    if baseline() is None:
        return "this CPU is older than what libraries are made for"
    if shutil.which(cc) is None:
        return "no C compiler"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's headers are not installed"
    return ""


def _keep(scratch: Path) -> None:
    """Put what numba has made beside the sources, where it looks for it."""
    BESIDE_SOURCES.mkdir(exist_ok=True)
    for made in scratch.glob(f"{FOLDER}*"):
        shutil.rmtree(BESIDE_SOURCES / made.name, ignore_errors=True)
        shutil.copytree(made, BESIDE_SOURCES / made.name)


if __name__ == "__main__":
    sys.exit(main())
