"""`slipstream produce`: the lines of files, or of standard input, as messages of one topic.

Ctrl-C lets the batch under way finish: nothing is half-sent, and the summary counts what was acknowledged.
A line that cannot be a message ends it: the lines before it are sent, and the error says which it was.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from ipc.descriptors import closing_fd
from tools.common.completion import topics
from tools.common.exit_codes import ExitCode
from tools.common.given_path import GivenPath
from tools.common.how_many import how_many
from tools.common.numbers import number
from tools.common.output_form import form, json_text

if TYPE_CHECKING:
    from engine.producer import Producer
    from store.reading.extent import Running

CHUNK_BYTES = 1 << 20
INTERRUPTED = 130
BATCH, TIMEOUT_SECONDS = 1000, 10.0


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
        """Hold interrupts back in the block. Raises KeyboardInterrupt afterwards."""
        self.held = True
        try:
            yield
        finally:
            self.held = False
        if self.asked:
            raise KeyboardInterrupt


class LineRefused(Exception):
    """Raised for a line that cannot be a message. The lines before it were sent, the lines after it were not.

    Next: correct the line that the error names, and send the rest of the file from that line on.
    """

    code = "MESSAGE_ILLEGAL"

    def __init__(self, source: str, number: int, why: str) -> None:
        before = f"the {number - 1:,} lines before it were sent" if number > 1 else "nothing was sent"
        super().__init__(f"{source}, line {number:,}: {why.removesuffix('; nothing was sent')}; {before}")


class PutToSlave(Exception):
    """Raised for the store of a slave, which receives messages only from its master.

    Next: `slipstream produce --store STORE` on the master's host.
    """

    code = "SERVICE_NOT_AVAILABLE"

    def __init__(self, store: str, master: str) -> None:
        super().__init__(
            f"{store}: its broker is a slave, which receives messages only from its master (HA address {master}); run"
            " `slipstream produce --store` with the master's store on the master's host"
        )


class Lines:
    """The lines of one input, without their ends, and which of them come next."""

    def __init__(self, fd: int, source: str, line_bytes_max: int) -> None:
        self._fd, self._source, self._line_bytes_max = fd, source, line_bytes_max
        self.number = 1  # of the first line that was not taken yet

    def batches(self, lines_max: int) -> Iterator[list[bytes]]:
        """Yield the lines that are there, in batches: a slow pipe's lines do not wait for a full batch.

        Raises LineRefused when a line has no end within what a message may have; those before it were given.
        """
        rest = b""
        while chunk := os.read(self._fd, CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for start in range(0, len(lines), lines_max):
                batch = [line.removesuffix(b"\r") for line in lines[start : start + lines_max]]
                yield batch
                self.number += len(batch)
            if len(rest) > self._line_bytes_max + 1:  # it may end in a carriage return
                self.refuse(0, f"more than {self._line_bytes_max} bytes without a line end, the limit maxMessageSize")
        if rest:
            yield [rest]

    def refuse(self, index: int, why: str) -> NoReturn:
        """Raise LineRefused for a line of the batch that was given last."""
        raise LineRefused(self._source, self.number + index, why)


class Tally:
    """The count of what was sent so far, and what became of it."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.bytes = self.empty_lines = 0
        self.began = time.monotonic()

    def add(self, status: str, bodies: list[bytes]) -> None:
        """Count a batch with its status."""
        self.statuses[status] += len(bodies)
        self.bytes += sum(map(len, bodies))

    @property
    def all_ok(self) -> bool:
        """Whether everything was acknowledged as the broker's settings ask."""
        return not any(count for status, count in self.statuses.items() if status != "PUT_OK")

    def summary(self) -> str:
        """Return the tally as one line for people."""
        seconds = max(time.monotonic() - self.began, 1e-9)
        acknowledged = self.statuses["PUT_OK"]
        sent = how_many(acknowledged, "message")
        parts = [f"{sent} acknowledged ({self.bytes:,} bytes, {acknowledged / seconds:,.0f}/s)"]
        parts += [f"{n:,} appended with {status}" for status, n in self.statuses.items() if status != "PUT_OK" and n]
        if self.empty_lines:
            parts.append(f"{self.empty_lines:,} empty lines skipped: RocketMQ has no empty messages")
        return "; ".join(parts)

    def json(self, *, interrupted: bool = False) -> str:
        """Return the tally as one JSON line."""
        fields = {
            "statuses": dict(self.statuses), "bytes": self.bytes, "emptyLines": self.empty_lines,
            "seconds": time.monotonic() - self.began, "interrupted": interrupted,
        }  # fmt: skip
        return json_text("produce", fields)


