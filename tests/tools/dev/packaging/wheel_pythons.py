"""The wheel in an empty environment of each Python at hand: what a user does first, and that nothing is left.

    python -m tests.tools.dev.packaging.wheel_pythons [--ledger docs/wheel-pythons.md]

The wheel is built once. For each python3.11 to python3.14, on PATH or pyenv's: an empty environment, dependencies by
the lock, the wheel; then init, broker, produce, status, web, log verify, stop, uninstall. Timed is what a user waits
for: from the broker's start to the console's first page, messages and a status between. The first round runs right
after pip: its code is the carried one, and nobody has compiled anything.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import click

from tests.harness.installed import OF_A_SHELL, ROOT, build_wheel
from tools.common.local_broker import free_port

MINORS = range(11, 15)
GOAL_SECONDS = 5
MESSAGES = 1000
ROUNDS = 3
SECONDS = 900
EXTRAS = "[web]"
ITSELF = "import ensurepip, platform, sys; print(platform.python_version(), sys.executable, sep='\\n')"
ADDRESS = re.compile(r"http://\S+")
HEAD = """# The wheel on each Python

Written by `make wheel-pythons`. One wheel, built once, is installed in an empty environment of each Python on the
machine, with the dependencies of requirements.lock and the extra `web`. Then these must succeed: `slipstream init`,
`broker`, `produce`, `status`, `web` and its first page, `log verify`, a stop in order, `pip uninstall`.
Nothing may be compiled, and nothing may be left in the environment, in the user's home or in shared memory.

Seconds are from the broker's start: `first` of the broker's first start after pip, the others of the fastest of
{rounds} rounds. The goal is a page in less than {goal}.

{machine}

| Python | first | broker ready | {messages:,} messages acknowledged | status | page of the console | left behind |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """What one Python came to; seconds from the broker's start, `first` of the first one after pip."""

    version: str
    first: float
    ready: float
    produced: float
    status: float
    page: float


