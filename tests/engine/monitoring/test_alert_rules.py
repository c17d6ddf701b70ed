"""Prometheus' own tool takes the alert rules, and Grafana's own types the dashboard: where the machine has them.

Each rule fires on the series that it is made for.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "monitoring"
SERIES = Path(__file__).with_name("alerts.test.yml")
SECONDS = 600


@pytest.fixture
def promtool() -> str:
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("no promtool on this machine: install Debian's package prometheus")
    return path


def check(promtool: str, directory: Path, *arguments: str) -> str:
    for file in (FOLDER / "alerts.yml", SERIES):
        shutil.copy(file, directory)
    done = subprocess.run(
        [promtool, *arguments], cwd=directory, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_rules(promtool: str, tmp_path: Path) -> None:
    assert "SUCCESS: 16 rules found" in check(promtool, tmp_path, "check", "rules", "alerts.yml")


def test_each_rule_fires_when_it_should_and_no_rule_fires_at_rest(promtool: str, tmp_path: Path) -> None:
    assert "SUCCESS" in check(promtool, tmp_path, "test", "rules", SERIES.name)


def test_each_rule_has_its_series() -> None:
    rules = re.findall(r"- alert: (\w+)\n +expr: (.*)", (FOLDER / "alerts.yml").read_text())
    series = SERIES.read_text()
    assert f"exp_samples: [{{value: {len(rules)}, labels: '{{}}'}}]" in series, "all of them fire"
    for name, expression in rules:
        assert all(f"'{metric}{{" in series for metric in re.findall(r"rocketmq_\w+", expression)), name


def test_grafanas_types_take_the_dashboard_whole() -> None:
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="no grafana-foundation-sdk here")
    from importlib import import_module

    import_module("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    written = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    encoder = import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder(sort_keys=True)
    assert not list(lost(written, json.loads(encoder.encode(models.Dashboard.from_json(written)))))


def lost(written: Any, taken: Any, place: str = "") -> list[str]:
    """What of a document is not in what was made of it."""
    if isinstance(written, dict) and isinstance(taken, dict):
        return [one for key in written for one in lost(written[key], taken.get(key), f"{place}/{key}")]
    if isinstance(written, list) and isinstance(taken, list) and len(written) == len(taken):
        pairs = enumerate(zip(written, taken, strict=True))
        return [one for at, pair in pairs for one in lost(*pair, f"{place}/{at}")]
    return [] if written == taken else [place]