@click.command()
@click.option(
    "--store",
    required=True,
    type=GivenPath(file_okay=False),
    metavar="STORE",
    help="Store of a running master on this host.",
)
@click.option(
    "-t",
    "--topic",
    required=True,
    shell_complete=topics,
    metavar="TOPIC",
    help="Topic of all messages: letters, digits, and % | - _ only.",
)
@click.option("--tag", metavar="TAG", help="Tag of all messages. Default: none.")
@click.option("--key", metavar="KEY", help="Key of all messages. Default: none.")
@number("--batch", click.IntRange(1, 100_000), BATCH, "N", "Number of messages in a batch.")
@number("--timeout", click.FloatRange(0.001), TIMEOUT_SECONDS, "SECONDS", "Give up on a batch after this many seconds.")
@form("Print one JSON object.")
@click.argument("files", metavar="[FILES]", nargs=-1, type=GivenPath(exists=True, dir_okay=False))
def produce(
    store: str,
    topic: str,
    tag: str | None,
    key: str | None,
    batch: int,
    timeout: float,
    files: tuple[str, ...],
    as_json: bool,
) -> int:
    """Append lines as messages to the broker on a local store.

    Each line of FILES, or of standard input, is one message. The exit code is 1 if a message was appended but
    acknowledged with less than the broker's settings ask for, for example with FLUSH_SLAVE_TIMEOUT.
    """
    from store.reading.extent import require_running

    running = require_running(store)
    if running.settings["brokerRole"] == "SLAVE":
        raise PutToSlave(store, _master_of(running))
    from engine.producer import Producer  # loads numba, which to find no broker does not need

    interrupt, tally = Interrupt(), Tally()
    previous = signal.signal(signal.SIGINT, interrupt.on_signal)
    try:
        with Producer(store, timeout=timeout) as producer, _progress(files) as advance:
            for fd, source in _inputs(files):
                lines = Lines(fd, source, int(running.settings["maxMessageSize"]))
                for some in lines.batches(batch):
                    with interrupt.hold():
                        _send(Sending(producer, topic, tag, key), lines, some, tally)
                    advance(sum(map(len, some)) + len(some))
    except KeyboardInterrupt:
        click.echo(tally.json(interrupted=True) if as_json else f"interrupted; {tally.summary()}")
        return INTERRUPTED
    except Exception:
        click.echo(tally.json() if as_json else tally.summary())
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
    click.echo(tally.json() if as_json else tally.summary())
    return ExitCode.WELL if tally.all_ok else ExitCode.FOUND


class Sending(NamedTuple):
    """The place where messages go, and the tag and key of all."""

    producer: Producer
    topic: str
    tag: str | None
    key: str | None

    def send(self, bodies: list[bytes], tally: Tally) -> None:
        """Send the bodies as one batch, and count them."""
        result = self.producer.send_batch(self.topic, bodies, tags=self.tag, keys=self.key)
        assert result is not None
        tally.add(result.status.name, bodies)


def _send(sending: Sending, lines: Lines, some: list[bytes], tally: Tally) -> None:
    """Send a batch; when a line of it cannot be sent, those before that. Raises LineRefused."""
    from engine.errors import MessageIllegal

    bodies = [line for line in some if line]
    tally.empty_lines += len(some) - len(bodies)
    try:
        if bodies:
            sending.send(bodies, tally)
    except MessageIllegal:  # nothing of the batch was sent: the rules are looked at before
        for index, line in enumerate(some):
            try:
                if line:
                    sending.send([line], tally)
            except MessageIllegal as error:
                lines.refuse(index, str(error))
        raise


def _master_of(running: Running) -> str:
    from engine.shared_memory import address_cursors
    from engine.shared_memory.cursors import BrokerCounters

    with closing(BrokerCounters.attach(running.region_directory)) as counters:
        return address_cursors.text_of(counters.ha_client.master_address)


def _inputs(files: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """A descriptor for each file in turn, or standard input, and its name."""
    if not files:
        if os.isatty(0):
            click.echo("reading messages from this terminal, one per line; press Ctrl-D to end", err=True)
        yield 0, "standard input"
    for name in files:
        with closing_fd(os.open(name, os.O_RDONLY)) as fd:
            yield fd, name


@contextmanager
def _progress(files: tuple[str, ...]) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while that is a terminal."""
    if not sys.stderr.isatty():  # whatever FORCE_COLOR says
        yield lambda _size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    total = float(sum(os.path.getsize(name) for name in files)) if files else None
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("produce", total=total)
        yield lambda size: bar.advance(task, size)
