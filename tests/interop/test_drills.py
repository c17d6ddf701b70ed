"""Our side of `make drill`: nothing is acknowledged that the slave has not, no byte of another history is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import drills


@pytest.mark.broker
@pytest.mark.parametrize("name", ["Forged acknowledgements", "A wiped master"])
def test_our_pair_stands_the_drill(name: str, tmp_path: Path) -> None:
    outcome = drills.run_drill(name, drills.OURS, tmp_path)
    assert not outcome.wrong, outcome.seen
