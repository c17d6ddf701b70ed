"""The wheel for aarch64 on another machine, under qemu-user, and what came of it as a page in docs/.

    python -m tests.tools.dev.packaging.wheel_arm [--ledger docs/wheel-arm.md]

Takes root, debootstrap, and qemu-user registered with the kernel (binfmt_misc) for aarch64. pip takes the wheel with
PyPI's others for that machine; then, in a Debian root for it: kernels by known answers, a broker, tests of kernels.
qemu-user plays a Neoverse N1, an Armv8.2-A: an instruction beyond that ends the process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from ipc.compiled import carried
from tools.common.local_broker import free_port
from tools.dev.packaging.places import folder_of

ROOT = Path(__file__).resolve().parents[4]
MACHINE, PLATFORM, CPU = "aarch64", "manylinux_2_28_aarch64", "neoverse-n1"
OLDER_PLATFORMS = ("manylinux_2_27_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
FOLDERS = (folder_of(MACHINE), carried.FOLDER)
HANDLER = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")
RELEASES = {"bookworm": "3.11", "trixie": "3.13"}
FLAGS = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
MESSAGES = 1000
PACKAGES, CHECKOUT, STORE = "/opt/packages", "/opt/checkout", "/root/broker/store"
SECONDS = 1800
TESTS = (
    "tests/ipc/test_crc.py", "tests/ipc/test_ring.py", "tests/ipc/test_byte_ring.py", "tests/ipc/test_counters.py",
    "tests/ipc/test_placement.py", "tests/engine/writer/test_drain_kernel.py",
    "tests/engine/writer/test_compose_kernel.py",
)  # fmt: skip
NOT_HERE = "test_a_producer_without_puts_sleeps_on"  # it asks Linux for a system call's number, which is the emulator's
RUN_TESTS = f"""
cd {CHECKOUT}
python3 -m pytest -q -n0 -p tells -p no:cacheprovider -k 'not {NOT_HERE}' {" ".join(TESTS)} > /root/tests 2>&1 ||
    {{ tail -n 100 /root/tests; exit 1; }}
grep '^carried code' /root/tests
grep -o '[0-9]* passed' /root/tests
"""
KNOWN_ANSWERS = """
import sys, zlib
import numpy as np
from slipstream.ipc.compiled import atomics, crc
from slipstream.ipc.compiled.kernels import is_carried
assert is_carried()
words = np.zeros(4, np.int64)
atomics.publish(words, 0, 7)
assert words[0] == 7 and atomics.raise_to(words, 0, 9) is True and atomics.raise_to(words, 0, 8) is False
assert atomics.await_change(words, 0, 7, 10**9) == 9 and atomics.await_change(words, 0, 9, 10**6) == 9
data = np.frombuffer(np.random.default_rng(5).bytes(70_000), np.uint8)
assert crc.crc32(np.frombuffer(b"123456789", np.uint8), 0, 9) == 0xCBF43926
checked = 0
for start in (0, 1, 7, 19):
    for count in (*range(600), 1024, 4321, 65536):
        assert crc.crc32(data, start, count) == zlib.crc32(data[start : start + count].tobytes()), (start, count)
        checked += 1
assert not {"numba", "llvmlite"} & set(sys.modules)
print(f"{checked:,} CRC-32 as zlib's, `publish`, `raise_to`, `await_change`; numba is not imported")
"""
BROKER = f"""
slipstream init /root/broker --port {{port}} > /dev/null
printf 'brokerIP1=127.0.0.1\\nmetricsPromExporterPort=0\\n' >> /root/broker/broker.properties
slipstream broker -c /root/broker/broker.properties > /root/log 2>&1 &
broker=$!
timeout {SECONDS} sh -c 'until grep -q ^ready: /root/log; do sleep 0.2; done'
seq {MESSAGES} | slipstream produce --store {STORE} --topic a 2>&1
kill $broker
wait $broker
slipstream log verify {STORE}
test $(slipstream log cat {STORE} --topic a | wc -l) = {MESSAGES}
"""
COMMAND = """#!/bin/sh
exec python3 -m slipstream "$@"
"""
# qemu-user tells a process another /proc/PID/stat of itself than others read, unless the path is written in another way
TRUE_STAT = """
import builtins, re

