"""RocketMQ's own integration tests, run against our brokers: a ninth of them here, all by `make peer-suite`.

SUITE_SEED chooses the ninth. Each run prints it. Each value of `compat` gets another ninth.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop import jars, needs, peer_suite
from tests.interop.peer_suite import OURS, PARTS, Outcome
from tests.interop.peer_suite_ledger import page
from tests.interop.rocketmq import VERSION

SEED = int(os.environ.get("SUITE_SEED", "14"))


@pytest.fixture(scope="module")
def one_at_a_time() -> None:
    """Four JVMs of the suite at once are more than a machine of two cores has time for: these share a worker."""


@pytest.mark.interop
@pytest.mark.minutes
@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize("kind", OURS)
def test_a_ninth_of_rocketmqs_own_tests_end_as_at_real_brokers(kind: str, tmp_path: Path) -> None:
    reason = jars.of_suite(VERSION).missing()
    if reason is not None:
        needs.absent(reason)
    chosen = peer_suite.part(SEED, OURS.index(kind))
    print(f"SUITE_SEED={SEED}, {kind}: {' '.join(chosen)}")
    with peer_suite.two_brokers(tmp_path, kind) as names:
        outcomes = peer_suite.run_with_patience(tmp_path, names, chosen, kind)
    for outcome in outcomes:
        if outcome.first:
            print(f"run again: {outcome}")
    wrong = [outcome for outcome in outcomes if not peer_suite.is_as_expected(outcome)]
    assert not wrong
    ran = {outcome.class_name for outcome in outcomes}
    assert ran == {name.removeprefix(peer_suite.TESTS) for name in chosen}


def test_the_parts_are_the_whole_and_a_seed_chooses_always_the_same() -> None:
    spent = peer_suite.by_length()
    for seed in range(20):
        parts = [peer_suite.part(seed, number) for number in range(PARTS)]
        assert all(len(each) == 5 for each in parts)
        long = [sum(spent[name] for name in each) for each in parts]
        assert max(long) < 1.75 * min(long), "none is much longer than another"
        assert sorted(name for each in parts for name in each) == sorted(peer_suite.classes())
        assert parts == [peer_suite.part(seed, number) for number in range(PARTS)]
    assert len({tuple(peer_suite.part(seed, 0)) for seed in range(20)}) == 20


def test_lines_of_the_runner_are_understood_and_judged() -> None:
    line = "FAIL 1234 testDelayLevel1(org.apache.rocketmq.test.delay.NormalMsgDelayIT) :: AssertionError: x (y)"
    failed = peer_suite.outcome_of(line)
    assert failed == Outcome("FAIL", 1.234, "delay.NormalMsgDelayIT", "testDelayLevel1", "AssertionError: x (y)")
    assert not peer_suite.is_as_expected(failed)
    assert peer_suite.is_as_expected(failed._replace(kind="PASS"))
    said = f"RunSuite$Refused: MQClientException: CODE: 1 DESC: The broker {peer_suite.REFUSAL}"
    refused = Outcome("FAIL", 1.0, "client.consumer.filter.SqlFilterIT", "testFilterConsumer", said)
    assert peer_suite.is_as_expected(refused) and not peer_suite.is_as_expected(refused._replace(kind="PASS"))
    assert not peer_suite.is_as_expected(refused._replace(reason="it did not end"))
    assert not peer_suite.is_as_expected(failed._replace(kind="PASS", test="unknown"))
    assert peer_suite.outcome_of("PASS: not a line of it") is None
    assert peer_suite.outcome_of("SKIP 0 org.apache.rocketmq.test.x.SomeIT").test == ""
    text = page({"ours 5": {failed.key: failed}})
    assert "1 not as the real 4.9.7's" in text and "**failed**: AssertionError" in text
    assert len(peer_suite.recorded()) == 106


def test_what_did_not_end_as_expected_is_run_again_and_what_never_does_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Outcome("FAIL", 1.0, "delay.NormalMsgDelayIT", "testDelayLevel1", "late")
    wrong = Outcome("FAIL", 1.0, "client.producer.order.OrderMsgIT", "testOrderMsg", "wrong")
    well = Outcome("PASS", 1.0, "client.producer.batch.BatchSendIT", "testBatchSend_ViewMessage", "")
    ran = []

    def again(_home: Path, _names: str, chosen: Sequence[str], _label: str) -> list[Outcome]:
        ran.extend(chosen)
        return [late._replace(kind="PASS", reason=""), wrong._replace(reason="wrong again")]

    monkeypatch.setattr(peer_suite, "run_in_parallel", lambda *_: [late, wrong, well])
    monkeypatch.setattr(peer_suite, "run_classes", again)
    outcomes = {one.key: one for one in peer_suite.run_with_patience(tmp_path, "", [], OURS[0])}
    late_class, wrong_class = (peer_suite.TESTS + one.class_name for one in (late, wrong))
    assert sorted(ran) == sorted([late_class, *[wrong_class] * (peer_suite.ATTEMPTS - 1)])
    assert outcomes[late.key] == late._replace(kind="PASS", reason="", first="late")
    assert outcomes[well.key] == well and not peer_suite.is_as_expected(outcomes[wrong.key])
    text = page({OURS[0]: outcomes})
    assert "passed when run again; before: late" in text and "**failed**: wrong again" in text and "2 run again" in text
