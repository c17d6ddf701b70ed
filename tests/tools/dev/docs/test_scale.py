"""The page on scale is what its script makes of the measured costs, and names what gives out first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.dev.bench import ledger
from tools.dev.bench.works.reads import planning, scale_costs
from tools.dev.docs import scale
from tools.dev.docs.benchmarks import KEPT
from tools.dev.docs.places import ROOT


def works(task_ms: float = 40.0, body_mb_s: float = 100.0, disk_mb_s: float = 500.0) -> list[dict[str, object]]:
    values = {scale_costs.TASK: task_ms, scale_costs.BODY_RATE: body_mb_s, scale_costs.DISK_RATE: disk_mb_s}
    values |= {scale_costs.MAPPED: 20.0, scale_costs.FIXED_RATE: 1000.0}
    for kind in planning.KINDS:
        values |= {f"planning: {kind}": 3.0, f"memory of planning: {kind}": 90.0}
    return [{"work": "planning", "figures": [{"work": name, "value": value} for name, value in values.items()]}]


def test_the_page_is_what_the_script_writes() -> None:
    text = (ROOT / "docs" / "scale.md").read_text()
    assert text == scale.page(), "python -m tools.dev.docs.scale > docs/scale.md"
    assert all(f"| {kind} |" in text for kind in planning.KINDS)
    assert {"planning", "scale-costs"} <= {one["work"] for one in ledger.read(KEPT)}


def test_two_replicas_on_a_hundred_hosts_make_nearly_all_reads_remote() -> None:
    assert scale.remote_share(scale.FLEET) == 0.98
    assert "98% of the tasks are on a host without a replica" in scale.page(works())


def test_the_first_to_give_out_follows_the_costs() -> None:
    def first(fleet: scale.Fleet = scale.FLEET, **costs: float) -> str:
        return scale.first_to_give_out(scale.scan(fleet, scale.Costs(works(**costs))))

    assert scale.scan(scale.FLEET, scale.Costs(works()))["executors' cores"][1] == pytest.approx(1000)
    assert scale.scan(scale.FLEET, scale.Costs(works()))["disks"][1] == pytest.approx(2000)
    assert scale.scan(scale.FLEET, scale.Costs(works()))["network"][1] == pytest.approx(784)
    assert first() == "disks"
    assert first(disk_mb_s=5000.0) == "executors' cores"
    assert first(replace(scale.FLEET, link_bytes_s=0.125e9)) == "network"
    assert first(replace(scale.FLEET, segment_bytes=1 << 20)) == "tasks"


def test_costs_that_nobody_measured_are_asked_for() -> None:
    with pytest.raises(SystemExit, match="make bench ARGS='planning scale-costs'"):
        scale.page([])
