"""A slave whose name server and master are one rogue: no path outside its store, bounded memory, it lives."""

from __future__ import annotations

from pathlib import Path

import psutil

from engine.board.cursors import Board
from engine.protocol.remoting.codes import RequestCode
from store.reading import extent
from tests.fuzz.frames import still_answers
from tests.harness.conditions import await_that
from tests.hostile.rogue_server import RogueServer
from tools.common.local_broker import LocalBroker, free_port

SIZES = {"mappedFileSizeCommitLog": 1 << 18, "mappedFileSizeConsumeQueue": 20_000, "ringSizeInBytes": 1 << 20}
SECONDS, MIB, GROWN_BYTES_MAX = 60.0, 1 << 20, 256 << 20
QUESTIONS = (
    RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
)  # fmt: skip


def names_of(tmp_path: Path) -> list[str]:
    """Names of topics, groups and all else that would be files elsewhere if they were joined to a path."""
    escaped = tmp_path / "escaped"
    return [
        "../escaped", "../../escaped", "../../../escaped", "../../../../escaped", str(escaped), "..", ".", "x/../../y",
        "a\0b", "\n", "%2e%2e%2fescaped", "..\\escaped", "lock", "\u202e",
    ]  # fmt: skip


def files_outside(tmp_path: Path, store: Path) -> set[Path]:
    return {path for path in tmp_path.rglob("*") if store not in (path, *path.parents)}


def test_names_of_a_rogue_are_no_paths(tmp_path: Path) -> None:
    names, port = names_of(tmp_path), free_port()
    settings = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": f"127.0.0.1:{port}", **SIZES}
    with (
        RogueServer(port, names) as rogue,
        LocalBroker(tmp_path / "a" / "b" / "slave", compat="5", **settings) as slave,
    ):
        board = Board.attach(extent.require_running(slave.store).region_directory)
        process = psutil.Process(board.pids["remoting"].read())
        before, rss = files_outside(tmp_path, slave.store), process.memory_info().rss
        assert rogue.reported.wait(SECONDS), "the slave has its master's log"
        await_that(lambda: all(rogue.asked[code] >= 1 for code in QUESTIONS), "it asked for all tables", SECONDS)
        await_that(lambda: board.reput_from_offset.read() == len(rogue.log), "it dispatched the log", SECONDS)
        await_that(lambda: still_answers(slave.port, RequestCode.GET_ALL_TOPIC_CONFIG), "it answers", SECONDS)
        assert process.memory_info().rss - rss < GROWN_BYTES_MAX
        assert board.restarts["remoting"].read() == board.restarts["receiver"].read() == 0
        assert board.restarts["dispatcher"].read() == 0
    assert files_outside(tmp_path, slave.store) == before
    queues = {path.relative_to(slave.store / "consumequeue") for path in (slave.store / "consumequeue").glob("*/*")}
    assert {str(path.parent) for path in queues} <= {"\n", "%2e%2e%2fescaped", "..\\escaped", "lock", "\u202e"}
