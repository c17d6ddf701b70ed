"""A store as a Flight server has it: requests become plans, tickets become batches; nothing of Flight is known here.

Nothing is remembered of a plan but its lease: a ticket is resolved against the store as it is when it comes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_bridge.columnar.reader import read_split
from spark_bridge.flight.errors import InvalidTicket, OtherBroker, TicketBehind, TopicNotServed
from spark_bridge.flight.request import ScanRequest
from spark_bridge.flight.tickets import SplitTicket, encoded, parsed, placed, tickets_of
from spark_bridge.options.columns import canonical
from spark_bridge.options.read import ReadOptions, parse_options
from spark_bridge.options.rows import ERROR_COLUMN, RowOptions, parse_row_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.options.where import COLUMNS as SELECTING
from spark_bridge.options.where import where_text
from spark_bridge.options.zones import UTC_NAME
from spark_bridge.plan import inventory
from spark_bridge.plan.explanation import StorePlan, store_plan
from spark_bridge.plan.planner import plan_under_leases, planned_parts
from spark_bridge.plan.stores import broker_name_of
from spark_bridge.records.columns import Asked
from spark_bridge.records.row_filter import parse_conditions
from spark_bridge.replica.replica import end_of, stamp_of
from spark_bridge.split.leases import low_offset, without_lease
from spark_bridge.split.splits import LogExtent, QueueSplit, RangeSplit, Selection, Split
from store.errors import MalformedConfig
from store.files import pointer
from store.files.directory import StoreDirectory
from store.message.topics import is_lmq, is_system_topic
from store.names import CONFIG, CONSUME_QUEUES, TOPICS
from store.queues.consume_queue import ConsumeQueue
from store.reading import extent
from store.tables import json_files
from store.tables.tables import topics
from store.upkeep import leases


# The columns that a request or a ticket names, and their types in Arrow: those that a read in place has.
def asked_of(names: Sequence[str] | None, rows: RowOptions) -> Asked:
    """Ask for the wanted columns. Raises InvalidOption for an unknown one, and where no column can report damage."""
    asked = Asked.of(None if names is None else canonical(names), rows)
    if rows.permissive and ERROR_COLUMN not in asked.schema.names:
        raise InvalidOption(f"mode=permissive reports damage in column {ERROR_COLUMN}: add it to the columns")
    return asked


LEASE_SECONDS_MAX = 600  # a client's plan holds the log for no longer
LEASES_HELD_MAX = 256  # of plans; the oldest goes first
STREAM_LEASE_MS = 60_000
WAIT_SECONDS_MAX = 60.0  # for a replica that lags, whatever a client would wait
POLL_S = 0.1
ENDPOINTS_MAX = 10_000
TOPICS_MAX = 10_000
QUEUES_EXPLAINED_MAX = 100_000
PATTERN_CHARACTERS_MAX = 1024


class Plan(NamedTuple):
    """The plan of a request. `records` and `log_bytes` are -1 where they are not known without reading."""

    schema: pa.Schema
    tickets: list[bytes]
    records: int
    log_bytes: int
    broker_name: str
    end: int


class Opened(NamedTuple):
    """A ticket's batches, and what holds the log while they are read."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    lease: leases.Lease | None


