"""The age of readers' leases."""

from __future__ import annotations

import os
from pathlib import Path

from engine.monitoring import process_metrics
from store.files.file_io import CREATING_SUFFIX
from store.names import LEASES
from store.upkeep import leases

TTL_MS = 3_600_000


def figures(root: Path) -> dict[str, list[float]]:
    series = process_metrics.lease_series(process_metrics._lease_ages(root))
    return {one.name: [value for _labels, value in one.samples] for one in series}


def test_a_lease_is_as_old_as_its_last_renewal(tmp_path: Path) -> None:
    none = {"rocketmq_reader_leases": [0.0], "rocketmq_reader_lease_age_seconds": []}
    assert figures(tmp_path) == none
    with leases.acquire(tmp_path, 0, TTL_MS) as old, leases.acquire(tmp_path, 0, TTL_MS):
        (tmp_path / LEASES / f"half{CREATING_SUFFIX}").touch()
        os.utime(old.path, (0, 0))
        said = figures(tmp_path)
        assert said["rocketmq_reader_leases"] == [2.0]
        assert said["rocketmq_reader_lease_age_seconds"][0] > 1e9, "since 1970"
        old.renew()
        assert figures(tmp_path)["rocketmq_reader_lease_age_seconds"][0] < 1e9
    assert figures(tmp_path) == none


def test_a_clock_that_went_back_makes_no_age_below_nothing(tmp_path: Path) -> None:
    with leases.acquire(tmp_path, 0, TTL_MS) as one:
        os.utime(one.path, (4e9, 4e9))
        assert figures(tmp_path)["rocketmq_reader_lease_age_seconds"] == [0.0]
