"""Settings that change while a broker runs: words for all that a file may say, and no moment that deletes too much."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.protocol.store.retention import FIRST_ROUND_MS, Usage
from engine.settings.config import from_mapping
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters
from engine.shared_memory.live_settings import Retention
from ipc import waiting
from ipc.counters import Cursor
from tests.harness.housekeeping import Bench

HOURS = st.integers(1, (1 << 24) - 1)
NUMBERS = st.integers(0, 2**31 - 1)
WANTED = st.fixed_dictionaries(
    {}, optional={"deleteWhen": HOURS, "fileReservedTime": NUMBERS, "diskMaxUsedSpaceRatio": NUMBERS}
)


@pytest.fixture
def counters(tmp_path: Path) -> BrokerCounters:
    return BrokerCounters.create(tmp_path / "counters")


def test_a_name_that_nobody_knows_is_refused_with_the_one_that_was_meant() -> None:
    assert live_settings.why_not("fileReservedTiem") == "fileReservedTiem: unknown key; did you mean fileReservedTime?"
    assert "cannot change while the broker runs" in live_settings.why_not("listenPort")


def test_each_word_says_what_the_file_says(counters: BrokerCounters) -> None:
    said = {
        "deleteWhen": "0;23", "fileReservedTime": 2**31 - 1, "diskMaxUsedSpaceRatio": 0, "brokerPermission": 2,
        "registerNameServerPeriod": 1, "haFlowControlEnable": True, "maxHaTransferByteInSecond": 1,
        "maxHaCatchUpByteInSecond": 1 << 60, "logLevel": "error",
    }  # fmt: skip
    assert set(said) == set(live_settings.NAMES) == set(live_settings.KEYS)
    live_settings.publish(counters, from_mapping({**said, "brokerIP1": "127.0.0.1"}))
    assert live_settings.values(counters) == {**said, "deleteWhen": {0, 23}, "logLevel": 40}
    assert live_settings.texts(counters)["logLevel"] == "error"
    assert live_settings.retention(counters) == ({0, 23}, 2**31 - 1, 0)


def deletes(by: Retention, hour: int, used: int, age_hours: int) -> bool:
    return age_hours >= by.reserved_hours and (hour in by.delete_when_hours or used > by.max_used_percent)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(HOURS, NUMBERS, NUMBERS, WANTED)
def test_no_moment_of_a_change_deletes_what_is_kept_before_and_after(
    counters: BrokerCounters, hours: int, reserved: int, percent: int, wanted: dict[str, int]
) -> None:
    live_settings.change(
        counters, {"deleteWhen": hours, "fileReservedTime": reserved, "diskMaxUsedSpaceRatio": percent}
    )
    seen, publish = [live_settings.retention(counters)], waiting.publish

    def watched(cursor: Cursor, value: int) -> None:
        publish(cursor, value)
        seen.append(live_settings.retention(counters))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "publish", watched)
        changed = live_settings.change(counters, wanted)
    assert len(seen) == len(changed) + 1 and live_settings.change(counters, wanted) == []
    used = sorted({one.max_used_percent + more for one in seen for more in (0, 1)})
    for by, hour, percent_used, age in product(seen, range(24), used, sorted({one.reserved_hours for one in seen})):
        if deletes(by, hour, percent_used, age):
            assert deletes(seen[0], hour, percent_used, age) or deletes(seen[-1], hour, percent_used, age)


def test_retention_is_that_of_one_moment(counters: BrokerCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [{"fileReservedTime": 100, "deleteWhen": 2}, {"fileReservedTime": 200, "deleteWhen": 4}]
    read = Cursor.read

    def interrupted(cursor: Cursor) -> int:
        value = read(cursor)
        if cursor.label == "delete_when_hours" and changes:
            for name, word in changes.pop().items():
                waiting.publish(counters.region.cursor(live_settings.KEYS[name].field), word)
        return value

    monkeypatch.setattr(Cursor, "read", interrupted)
    assert live_settings.retention(counters) == ({1}, 100, 0)


# in the housekeeper's rounds; the first of them is in test_housekeeper


def test_a_percentage_that_is_set_is_taken_as_10_to_95(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 100)
    bench.age(73, 0, 1)
    live_settings.change(bench.counters, {"diskMaxUsedSpaceRatio": 0})
    bench.usage = Usage(10, 10)
    bench.run(FIRST_ROUND_MS + 1000)
    assert bench.segments()[0] == 0
    bench.usage = Usage(11, 10)
    bench.run(20_000)
    reasons = [line["reason"] for line in bench.audit("delete") if line["kind"] == "segment"]
    assert bench.segments()[0] == 2
    assert all("used to 11 %, above diskMaxUsedSpaceRatio 10 %" in reason for reason in reasons)


def test_a_restarted_housekeeper_keeps_what_was_set(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 100, deleteWhen="12")
    live_settings.change(bench.counters, {"fileReservedTime": 100})
    bench.age(73, 0)
    bench.role = bench.open()
    bench.run(FIRST_ROUND_MS + 20_000)
    assert bench.segments()[0] == 0 and not bench.audit("delete")
