"""What brokers of ours ask each other about their logs: answers are bounded, and what a stranger says is checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.broker.log_requests import Extent, digests_of, extent_body, extent_of
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.peers.log_peer import LogPeer
from engine.remoting.sockets.client import PeerRefused, RemotingClient
from store.errors import MalformedData
from store.notes import epochs
from store.notes.epochs import Epochs
from store.reading import log_ranges
from tests.harness.logs import SEGMENT_BYTES, SmallLog
from tests.harness.served_log import ServedLog

EXTENT = Extent("c", "pair", 0, 1, True, 4096, 0, 4096, "h:10912", 1, 2, [], 5)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedLog]:
    log = SmallLog(tmp_path / "store")
    log.fill(80)
    epochs.write(log.root, Epochs().promoted("pair:1", 100, 1))
    server = ServedLog(log.root, tmp_path / "regions", SEGMENT_BYTES)
    yield server
    server.stop()


def test_an_extent_is_taken_as_it_was_said() -> None:
    assert extent_of(json.dumps(extent_body(EXTENT)).encode()) == EXTENT
    assert EXTENT.identity == "pair:1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_offset": 5000}, {"min_offset": -1}, {"max_offset": 1 << 63}, {"segment_bytes": 0}, {"epoch": -1},
        {"epoch": 7},
        {"segment_bytes": 1 << 31}, {"is_master": 1}, {"broker_name": "a\nb"}, {"broker_name": "x" * 1000},
        {"ha_address": None}, {"own_id": "1"}, {"own_id": -1}, {"epochs": {}}, {"max_offset": True},
        {"next_epoch": 1 << 63},
    ],
)  # fmt: skip
def test_a_strangers_extent_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(MalformedData):
        extent_of(json.dumps({**extent_body(EXTENT), **wrong}).encode())


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"digests": "x"}', b'{"digests": ["x"]}', b'{"digests": [1]}'])
def test_a_strangers_digests_are_checked(body: bytes) -> None:
    with pytest.raises(MalformedData):
        digests_of(body, 1)


@pytest.mark.parametrize(
    "asked",
    [
        {}, {"start": "0", "end": "10"}, {"start": "10", "end": "10", "parts": "1"},
        {"start": "0", "end": "x", "parts": "1"},
        {"start": "-1", "end": "10", "parts": "1"}, {"start": "0", "end": "10", "parts": "0"},
        {"start": "0", "end": "10", "parts": str(log_ranges.PARTS_MAX + 1)},
        {"start": "0", "end": str(1 << 40), "parts": "1"}, {"start": "100", "end": str(1 << 20), "parts": "1"},
    ],
)  # fmt: skip
def test_digests_are_of_bounded_ranges_of_the_log(served: ServedLog, asked: dict[str, str]) -> None:
    with RemotingClient(served.address) as client:
        with pytest.raises(PeerRefused):
            client.ask(RequestCode.GET_LOG_DIGESTS, asked)
        peer = LogPeer(client)
        assert len(peer.digests(0, peer.max_offset, 7)) == 7, "and who asks well is answered still"
