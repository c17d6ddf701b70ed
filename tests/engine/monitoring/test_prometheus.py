"""The alert rules in a real Prometheus that scrapes two brokers, which then stop."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.harness.conditions import await_that
from tools.common.local_broker import LocalBroker, free_port

RULES = Path(__file__).resolve().parents[3] / "docs/monitoring/alerts.yml"
SMALL = {"mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536}
SETTINGS = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: slipstream
    static_configs: [{{targets: ["127.0.0.1:{}", "127.0.0.1:{}"]}}]
"""


def firing(port: int) -> list[str]:
    """The alerts that fire now, one for each series."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=60) as answer:
            alerts = json.loads(answer.read())["data"]["alerts"]
    except OSError:
        return ["it does not answer yet"]
    return sorted(one["labels"]["alertname"] for one in alerts if one["state"] == "firing")


def up(port: int) -> int:
    """How many brokers answer Prometheus."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query=sum(up)", timeout=60) as answer:
        result = json.loads(answer.read())["data"]["result"]
    return int(result[0]["value"][1]) if result else 0


def test_two_brokers_that_stop_are_two_alerts_and_one_for_both(tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus on this machine: install Debian's package prometheus")
    (tmp_path / "alerts.yml").write_text(re.sub(r"\bfor: \w+", "for: 0s", RULES.read_text()))
    ports, own = (free_port(), free_port()), free_port()
    (tmp_path / "prometheus.yml").write_text(SETTINGS.format(*ports))
    master = LocalBroker(tmp_path / "m", **SMALL, metricsPromExporterPort=ports[0])
    keys = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address}
    with master, LocalBroker(tmp_path / "s", **SMALL, **keys, metricsPromExporterPort=ports[1]):
        with (tmp_path / "log").open("wb") as log:
            running = subprocess.Popen(
                [program, "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{own}"],
                cwd=tmp_path,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        try:
            await_that(lambda: firing(own) == [] and up(own) == 2, "both are scraped, and nothing fires", pause=0.5)
            master.stop()
            await_that(lambda: firing(own).count("BrokerDown") == 1, "one is down", pause=0.5)
        except BaseException:
            running.kill()
            raise
    try:
        last = await_that(lambda: firing(own) if "NoBroker" in firing(own) else None, "both are down", pause=0.5)
        assert last.count("BrokerDown") == 2
    finally:
        running.kill()
        running.wait()
