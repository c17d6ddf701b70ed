"""The dashboard and the alert rules name what running brokers export, and reason codes that there are."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.producer import Producer
from engine.protocol.ha.wire import ReasonCode
from engine.shared_memory.cursors import BrokerCounters
from store.reading import extent
from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "monitoring"
SELECTED = re.compile(r"\b(up|rocketmq_\w+)\b(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
GROUPED = re.compile(r"\bby \(([^)]*)\)")
LEGEND = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")
SMALL = {"mappedFileSizeCommitLog": 1 << 20, "compat": "5"}


class Exported(NamedTuple):
    """Of all samples with a name: the labels that they have between them. A name without samples has None."""

    labels: dict[str, set[str] | None]

    def all_of(self, expression: str) -> set[str]:
        """Which labels whatever an expression selects has."""
        known: set[str] = set()
        for name, _matchers in SELECTED.findall(expression):
            known |= self.labels[name] or set()
        return known


def text_of(broker: LocalBroker) -> str:
    counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
    port = await_that(counters.metrics_port.read, "metrics are served", pause=0.1)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        said: bytes = answer.read()
    return said.decode()


def names_of(family: Any) -> set[str]:
    """Those that its samples have, or would have."""
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(family.type, ("",))
    return {family.name + suffix for suffix in suffixes}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    directory = tmp_path_factory.mktemp("monitoring")
    labels: dict[str, set[str] | None] = {"up": {"job", "instance"}}  # Prometheus's own, of each target
    with LocalBroker(directory / "m", **SMALL) as master:
        keys = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address}
        with LocalBroker(directory / "s", **SMALL, **keys) as slave, Producer(master.store) as producer:
            producer.send("to-pic", b"x", timeout=60)
            await_that(lambda: 'state="TRANSFER"' in text_of(master), "the slave is there", pause=0.6)
            for text in (text_of(master), text_of(slave)):
                for family in text_string_to_metric_families(text):
                    for name in names_of(family):
                        labels.setdefault(name, None)
                    for sample in family.samples:
                        labels[sample.name] = (labels.get(sample.name) or set()) | set(sample.labels)
    yield Exported(labels)


def panels() -> list[dict[str, Any]]:
    dashboard: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def rules() -> list[tuple[str, str]]:
    """(expression, the rest of the rule) of each."""
    rest = (FOLDER / "alerts.yml").read_text().split("      - alert: ")[1:]
    return [(re.findall(r"^ +expr: (.*)$", rule, re.MULTILINE)[0], rule) for rule in rest]


def expressions() -> list[tuple[str, str]]:
    """(expression, what is written with the labels of what it selects)."""
    shown = [(target["expr"], target["legendFormat"]) for panel in panels() for target in panel["targets"]]
    return [*shown, *rules()]


def test_every_name_is_exported(exported: Exported) -> None:
    named = {name for expression, _text in expressions() for name, _matchers in SELECTED.findall(expression)}
    assert len(named) > 30 and not named - exported.labels.keys()


def test_every_label_is_one_that_the_metric_has(exported: Exported) -> None:
    for expression, text in expressions():
        for name, matchers in SELECTED.findall(expression):
            known = exported.labels[name]
            if known is not None:
                assert {label for label, _how, _value in MATCHER.findall(matchers)} <= known, expression
        if all(exported.labels[name] is not None for name, _matchers in SELECTED.findall(expression)):
            grouped = {label.strip() for part in GROUPED.findall(expression) for label in part.split(",")}
            written = {label for label in LEGEND.findall(text) if label != "value"}
            assert grouped | written <= exported.all_of(expression), expression


def test_every_reason_is_a_reason_code() -> None:
    codes = {code.value for code in ReasonCode}
    named = [
        set(value.split("|"))
        for expression, _text in expressions()
        for _name, matchers in SELECTED.findall(expression)
        for label, _how, value in MATCHER.findall(matchers)
        if label == "reason"
    ]
    assert len(named) > 2 and all(each <= codes for each in named)


def test_what_processes_and_rings_do_is_exported(exported: Exported) -> None:
    """Names that no picture shows."""
    assert {"rocketmq_put_latency_microseconds_count", "rocketmq_ring_waiting_records"} <= exported.labels.keys()
    assert exported.labels["rocketmq_put_latency_microseconds_bucket"] == {"cluster", "node_id", "node_type", "le"}


def test_the_reference_names_all_that_is_exported(exported: Exported) -> None:
    page = (FOLDER.parent / "metrics.md").read_text()
    named = set(re.findall(r"^\| `(rocketmq_\w+)` \|", page, re.MULTILINE))
    samples = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exported.labels.keys() - {"up"}}
    missing = {name for name in samples if not {name, f"{name}_count", f"{name}_sum"} & named}
    assert not missing, "python -m tools.dev.docs.metric_names > docs/metrics.md"