class ServedStore:
    """One store; `served` are the topics that clients may read, None is every one."""

    def __init__(self, root: str, served: frozenset[str] | None = None) -> None:
        self.root = str(Path(root).absolute())
        self.served = served
        self._name = broker_name_of(self.root)
        self._held: deque[tuple[float, leases.Lease]] = deque()
        self._at_rest: tuple[object, LogExtent] | None = None
        self._lock = threading.Lock()
        inventory.find_extent(self.root, self._name, beyond_rot=True)  # what is wrong with the store is raised at once

    @property
    def broker_name(self) -> str:
        """Return the name of the store's broker; a broker that was started meanwhile knows it best."""
        settings = (StoreDirectory(self.root).read_pointer() or {}).get("settings", {})
        name = settings.get("brokerName")
        return name if isinstance(name, str) and name else self._name

    @property
    def places(self) -> tuple[str, ...]:
        """The paths that no client is to see."""
        named = (StoreDirectory(self.root).read_pointer() or {}).get("settings", {})
        elsewhere = (value for value in named.values() if isinstance(value, str) and value.startswith("/"))
        return self.root, str(Path(self.root).resolve()), *elsewhere

    def schema(self, request: ScanRequest) -> pa.Schema:
        """Return what the rows of a request look like. Raises InvalidOption."""
        return self._asked(request)[1].schema

    def plan(self, request: ScanRequest) -> Plan:
        """The tickets of a request, planned against the log's end as it is now.

        Raises what a plan in place raises, and TopicNotServed.
        """
        options, asked = self._asked(request)
        splits, held = plan_under_leases(self.resolved(options))
        self._hold(held, options.lease_ms)
        tickets = [encoded(ticket) for ticket in _tickets(splits, request, asked.schema.names)]
        end = max((split.log.max_physical_offset for split in splits), default=0)
        records = -1 if request.where else _records(splits)
        return Plan(asked.schema, tickets, records, _log_bytes(splits), self.broker_name, end)

    def explained(self, request: ScanRequest) -> list[StorePlan]:
        """Return what the request would touch now, of this store; nothing is held for it.

        Raises what `plan` raises.
        """
        options, asked = self._asked(request)
        plans = []
        for part, splits in planned_parts(self.resolved(options)):
            tickets = _tickets(splits, request, asked.schema.names)
            queues = sum(len(split.pieces) for split in splits if isinstance(split, QueueSplit))
            if queues > QUEUES_EXPLAINED_MAX:
                what = f"the plan has {queues} parts of queues, {QUEUES_EXPLAINED_MAX} at most are explained"
                raise InvalidOption(f"{what}; name fewer topics")
            plans.append(replace(store_plan(part, splits), splits=len(tickets)))
        return plans

    def options_of(self, request: ScanRequest) -> ReadOptions:
        """The options of a read of this store. Raises InvalidOption."""
        return parse_options({**request.read_options, **_narrowing(request), "path": self.root})

    def _asked(self, request: ScanRequest) -> tuple[ReadOptions, Asked]:
        options = self.options_of(request)
        if options.lease_ms > LEASE_SECONDS_MAX * 1000:
            raise InvalidOption(f"leaseSeconds={options.lease_ms // 1000}: {LEASE_SECONDS_MAX} at most through Flight")
        return options, asked_of(options.columns, options.rows)

    def resolved(self, options: ReadOptions) -> ReadOptions:
        """The options with the topics by name that a pattern, or this server's list, leaves of them."""
        if options.topic_pattern is not None:
            matching = self._matching(options.topic_pattern)
            if not options.include_system_topics:
                matching = {name for name in matching if not is_system_topic(name)}
            topics = tuple(sorted(matching))
            return replace(options, topic_pattern=None, topics=topics, topics_admitted=True, allow_missing_topics=True)
        if self.served is None:
            return options
        if options.topics is None:
            shown = (name for name in self.served if options.include_system_topics or not is_system_topic(name))
            return replace(options, topics=tuple(sorted(shown)), allow_missing_topics=True)
        self._refuse_unserved(options.topics)
        if not options.allow_missing_topics and (unknown := set(options.topics) - self.topics()):
            raise TopicNotServed(f"no topic {min(unknown)!r} is served here; ListFlights shows those that are")
        return replace(options, allow_missing_topics=True)  # an error would name topics that are not served

    def _matching(self, pattern: str) -> set[str]:
        """The topics that a stranger's expression matches, by RE2: it takes no longer than the text is long."""
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            raise InvalidOption(f"subscribePattern: {len(pattern)} characters, {PATTERN_CHARACTERS_MAX} at most")
        names = pa.array(sorted(name for name in self.topics() if not is_lmq(name)), pa.string())
        try:
            mask = pc.match_substring_regex(names, f"^(?:{pattern})$")
        except pa.ArrowInvalid as error:
            what = f"subscribePattern={pattern!r}: Flight takes RE2's expressions, without looking around or back"
            raise InvalidOption(what) from error
        return set(names.filter(mask).to_pylist())

    def topics(self) -> set[str]:
        """The topics that clients may read and that the store knows, by its queues or its table."""
        names = set(inventory.topics_of(self.root, Selection()))
        with suppress(MalformedConfig):  # it can tell nothing
            names.update(topics(json_files.read(Path(self.root) / CONFIG / TOPICS)))
        return names if self.served is None else names & self.served

    def listed(self, prefix: str) -> list[tuple[str, int]]:
        """Topics that begin so, with the number of messages in their queues. Raises InvalidOption for too many."""
        names = {name for name in self.topics() if name.startswith(prefix) and not is_system_topic(name)}
        if len(names) > TOPICS_MAX:
            raise InvalidOption(f"{len(names)} topics, {TOPICS_MAX} at most are listed; give a prefix as criteria")
        counts = dict.fromkeys(names, 0)
        for (topic, _queue), (first, end) in inventory.queue_ends(self.root, Selection(frozenset(names))).items():
            counts[topic] += end - first
        return sorted(counts.items())

    def status(self) -> dict[str, Any]:
        """Return the log's broker and extent."""
        log = self._extent()
        return {
            "brokerName": self.broker_name,
            "segmentBytes": log.segment_bytes,
            "minPhysicalOffset": log.min_physical_offset,
            "reputFromOffset": log.reput_from_offset,
            "maxPhysicalOffset": log.max_physical_offset,
            "isRunning": extent.running(self.root) is not None,
        }

    def open(self, text: bytes) -> Opened:
        """A ticket's batches. Raises InvalidTicket and what `opened` raises."""
        return self.opened(parsed(text))

    def opened(self, ticket: SplitTicket) -> Opened:
        """A ticket's batches. Raises InvalidTicket, OtherBroker, TopicNotServed, TicketBehind, InvalidOption."""
        self.refuse_other_broker(ticket.broker_name)
        self._refuse_foreign(ticket)
        rows = parse_row_options(ticket.rows)
        # a client of another kind that decodes here and names no zone is in UTC, wherever this server stands
        rows = replace(rows, replica_wait_s=min(rows.replica_wait_s, WAIT_SECONDS_MAX), local_zone=UTC_NAME)
        asked = asked_of(ticket.columns, rows)
        split = placed(ticket.split, self._awaited(ticket, rows.replica_wait_s), self._queue_directory)
        row_filter = parse_conditions(list(ticket.where)) if ticket.where else None
        batches = read_split(split, asked._replace(row_filter=row_filter))
        return Opened(asked.schema, filter(len, batches), self.leased(low_offset(split)))

    def refuse_other_broker(self, name: str) -> None:
        """Raise OtherBroker for a ticket of another broker's log."""
        if name != self.broker_name:
            what = f"the ticket is of broker {name[:255]!r}, this is a replica of {self.broker_name!r}"
            raise OtherBroker(f"{what}; give it to a replica of its own broker")

    def _refuse_foreign(self, ticket: SplitTicket) -> None:
        if self.served is None:
            return
        split = ticket.split
        if isinstance(split, QueueSplit):
            self._refuse_unserved({piece.topic for piece in split.pieces})
        elif split.selection.topics is None:
            raise TopicNotServed("the ticket is of all topics, this server serves some; ask it for a plan of its own")
        else:
            self._refuse_unserved(split.selection.topics)

    def _refuse_unserved(self, names: Any) -> None:
        if self.served is not None and (others := set(names) - self.served):
            raise TopicNotServed(f"topic {min(others)[:255]!r} is not served here; ListFlights shows those that are")

    def _queue_directory(self, topic: str, queue_id: int) -> str:
        return str(Path(self.root, CONSUME_QUEUES, topic, str(queue_id)))

    def _awaited(self, ticket: SplitTicket, seconds: float) -> LogExtent:
        """The log here, cut to what the plan saw, as soon as it holds what the ticket names; a log at rest at once."""
        split, deadline = ticket.split, time.monotonic() + seconds
        while True:
            own = self._extent()
            planned = split.log
            if own.segment_bytes != planned.segment_bytes and own.max_physical_offset > own.min_physical_offset:
                what = f"the ticket's segments have {planned.segment_bytes} bytes, this log's {own.segment_bytes}"
                raise InvalidTicket(f"{what}; give it to a replica with segments of its size, or ask for a new plan")
            lacking = self._lacking(split, own)
            if lacking is None:
                break
            if extent.running(self.root) is None or time.monotonic() >= deadline:
                raise TicketBehind(self.broker_name, *lacking)
            time.sleep(POLL_S)
        end = min(own.max_physical_offset, planned.max_physical_offset)
        return replace(
            own,
            broker_name=self.broker_name,
            min_physical_offset=planned.min_physical_offset,
            reput_from_offset=min(own.reput_from_offset, planned.reput_from_offset, end),
            max_physical_offset=end,
        )

    def _lacking(self, split: Split, own: LogExtent) -> tuple[str, int, int] | None:
        """Return what a split names and is not here, how far it is here, and how far it is wanted."""
        if not isinstance(split, QueueSplit):
            wanted = end_of(split)
            return None if own.max_physical_offset >= wanted else ("the log", own.max_physical_offset, wanted)
        for piece in split.pieces:
            try:
                end = ConsumeQueue.open(self._queue_directory(piece.topic, piece.queue_id)).max_offset
            except FileNotFoundError:
                end = 0
            if end < piece.end:
                what = f"queue {piece.queue_id} of topic {piece.topic!r}"
                if own.reput_from_offset >= split.log.reput_from_offset > 0:
                    raise InvalidTicket(f"{what} ends at {end}, the ticket names entries up to {piece.end}; ask again")
                return what, end, piece.end
        return None

    def _extent(self) -> LogExtent:
        """The log's ends now. Of a killed broker's store, which nobody writes to, they are found once."""
        directory = StoreDirectory(self.root)
        if extent.running(self.root) is not None or not directory.was_aborted():
            return inventory.find_extent(self.root, self.broker_name, beyond_rot=True)
        known, stamp = self._at_rest, None
        if known is not None:
            stamp = stamp_of(Path(known[1].commitlog))
            if known[0] == stamp:
                return known[1]
        log = inventory.find_extent(self.root, self.broker_name, beyond_rot=True)
        self._at_rest = stamp_of(Path(log.commitlog)), log
        return log

    def leased(self, low: int) -> leases.Lease | None:
        """The log, held from an offset on; None where nobody would respect it."""
        if extent.running(self.root) is None:
            return None
        try:
            return leases.acquire(self.root, low, STREAM_LEASE_MS)
        except OSError as error:
            pointer.say_once(without_lease(self.root, error))
            return None

    def _hold(self, planned: list[leases.Lease], ttl_ms: int) -> None:
        """Keep the leases of plans for as long as they last, so many of them, and let go of the others."""
        now = time.monotonic()
        with self._lock:
            self._held.extend((now + ttl_ms / 1000, lease) for lease in planned)
            over = [lease for until, lease in self._held if until <= now]
            self._held = deque((until, lease) for until, lease in self._held if until > now)
            while len(self._held) > LEASES_HELD_MAX:
                over.append(self._held.popleft()[1])
        for lease in over:
            lease.release()

    def sweep(self) -> None:
        """Let go of what plans held for long enough."""
        self._hold([], 0)

    def close(self) -> None:
        """Let go of all that is held."""
        with self._lock:
            held, self._held = self._held, deque()
        for _until, lease in held:
            lease.release()


