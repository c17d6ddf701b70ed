"""`spark.readStream.format("rocketmq")`: offsets and plans on the driver; executors read as in a batch read.

One process per query keeps this reader on the driver. A batch is what Spark wrote into its checkpoint before it ran it:
planned again after a crash it is the same entries of the same queues, because what a queue holds never changes.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from spark_bridge import worker_process
from spark_bridge.plan.collection import planned_in_peace
from spark_bridge.plan.inventory import selection_of
from spark_bridge.plan.stores import StoreAt
from spark_bridge.records.columns import Asked
from spark_bridge.records.reader import read_split
from spark_bridge.records.reading import counted_in_place
from spark_bridge.records.spark_schema import settled
from spark_bridge.replica.tls import tls_of
from spark_bridge.split.splits import Selection
from spark_bridge.stream.group_commits import GroupCommits
from spark_bridge.stream.limits import Limits
from spark_bridge.stream.offsets import (
    Bounds,
    DataLost,
    Loss,
    Offsets,
    QueueKey,
    advance,
    deleted,
    first_unread,
    from_json,
    given_up,
    not_beyond,
    to_json,
)
from spark_bridge.stream.options import parse_stream_options
from spark_bridge.stream.plan import Task, pack
from spark_bridge.stream.progress import with_commits
from spark_bridge.stream.stores import StreamStores, Unread
from spark_bridge.user_errors import in_one_line

log = logging.getLogger("slipstream.spark")

TASKS_PER_CPU = 2
SKIPPED = (
    "the options do not select it any more, and a batch of the checkpoint that was not finished has messages of it;"
    " start the query once with the options of before"
)
READY_S = 60.0  # for a broker that is being started, and for a replica that still fetches what a batch needs


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Source of one streaming query, on the driver."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self.options = parse_stream_options(options)
        self.rows = settled(schema, self.options.read.rows)
        self.column_names = schema.fieldNames()
        self.arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._opened: StreamStores | None = None  # made on the driver only: executors get a reader without
        self._last_seen: Bounds = {}
        self._target: Offsets | None = None
        self._last_batch_s = float("-inf")
        self._are_names_known = False
        self._commits: GroupCommits | None = None
        self._not_done: dict[str, Any] | None = None  # where a query begins, or what the group committed last

    # the driver

    @in_one_line
    @planned_in_peace
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint starts."""
        there = self._stores.begin(self.options, READY_S)
        self._refuse_missing({})
        self._not_done = self._json(self._stores.starts(self.options, there))
        return self._not_done

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return one of the limits: Spark passes on only one, `latestOffset` applies all."""
        limits = self.options.limits
        if limits.rows_max is not None:
            return ReadMaxRows(limits.rows_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        return ReadAllAvailable() if limits.rows_min is None else ReadMinRows(limits.rows_min)

    @in_one_line
    @planned_in_peace
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return how far the next batch goes; `start` itself when there is nothing to do. Raises DataLost."""
        done = self._offsets(start)
        self._tell_group(start, done)  # a batch is planned when the one before is in the checkpoint
        self._last_seen = there = self._stores.look()
        self._refuse_missing(done)
        kept = self._left_out(done)
        done = _without(done, kept)
        step = advance(done, there, self._stores.judged)
        if self.rows.fail_on_data_loss:
            self._lost(step.losses)
        end = step.end if self._target is None else not_beyond(step.end, self._target, done)
        self._stores.hold(done)
        rows = sum(max(0, until - first_unread(key, done, there)) for key, until in end.items())
        limits = Limits() if isinstance(limit, ReadAllAvailable) else self.options.limits
        if self._target is None and limits.waits(rows, (time.monotonic() - self._last_batch_s) * 1000):
            return start
        if rows:
            self._last_batch_s = time.monotonic()
        planned = self._json({**self._stores.limited(done, end, there, limits), **kept})
        if self._commits is not None and self._target is not None and planned == start:
            self._commits.settle()  # such a query ends here
        return planned

    def _tell_group(self, value: dict[str, Any], done: Offsets) -> None:
        """Commit what Spark has finished to the consumer group, if there is one; nobody waits for that."""
        commits = self.options.commits
        if commits is None or value == self._not_done:
            return
        self._not_done = value
        if self._commits is None:
            self._commits = GroupCommits(commits, self.options.read.name_servers)
        tails = self._stores.tails
        self._commits.done(done, {name: StoreAt(tail.root, tail.broker_name) for name, tail in tails.items()})

    def _refuse_missing(self, done: Offsets) -> None:
        """Once, raise UnknownTopic for a name that no store has; what the query has read already is another matter."""
        if not self._are_names_known:
            self._stores.refuse_missing({key.topic for key in done})
            self._are_names_known = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return where the queues ended at the last look: in the query's progress, beside how far it has read."""
        if not self._last_seen:
            return None
        latest = self._json({key: end for key, (_, end) in self._last_seen.items()})
        commits = self._commits
        return latest if commits is None else with_commits(latest, commits.options.group, commits.figures)

    @in_one_line
    @planned_in_peace
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Settle what is read: what was acknowledged before this moment, nothing after it. Raises StoreNotReady."""
        self._target = {key: end for key, (_, end) in self._stores.await_dispatched(READY_S).items()}

    @in_one_line
    @planned_in_peace
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one batch. Raises DataLost, StoreNotReady."""
        done, until = self._offsets(start), self._offsets(end)
        self._stores.look()
        left_out = self._left_out(until)
        skipped = [Loss(key, SKIPPED) for key, offset in left_out.items() if offset > done.get(key, 0)]
        done, until = _without(done, left_out), _without(until, left_out)
        there = self._stores.await_until(lambda bounds: self._can_serve(until, bounds), READY_S)
        short = [key for key in until if until[key] > there.get(key, (0, 0))[1] and until[key] > done.get(key, 0)]
        losses = [
            Loss(key, f"a batch of the checkpoint reaches offset {until[key]}, {_where_it_ends(key, there)}")
            for key in short
        ]
        self._lost([*skipped, *losses, *given_up(done, until), *deleted(done, until, there)])
        spans = []
        for key, stop in until.items():
            first, last = first_unread(key, done, there), min(stop, there.get(key, (0, 0))[1])
            if first < last:
                spans.append(Unread(key, first, last))
        parts = self._stores.parts(spans, Selection(tags=self.options.read.tags))
        asked = self.options.read.partitions_min
        tasks = pack(parts, TASKS_PER_CPU * (os.cpu_count() or 1)) if asked is None else pack(parts, asked, least=1)
        return [InputPartition(self._as_sent(task)) for task in tasks]

    def _left_out(self, offsets: Offsets) -> Offsets:
        """The offsets of queues that the options do not select any more: they stay, for when they do again."""
        brokers = {name: tail.broker_name for name, tail in self._stores.tails.items()}
        selections = {name: selection_of(self.options.read, broker) for name, broker in brokers.items()}
        return {
            key: offset
            for key, offset in offsets.items()
            if key.store in selections and not _admits(selections[key.store], key)
        }

    def _as_sent(self, task: Task) -> Any:
        """Return what a task's executor receives."""
        return task

    def _can_serve(self, until: Offsets, there: Bounds) -> bool:
        """Whether every queue has what a batch needs, or certainly will never have it."""
        judged = self._stores.judged
        return all(
            key.store in judged or (key in there and there[key][1] >= offset) or offset == 0
            for key, offset in until.items()
        )

    def _lost(self, losses: list[Loss]) -> None:
        """Say what is lost: as an error, or in the log when the query shall go on."""
        if losses and self.rows.fail_on_data_loss:
            raise DataLost(
                "; ".join(map(str, losses)) + ". With failOnDataLoss=false the query would continue without them"
            )
        for loss in losses:
            log.warning("DATA_LOST: %s; continuing because failOnDataLoss=false", loss)

    @in_one_line
    def commit(self, end: dict[str, Any]) -> None:
        """Release what lies before `end`: it is not needed any more."""
        done = self._offsets(end)
        self._stores.hold(done)
        self._tell_group(end, done)

    def stop(self) -> None:
        """End the commits, and close the stores."""
        if self._commits is not None:
            self._commits.close()
        if self._opened is not None:
            self._opened.close()

    @property
    def _stores(self) -> StreamStores:
        if self._opened is None:
            if self.options.commits is not None:
                tls_of(self.options.commits.tls_config_file)  # a wrong file ends the query here, not one that ran
            self._opened = self._open()
        return self._opened

    def _open(self) -> StreamStores:
        """The stores, on the driver."""
        return StreamStores(self.options.read)

    def _offsets(self, value: dict[str, Any]) -> Offsets:
        return from_json(value, self._stores.by_store)

    def _json(self, offsets: Offsets) -> dict[str, Any]:
        return to_json(offsets, self._stores.by_store)

    # the executors

    @in_one_line
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task."""
        asked = Asked.of(self.column_names, self.rows, self.arrow_schema)
        for split in partition.value or ():
            yield from counted_in_place(read_split(split, asked), self.arrow_schema)
        worker_process.keep_what_reading_loaded()


def _admits(selection: Selection, key: QueueKey) -> bool:
    """Whether messages of that queue are wanted."""
    queue = key.topic, key.queue_id
    is_named = selection.queue_ids is None or key.queue_id in selection.queue_ids
    return selection.admits(key.topic) and is_named and (selection.queues is None or queue in selection.queues)


def _without(offsets: Offsets, others: Offsets) -> Offsets:
    return {key: offset for key, offset in offsets.items() if key not in others}


def _where_it_ends(key: QueueKey, there: Bounds) -> str:
    if key not in there:
        return "and the queue is not there: start the query on a replica that has it"
    return f"and the queue ends at {there[key][1]}: start the query on a replica that has all of it"


worker_process.keep_modules()
worker_process.keep_buffers()
