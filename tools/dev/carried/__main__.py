"""`python -m tools.dev.carried`: compiles all kernels, and makes the library of them that the package carries.

What is compiled is kept for numba, too, as `slipstream warm` keeps it. Without a C compiler, or without Python's
headers, it does as that command does, and says so: everything is compiled, and each process loads it by numba.

With `--machine` the library is for another kind of machine, and only a wheel takes it. It needs that machine's C
compiler; the exit code is 3 where something is missing, which one line names.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from ipc.compiled import carried, kernel_folders
from ipc.compiled.kernel_folders import BESIDE_SOURCES, FOLDER
from ipc.machine import KNOWN
from tools.dev.packaging.places import folder_of

MISSING = 3


def main() -> int:
    """Make the library, unless there is one of these sources."""
    here = os.uname().machine
    parser = argparse.ArgumentParser(prog="python -m tools.dev.carried", description="Compile all kernels.")
    parser.add_argument("--machine", choices=KNOWN, default=here, help="what they are compiled for; this machine")
    machine = parser.parse_args().machine
    return _for_this(here) if machine == here else _for_another(machine)


def _for_this(machine: str) -> int:
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
        size = write_library(compiled, machine, cc)
        _keep(Path(scratch))
    return _say(machine, len(compiled), size)


def _for_another(machine: str) -> int:
    if carried.listed(folder_of(machine)) is not None:
        return 0
    cc = f"{machine}-linux-gnu-gcc"
    if why := why_not_for(machine, cc):
        print(f"no library for {machine} is made: {why}", file=sys.stderr)
        return MISSING
    os.environ[carried.ASKED] = carried.BASELINE
    from tools.dev.carried.foreign import compile_all_for
    from tools.dev.carried.linking import write_library

    compiled = compile_all_for(machine)
    return _say(machine, len(compiled), write_library(compiled, machine, cc))


def _say(machine: str, forms: int, size: int) -> int:
    print(f"carried: {forms} forms of kernels in {folder_of(machine) / carried.LIBRARY}, {size} bytes")
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


def why_not_for(machine: str, cc: str) -> str:
    """Return what is missing here for a library for such machines, whose C compiler is `cc`; empty if nothing is."""
    from llvmlite import binding as llvm

    from tools.dev.carried.foreign import triple_of

    if shutil.which(cc) is None:
        return f"no {cc} (on Debian the package gcc-{machine.replace('_', '-')}-linux-gnu)"
    command = [cc, f"-I{sysconfig.get_path('include')}", "-include", "Python.h", "-fsyntax-only", "-x", "c", os.devnull]
    if subprocess.run(command, check=False, stderr=subprocess.DEVNULL, timeout=60).returncode:
        return f"{cc} cannot read Python's headers of this machine"
    try:
        llvm.initialize_all_targets()
        llvm.Target.from_triple(triple_of(machine))
    except RuntimeError as error:
        return str(error)
    return ""


def _keep(scratch: Path) -> None:
    """Put what numba has made beside the sources, where it looks for it."""
    BESIDE_SOURCES.mkdir(exist_ok=True)
    for made in scratch.glob(f"{FOLDER}*"):
        shutil.rmtree(BESIDE_SOURCES / made.name, ignore_errors=True)
        shutil.copytree(made, BESIDE_SOURCES / made.name)


if __name__ == "__main__":
    sys.exit(main())
