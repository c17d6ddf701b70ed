"""Planning: seconds and memory that the driver of a Spark read takes on a store of 100,000 segments and 100,000 queues.

    python -m tools.dev.bench.works.reads.planning STORE SEGMENTS QUEUES KIND   one, as JSON, as `measure` starts it

The store is sparse: what planning looks at is there. Each kind of read is planned in a new process, as Spark starts one
for each; the files' names and first pages are in the page cache by then. Memory is the most that the process had more
than before it planned. What the plan weighs is what Spark hands to its executors, pickled a partition.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ipc.counters import Counters
from ipc.module_names import named
from ipc.process import start_time
from ipc.waiting import publish
from spark_bridge.options.read import parse_options
from spark_bridge.plan.inventory import find_extent
from spark_bridge.plan.planner import plan_read
from spark_bridge.plan.stores import resolve_stores
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.stream.reader import RocketMQStreamReader
from spark_bridge.tables.rows import rows_of
from store.files.directory import StoreDirectory
from store.files.pointer import COUNTERS_FILE
from tools.dev.bench.bed.asked import Asked
from tools.dev.bench.bed.figures import Results, medians
from tools.dev.bench.bed.sparse_store import SparseStore, topic_name

SEGMENTS = QUEUES = 100_000
MIB = 1 << 20
GOAL_S, GOAL_MIB = 5.0, 500.0
CHILD_SECONDS = 600.0
ROWS_A_BATCH = 1_000_000
PARTITIONS = 20_000
COLUMNS = ["topic", "queueId", "queueOffset", "body"]
CURSORS = "min_physical_offset", "max_physical_offset", "reput_from_offset"


class Outcome(NamedTuple):
    """One plan: its seconds, also of CPU, the memory and the pickled bytes it took, and how many parts it has."""

    seconds: float
    cpu_seconds: float
    mib: float
    pickled_mib: float
    parts: float


def _plan(store: SparseStore, **options: str) -> list[Any]:
    return list(plan_read(parse_options({"path": str(store.root), **options})))


def _table(store: SparseStore, table: str) -> list[Any]:
    options = parse_options({"path": str(store.root), "table": table})
    return rows_of(table, resolve_stores(options), options)


def _stream(store: SparseStore, **options: str) -> list[Any]:
    """Plan from the first question of a query without a checkpoint to the tasks of its first batch."""
    reader = RocketMQStreamReader(schema_of(COLUMNS), {"path": str(store.root), **options})
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return [partition.value for partition in reader.partitions(start, end)]


def _by_queue(store: SparseStore, value: int) -> str:
    """The same for each queue, as options take it."""
    offsets: dict[str, dict[str, int]] = {}
    for number in range(store.queues):
        topic, queue_id = store.queue(number)
        offsets.setdefault(topic, {})[str(queue_id)] = value
    return json.dumps(offsets)


def _middle(store: SparseStore) -> int:
    return store.ms(store.records // 2)


KINDS: dict[str, Callable[[SparseStore], list[Any]]] = {
    "everything": _plan,
    "one topic": lambda store: _plan(store, topic=topic_name(store.topics // 2)),
    "all topics by a pattern": lambda store: _plan(store, subscribePattern="orders-.*"),
    "offsets of every queue": lambda store: _plan(store, startingOffsets=_by_queue(store, 1)),
    "a time of every queue": lambda store: _plan(store, startingOffsetsByTimestamp=_by_queue(store, _middle(store))),
    "a time of all": lambda store: _plan(store, startingTimestamp=str(_middle(store))),
    "a pattern between times": lambda store: _plan(
        store,
        subscribePattern="orders-.*",
        startingTimestamp=str(_middle(store)),
        endingTimestamp=str(_middle(store) + 3_600_000),
    ),
    "a key": lambda store: _plan(store, keys="k"),
    "many partitions of all topics": lambda store: _plan(
        store, subscribePattern="orders-.*", minPartitions=str(PARTITIONS)
    ),
    "table queues": lambda store: _table(store, "queues"),
    "table topics": lambda store: _table(store, "topics"),
    "table segments": lambda store: _table(store, "segments"),
    "a stream": _stream,
    "a stream from a time": lambda store: _stream(store, startingTimestamp=str(_middle(store))),
    "a stream of small batches": lambda store: _stream(store, maxOffsetsPerTrigger=str(ROWS_A_BATCH)),
}
BESIDE_A_BROKER = "everything", "all topics by a pattern", "a stream"


def _claim(store: SparseStore) -> None:
    """Make this process look like the store's broker, whose cursors say what is there."""
    log, root = find_extent(str(store.root)), StoreDirectory(store.root)
    regions = store.root / "regions"
    regions.mkdir(exist_ok=True)
    (regions / COUNTERS_FILE).unlink(missing_ok=True)
    counters = Counters.create(regions / COUNTERS_FILE, len(CURSORS))
    for label in CURSORS:
        publish(counters.allocate(label, kind="cursor", owner="bench"), getattr(log, label))
    fields: dict[str, Any] = {"pid": os.getpid(), "start_time": start_time(os.getpid()), "settings": {}}
    root.write_pointer({**fields, "region_directory": str(regions)})


