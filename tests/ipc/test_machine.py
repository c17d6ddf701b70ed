"""Machines that this is not made for are told so in one line, before numba or a store is looked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

AS = "import os, sys; here = (*os.uname()[:4], '{machine}'); os.uname = lambda: os.uname_result(here)"
ROOT = Path(__file__).resolve().parents[2]
OTHER_MACHINES = [
    ("s390x", "sys.maxsize"), ("ppc64le", "sys.maxsize"), ("aarch64_be", "sys.maxsize"), ("aarch64", "2**31 - 1"),
]  # fmt: skip


def ran(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize(("atomics", "is_taken"), [("atomics ", True), ("", False)])
def test_an_arm_is_known_by_its_instructions(tmp_path: Path, atomics: str, is_taken: bool) -> None:
    cpu = tmp_path / "cpuinfo"
    cpu.write_text(f"processor\t: 0\nFeatures\t: fp asimd evtstrm aes crc32 {atomics}fphp asimdhp cpuid asimdrdm\n")
    asked = f"machine.CPU_FILE = Path({str(cpu)!r}); found = machine.baseline(); print(found and found.features)"
    done = ran(f"{AS.format(machine='aarch64')}; from pathlib import Path; from ipc import machine; {asked}")
    assert done.stdout == ("+v8.2a,+crc,+lse\n" if is_taken else "None\n"), done.stderr


@pytest.mark.parametrize(("machine", "largest"), OTHER_MACHINES)
@pytest.mark.parametrize(
    "use", ["from tools.cli import main; main()", "import slipstream; slipstream.scan", "import ipc.compiled.atomics"]
)
def test_another_machine_is_refused_in_one_line(machine: str, largest: str, use: str) -> None:
    done = ran(
        f"{AS.format(machine=machine)};sys.maxsize = {largest};sys.argv = ['slipstream', 'status', '/nowhere']; {use}"
    )
    assert done.returncode
    *_before, line = done.stderr.splitlines()
    assert f"this is {machine} with {32 if 'sys' not in largest else 64}; read a store from here" in line
    if "main" in use:
        assert line.startswith("slipstream: MACHINE_UNKNOWN: ") and not _before
