"""Rules of RocketMQ's client, asked of its own classes: recorded shares and signatures, and files of offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.clients.cluster import Place
from engine.clients.consuming.own_offsets import OwnOffsets
from tests.harness.signed_cases import recorded_signatures
from tests.harness.strategy_cases import recorded
from tests.interop import rocketmq
from tests.interop.client_rules import ClientRules, shares_of, signatures_of
from tests.interop.needs import need

pytestmark = [pytest.mark.interop, pytest.mark.parametrize("version", rocketmq.VERSIONS)]


def test_rocketmq_allocates_queues_as_recorded(tmp_path: Path, version: str) -> None:
    need([version])
    assert shares_of(version, tmp_path) == list(recorded())


def test_rocketmq_signs_requests_as_recorded(tmp_path: Path, version: str) -> None:
    need([version])
    assert signatures_of(version, tmp_path) == recorded_signatures()


def test_python_and_java_consumers_continue_at_each_others_offsets(tmp_path: Path, version: str) -> None:
    need([version])
    places = [Place("t", "broker-a", 0), Place("t", "broker-a", 1), Place("%RETRY%g", "b", 0)]
    names = {"queues": "t:broker-a:2,%RETRY%g:b:1", "client": "127.0.0.1@DEFAULT", "group": "g"}
    with ClientRules(tmp_path, version) as java:
        assert java.kept(**names) == [-1, -1, -1]
        for offset in (5, 7):
            java.keep(offset, **names)
        own = OwnOffsets(java.offsets, names["client"], names["group"])
        assert [own.offset_of(place) for place in places] == [7, 17, 7]
        for place in places:
            own.update(place, 100 + place.queue_id)
        own.write(places)
        assert java.kept(**names) == [100, 100, 101]
        own.path.write_bytes(b"")
        assert java.kept(**names) == [7, 7, 17]
        assert [OwnOffsets(java.offsets, "127.0.0.1@DEFAULT", "g").offset_of(place) for place in places] == [7, 17, 7]
