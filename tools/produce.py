"""`slipstream produce`: the lines of files, or of standard input, as messages of one topic.

Ctrl-C lets the batch under way finish: nothing is half-sent, and the summary counts what was acknowledged.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from engine.producer import Producer

CHUNK_BYTES = 1 << 20
INTERRUPTED = 130


class Interrupt:
    """Ctrl-C: at once while waiting for input, after the batch while one is under way."""

    def __init__(self) -> None:
        self.held = self.asked = False

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, or remember it; the second one is not remembered."""
        if not self.held or self.asked:
            raise KeyboardInterrupt
        self.asked = True

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Not in here; afterwards. Raises KeyboardInterrupt."""
        self.held = True
        try:
            yield
        finally:
            self.held = False
        if self.asked:
            raise KeyboardInterrupt


def batches(fd: int, lines_max: int) -> Iterator[list[bytes]]:
    """Lines without their ends, as many at a time as are there: a slow pipe's lines do not wait for a full batch."""
    rest = b""
    while chunk := os.read(fd, CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for start in range(0, len(lines), lines_max):
            yield [line.removesuffix(b"\r") for line in lines[start : start + lines_max]]
    if rest:
        yield [rest]


class Tally:
    """What was sent so far, and what became of it."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.bytes = self.empty_lines = 0
        self.began = time.monotonic()

    def add(self, status: str, bodies: list[bytes]) -> None:
        """Count an answered batch."""
        self.statuses[status] += len(bodies)
        self.bytes += sum(map(len, bodies))

    @property
    def all_ok(self) -> bool:
        """Whether everything was acknowledged as the broker's settings ask."""
        return not any(count for status, count in self.statuses.items() if status != "PUT_OK")

    def summary(self) -> str:
        """One line for people."""
        seconds = max(time.monotonic() - self.began, 1e-9)
        acknowledged = self.statuses["PUT_OK"]
        parts = [f"{acknowledged:,} messages acknowledged ({self.bytes:,} bytes, {acknowledged / seconds:,.0f}/s)"]
        parts += [f"{n:,} appended with {status}" for status, n in self.statuses.items() if status != "PUT_OK" and n]
        if self.empty_lines:
            parts.append(f"{self.empty_lines:,} empty lines skipped, as RocketMQ has no empty messages")
        return "; ".join(parts)


@click.command()
@click.option("--store", required=True, type=click.Path(file_okay=False), help="The store of a running master.")
@click.option("--topic", required=True, help="Letters, digits, and any of %|-_ .")
@click.option("--tag", help="The tag of every message.")
@click.option("--key", help="The key of every message.")
@click.option("--batch", default=1000, show_default=True, type=click.IntRange(1, 100_000), help="Messages at a time.")
@click.option("--timeout", default=10.0, show_default=True, type=click.FloatRange(0.001), help="Seconds for a batch.")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False))
def produce(
    store: str, topic: str, tag: str | None, key: str | None, batch: int, timeout: float, files: tuple[str, ...]
) -> int:
    """Append lines of files, or of standard input, as messages: one message a line.

    Ends with 1 when a message was appended but not acknowledged as the broker's settings ask (FLUSH_SLAVE_TIMEOUT...).
    """
    from engine.producer import Producer

    interrupt, tally = Interrupt(), Tally()
    previous = signal.signal(signal.SIGINT, interrupt.on_signal)
    try:
        with Producer(store, timeout=timeout) as producer, _progress(files) as advance:
            for fd in _inputs(files):
                for lines in batches(fd, batch):
                    with interrupt.hold():
                        _send(producer, topic, tag, key, lines, tally)
                    advance(sum(map(len, lines)) + len(lines))
    except KeyboardInterrupt:
        click.echo(f"interrupted; {tally.summary()}")
        return INTERRUPTED
    except Exception:
        click.echo(tally.summary())
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
    click.echo(tally.summary())
    return 0 if tally.all_ok else 1


def _send(producer: Producer, topic: str, tag: str | None, key: str | None, lines: list[bytes], tally: Tally) -> None:
    bodies = [line for line in lines if line]
    tally.empty_lines += len(lines) - len(bodies)
    if bodies:
        result = producer.send_batch(topic, bodies, tags=tag, keys=key)
        assert result is not None
        tally.add(result.status.name, bodies)


def _inputs(files: tuple[str, ...]) -> Iterator[int]:
    """A descriptor for each file in turn, or standard input."""
    if not files:
        yield 0
    for name in files:
        fd = os.open(name, os.O_RDONLY)
        try:
            yield fd
        finally:
            os.close(fd)


@contextmanager
def _progress(files: tuple[str, ...]) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _size: None
        return
    total = float(sum(os.path.getsize(name) for name in files)) if files else None
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("produce", total=total)
        yield lambda size: bar.advance(task, size)
