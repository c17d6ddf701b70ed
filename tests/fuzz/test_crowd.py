"""Hundreds of idle, half-open and unreading connections do not touch who behaves; `make fuzz` brings 4,000."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.crowd import MESSAGES, crowd

GROWN_BYTES_MAX, AGAIN_BYTES_MAX = 24 << 20, 8 << 20


@pytest.mark.broker
def test_a_crowd_is_bounded_and_the_others_do_not_notice(tmp_path: Path) -> None:
    found = crowd(tmp_path, 600)
    assert found.connections == 600 and found.restarts == 0
    assert found.served == MESSAGES + 10, "every message was taken and read"
    assert found.grown_bytes < GROWN_BYTES_MAX and found.grown_again_bytes < AGAIN_BYTES_MAX
