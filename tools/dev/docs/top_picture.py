"""Makes the picture of `slipstream top` in the documents: a pair under load, looked at for a while; an SVG.

`python -m tools.dev.docs.top_picture docs/pictures/top.svg`
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from engine.producer import Producer
from ipc.module_names import named
from tools.common.local_broker import LocalBroker, end
from tools.dev.bench.bed.brokers import pair
from tools.top.app import Top

FETCHED_FONT = re.compile(r"\n *@font-face\s*\{[^}]*\}")  # who looks at a picture asks nobody for anything
SIZE = (120, 46)
SECONDS, TURN_SECONDS = 45.0, 0.03
KEYS: dict[str, Any] = {"mappedFileSizeCommitLog": 1 << 26, "ringSizeInBytes": 1 << 20, "brokerName": "broker-a"}
TOPICS = ("orders", "payments", "clicks", "audit", "stock")
GROUPS = {"billing": "orders", "ledger": "payments", "search": "clicks"}


def _load(store: str, over: threading.Event) -> None:
    """Several topics, the first ones more than the last ones."""
    turn = 0
    with Producer(store, timeout=60.0) as producer:
        while not over.wait(TURN_SECONDS):
            turn += 1
            for topic in TOPICS[: 1 + turn % len(TOPICS)]:
                producer.send_batch(topic, [b"x" * random.randint(50, 800)] * random.randint(1, 40))


@contextlib.contextmanager
def _pair() -> Iterator[LocalBroker]:
    """Under load, with consumers; paths are relative, so that the picture names no folder of this machine."""
    over = threading.Event()
    with ExitStack() as stack:
        master, _slave = stack.enter_context(pair(Path("broker-a"), **KEYS))
        thread = threading.Thread(target=_load, args=(str(master.store), over))
        thread.start()
        stack.callback(thread.join)
        stack.callback(over.set)
        where = ["--broker", f"127.0.0.1:{master.port}"]
        for group, topic in GROUPS.items():
            command = [sys.executable, "-m", named("tools.cli")]
            first = [*command, "send", "-t", topic, *where]
            subprocess.run(first, input=b"first\n", check=True, stdout=subprocess.DEVNULL)
            words = ["consume", "-g", group, "-t", topic, *where, "--from", "first", "--follow"]
            consumer = subprocess.Popen([*command, *words], stdout=subprocess.DEVNULL)
            stack.callback(end, consumer, 60.0)
        yield master


async def _picture(store: str) -> str:
    app = Top(store, interval=1.0)
    async with app.run_test(size=SIZE):
        await asyncio.sleep(SECONDS)
        return app.export_screenshot(title="slipstream top STORE")


def main() -> None:
    """Into the file that is named."""
    target = Path(sys.argv[1]).resolve()
    os.environ["PYTHONPATH"] = str(Path.cwd())
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory), _pair() as master:
        svg = asyncio.run(_picture(str(master.store)))
    svg = FETCHED_FONT.sub("", svg)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")


if __name__ == "__main__":
    main()
