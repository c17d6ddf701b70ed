"""`slipstream top` at a running pair: keys, sizes, closer looks, a broker that ends and comes back, one snapshot."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from engine.monitoring.live.broker import LiveBroker
from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.conditions import SECONDS, await_that
from tests.harness.terminal import Terminal, in_terminal, text_of
from tools import cli
from tools.common.exit_codes import ExitCode
from tools.common.local_broker import LocalBroker
from tools.top.app import Top
from tools.top.drawing import UNICODE
from tools.top.page import page

SMALL = {
    "mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20, "slaveTimeout": 120_000,
    "haHousekeepingInterval": 120_000,
}  # fmt: skip
MASTER = {**SMALL, "brokerRole": "SYNC_MASTER", "compat": "5"}
SIZES = [(80, 24), (200, 60)]
COMMAND = [sys.executable, "-m", "tools.cli"]
Brokers = tuple[LocalBroker, LocalBroker]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """With three topics, and a group that has consumed one of them in part."""
    directory = tmp_path_factory.mktemp("top")
    with LocalBroker(directory / "m", **MASTER) as master:
        keys = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address}
        with LocalBroker(directory / "s", **SMALL, **keys) as slave, Producer(master.store, timeout=60.0) as producer:
            counters = counters_of(master)
            await_that(lambda: counters.in_sync_slaves.read() == 1, "the slave follows")
            where = ["--broker", f"127.0.0.1:{master.port}", "--timeout", "120"]
            lines = {"input": b"x\n" * 31, "stdout": subprocess.DEVNULL, "timeout": 600}
            words = ["send", "-t", "many", *where]  # over remoting: so it becomes a topic
            subprocess.run([*COMMAND, *words], check=True, **lines)
            for topic, count in (("few", 3), ("some", 10)):
                producer.send_batch(topic, [b"x" * 100] * count)
            producer.send("few", b"y" * 100, timeout=120)
            end = counters.max_physical_offset.read()
            await_that(lambda: counters.ha[0].slave_ack_offset.read() >= end, "the slave has it")
            await_that(lambda: counters.reput_from_offset.read() >= end, "it is dispatched")
            words = ["consume", "-g", "readers", "-t", "many", *where, "--from", "first", "--count", "5"]
            subprocess.run([*COMMAND, *words], check=True, stdout=subprocess.DEVNULL, timeout=600)
            for queue_id in range(4):
                producer.send("many", b"behind", queue_id=queue_id, timeout=120)
            end = counters.max_physical_offset.read()
            await_that(lambda: counters.reput_from_offset.read() >= end, "that is dispatched, too")
            await_that(lambda: groups_of(master), "its offsets are in shared memory")
            yield master, slave


def counters_of(broker: LocalBroker) -> BrokerCounters:
    return BrokerCounters.attach(extent.require_running(broker.store).region_directory)


def groups_of(broker: LocalBroker) -> list[str]:
    with LiveBroker(broker.store) as live:
        return [group.group for group in live.look(at_once=True).groups]


def played(
    store: Path, size: tuple[int, int], play: Callable[[Top, Pilot[None]], Coroutine[Any, Any, None]], **options: Any
) -> Top:
    """The app without a terminal, driven by `play`."""
    app = Top(str(store), **{"interval": 0.2, **options})

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.last is not None and app.panel.lines)
            await play(app, pilot)

    asyncio.run(run())
    return app


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + SECONDS
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "not in time"
        await pilot.pause(0.02)


def said_by(app: Top) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_each_view_by_its_key(pair: Brokers, size: tuple[int, int]) -> None:
    async def play(app: Top, pilot: Pilot[None]) -> None:
        for key, name, text in (
            ("1", "replicas", "127.0.0.1:"), ("2", "topics", "many"), ("3", "producers", "front.0"),
            ("4", "consumers", "readers"), ("5", "roles", "group_transfer"),
        ):  # fmt: skip
            await pilot.press(key)
            await until(pilot, lambda: shows(app, name, text))  # noqa: B023
            shown = [panel.id for panel in app.query("Panel") if panel.display]
            assert shown == [name] if size == (80, 24) else len(shown) == 5
            assert all(cell_len(line) <= app.panel.size.width for line in app.panel.lines)
        # A process of a busy machine may be late, which is wrong for as long.
        await until(pilot, lambda: "─▶ flushed" in said_by(app) and "OK  nothing is wrong" in said_by(app))
        assert all(len(line) == size[0] for line in said_by(app).splitlines())
        await pilot.press("tab")
        await until(pilot, lambda: app.panel.view.name == "replicas" and app.panel.has_focus)

    played(pair[0].store, size, play)


def shows(app: Top, view: str, text: str) -> bool:
    return app.panel.view.name == view and any(text in line for line in app.panel.lines)


def names(app: Top) -> list[str]:
    return [app.panel.view.name_of(row) for row in app.panel.rows]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_rows_are_sorted_filtered_and_looked_at(pair: Brokers, size: tuple[int, int]) -> None:
    async def play(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("2", "s", "s")
        await until(pilot, lambda: names(app) == ["many", "some", "few"])
        await pilot.press("r")
        await until(pilot, lambda: names(app) == ["few", "some", "many"])
        await pilot.press("slash", *"OM", "enter")
        await until(pilot, lambda: names(app) == ["some"])
        await pilot.press("slash", "escape")
        await until(pilot, lambda: len(names(app)) == 3)
        await pilot.press("end", "enter")
        await until(pilot, lambda: any("35 messages" in line for line in app.panel.lines))
        assert app.panel.lines[0] == "many" and app.panel.lines[-1].split()[0] == "3", "its queues"
        assert [panel.id for panel in app.query("Panel") if panel.display] == ["topics"], "it has all the room"
        await pilot.press("escape")
        await until(pilot, lambda: any("messages" in line and "queues" in line for line in app.panel.lines))

    played(pair[0].store, size, play)


def test_a_group_and_a_replica_closely(pair: Brokers) -> None:
    async def play(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("4", "enter")
        await until(pilot, lambda: any("nobody" in line for line in app.panel.lines))
        shown = app.panel.lines
        assert any(re.match(r"lag +[1-9]\d* messages?, \d queues? of 1 topic$", line) for line in shown), shown
        assert any(line.startswith("many/") for line in shown)
        await pilot.press("1", "enter")
        await until(pilot, lambda: any("lag, 5 min" in line for line in app.panel.lines))
        assert any(line.split() == ["in", "sync", "yes"] for line in app.panel.lines)
        await pilot.press("3", "enter")
        await until(pilot, lambda: any("of its places" in line for line in app.panel.lines))
        await pilot.press("5", "down", "down", "enter")
        await until(pilot, lambda: any("started again" in line for line in app.panel.lines))

    played(pair[0].store, (80, 24), play)


def test_a_slave_is_shown_with_its_master(pair: Brokers) -> None:
    async def play(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: any(f"master {pair[0].ha_address}" in line for line in app.panel.lines))
        await pilot.press("enter")
        await until(pilot, lambda: any("a second, 1 min" in line for line in app.panel.lines))
        assert "confirmed" not in said_by(app), "which a master alone has"

    played(pair[1].store, (80, 24), play)


def test_top_shows_its_help_and_can_be_paused(pair: Brokers) -> None:
    async def play(app: Top, pilot: Pilot[None]) -> None:
        await pilot.press("h")
        await until(pilot, lambda: "open the row" in said_by(app))
        await pilot.press("escape", "space")
        await until(pilot, lambda: "PAUSED" in said_by(app) and app.panel.display)
        stopped = app.last
        await pilot.pause(0.5)
        assert app.last is stopped
        await pilot.press("space")
        await until(pilot, lambda: app.last is not stopped)
        await pilot.press("q")

    assert played(pair[0].store, (80, 24), play).error is None


def test_a_broker_that_ends_is_waited_for_and_shown_again(tmp_path: Path) -> None:
    async def play(app: Top, pilot: Pilot[None]) -> None:
        await asyncio.to_thread(broker.stop)
        await until(pilot, lambda: "ENDED  the broker ended at" in said_by(app))
        again = await asyncio.to_thread(LocalBroker(tmp_path / "ends", **SMALL).__enter__)
        try:
            await until(pilot, lambda: app.broker is not None and "ENDED" not in said_by(app))
        finally:
            await asyncio.to_thread(again.stop)
        app._wait_ms = 0
        await until(pilot, lambda: app.error is not None)

    with LocalBroker(tmp_path / "ends", **SMALL) as broker:
        app = played(broker.store, (80, 24), play, wait=10_000.0)
    assert getattr(app.error, "code", None) == "NO_BROKER"


def page_when_well(broker: LocalBroker, capfd: pytest.CaptureFixture[str]) -> str | None:
    """What is printed, once nothing is wrong: a process of a busy machine may be late for a moment."""
    assert cli.run_command(["top", "--once", "--interval", "0.2", str(broker.store)]) == 0
    out = capfd.readouterr().out
    return out if "OK  nothing is wrong" in out else None


def test_one_snapshot_without_a_terminal(pair: Brokers, capfd: pytest.CaptureFixture[str]) -> None:
    for broker, words in zip(pair, ("confirmed", "master 127.0.0.1:"), strict=True):
        out = await_that(partial(page_when_well, broker, capfd), "all is well")
        assert max(map(cell_len, out.splitlines())) <= 80 and "\x1b" not in out
        for text in ("─▶ dispatched", "many", "Producers:", "Consumers:", "supervisor", words):
            assert text in out, text
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    words = [*COMMAND, "top", "--once", "--interval", "0.2", str(pair[0].store)]
    ran = subprocess.run(words, capture_output=True, env=environment, timeout=600, check=True)
    assert b"-> flushed" in ran.stdout and ran.stdout.isascii()


def test_one_snapshot_in_a_terminal(pair: Brokers) -> None:
    words = [*COMMAND, "top", "--once", "--interval", "0.2", str(pair[0].store)]
    code, out = in_terminal(words, 80, 24)
    assert code == 0 and b"\x1b[1m" in out
    assert max(map(cell_len, text_of(out).splitlines())) <= 80
    code, out = in_terminal(words, 40, 24, NO_COLOR="1")
    assert code == 0 and not any(b"\x1b[3%d" % color in out for color in range(8))
    assert max(map(cell_len, text_of(out).splitlines())) <= 40


def test_top_leaves_the_terminal_as_it_was(pair: Brokers) -> None:
    """Without the mouse; q, Ctrl-C and SIGTERM leave the terminal as it was."""
    words = [*COMMAND, "top", "--interval", "0.2", str(pair[0].store)]
    for keys, code in ((b"q", 0), (b"\x03", ExitCode.INTERRUPTED), (b"", 0)):
        with Terminal(words, 80, 24, NO_COLOR="1") as terminal:
            out = terminal.read_until(b"Replicas")
            out += terminal.read_until(b"127.0.0.1")
            if keys:
                terminal.press(keys)
            else:
                terminal.process.terminate()
            terminal.read_until(b"\x1b[?1049l")
            terminal.read_until(b"")
            assert terminal.process.wait(SECONDS) == code
            assert not re.search(rb"\x1b\[[0-9;]*[34]8;[25];", terminal.output), "a colour"
            assert b"\x1b[?1000h" not in terminal.output and b"\x1b[?1003h" not in terminal.output, "the mouse"


def test_wrong_usage_and_no_broker(pair: Brokers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*COMMAND, "top", str(pair[0].store)]
    ran = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=600, check=False)
    assert ran.returncode == ExitCode.USAGE and b"--once" in ran.stderr and ran.stderr.count(b"\n") == 1
    assert cli.run_command(["top", "--once", str(tmp_path)]) == ExitCode.NO_BROKER
    assert capsys.readouterr().err.startswith("slipstream: NO_BROKER: ")
    assert cli.run_command(["top", "--interval", "0", str(pair[0].store)]) == ExitCode.USAGE


def test_the_page_of_a_narrow_terminal(pair: Brokers) -> None:
    with LiveBroker(pair[0].store) as live:
        look = live.look()
    for width in (20, 33, 80, 200):
        assert all(line.cell_len <= width for line in page(look, width, UNICODE))
