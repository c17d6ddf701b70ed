"""The page of the demonstration's last run, and what placement costs by arithmetic."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tools.dev.cluster.play import Outcome, by_source, share_in_place

HOSTS = (3, 10, 30, 100)
REPLICAS = 2
TOLD = {
    "batch": "A read of `grpc://node1:8815,grpc://node2:8815` with `replicaPath`: tasks run wherever a core is free.",
    "placed": "The same with `read(..., placed=True)`: tasks prefer the hosts of replicas.",
    "stream": "A streaming query of the same messages, to its end (`availableNow`).",
    "killed": "`kill -9` of node2's broker and Flight server while each executor is in the middle of a split.",
    "expired": "Retention wants every segment while each executor is in the middle of a split; leases keep them.",
}
HEAD = """# A cluster, really run

Written by `make cluster-demo`. Four hosts are made of namespaces. Each has its own network, mounts, processes, host
name and `/dev/shm`; a bridge in a network namespace of its own connects them.

- node0: Spark's standalone master and the driver, no replica.
- node1: a worker, the log's master (`SYNC_MASTER`) and its Flight server.
- node2: a worker, the slave and its Flight server.
- node3: a worker without a replica.

Executors have one core, a Python with PySpark, and the wheel that the job sent (`addPyFile`).
Each host sees only its own files, with a replica at the same path if it has one.

{messages:,} messages, {megabytes:,.0f} MB of bodies, in {parts} splits, on a machine of {cores} cores that all hosts
share. Each part had every message once, by number, bytes and a digest of all bodies.
"""
SINK = """
## Sink: {seconds:.1f} s

{rows:,} rows written by the executors through the Flight server beside the master, acknowledged by master and slave,
each in the log once.

| executor | rows |
|---|---|
"""
PLACEMENT = """
## What placement costs

| one reader alone | bodies | CPU of reader and server |
|---|---|---|
| in place (node2) | {local_rate:,.0f} MB/s | {local_cpu:.2f} s/GB |
| through Flight, over the bridge (node3 from node2) | {remote_rate:,.0f} MB/s | {remote_cpu:.2f} s/GB |

Reader and server share this machine's cores, so a remote read uses two of them; a network has its own bound besides.
What is read remotely costs {ratio:.1f} times the CPU, and crosses the network. Spark's Python sources cannot say where
a task would like to run: with r replicas on n hosts a task that runs anywhere reads remotely with probability
(n - r)/n.
In this run, with 2 of 3, {batch:.0%} of the bytes were read in place without a wish, {placed:.0%} with `placed=True`.

| hosts with executors | replicas | read remotely, tasks anywhere | CPU of reading, to all in place |
|---|---|---|---|
"""


def page(outcome: Outcome) -> str:
    """Return the page of a run in Markdown."""
    first = next(iter(outcome.parts.values()))
    text = HEAD.format(
        messages=outcome.size.messages,
        megabytes=sum(part["bytes"] for part in first) / 1e6,
        parts=len({part["part"] for part in first}),
        cores=os.cpu_count() or 1,
    )
    for name, parts in outcome.parts.items():
        text += f"\n## {name.capitalize()}: {outcome.seconds[name]:.1f} s\n\n{TOLD[name]}\n\n" + _table(parts)
    if outcome.written:
        text += SINK.format(seconds=outcome.seconds["sink"], rows=sum(outcome.written.values()))
        text += "".join(f"| {host} | {rows:,} |\n" for host, rows in outcome.written.items())
    return text + _placement(outcome) if outcome.rates else text


def _table(parts: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| executor | read from | splits | rows | bytes |", "|---|---|---|---|---|"]
    for (host, replica), (splits, rows, size) in by_source(parts).items():
        lines.append(f"| {host} | {replica} | {splits} | {rows:,} | {size:,} |")
    return "\n".join(lines) + "\n"


def _placement(outcome: Outcome) -> str:
    local, remote = outcome.rates["in place"], outcome.rates["grpc"]
    ratio = remote.cpu_a_gigabyte / local.cpu_a_gigabyte
    shares = {name: share_in_place(outcome.parts.get(name, ())) for name in ("batch", "placed")}
    text = PLACEMENT.format(
        local_rate=local.bytes_a_second / 1e6,
        remote_rate=remote.bytes_a_second / 1e6,
        local_cpu=local.cpu_a_gigabyte,
        remote_cpu=remote.cpu_a_gigabyte,
        ratio=ratio,
        **shares,
    )
    for hosts in HOSTS:
        text += f"| {hosts} | {REPLICAS} | {remote_share(hosts, REPLICAS):.0%} |"
        text += f" {cost(hosts, REPLICAS, ratio):.1f} |\n"
    return text


def remote_share(hosts: int, replicas: int) -> float:
    """Return the share of tasks on a host without a replica, where tasks run anywhere: (n - r) / n."""
    return max(0, hosts - replicas) / hosts


def cost(hosts: int, replicas: int, ratio: float) -> float:
    """Return the cost of reading, relative to all in place, where a remote read costs `ratio` times as much."""
    share = remote_share(hosts, replicas)
    return 1 - share + share * ratio
