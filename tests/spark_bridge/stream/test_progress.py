"""Lag and rate from a query's progress, in each of the forms that Spark gives it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_bridge.stream.progress import Lag, lag

LATEST, END = {"orders": {"0": 10, "1": 7}}, {"orders": {"0": 4}}


def progress(**source: Any) -> dict[str, Any]:
    return {
        "batchDuration": 120,
        "sources": [{"inputRowsPerSecond": 100.0, "processedRowsPerSecond": 150.0, **source}],
    }


@pytest.mark.parametrize("form", [lambda offsets: offsets, json.dumps])
def test_rows_behind_are_counted_by_queue(form: Any) -> None:
    found = lag(progress(latestOffset=form(LATEST), endOffset=form(END)))
    assert found.rows_behind == 13
    assert dict(found.queues_behind) == {"topic orders queue 0": 6, "topic orders queue 1": 7}
    assert found.metrics == {
        "minOffsetsBehindLatest": "6",
        "maxOffsetsBehindLatest": "7",
        "avgOffsetsBehindLatest": "6.5",
    }
    assert (found.batch_ms, found.seconds_behind) == (120, 13 / 50)


def test_lag_is_counted_by_broker_and_zero_before_a_query_begins() -> None:
    found = lag(progress(latestOffset={"north": LATEST}, endOffset={"north": END}))
    assert found.queues_behind["topic orders queue 1 of broker north"] == 7
    assert lag(None) == Lag()
    assert lag(progress(latestOffset=None, endOffset=None)).rows_behind == 0
    assert lag(progress(latestOffset=LATEST, endOffset=END, processedRowsPerSecond=90.0)).seconds_behind == float("inf")
