"""Works that put Slipstream's consumers beside others': small runs with what is at hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tools.dev.bench.__main__ import main
from tools.dev.bench.works import python_consume, python_members

pytestmark = pytest.mark.broker
SMALL = {"MESSAGES": 4_000, "PACED": 60, "PACED_WARM": 20, "IDLE_SECONDS": 0.2, "IDLE_SETTLE_SECONDS": 0.0}


def _run(
    work: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch, directory: Path
) -> tuple[Result, list[dict[str, Any]]]:
    for name in SMALL.keys() & vars(module).keys():
        monkeypatch.setattr(module, name, SMALL[name])
    outcome = CliRunner().invoke(main, [work, "--repeat", "1", "--directory", str(directory)])
    assert outcome.exit_code == 0, outcome.output
    assert not list(directory.iterdir())
    return outcome, [json.loads(line) for line in outcome.stdout.splitlines() if line.startswith("{")]


def test_consumers_are_measured_beside_the_peers_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_consume, "SIZES", (128,))
    outcome, lines = _run("python-consume", python_consume, monkeypatch, tmp_path)
    assert "Kafka is skipped: --kafka names no folder\n" in outcome.stderr
    assert "RocketMQ and Java's push consumer is skipped: --rocketmq names no folder\n" in outcome.stderr
    subjects = [f"{at}{way}" for at in ("slipstream, local", "slipstream") for way in ("", ", one by one", ", batches")]
    if "Redis is skipped: there is no redis-server\n" not in outcome.stderr:
        subjects.append("redis-py")
    works = {
        "backlog of 128 B": subjects,
        "send to handler, 1,000 messages/s": [one for one in subjects if not one.endswith("batches")],
        "an idle member": [one for one in subjects if not one.endswith(("batches", "one by one"))],
    }
    for work, measured in works.items():
        assert [line["subject"] for line in lines if (line["kind"], line["work"]) == ("figure", work)] == measured
    assert all(line["value"] > 0 for line in lines)


def test_members_of_a_group_share_one_backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_members, "SUBJECTS", (python_consume.LOCAL, python_consume.REDIS))
    monkeypatch.setattr(python_members, "MEMBERS", (1, 2, 8))
    outcome, lines = _run("python-members", python_members, monkeypatch, tmp_path)
    works = [line["work"] for line in lines if line.get("subject") == python_consume.LOCAL]
    assert works == ["1 member of a group", "2 members of a group", "8 members of a group"]
    assert all(line["value"] > 0 for line in lines), outcome.output
