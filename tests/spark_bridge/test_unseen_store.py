"""The notebook about a store that nobody has seen: on stores that RocketMQ wrote."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from pyspark.sql import SparkSession

from tests.harness.notebooks import code_of, run
from tests.spark_bridge.stores import golden_lines, unpack_golden

pytestmark = pytest.mark.spark

NOTEBOOK = "unseen-store.ipynb"


@pytest.mark.parametrize("version", ["rocketmq-4.9.7", "rocketmq-5.3.3"])
def test_in_place_flight_and_spark_agree(
    spark: SparkSession, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE", unpack_golden(version, "features", tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    mpl.use("agg")
    names: dict[str, Any] = {"__name__": "notebook"}
    shown = [run(cell, names) for cell in code_of(NOTEBOOK)]
    lines, rows = golden_lines(version, "features", "message"), names["in_place"]
    # What is not delivered (half messages, delayed ones) is no row, and an inner batch is several.
    delivered = set(rows["physicalOffset"].to_pylist())
    assert delivered <= {line["physicalOffset"] for line in lines} and rows.num_rows >= 0.9 * len(lines) > 0
    (topics,) = [value for value in shown if value is not None]
    assert len(names["damaged"]) == 0 and topics.messages.sum() == rows.num_rows
    assert set(topics.index) == {line["topic"] for line in lines if line["physicalOffset"] in delivered}
    assert {row.topic: row.messages for row in names["largest_bodies"]} == topics.messages.to_dict()
    assert names["spark"] is spark and names["server"].returncode == 0