def pythons() -> dict[str, Path]:
    """One of each minor version that is at hand, by its version."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [Path(place) for place in os.environ["PATH"].split(os.pathsep)]
    at_hand: dict[str, Path] = {}
    for minor in MINORS:
        name = f"python3.{minor}"
        candidates = [*(place / name for place in places), *sorted(versions.glob(f"*/bin/{name}"))]
        for path in filter(Path.is_file, candidates):
            asked = subprocess.run([path, "-c", ITSELF], capture_output=True, text=True, check=False)
            if asked.returncode == 0:
                version, itself = asked.stdout.splitlines()
                at_hand[version] = Path(itself)
                break
    return at_hand


class Environment:
    """An empty one, with a home of its own."""

    def __init__(self, directory: Path, python: Path, wheel: Path) -> None:
        self.directory, self._wheel, self.home = directory / "environment", wheel, directory / "home"
        self.home.mkdir(parents=True)
        self.run(python, "-m", "venv", self.directory)
        self.pip("install", "--constraint", ROOT / "requirements.lock", f"{wheel}{EXTRAS}")
        self.pip("uninstall", "--yes", "slipstream-log")
        self._before = self._files()
        self.pip("install", "--no-deps", "--no-index", wheel)

    @property
    def variables(self) -> dict[str, str]:
        """A shell's, of somebody who has nothing."""
        kept = {name: value for name, value in os.environ.items() if name in OF_A_SHELL}
        return {**kept, "HOME": str(self.home), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_CACHE_DIR": "1"}

    def command(self, *words: object) -> list[str]:
        """Its console script's, with these words."""
        return [str(self.directory / "bin" / "slipstream"), *map(str, words)]

    def pip(self, *arguments: object) -> None:
        """Its own pip."""
        self.run(self.directory / "bin" / "python", "-m", "pip", "--quiet", *arguments)

    def run(self, *command: object, given: str = "") -> str:
        """Run to its end, which has to be a good one."""
        ran = subprocess.run(
            [*map(str, command)],
            cwd=self.home.parent,
            env=self.variables,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert ran.returncode == 0, f"{command} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr[-4000:]}"
        return ran.stdout

    @contextmanager
    def serving(self, *words: object, codes: tuple[int, ...] = (0,)) -> Iterator[subprocess.Popen[str]]:
        """A command that runs on, until SIGTERM; it ends with one of these codes."""
        process = subprocess.Popen(
            self.command(*words),
            cwd=self.home.parent,
            env=self.variables,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) in codes, words
        finally:
            process.kill()
            process.communicate()

    def left(self) -> set[str]:
        """Uninstalls it; what is there that was not before, but what Python compiled of other packages."""
        self.pip("uninstall", "--yes", "slipstream-log")
        new = {path for path in self._files() - self._before if "__pycache__" not in path}
        return {path for path in new if "slipstream" in path or not path.startswith("environment/")}

    def _files(self) -> set[str]:
        root = self.directory.parent
        return {str(path.relative_to(root)) for top in (self.directory, self.home) for path in top.rglob("*")}


def tried(python: Path, wheel: Path, directory: Path, memory: Path) -> Row:
    """All of it with one Python; of several rounds the one with the first page."""
    one = Environment(directory, python, wheel)
    rounds = [_round(one, directory / f"broker-{number}", memory) for number in range(ROUNDS)]
    compiled = list(one.directory.parent.rglob("*.nb[ic]"))
    assert not compiled, f"carried code was not used: {compiled[:3]}"
    left = one.left() | {path.name for path in memory.iterdir()}
    assert not left, left
    return Row(directory.name, rounds[0][0], *min(rounds, key=lambda seconds: seconds[-1]))


def _round(one: Environment, broker: Path, memory: Path) -> list[float]:
    """A new broker, to its end; seconds from its start: ready, messages, status, page."""
    store = broker / "store"
    one.run(*one.command("init", broker, "--port", free_port()))
    with (broker / "broker.properties").open("a") as file:
        file.write(f"brokerIP1=127.0.0.1\nmetricsPromExporterPort=0\nregionPath={memory}\n")
    seconds, begun = list[float](), time.monotonic()
    with ExitStack() as stack:
        serving = stack.enter_context(one.serving("broker", "-c", broker / "broker.properties"))
        assert serving.stdout is not None and serving.stdout.readline().startswith("ready:")
        seconds.append(time.monotonic() - begun)
        lines = "".join(f"{number}\n" for number in range(MESSAGES))
        one.run(*one.command("produce", "--store", store, "--topic", "orders"), given=lines)
        seconds.append(time.monotonic() - begun)
        assert json.loads(one.run(*one.command("status", store, "--json")))["puts"]["messages"] == MESSAGES
        seconds.append(time.monotonic() - begun)
        web = stack.enter_context(one.serving("web", store, "--port", 0, codes=(0, -signal.SIGTERM)))
        assert web.stdout is not None
        address = ADDRESS.search(web.stdout.readline())
        assert address is not None
        with urlopen(address[0], timeout=60) as page:
            assert b"Slipstream" in page.read()
        seconds.append(time.monotonic() - begun)
    one.run(*one.command("log", "verify", store))
    return seconds


def ledger_text(rows: list[Row]) -> str:
    """The page."""
    machine = f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[1]:.0f} with other work beside it."
    lines = (
        f"| {one.version} | {one.first:.1f} s | {one.ready:.1f} s | {one.produced:.1f} s | {one.status:.1f} s"
        f" | **{one.page:.1f} s** | nothing |\n"
        for one in rows
    )
    return HEAD.format(goal=f"{GOAL_SECONDS} s", machine=machine, messages=MESSAGES, rounds=ROUNDS) + "".join(lines)


@click.command()
@click.option("--ledger", type=click.Path(path_type=Path, dir_okay=False))
def main(ledger: Path | None) -> None:
    """Try each, and write the page."""
    rows, scratch = list[Row](), Path(tempfile.mkdtemp(prefix="slipstream-pythons-"))
    try:
        wheel = build_wheel(ROOT, scratch / "wheel")
        for version, python in pythons().items():
            click.echo(f"Python {version}: {python}")
            with tempfile.TemporaryDirectory(prefix="slipstream-pythons-", dir="/dev/shm") as memory:
                rows.append(tried(python, wheel, scratch / version, Path(memory)))
            click.echo(str(rows[-1]))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if ledger is not None:
        ledger.write_text(ledger_text(rows))
    sys.exit(0 if rows and all(one.page < GOAL_SECONDS for one in rows) else 1)


if __name__ == "__main__":
    main()
