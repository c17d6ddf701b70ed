"""Every block of the tutorials runs, one after the other, and leaves what its page says."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream import open_store
from store.reading.extent import running
from tests.harness.page_blocks import ROOT, Session, blocks_of, commands_in_path
from tests.interop import jars, needs
from tests.interop.rocketmq import VERSION
from tools.common.local_broker import free_port

KINDS = {"sh", "python", "java"}
JAVA_SECONDS = 900


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with commands_in_path(monkeypatch, tmp_path):
        yield tmp_path


def count_of(store: Path) -> int:
    return sum(1 for _message in open_store(str(store)).messages())


def test_every_tutorial_is_run_here() -> None:
    pages = {path.name for path in (ROOT / "docs" / "tutorials").iterdir()}
    assert pages == {"append.md", "attach.md", "consume.md", "java-clients.md", "pair.md"}
    for page in pages:
        blocks = blocks_of(f"tutorials/{page}")
        assert len(blocks) >= 5 and {block.kind for block in blocks} <= KINDS


def test_append_from_python(directory: Path) -> None:
    with Session("tutorials/append.md", directory, {"10911": free_port()}) as session:
        session.run()
        names = session.names
        assert (names["one"].status.name, names["batch"].count, len(names["offsets"])) == ("PUT_OK", 10_000, 100)
        assert (names["refused"].code, names["refused"].may_be_appended) == ("MESSAGE_ILLEGAL", False)
        assert names["messages"] == 10_101


def test_consume_from_python(directory: Path) -> None:
    with Session("tutorials/consume.md", directory, {"10911": free_port()}) as session:
        session.run()
        names = session.names
        assert (names["total"], names["counted"], len(names["places"]), len(names["ten"])) == (500_500, 1000, 1000, 10)
        assert names["tries"] == [0, 1], "the message that failed came again"
        assert all(offsets == sorted(offsets) for offsets in names["by_queue"].values())
        assert (sum(names["offsets"].values()), names["again"][0].queue_offset) == (1000, 0)


def test_a_synchronous_pair(directory: Path) -> None:
    master, slave = free_port(), free_port()
    patiently = {  # a page's reader has a machine to himself
        "slipstream produce": "slipstream produce --timeout 120",
        "mappedFileSizeCommitLog=16777216": (
            "mappedFileSizeCommitLog=16777216\nslaveTimeout=60000\nhaHousekeepingInterval=120000\n"
            "diskSpaceWarningLevelRatio=100\ndiskSpaceCleanForciblyRatio=100"
        ),
    }
    instead = {"10911": master, "10912": master + 1, "10921": slave, **patiently}
    with Session("tutorials/pair.md", directory, instead) as session:
        session.run()
        assert running(directory / "pair" / "master" / "store") is None
        assert count_of(directory / "pair" / "slave" / "store") == 10_003


@pytest.mark.interop
def test_java_clients_through_our_name_server(directory: Path) -> None:
    needs.need()
    names = free_port()
    said: list[str] = []

    def run_java(text: str) -> None:
        (directory / "Hello.java").write_text(text)
        classes = jars.of_broker(VERSION).class_path([directory / "Hello.java"])
        done = subprocess.run(
            ["java", f"-Duser.home={directory}", "-cp", classes, "Hello", f"127.0.0.1:{names}"],
            check=True,
            timeout=JAVA_SECONDS,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        said.extend(done.stdout.split("\n"))

    patiently = {f"slipstream {word}": f"slipstream {word} --timeout 120" for word in ("send", "consume")}
    instead = {"9876": names, "10911": free_port(), **patiently}
    with Session("tutorials/java-clients.md", directory, instead) as session:
        session.run({"java": run_java})
        assert said.count("SEND_OK") == 10
        assert {f"hello {number}" for number in range(10)} <= set(said)
        assert count_of(directory / "clients" / "store") == 15
