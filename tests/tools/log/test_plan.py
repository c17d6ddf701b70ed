"""`slipstream log plan`, as it is typed: what it says is what a scan with the same options reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_bridge.scanning import scan
from tests.harness.command_line import run
from tests.spark_bridge.stores import SmallStore
from tools.common.exit_codes import ExitCode


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    """Two topics of two queues in some segments."""
    made = SmallStore(tmp_path / "store", 4096)
    for number in range(120):
        made.put(("orders", "bills")[number % 2], b"x" * 50, number // 2 % 2)
    made.dispatch()
    return made


def planned(store: SmallStore, *arguments: str) -> dict[str, object]:
    said = run("log", "plan", "--json", *arguments, str(store.root))
    assert said.exit_code == 0, said.stderr
    return json.loads(said.stdout)


def test_what_conditions_leave_out_is_not_planned(store: SmallStore) -> None:
    whole = planned(store)
    assert whole["bytes"] == whole["logBytes"] == store.end
    assert whole["leftOutBytes"] == 0
    assert whole["ranges"] == [{"start": 0, "end": store.end}]
    where = '{"queueOffset":{">=":10,"<":20}}'
    part = planned(store, "--topic", "orders", "--where", where)
    rows = scan(store.root, topics=["orders"], columns=["queueOffset"]).read_all().num_rows
    assert rows == 60
    assert part["queues"] == {"orders/0": 10, "orders/1": 10}
    assert part["bytes"] == 20 * (store.offsets[1] - store.offsets[0])
    assert part["leftOutBytes"] == store.end - part["bytes"]
    cut = planned(store, "--where", '{"physicalOffset":{"<":4096}}')
    assert cut["ranges"] == [{"start": 0, "end": 4096}]
    many = planned(store, "--option", "maxRecordsPerPartition=10", "--option", "mode=failfast")
    assert many["splits"] > whole["splits"]


def test_the_plan_shows_people_queues_and_messages(store: SmallStore) -> None:
    said = run("log", "plan", "-t", "orders", str(store.root))
    assert said.exit_code == 0
    assert "by 2 queues, 60 messages:\n  orders/0  30\n  orders/1  30\n" in said.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--topic", "nope"], "no topic 'nope'"),
        (["--where", "{"], "where="),
        (["--option", "minPartitions"], "is not NAME=VALUE"),
        (["--option", "=1"], "is not NAME=VALUE"),
        (["--option", "PATH=/etc"], "use STORE, --topic or --where"),
        (["--option", "minPartitions=1", "--option", "MINPARTITIONS=2"], "given twice"),
        (["--option", "nonsense=1"], "unknown option 'nonsense'"),
        (["--option", "table=queues"], "there is no plan"),
    ],
)
def test_what_cannot_be_planned_is_one_line(store: SmallStore, arguments: list[str], told: str) -> None:
    said = run("log", "plan", *arguments, str(store.root))
    assert said.exit_code == ExitCode.USAGE
    assert told in said.stderr
    assert "Traceback" not in said.stderr
    registry = ("--option", "decode=avro", "--option", "schemaSubject=s", "--option", "schemaRegistry=/nowhere")
    down = run("log", "plan", *registry, str(store.root))
    assert down.exit_code != 0
    assert "SCHEMA_" in down.stderr
    assert "Traceback" not in down.stderr