opened = builtins.open

def open_true(file, *rest, **named):
    is_stat = isinstance(file, str) and re.fullmatch(r"/proc/[0-9]+/stat", file)
    return opened(file.replace("/proc/", "/proc//") if is_stat else file, *rest, **named)

builtins.open = open_true
"""
PLUGIN = """
def pytest_sessionfinish():
    from ipc.compiled.kernels import is_carried
    assert is_carried()
    print("\\ncarried code ran")
"""
# $1: the root; $2: what is run in it. Mounts and processes are gone with the namespaces.
ENTER = """
set -e
mount -t proc proc "$1/proc"
mount --bind "$1/opt/cpuinfo" "$1/proc/cpuinfo"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/dev/shm"
exec chroot "$1" sh -ec "$2"
"""
OWN = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
HEAD = """# The wheel for aarch64

Written by `make wheel-arm`. `make wheel` made the wheel on {host}. pip takes it and PyPI's wheels for that machine;
they run in Debian roots for arm64 under {qemu}, as the CPU {cpu} (Armv8.2-A). Seconds are those of an emulator
beside other work and say nothing about hardware.

| Python | what | came to |
|---|---|---|
"""


class Check:
    """One run; `rows` is what the ledger says."""

    def __init__(self, scratch: Path, images: Path) -> None:
        self._scratch, self._images, self._begun = scratch, images, time.monotonic()
        self.rows: list[tuple[str, str, str]] = []

    def say(self, text: str) -> None:
        """What happens now, to who waits."""
        click.echo(f"{time.monotonic() - self._begun:6.0f} s  {text}")

    def run(self, wheel: Path) -> None:
        """All of it, in each root."""
        for release, python in RELEASES.items():
            kept = self._images / f"{release}-arm64"
            if not kept.exists():
                self.say(f"debootstrap {release} for arm64")
                _unpack(release, kept)
            root = self._scratch / release
            subprocess.run(["cp", "--archive", "--reflink=auto", kept, root], check=True, timeout=SECONDS)
            self._fill(root, wheel, python)
            Played(root, self, python).all()

    def _fill(self, root: Path, wheel: Path, python: str) -> None:
        """Put the wheel there with what it needs, and the checkout with the wheel's library, for its tests."""
        self.say(f"packages for Python {python}")
        platforms = [word for name in (PLATFORM, *OLDER_PLATFORMS) for word in ("--platform", name)]
        command = [
            sys.executable, "-m", "pip", "--quiet", "install", "--target", root / PACKAGES[1:], *platforms,
            "--python-version", python, "--implementation", "cp", "--only-binary=:all:", "--no-compile", "--constraint",
            ROOT / "requirements.lock", wheel, "pytest", "pytest-xdist", "hypothesis",
        ]  # fmt: skip
        subprocess.run([*map(str, command)], check=True, timeout=SECONDS)
        (root / "opt" / "cpuinfo").write_text(f"processor\t: 0\nFeatures\t: {FLAGS}\n")
        for name, text in (("tells", PLUGIN), ("answers", KNOWN_ANSWERS), ("sitecustomize", TRUE_STAT)):
            (root / "opt" / f"{name}.py").write_text(text)
        script = root / "opt" / "bin" / "slipstream"
        script.parent.mkdir()
        script.write_text(COMMAND)
        script.chmod(0o755)
        checkout = root / CHECKOUT[1:]
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in listed.splitlines():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, checkout / name)
        shutil.copytree(folder_of(MACHINE), checkout / "ipc" / "carried", dirs_exist_ok=True)


