"""`slipstream replica check`: every shape of two logs has one word, the last common record and a command."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import FrameSplitter, decode, encode
from store.notes import epochs
from store.notes.epochs import Epochs
from store.reading import log_ranges
from tests.harness.command_line import run
from tests.harness.dispatched import content
from tests.harness.logs import SEGMENT_BYTES, SmallLog
from tests.harness.served_log import ServedLog

COMMON, ALL = 45, 70


def log_of(root: Path, *parts: tuple[str, int], segment_bytes: int = SEGMENT_BYTES) -> SmallLog:
    """A log with so many records of each text, all records of one length."""
    log = SmallLog(root, segment_bytes)
    for text, count in parts:
        for _ in range(count):
            log.append("orders", text.encode(), queue_id=1)
    return log


Logs = tuple[SmallLog, SmallLog]
SHAPES: dict[str, tuple[Callable[[Path, Path], Logs], str, int | None]] = {
    "identical": (lambda a, b: (log_of(a, ("one", ALL)), log_of(b, ("one", ALL))), "IDENTICAL", ALL),
    "wiped": (lambda a, b: (log_of(a, ("one", ALL)), log_of(b, ("new", 5))), "NO_COMMON_HISTORY", None),
    "shorter": (lambda a, b: (log_of(a, ("one", ALL)), log_of(b, ("one", COMMON))), "AHEAD", COMMON),
    "longer": (lambda a, b: (log_of(a, ("one", COMMON)), log_of(b, ("one", ALL))), "BEHIND", COMMON),
    "other history of equal length": (
        lambda a, b: (log_of(a, ("one", COMMON), ("two", 30)), log_of(b, ("one", COMMON), ("new", 30))),
        "DIVERGED",
        COMMON,
    ),
    "lost tail": (
        lambda a, b: (log_of(a, ("one", ALL)), log_of(b, ("one", ALL - 1), ("new", 9))),
        "DIVERGED",
        ALL - 1,
    ),
    "old master": (
        lambda a, b: (log_of(a, ("one", COMMON), ("old", 30)), log_of(b, ("one", COMMON), ("new", 2))),
        "DIVERGED",
        COMMON,
    ),
    "other cluster": (lambda a, b: (log_of(a, ("one", ALL)), log_of(b, ("cat", ALL))), "NO_COMMON_HISTORY", None),
    "other segment size": (
        lambda a, b: (log_of(a, ("one", ALL)), log_of(b, ("one", ALL), segment_bytes=8192)),
        "OTHER_SEGMENT_SIZE",
        None,
    ),
    "empty replica": (lambda a, b: (log_of(a), log_of(b, ("one", ALL))), "BEHIND", None),
    "empty master": (lambda a, b: (log_of(a, ("one", ALL)), log_of(b)), "AHEAD", None),
}


def checked(store: Path, other: object, expected: int) -> dict[str, Any]:
    ran = run("replica", "check", store, "--with", other, "--json")
    assert ran.exit_code == expected, ran.output
    outcome: dict[str, Any] = json.loads(ran.stdout)
    return outcome


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_named_with_the_last_common_record(tmp_path: Path, shape: str) -> None:
    make, state, common = SHAPES[shape]
    own, other = make(tmp_path / "a", tmp_path / "b")
    code = 0 if state in ("IDENTICAL", "BEHIND") else 1
    outcome = checked(own.root, other.root, code)
    assert outcome["state"] == state
    last = None if common is None else own.records[common - 1]
    assert outcome["commonEnd"] == (last and last.end)
    assert (outcome["lastCommonRecord"] or {}).get("physicalOffset") == (last and last.offset)
    if last is not None:
        assert outcome["lastCommonRecord"]["queueOffset"] == last.queue_offset
    ran = run("replica", "check", own.root, "--with", other.root)
    assert ran.stdout.splitlines()[0] == state
    assert ran.stdout.splitlines()[-1] == f"next: {outcome['next']}"
    served = ServedLog(other.root, tmp_path / "regions", other.segment_bytes)
    try:
        over_the_wire = checked(own.root, served.address, code)
    finally:
        served.stop()
    here = {name: outcome[name] for name in ("state", "firstDifference", "commonEnd", "lastCommonRecord")}
    assert {name: over_the_wire[name] for name in here} == here


@pytest.mark.parametrize("number", [0, 1, COMMON, ALL - 1])
@pytest.mark.parametrize("byte", [8, 60, 88])  # the body's CRC, the store time, the body: the record keeps its shape
def test_the_first_byte_that_differs_is_found_wherever_it_lies(
    tmp_path: Path, number: int, byte: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = log_of(tmp_path / "a", ("one", ALL))
    shutil.copytree(own.root, tmp_path / "b")
    place = own.records[number]
    offset = place.offset + byte
    SmallLog(tmp_path / "b").flip(offset)
    monkeypatch.setattr(log_ranges, "BYTES_MAX", 1000)
    outcome = checked(own.root, tmp_path / "b", 1)
    assert outcome["firstDifference"] == offset
    assert outcome["commonEnd"] == (None if number == 0 else place.offset)


def test_what_retention_left_is_compared(tmp_path: Path) -> None:
    own, other = log_of(tmp_path / "a", ("one", ALL)), log_of(tmp_path / "b", ("one", ALL))
    other.files.path_of(0).unlink()
    assert checked(own.root, other.root, 0)["state"] == "IDENTICAL"
    for base in own.files.base_offsets()[1:]:
        own.files.path_of(base).unlink()
    assert checked(own.root, other.root, 1)["state"] == "NO_COMMON_HISTORY"


@contextmanager
def peer_that_answers(code: int) -> Iterator[str]:
    """Whatever it is asked, with that code."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def serve() -> None:
            taken, _address = listening.accept()
            with taken:
                for frame in FrameSplitter().feed(taken.recv(65536)):
                    taken.sendall(encode(decode(frame).answer(code, " request type 29001 not supported", version=407)))
                taken.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)


