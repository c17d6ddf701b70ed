"""The page of figures and its pictures, from what `make bench` kept in docs/benchmarks.json."""

from __future__ import annotations

from typing import Any

from tools.dev.bench import ledger
from tools.dev.docs.drawing import Picture
from tools.dev.docs.places import ROOT
from tools.dev.docs.tables import table

KEPT = ROOT / "docs" / "benchmarks.json"
BUSY_SHARE = 0.25  # of the CPUs: above it others used the machine, too
ROW, LABELS, BARS = 34, 380, 380
HEAD = """# Benchmarks

This page has the newest figures of each work of `make bench`. `make bench ARGS="append latency"` measures these two
again, on your machine. A figure is the median of its runs. Ratios to a peer come from one run.

"""
NOT_COMPARABLE = """## What is not comparable

- **Two entries of this page**, unless date, machine and load are the same. Ratios are taken within one run.
- **A local producer and a client over TCP.** `append` and `latency` put through shared memory on the broker's host;
  RocketMQ's and Kafka's producers talk to a socket. `front-sends` and `front-consume` measure one path on both sides.
- **Spark here and Spark's Kafka source**: a mapped file, and a broker with TCP and a consumer on any host
  ([copies](copies.md)).
- **Replicas on one host.** Master and slave share the CPUs, and loopback is no network.
- **A virtual machine.** Idle memory is slow at its first touch, and neighbours are invisible. So works that move
  gigabytes touch memory first, and each work shows the load that the kernel counted.
- **Goals** are targets that the project set before it measured, not limits of the machine.
"""


def page() -> str:
    """Return the whole page as Markdown."""
    return HEAD + "".join(f"## {one['work']}\n\n{_section(one)}\n" for one in ledger.read(KEPT)) + NOT_COMPARABLE


def pictures() -> dict[str, str]:
    """A picture for each work, by its place on the site."""
    return {_place(one): _drawn(one).svg() for one in ledger.read(KEPT)}


def _place(one: dict[str, Any]) -> str:
    return f"pictures/bench-{one['work']}.svg"


def _section(one: dict[str, Any]) -> str:
    of, loads = one["machine"], (one["load_before"], one["load_after"])
    kind = "virtual, " if of["virtual"] else ""
    where = (
        f"{of['cpus']} CPUs ({kind}{of['architecture']}), {of['memory_gib']} GiB, kernel {of['kernel']}, {of['disk']}"
    )
    runs = "one run" if one["runs"] == 1 else f"median of {one['runs']} runs"
    text = f"{one['at']}, version {one['version']}, Python {of['python']}; {where}; {runs}; load {loads[0]} before,"
    text += f" {loads[1]} after.\n\n"
    if one["load_before"] > BUSY_SHARE * of["cpus"]:
        text += '!!! warning "Others used the machine meanwhile"\n    Take these for what they are: too slow, and never'
        text += " the same twice.\n\n"
    text += f"![{one['work']}: {len(one['figures'])} figures as bars]({_place(one)})\n\n"
    rows = [
        (of["work"], of["subject"], f"{of['value']:,.1f}", _p99(of), of["unit"], of["note"]) for of in one["figures"]
    ]
    text += table(("work", "subject", "figure", "p99", "unit", "note"), rows)
    ratios = [(of["work"], of["against"], f"{of['value']:.2f}", f"{of['goal']:.2f}") for of in one["ratios"]]
    return text + (f"\n{table(('ratio of', 'to', 'is', 'goal'), ratios)}" if ratios else "")


def _p99(of: dict[str, Any]) -> str:
    return "" if of["p99"] is None else f"{of['p99']:,.1f}"


def _drawn(one: dict[str, Any]) -> Picture:
    figures = one["figures"]
    said = "; ".join(f"{of['work']}, {of['subject']}: {of['value']:,.1f} {of['unit']}" for of in figures)
    of_work = Picture(f"{one['work']}: figures", said, 960, 30 + ROW * len(figures))
    for number, of in enumerate(figures):
        top = 16 + ROW * number
        largest = max(other["value"] for other in figures if other["unit"] == of["unit"]) or 1.0
        width = max(2.0, BARS * of["value"] / largest)
        name = of["work"] if of["subject"] == "slipstream" else f"{of['work']}, {of['subject']}"
        label = name if len(name) < 56 else f"{name[:54]}…"
        of_work.text(LABELS, top + 17, label, "small", "end")
        of_work.box(LABELS + 10, top + 2, width, 22, kind="data" if of["subject"] == "slipstream" else "ours", round_=2)
        p99 = f", p99 {_p99(of)}" if _p99(of) else ""
        of_work.text(LABELS + 18 + width, top + 18, f"{of['value']:,.1f} {of['unit']}{p99}", "small")
    return of_work
