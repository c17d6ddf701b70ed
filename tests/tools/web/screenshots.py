"""`make screenshots`: the console's pages as pictures for the documents, of a pair under load that it starts itself.

`python -m tests.tools.web.screenshots FOLDER [every]`; every: each page at 360 and 1,920 pixels, light and dark, to be
looked at, not to be kept.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
from PIL import Image

from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from ipc.module_names import named
from store.reading.extent import require_running
from tests.harness.browser import browser, window
from tests.harness.conditions import await_that
from tests.harness.served_console import ServedConsole
from tools.common.local_broker import LocalBroker, end

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDTH, NARROW, WIDE, HEIGHT_MAX = 1440, 360, 1920, 1500
UNDER_LOAD_SECONDS, STALL_SECONDS, PAUSE_SECONDS, STALL_EVERY = 80.0, 11.0, 0.03, 900
BYTES_MAX, COLOURS = 90_000, 255
# (picture, page, what it shows once it is complete, what is typed or pressed first)
PICTURES = (
    ("pipeline", "/", ".stages .here", ""), ("segments", "/segments", ".segment .cells", ""),
    ("latency", "/latency", "section .chart .bar", ""), ("lag", "/lag", "td .badge", ""),
    ("topics", "/topics", r"td:text-matches('[0-9]/s$')", ""),
    ("messages", "/search?by=newest&topic=orders&limit=10", "td .preview", ""),
    ("checks", "/checks", "button", "verify"), ("settings", "/settings", "td .badge", "file"),
)  # fmt: skip

TOPIC = ("topic", "/topics?topic=orders", "tbody a", "")


def load(store: Path, stop: threading.Event) -> None:
    """Orders, clicks and invoices, unevenly, until it is told to stop."""
    chance, number = random.Random(7), 0
    with Producer(store) as producer:
        while not stop.wait(PAUSE_SECONDS * chance.random() * (40 if number % STALL_EVERY > STALL_EVERY - 60 else 1)):
            number += 1
            key, tags = f"A-{number:06d}", chance.choice(("new", "paid", "shipped"))
            order = {"order": key, "customer": f"c{chance.randint(1, 400)}", "items": chance.randint(1, 9)}
            producer.send("orders", json.dumps(order).encode(), tags=tags, keys=key)
            producer.send("clicks", chance.randbytes(chance.randint(200, 20_000)))
            if number % 5 == 0:
                producer.send("invoices", f"invoice {number}: paid, thank you".encode(), keys=f"inv-{number}")


def main() -> int:
    """Make them all; the exit code is 1 where one became too large."""
    target = Path(sys.argv[1]).resolve()
    target.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        running = stack.enter_context(browser())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slipstream-demo-")))
        keys = {
            "brokerName": "orders-a",
            "brokerClusterName": "demo",
            "mappedFileSizeCommitLog": 8 << 20,
            "haSlaveFallbehindMax": 1 << 20,
        }
        master = stack.enter_context(LocalBroker(folder / "demo" / "master", **keys))
        slave = stack.enter_context(
            LocalBroker(
                folder / "demo" / "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address, **keys
            )
        )
        stop = threading.Event()
        worker = threading.Thread(target=load, args=(master.store, stop))
        worker.start()
        stack.callback(worker.join)
        stack.callback(stop.set)
        stores = [broker.store.relative_to(folder) for broker in (master, slave)]
        console = stack.enter_context(ServedConsole(*stores, folder=folder))
        await_that(lambda: len(console.ask("/api/topics").json["topics"]) == 3, "three topics")
        consumers = [consumer(group, master.port) for group in ("billing", "shipping")]
        for each in consumers:
            stack.callback(end, each, 60.0)
        await_that(lambda: len(groups_of(console)) == len(consumers), "two groups")
        stop.wait(UNDER_LOAD_SECONDS / 2)
        for pid in (consumers[0].pid, receiver_of(slave.store)):  # so that there is some lag to be seen
            stalled(pid, stop)
        stop.wait(UNDER_LOAD_SECONDS / 4)
        if sys.argv[2:] == ["every"]:
            print(f"{len(take_every(running, console, target))} pictures in {sys.argv[1]}")
            return 0
        pictures = take(running, console, target)
    large = [picture.name for picture in pictures if picture.stat().st_size > BYTES_MAX]
    print(f"{len(pictures)} pictures in {sys.argv[1]}" + (f"; too large: {', '.join(large)}" if large else ""))
    return int(bool(large))


def groups_of(console: ServedConsole) -> list[str]:
    """Whose lag the console has a curve of."""
    stores = console.ask("/api/lag").json["stores"]
    return [curve["name"] for store in stores for curve in store["curves"] if curve["kind"] == "group"]


def receiver_of(store: Path) -> int:
    """The process of a slave that receives the log."""
    counters = BrokerCounters.attach(require_running(store).region_directory)
    try:
        return counters.pids["receiver"].read()
    finally:
        counters.region.close()


def stalled(pid: int, stop: threading.Event) -> None:
    """A process that stands still for a while."""
    process = psutil.Process(pid)
    process.suspend()
    stop.wait(STALL_SECONDS)
    process.resume()


def consumer(group: str, port: int) -> subprocess.Popen[bytes]:
    """One that follows the orders."""
    words = ("consume", "-g", group, "-t", "orders", "--broker", f"127.0.0.1:{port}", "--from", "first", "--follow")
    command = [sys.executable, "-m", named("tools.cli"), *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def take(running: Browser, console: ServedConsole, target: Path) -> list[Path]:
    """All pictures: each page in light colours, and some as they are on a telephone and in the dark."""
    made = [picture(running, console, target, *one, WIDTH, "light") for one in (*PICTURES, message_of(console))]
    made.append(picture(running, console, target, "pipeline-dark", "/", ".stages .here", "", WIDTH, "dark"))
    made.append(picture(running, console, target, "narrow", "/", ".stages .here", "", NARROW, "dark"))
    return made


def take_every(running: Browser, console: ServedConsole, target: Path) -> list[Path]:
    """Each page at both ends of what it is made for."""
    return [
        picture(running, console, target, f"{name}-{width}-{scheme}", path, complete, first, width, scheme)
        for name, path, complete, first in (*PICTURES, message_of(console), TOPIC)
        for width in (NARROW, WIDE)
        for scheme in ("light", "dark")
    ]


def message_of(console: ServedConsole) -> tuple[str, str, str, str]:
    """The page of one of the newest orders."""
    newest = console.ask("/api/search?by=newest&topic=orders").json["messages"][5]["offset"]
    return "message", f"/message?offset={newest}", "pre.body", ""


def picture(
    running: Browser,
    console: ServedConsole,
    target: Path,
    name: str,
    path: str,
    complete: str,
    first: str,
    width: int,
    scheme: str,
) -> Path:
    """One page, as high as it is up to a bound."""
    with window(running, width, scheme) as watched:
        page, origin = watched.page, f"http://127.0.0.1:{console.port}"
        page.goto(console.url)
        page.wait_for_url(f"{origin}/")
        page.goto(f"{origin}{path}")
        page.locator(complete).first.wait_for()
        if first == "verify":
            if not page.locator(".job").count():
                page.locator("button[value=verify]").click()
            page.locator(".job", has_text="findings").first.wait_for()
        elif first:
            page.locator("input[name=filter]").fill(first)
        page.evaluate("document.activeElement.blur()")
        high = min(page.evaluate("document.querySelector('main').getBoundingClientRect().bottom") + 4, HEIGHT_MAX)
        page.set_viewport_size({"width": width, "height": max(int(high), 320)})
        page.wait_for_timeout(2500)  # some live values
        file = target / f"web-{name}.png"
        page.screenshot(path=file)
        assert not watched.faults, watched.faults
    made_small(file)
    return file


def made_small(file: Path) -> None:
    """A palette of the commonest colours in place of all: those that smooth letters become the next best one."""
    with Image.open(file) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    values, where, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    kept = values[np.argsort(-counts)[:COLOURS]].astype(np.int64)
    nearest = np.square(values[:, None] - kept).sum(axis=2).argmin(axis=1).astype(np.uint8)
    few = Image.fromarray(nearest[where].reshape(pixels.shape[:2]), "P")
    few.putpalette(kept.astype(np.uint8).tobytes())
    few.save(file, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