def _tickets(splits: list[Split], request: ScanRequest, names: Sequence[str]) -> list[SplitTicket]:
    """Return what a client would read them by. Raises InvalidOption for more than there may be."""
    rows = request.row_options
    made = [ticket for split in splits for ticket in tickets_of(split, tuple(names), rows, request.where)]
    if len(made) > ENDPOINTS_MAX:
        smaller = "make minPartitions smaller, or splitBytes, maxBytesPerPartition, maxRecordsPerPartition larger"
        raise InvalidOption(f"the plan has {len(made)} tickets, {ENDPOINTS_MAX} at most; {smaller}")
    return made


def _narrowing(request: ScanRequest) -> dict[str, str]:
    """The option `where` for what of the conditions a plan can leave out."""
    admitted = parse_conditions(list(request.where)).admitted()
    chosen = {name: values for name, values in admitted.items() if name in SELECTING}
    if not chosen or any(name.lower() == "where" for name in request.options):
        return {}
    return {"where": where_text(chosen)}


def _records(splits: list[Split]) -> int:
    """Return how many rows there will be, if queues alone say it."""
    if not all(isinstance(split, QueueSplit) and split.selection == Selection() for split in splits):
        return -1
    return sum(piece.end - piece.start for split in splits if isinstance(split, QueueSplit) for piece in split.pieces)


def _log_bytes(splits: list[Split]) -> int:
    """Return how many bytes of the log are gone through, if that is how it is read."""
    if not all(isinstance(split, RangeSplit) for split in splits):
        return -1
    return sum(split.end - split.start for split in splits if isinstance(split, RangeSplit))
