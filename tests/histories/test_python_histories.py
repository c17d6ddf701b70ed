"""Short histories with Slipstream's clients for Python, one of which must fail; `make python-histories` plays more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.histories.checker import KINDS, faults
from tests.histories.run import EARLY, Play
from tests.interop import needs
from tests.interop.clients import REAL_OF


@pytest.mark.crash
@pytest.mark.interop
def test_python_and_java_share_groups_whose_members_and_broker_are_killed(tmp_path: Path) -> None:
    needs.need([REAL_OF["ours 5"]])
    targets = ("consumer", "consumer paused", "broker", "consumer")
    play = Play(tmp_path, "ours 5", 4, targets, seconds=1.0, cast=("java", "wire", "local"), sender="wire")
    history = play.run()
    assert faults(history) == []
    assert {one.kind for one in history.got} == set(KINDS)
    assert {one.member.rpartition("-")[0] for one in history.got} == {"consumer-0", "consumer-1", "consumer-2"}


@pytest.mark.crash
def test_a_member_that_acknowledges_before_it_handles_loses_messages(tmp_path: Path) -> None:
    play = Play(tmp_path, "ours 5", 1, ("consumer",), seconds=2.0, cast=("local",), sender="wire")
    play.words, play.settle_seconds = (EARLY,), 3.0
    history = play.run()
    assert any(line.startswith("acknowledged and never seen") for line in faults(history))
    done = {one.queue: one.offset for one in history.offsets if one.group == "History-plain"}
    assert [one for one in history.missing() if one.kind == "plain" and one.offset < done[one.queue]], "lost for good"
