"""The page of all metrics: `python -m tools.dev.docs.metric_names > docs/metrics.md`, from what a pair exports."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from engine.monitoring.metrics import COMMON_LABELS
from ipc.module_names import named
from store.compat import NEWEST
from tools.common.local_broker import LocalBroker
from tools.dev.bench.bed.brokers import pair
from tools.dev.docs.tables import code, table

HEAD = """# Metrics

Written by `python -m tools.dev.docs.metric_names > docs/metrics.md` from what a running master, its slave, a producer
and a consumer export at `metricsPromExporterPort`. Every sample also has the labels `cluster`, `node_id` and
`node_type`. Names are RocketMQ 5's where it has them. [A dashboard and alert rules](monitoring/README.md) are made of
these.

"""
SMALL: dict[str, Any] = {"mappedFileSizeCommitLog": 1 << 20, "compat": NEWEST}
SECONDS = 120.0
NOT_LABELS = {*COMMON_LABELS, "le", "otel_metric_overflow"}


def families(broker: LocalBroker) -> list[Metric]:
    """Return what a running broker exports now."""
    port = _once(broker.counters().metrics_port.read)
    own = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy has this host's figures
    with own.open(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
        return list(text_string_to_metric_families(answer.read().decode()))


def _once(ask: Callable[[], int]) -> int:
    until = time.monotonic() + SECONDS
    while not (value := ask()) and time.monotonic() < until:
        time.sleep(0.1)
    return value


def of_a_pair(directory: Path) -> list[Metric]:
    """Return all families of a master and a slave that have something to say."""
    with pair(directory, **SMALL) as (master, slave):
        broker = ("--topic", "to-pic", "--broker", f"127.0.0.1:{master.port}")
        for words in (("send", *broker), ("consume", "--group", "g", "--from", "first", *broker)):
            subprocess.run(
                [sys.executable, "-m", named("tools.cli"), *words],
                input=b"x\n",
                stdout=subprocess.DEVNULL,
                check=True,
                timeout=SECONDS,
            )
        return [*families(master), *families(slave)]


def text(exported: Iterable[Metric]) -> str:
    """Return the whole page as Markdown."""
    rows: dict[str, tuple[str, str, set[str]]] = {}
    for family in exported:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        _type, _what, labels = rows.setdefault(name, (family.type, family.documentation, set()))
        labels.update(label for sample in family.samples for label in sample.labels if label not in NOT_LABELS)
    cells = (
        (code(name), kind, ", ".join(map(code, sorted(labels))), what)
        for name, (kind, what, labels) in sorted(rows.items())
    )
    return HEAD + table(("metric", "type", "labels", "what it says"), cells)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="slipstream-metrics-") as scratch:
        sys.stdout.write(text(of_a_pair(Path(scratch))))
