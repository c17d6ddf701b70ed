"""The blocks of a page, run as its reader would: one after the other, in an empty directory, at ports of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from ipc.process import start_time
from store.reading.extent import running
from tests.harness.conditions import await_that

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^(?:<!-- not run: ([^\n]+) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETTING = re.compile(r"^[A-Z]+=\S+$")
SECONDS = 900


class Block(NamedTuple):
    """Why it is not run, if it is not; its language and its text."""

    not_run: str
    kind: str
    text: str


def all_blocks_of(page: str) -> list[Block]:
    """Those of a page of docs/."""
    return [Block(*match) for match in BLOCK.findall((ROOT / "docs" / page).read_text())]


def blocks_of(page: str) -> list[Block]:
    """Those that are to be run: all but those below a line that says why not."""
    return [block for block in all_blocks_of(page) if not block.not_run]


class Session:
    """What the blocks of a page share: a directory, the shell's settings, Python's names.

    `instead`: what stands in the page, and what is run in its place, as a port that is free.
    """

    def __init__(self, page: str, directory: Path, instead: Mapping[str, object]) -> None:
        self.page, self.names = page, dict[str, Any]({"__name__": "page"})
        self._directory, self._instead = directory, {text: str(other) for text, other in instead.items()}
        self._settings: list[str] = []
        self._groups: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for store in self._directory.glob("**/store"):
            broker = running(store)
            if broker is not None:
                with suppress(ProcessLookupError):  # it ends by itself
                    os.kill(broker.pid, signal.SIGTERM)
                await_that(lambda store=store: running(store) is None, f"the broker of {store.parent.name} ends")
        for file in self._directory.glob("**/*.pid"):  # of servers that a block started with --detach
            _end(int(file.read_text()))
        for group in self._groups:  # whatever a block left in the background
            try:
                os.killpg(group, signal.SIGTERM)
            except ProcessLookupError:
                continue

    def run(self, others: Mapping[str, Callable[[str], None]] | None = None) -> int:
        """Run all blocks, those of other languages by `others`; how many there were."""
        blocks = blocks_of(self.page)
        runners = {"sh": self._script, **(others or {})}
        for number, block in enumerate(blocks, start=1):
            text = self._as_run(block.text)
            if block.kind == "python":
                exec(compile(text, f"docs/{self.page}, block {number}", "exec"), self.names)
            else:
                runners[block.kind](text)
        return len(blocks)

    def _as_run(self, text: str) -> str:
        for written, other in self._instead.items():
            text = text.replace(written, other)
        return text

    def shell(self, text: str) -> None:
        """A block, or a part of one, as one script; what earlier ones set stays set."""
        self._script(self._as_run(text))

    def _script(self, text: str) -> None:
        script = "\n".join([*self._settings, text])
        output = self._directory / "output"
        with output.open("ab") as out:
            process = subprocess.Popen(
                ["sh", "-e", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self._directory,
                start_new_session=True,
            )
            self._groups.append(process.pid)
            code = process.wait(SECONDS)
        assert code == 0, f"docs/{self.page}: {text}\n{output.read_text()[-3000:]}"
        self._settings += [line for line in text.split("\n") if SETTING.match(line)]

    def printed(self) -> str:
        """What the shell's blocks printed so far."""
        return (self._directory / "output").read_text()


def _end(pid: int) -> None:
    """Stop a process of ours, and wait for its end; nothing where the number is another's by now."""
    with suppress(OSError):
        if b"tools.cli" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGTERM)
            await_that(lambda: start_time(pid) is None, f"process {pid} ends")


@contextmanager
def commands_in_path(monkeypatch: Any, directory: Path) -> Iterator[None]:
    """`slipstream` is this checkout's, and the directory is where blocks begin."""
    monkeypatch.chdir(directory)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(dict.fromkeys(paths)))
    yield
