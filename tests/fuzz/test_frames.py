"""Thousands of mutated frames at our broker's two ports and at our name server: they answer or hang up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.attack import attack_broker, attack_name_server

FRAMES = 2000


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_a_broker_survives_mutated_frames(compat: str, tmp_path: Path) -> None:
    found = attack_broker(tmp_path, compat, FRAMES, seed=5)
    assert found.restarts == 0 and found.is_answering
    assert found.failures == (), "a stranger's words are refused, not failed at"
    assert found.grown_bytes < 24 << 20


@pytest.mark.parametrize("compat", ["4.9", "5"])
def test_a_name_server_survives_mutated_frames(compat: str, tmp_path: Path) -> None:
    found = attack_name_server(tmp_path, compat, FRAMES, seed=6)
    assert found.restarts == 0 and found.is_answering
    assert found.grown_bytes < 24 << 20