def _unpack(release: str, base: Path) -> None:
    """Make a root of Debian's packages with Python, not configured: that would take an emulator half an hour."""
    beside = base.with_name(f"{base.name}.unpacked")
    beside.parent.mkdir(parents=True, exist_ok=True)
    command = ["debootstrap", "--variant=minbase", "--arch=arm64", "--foreign", "--include=python3", release, beside]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=SECONDS)
    for package in sorted((beside / "var" / "cache" / "apt" / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", package, beside], check=True, timeout=SECONDS)
    shutil.copy2(beside / "usr" / "share" / "base-passwd" / "passwd.master", beside / "etc" / "passwd")
    beside.rename(base)


class Played:
    """What is run in one root."""

    def __init__(self, root: Path, check: Check, python: str) -> None:
        self._root, self._check, self._python = root, check, python

    def all(self) -> None:
        """In this order."""
        self._row("known answers", "python3 /opt/answers.py")
        self._row("`slipstream warm`", "slipstream warm")
        self._row(
            f"a broker, {MESSAGES:,} messages by a producer beside it, `log verify`", BROKER.format(port=free_port())
        )
        self._row("tests of rings, counters, CRCs and the writer's kernels", RUN_TESTS)

    def _row(self, what: str, command: str) -> None:
        self._check.say(f"{self._python}: {what}")
        begun = time.monotonic()
        came_to = self._run(command)
        self._check.say(came_to)
        text = " ".join(came_to.split())
        self._check.rows.append((self._python, what, f"{text} ({time.monotonic() - begun:.0f} s)"))

    def _run(self, command: str) -> str:
        environment = {
            "HOME": "/root", "PATH": "/opt/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": f"{PACKAGES}:/opt", "QEMU_CPU": CPU,
        }  # fmt: skip
        inner = [*OWN, "sh", "-c", ENTER, "sh", str(self._root), command]
        ran = subprocess.run(inner, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)
        assert ran.returncode == 0, f"{command}\nended with {ran.returncode}:\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}"
        return ran.stdout.strip()


def _why_not() -> str:
    if not HANDLER.is_file() or not HANDLER.read_text().startswith("enabled"):
        return "the kernel has no handler for aarch64: install qemu-user-static and binfmt-support"
    if shutil.which("debootstrap") is None:
        return "no debootstrap"
    return ""


def _played(scratch: Path, images: Path) -> str:
    wheel = max((ROOT / "dist").glob(f"*_{MACHINE}.whl"), key=os.path.getmtime)
    kernels, here = (json.loads((folder / carried.LIST).read_bytes())["kernels"] for folder in FOLDERS)
    assert here.keys() <= kernels.keys(), here.keys() - kernels.keys()
    check = Check(scratch, images)
    check.run(wheel)
    said = subprocess.run(["qemu-aarch64-static", "--version"], check=True, capture_output=True, text=True).stdout
    qemu = said.splitlines()[0].partition(" (")[0].replace("version ", "")
    size = (folder_of(MACHINE) / carried.LIBRARY).stat().st_size
    text = (
        f"{wheel.stat().st_size:,} and {size:,} bytes, {len(kernels)} kernels, all of {os.uname().machine} among them"
    )
    rows = [("all", "the wheel, the library in it", text), *check.rows]
    lines = (f"| {python} | {what} | {came_to} |\n" for python, what, came_to in rows)
    return HEAD.format(host=os.uname().machine, qemu=qemu, cpu=CPU) + "".join(lines)


@click.command()
@click.option("--ledger", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--images", type=click.Path(path_type=Path, file_okay=False), help="Where roots are kept for another run."
)
def main(ledger: Path | None, images: Path | None) -> None:
    """Try it in each root, and write the page."""
    if why := _why_not():
        raise click.ClickException(why)
    with tempfile.TemporaryDirectory(prefix="slipstream-aarch64-") as scratch:
        page = _played(Path(scratch), images or Path(scratch, "images"))
    if ledger is not None:
        ledger.write_text(page)


if __name__ == "__main__":
    main()
