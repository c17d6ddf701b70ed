"""The drill of `make promotion`, some rounds of it: no acknowledged message is lost by a kill and a promotion."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import promotion

pytestmark = pytest.mark.crash


def test_what_was_acknowledged_is_on_every_new_master(tmp_path: Path) -> None:
    drill = promotion.run(tmp_path, 2, seed=7)
    assert [one.kind for one in drill.rounds] == list(promotion.KINDS[:2])
    assert "**0 missing, 0 repeated**" in promotion.ledger(drill, 7)
