"""One store goes back and forth between our broker and a real one, after orderly stops and after kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import needs, rocketmq
from tests.interop.give_and_take import GiveAndTake


def every_second(round_number: int) -> bool:
    """First all in order, then all killed: `make interop` does five rounds of each."""
    return round_number % 2 == 1


@pytest.mark.interop
@pytest.mark.parametrize("version", rocketmq.VERSIONS)
def test_both_brokers_go_on_with_what_the_other_left(version: str, tmp_path: Path) -> None:
    needs.need([version])
    given = GiveAndTake(tmp_path, version, every_second)
    given.run(2)
    assert given.acknowledged and given.unknown