def _memory(field: str) -> float:
    """VmRSS or VmHWM of this process, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no {field} in /proc/self/status")


def _outcome(store: SparseStore, kind: str) -> Outcome:
    """Make one plan in this process, and return its figures."""
    name, _, beside = kind.partition(", ")
    if beside:
        _claim(store)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    before, began, cpu = _memory("VmRSS"), time.perf_counter(), time.process_time()
    parts = KINDS[name](store)
    seconds, cpu_seconds, most = time.perf_counter() - began, time.process_time() - cpu, _memory("VmHWM")
    pickled = sum(len(pickle.dumps(part, pickle.HIGHEST_PROTOCOL)) for part in parts)
    if beside:
        StoreDirectory(store.root).pointer.unlink()
    return Outcome(seconds, cpu_seconds, most - before, pickled / MIB, len(parts))


def _in_a_process(store: SparseStore, kind: str) -> Outcome:
    asked = [str(store.root), str(store.segments), str(store.queues), kind]
    command = [sys.executable, "-m", named("tools.dev.bench.works.reads.planning"), *asked]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=CHILD_SECONDS)
    return Outcome(*json.loads(done.stdout.splitlines()[-1]))


def measure(of: Asked, to: Results) -> None:
    """Measure every kind of read; medians of the runs."""
    store = SparseStore(of.scratch / "planning", SEGMENTS, QUEUES).write()
    slowest = largest = 0.0
    for kind in [*KINDS, *(f"{kind}, beside a broker" for kind in BESIDE_A_BROKER)]:
        runs = [_in_a_process(store, kind) for _ in range(of.repeat)]
        middle = Outcome(*medians(runs))
        slowest, largest = max(slowest, middle.seconds), max(largest, middle.mib)
        note = f"{middle.cpu_seconds:.1f} s of CPU; {runs[0].parts:,} parts, {runs[0].pickled_mib:,.1f} MiB pickled"
        to.figure(f"planning: {kind}", "slipstream", middle.seconds, "s", note=note)
        to.figure(f"memory of planning: {kind}", "slipstream", middle.mib, "MiB")
    what = f"{SEGMENTS:,} segments and {QUEUES:,} queues"
    to.at_most(f"slowest plan of {what}", slowest, GOAL_S, f"{GOAL_S:g} s")
    to.at_most(f"largest plan of {what}", largest, GOAL_MIB, f"{GOAL_MIB:g} MiB")


def main(asked: Iterable[str]) -> None:
    """Print the figures of one kind of read, as JSON."""
    root, segments, queues, kind = asked
    print(json.dumps(_outcome(SparseStore(Path(root), int(segments), int(queues)), kind)))


if __name__ == "__main__":
    main(sys.argv[1:])
