"""A running broker of release 0.2.0, as its shared memory was captured: this version's commands read it and put.

Captured from a master with two rings of 64 KiB, to whose topic `orders` seven messages had been put. If a layout
changes, its LAYOUT is raised, what this version reads of the previous release stays, and a release is captured anew.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.errors import SendTimeout
from engine.producer import Producer
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.failures import PLACES
from ipc import waiting
from ipc.counters import Counters
from ipc.errors import OtherVersion
from ipc.process import start_time
from ipc.region import HEADER_BYTES
from store.files import pointer
from tests.harness.command_line import run

CAPTURED = Path(__file__).parent / "release-0.2.0.tar.xz"
MESSAGES = 7


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """The store; its pointer says that this process is the broker, whose roles have ended."""
    with tarfile.open(CAPTURED) as archive:
        archive.extractall(tmp_path, filter="data")
    store, regions = tmp_path / "store", tmp_path / "regions"
    counters = Counters.attach(regions / pointer.COUNTERS_FILE, writable=True)
    for one in counters:
        if one.label.startswith("pid."):
            counters.cursor(one.label).words[counters.cursor(one.label).index] = 0
    counters.close()
    fields = json.loads((tmp_path / "pointer.json").read_text())
    fields |= {"pid": os.getpid(), "start_time": start_time(os.getpid()), "region_directory": str(regions)}
    fields["settings"] |= {"storePathCommitLog": str(store / "commitlog")}
    held = pointer.write(store, store / "commitlog", fields)
    yield store
    os.close(held)


def test_commands_show_a_running_broker_of_0_2_0(store: Path) -> None:
    shown = json.loads(run("status", store, "--json").stdout)
    assert (shown["role"], shown["state"], shown["cursors"]["put_messages"]) == ("ASYNC_MASTER", "RUNNING", MESSAGES)
    assert shown["cursors"]["reign"] == 0, "a counter that it does not have"
    for words in (("status",), ("top", "--once"), ("stats",), ("ha", "status"), ("counters",)):
        ran = run(*words, store)
        assert ran.exit_code in (0, 1) and "VERSION" not in ran.output and ran.stdout, (words, ran.output)
    assert "orders" in run("top", store, "--once").stdout and "orders" in run("stats", store).stdout


def test_a_producer_asks_its_writer(store: Path) -> None:
    def asked() -> int:
        """Where 0.2.0 looks for it: word 2 of the first ring."""
        return int(np.fromfile(store.parent / "regions" / "rings", np.int64)[HEADER_BYTES // 8 + 2])

    before = asked()
    with Producer(store) as producer, pytest.raises(SendTimeout) as raised:
        producer.send("orders", b"body", timeout=0.1)
    assert not raised.value.may_be_appended, "nobody answers in which slot the queue is"
    assert asked() == before + 1 and b"orders" in (store.parent / "regions" / "ring-000").read_bytes()


def test_nobody_takes_the_word_of_a_counter_that_it_lacks(store: Path) -> None:
    counters = BrokerCounters.attach(store.parent / "regions", writable=True)
    assert counters.reign.read() == 0 and counters.put_messages.read() == MESSAGES
    with pytest.raises(OtherVersion, match=r"its broker runs version unknown.*no counter 'reign'"):
        waiting.publish(counters.reign, 1)
    with pytest.raises(OtherVersion, match="reign"):
        _ = counters.reign.index
    counters.region.close()


def test_places_by_number_are_as_they_were(store: Path) -> None:
    counters = Counters.attach(store.parent / "regions" / pointer.COUNTERS_FILE)
    labels = [one.label for one in counters]
    counters.close()
    then = [label.removeprefix("heartbeat.") for label in labels if label.startswith("heartbeat.")]
    assert list(PLACES[: len(then)]) == then, "a role's number is its place in a region: raise the layout of `failures`"