def test_a_rocketmq_broker_is_said_to_be_one(tmp_path: Path) -> None:
    own = log_of(tmp_path / "a", ("one", 3))
    with peer_that_answers(ResponseCode.REQUEST_CODE_NOT_SUPPORTED) as address:
        ran = run("replica", "check", own.root, "--with", address)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "PEER_IS_NO_SLIPSTREAM" in ran.stderr
    assert "slipstream log diff" in ran.stderr


def test_an_unreachable_peer_and_a_missing_store_are_errors(tmp_path: Path) -> None:
    own = log_of(tmp_path / "a", ("one", 3))
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{held.getsockname()[1]}"
        assert run("replica", "check", own.root, "--with", nobody).exit_code == 3
    assert run("replica", "check", own.root, "--with", tmp_path / "none").exit_code == 2


@pytest.mark.parametrize(
    ("theirs", "command"),
    [
        ((("one", COMMON), ("old", 9)), "there `slipstream replica rewind OTHER --with HOST:PORT`"),
        ((("one", COMMON),), "there `slipstream demote OTHER --master HOST:PORT`"),
        ((("new", 5),), "there `mv OTHER OTHER.old`"),
    ],
)
@pytest.mark.parametrize("is_served", [False, True])
def test_the_log_of_the_newer_epoch_is_neither_advised_to_be_cut_nor_cut(
    tmp_path: Path, theirs: tuple[tuple[str, int], ...], command: str, is_served: bool
) -> None:
    own = log_of(tmp_path / "a", ("one", COMMON), ("new", 9))
    other = log_of(tmp_path / "b", *theirs)
    epochs.write(own.root, Epochs().promoted("pair:1", 0, 1))
    before = content(own.root)
    served = ServedLog(other.root, tmp_path / "regions", SEGMENT_BYTES) if is_served else None
    try:
        ran = run("replica", "check", own.root, "--with", served.address if served else other.root)
        last = ran.stdout.splitlines()[-1]
        assert "STORE's epoch is the newer one (1, OTHER's is 0)" in last and command in last, ran.output
        assert str(own.root) not in last, "nothing is to be done to this store"
        for chosen in (["--with", served.address if served else other.root], ["--to", 0], ["--to", 0, "--dry-run"]):
            refused = run("replica", "rewind", own.root, *chosen)
            assert (refused.exit_code, "NEWER_EPOCH" in refused.stderr) == (1, True), refused.output
            assert command in refused.stderr or chosen[0] == "--to", refused.output
            assert "--give-up-newer" in refused.stderr and content(own.root) == before
        forced = run("replica", "rewind", own.root, "--to", 0, "--give-up-newer")
        assert forced.exit_code == 0 and content(own.root) != before, forced.output
    finally:
        if served is not None:
            served.stop()
