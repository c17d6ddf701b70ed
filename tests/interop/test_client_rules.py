"""Rules of RocketMQ's client, asked of both versions' own classes: what the unit tests recorded, they still say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.signed_cases import recorded_signatures
from tests.harness.strategy_cases import recorded
from tests.interop import rocketmq
from tests.interop.client_rules import shares_of, signatures_of
from tests.interop.needs import need

pytestmark = [pytest.mark.interop, pytest.mark.parametrize("version", rocketmq.VERSIONS)]


def test_rocketmq_allocates_queues_as_recorded(tmp_path: Path, version: str) -> None:
    need([version])
    assert shares_of(version, tmp_path) == list(recorded())


def test_rocketmq_signs_requests_as_recorded(tmp_path: Path, version: str) -> None:
    need([version])
    assert signatures_of(version, tmp_path) == recorded_signatures()
