"""The options of `spark.read.format("rocketmq")`, checked: text from the user to values, or an error that helps.

Kafka's names and those of Apache's rocketmq-spark are both taken; Spark ignores their case. What only a Kafka client
needs (`kafka.*`, how it polls) is taken too and has no effect: there is no client.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_bridge.options.flights import FLIGHT_OPTION_NAMES, Flights, parse_flights
from spark_bridge.options.queues import (
    EARLIEST,
    LATEST,
    QueueMoment,
    QueueName,
    QueueOffset,
    parse_assign,
    parse_moment,
    parse_moments,
    parse_offsets,
)
from spark_bridge.options.rows import DEFAULT_ROWS, ROW_OPTION_NAMES, RowOptions, parse_row_options
from spark_bridge.options.values import (
    PARTITIONS_MAX,
    InvalidOption,
    choice,
    count,
    flag,
    json_value,
    local_path,
    nearest,
)
from spark_bridge.options.views import (
    COMMIT_OPTION_NAMES,
    SNAPSHOT,
    STARTING_SNAPSHOT,
    TLS_CONFIG_FILE,
    parse_snapshot,
    parse_tls_config_file,
)
from spark_bridge.options.where import ANYTHING, Where, parse_where

STORE_OPTION_NAMES = ("path", "paths", "nameServer")
TOPIC_OPTION_NAMES = ("topic", "subscribe", "subscribePattern", "assign", "includeSystemTopics", "allowMissingTopics")
START_OPTION_NAMES = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", STARTING_SNAPSHOT)
END_OPTION_NAMES = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", SNAPSHOT)
RECORD_OPTION_NAMES = ("where", "subExpression", "keys", "startingOffsetsByTimestampStrategy", "onlyConfirmed")
SPLIT_OPTION_NAMES = ("minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition", "splitBytes", "leaseSeconds")
STREAM_OPTION_NAMES = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    *COMMIT_OPTION_NAMES,
)
OPTION_NAMES = (
    *STORE_OPTION_NAMES,
    *FLIGHT_OPTION_NAMES,
    *TOPIC_OPTION_NAMES,
    *START_OPTION_NAMES,
    *END_OPTION_NAMES,
    *RECORD_OPTION_NAMES,
    *SPLIT_OPTION_NAMES,
    *ROW_OPTION_NAMES,
    "columns",
    "table",
    TLS_CONFIG_FILE,
    *STREAM_OPTION_NAMES,
)
# Of Kafka's source and rocketmq-spark: how their clients ask a broker.
CLIENT_OPTION_NAMES = (
    "group", "groupIdPrefix", "pullBatchSize", "pullTimeout", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)  # fmt: skip
KAFKA_PREFIX, KAFKA_SERVERS = "kafka.", "kafka.bootstrap.servers"
TABLE_NAMES = ("queues", "topics", "segments", "replicas", "consumer_groups")
SPLIT_BYTES_MIN = 4096
LEASE_SECONDS_DEFAULT = 120
ANY_TAG = "*"


@dataclass(frozen=True)
class ReadOptions:
    """The options of one read. `topics` None is every topic; queues not named are read from end to end.

    With `topics_admitted` topics are those that a pattern or a list admits, not names that were given: one that has no
    queue is looked for in what is not in queues yet, and not in the whole log.
    """

    paths: tuple[str, ...] = ()
    name_servers: tuple[str, ...] = ()
    tls_config_file: str | None = None
    flights: Flights | None = None
    topics: tuple[str, ...] | None = None
    topics_admitted: bool = False
    topic_pattern: str | None = None
    assigned: tuple[QueueName, ...] = ()
    include_system_topics: bool = False
    allow_missing_topics: bool = False
    where: Where = ANYTHING
    tags: frozenset[str] | None = None
    keys: tuple[str, ...] = ()
    starting_offsets: tuple[QueueOffset, ...] = ()
    ending_offsets: tuple[QueueOffset, ...] = ()
    starting_moments: tuple[QueueMoment, ...] = ()
    ending_moments: tuple[QueueMoment, ...] = ()
    snapshot: str | None = None
    starting_snapshot: str | None = None
    fail_when_too_late: bool = False
    only_confirmed: bool = False
    split_bytes: int | None = None
    partitions_min: int | None = None
    partition_records_max: int | None = None
    partition_bytes_max: int | None = None
    lease_ms: int = LEASE_SECONDS_DEFAULT * 1000
    table: str | None = None
    columns: tuple[str, ...] | None = None
    rows: RowOptions = DEFAULT_ROWS

    @property
    def path(self) -> str:
        """The first path: all of it for a read of one store."""
        return self.paths[0]


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Checked options. Raises InvalidOption naming the option, its value and what would do."""
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    for names in (TOPIC_OPTION_NAMES[:4], START_OPTION_NAMES, END_OPTION_NAMES, ("splitBytes", "maxBytesPerPartition")):
        _one_of(given, names)
    _warn_of_stream_options(given)
    paths, name_servers, flights = _places(given)
    starting_offsets = _offsets(given, "startingOffsets", EARLIEST)
    ending_offsets = _offsets(given, "endingOffsets", LATEST)
    starting_moments, ending_moments = _moments(given, "starting"), _moments(given, "ending")
    assigned = parse_assign(given["assign"]) if "assign" in given else ()
    named = [item.queue for item in (*starting_offsets, *ending_offsets)]
    named += [item.queue for item in (*starting_moments, *ending_moments) if item.queue is not None]
    strategy = given.get("startingoffsetsbytimestampstrategy", "latest")
    return ReadOptions(
        paths=paths,
        name_servers=name_servers,
        tls_config_file=_tls_config_file(given, name_servers),
        flights=flights,
        topics=_topics(given, assigned, named),
        topic_pattern=_pattern(given.get("subscribepattern")),
        assigned=assigned,
        include_system_topics=flag("includeSystemTopics", given.get("includesystemtopics", "false")),
        allow_missing_topics=flag("allowMissingTopics", given.get("allowmissingtopics", "false")),
        where=parse_where(given.get("where")),
        tags=_tags(given.get("subexpression")),
        keys=_keys(given.get("keys")),
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        starting_moments=starting_moments,
        ending_moments=ending_moments,
        snapshot=parse_snapshot(given, SNAPSHOT),
        starting_snapshot=parse_snapshot(given, STARTING_SNAPSHOT),
        fail_when_too_late=choice("startingOffsetsByTimestampStrategy", strategy, ("latest", "error")) == "error",
        only_confirmed=flag("onlyConfirmed", given.get("onlyconfirmed", "false")),
        split_bytes=count("splitBytes", given.get("splitbytes"), SPLIT_BYTES_MIN),
        partitions_min=count("minPartitions", given.get("minpartitions"), 1, PARTITIONS_MAX),
        partition_records_max=count("maxRecordsPerPartition", given.get("maxrecordsperpartition"), 1),
        partition_bytes_max=count("maxBytesPerPartition", given.get("maxbytesperpartition"), 1),
        lease_ms=1000 * (count("leaseSeconds", given.get("leaseseconds"), 1) or LEASE_SECONDS_DEFAULT),
        table=_table(given),
        columns=_columns(given.get("columns")),
        rows=parse_row_options(given),
    )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in (*OPTION_NAMES, *CLIENT_OPTION_NAMES)}
    for name in given:
        if name not in known and not name.startswith(KAFKA_PREFIX):
            hint = nearest(name, (*OPTION_NAMES, *CLIENT_OPTION_NAMES, KAFKA_SERVERS))
            raise InvalidOption(f"unknown option {name!r} of format rocketmq; {hint}")


def _one_of(given: Mapping[str, str], names: tuple[str, ...]) -> None:
    """Raise InvalidOption where more than one of the options is given."""
    given_names = [name for name in names if name.lower() in given]
    if len(given_names) > 1:
        raise InvalidOption(f"{' and '.join(given_names)} say the same thing twice: give one of them")


def _none_of(given: Mapping[str, str], names: tuple[str, ...], belongs_to: str) -> None:
    for name in names:
        if name.lower() in given:
            raise InvalidOption(f"{name} belongs to {belongs_to}")


def _warn_of_stream_options(given: Mapping[str, str]) -> None:
    """Warn, as Kafka's source does, of stream options, which a batch read ignores."""
    named = [name for name in STREAM_OPTION_NAMES if name.lower() in given]
    if named:
        warnings.warn(f"{', '.join(named)}: without effect in a batch read, which takes all there is", stacklevel=3)


def _places(given: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...], Flights | None]:
    """Paths, name servers, or servers of other hosts: where the stores are."""
    _one_of(given, STORE_OPTION_NAMES)
    if "path" in given or "paths" in given:
        paths = _listed("path", given.get("path", given.get("paths", "")))
        if paths:
            flights = parse_flights(paths, given)
            return () if flights else tuple(local_path("path", path) for path in paths), (), flights
    servers = tuple(re.split(r"[;,\s]+", given.get("nameserver", given.get(KAFKA_SERVERS, "")).strip()))
    if servers != ("",):
        return (), tuple(filter(None, servers)), None
    places = 'the root directory of a store, .option("path", STORE), or .option("nameServer", "host:9876")'
    of_tables = "a table keeps its options if CREATE TABLE names no columns of its own (give the option columns)"
    raise InvalidOption(f"option path is missing: {places}; {of_tables}")


def _tls_config_file(given: Mapping[str, str], name_servers: tuple[str, ...]) -> str | None:
    """Return the TLS file for name servers; in a stream also for where its offsets are committed."""
    if TLS_CONFIG_FILE.lower() in given and not name_servers and "commitgroup" not in given:
        what = "belongs to nameServer, or to a stream's commitGroup: no other option uses remoting"
        raise InvalidOption(f"{TLS_CONFIG_FILE} {what}")
    return parse_tls_config_file(given)


def _listed(option: str, text: str) -> tuple[str, ...]:
    """Return one text, or those of a JSON list, which Spark makes of `load([...])`."""
    if text.lstrip().startswith("["):
        try:
            items = json_value(option, text, "give a JSON list of texts")
        except InvalidOption as error:
            if isinstance(error.__cause__, json.JSONDecodeError):
                return (text,)  # a glob may begin so
            raise
        if isinstance(items, list) and all(isinstance(item, str) and item for item in items):
            return tuple(items)
        raise InvalidOption(f"{option}={text!r}: give a JSON list of texts")
    return (text,) if text else ()


def _topics(
    given: Mapping[str, str], assigned: tuple[QueueName, ...], named: list[QueueName]
) -> tuple[str, ...] | None:
    """The topics selected: by option, else those that offsets and timestamps name."""
    if "subscribepattern" in given:
        return None
    text = given.get("topic", given.get("subscribe"))
    if text is None and not assigned:
        return tuple(sorted({queue.topic for queue in named})) or None
    if text is not None:
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not topics:
            raise InvalidOption(f"topic={text!r}: a topic, or several with commas between them")
    else:
        topics = tuple(dict.fromkeys(queue.topic for queue in assigned))
    wanted, brokers = frozenset(topics), _brokers_by_queue(assigned)
    for queue in named:
        if queue.topic not in wanted or (assigned and not _is_among(queue, brokers)):
            what = f"queue {queue.queue_id} of topic" if queue.topic in wanted else "topic"
            among = f"topic={text!r}" if text is not None else f"assign={given['assign']!r}"
            raise InvalidOption(f"offsets or timestamps are given for {what} {queue.topic!r}, not among {among}")
    return topics


_Brokers = dict[tuple[str, int], set[str | None]]


def _brokers_by_queue(queues: Iterable[QueueName]) -> _Brokers:
    """The brokers that each queue is named of; None is any."""
    brokers: _Brokers = {}
    for queue in queues:
        brokers.setdefault((queue.topic, queue.queue_id), set()).add(queue.broker)
    return brokers


def _is_among(queue: QueueName, brokers: _Brokers) -> bool:
    """Whether any broker's queue of that number is assigned."""
    known = brokers.get((queue.topic, queue.queue_id), set())
    return bool(known) and (queue.broker is None or None in known or queue.broker in known)


def _pattern(text: str | None) -> str | None:
    """A regular expression that a topic's whole name meets."""
    if text is not None:
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidOption(f"subscribePattern={text!r}: not a regular expression ({error})") from error
    return text


def _columns(text: str | None) -> tuple[str, ...] | None:
    """Names of columns: a JSON list, or texts with commas between them."""
    if text is None:
        return None
    is_json = text.lstrip().startswith("[")
    listed = _listed("columns", text) if is_json else tuple(name.strip() for name in text.split(","))
    if not listed or not all(listed):
        raise InvalidOption(f"columns={text!r}: a column, or several with commas between them, as topic,queueId,body")
    return listed


def _tags(text: str | None) -> frozenset[str] | None:
    """FilterAPI.buildSubscriptionData: tags with || between them; nothing and * are all messages."""
    if text is None or text.strip() in ("", ANY_TAG):
        return None
    tags = frozenset(tag.strip() for tag in text.split("||")) - {""}
    if not tags:
        raise InvalidOption(f"subExpression={text!r}: {ANY_TAG}, a tag, or tags with || between them")
    return tags


def _keys(text: str | None) -> tuple[str, ...]:
    """Message keys: a JSON list, or texts with commas between them."""
    if text is None:
        return ()
    listed = _listed("keys", text)
    keys = listed if text.lstrip().startswith("[") else tuple(key.strip() for key in text.split(","))
    keys = tuple(dict.fromkeys(filter(None, keys)))
    if not keys or any(" " in key for key in keys):
        raise InvalidOption(f"keys={text!r}: a message's key, or several with commas between them; keys hold no blanks")
    return keys


def _offsets(given: Mapping[str, str], option: str, own_end: int) -> tuple[QueueOffset, ...]:
    """The offsets of queues that are named; all others begin (end) at their own."""
    words = {"earliest": EARLIEST, "latest": LATEST}
    text = given.get(option.lower())
    if text is None or words.get(text.strip().lower()) == own_end:
        return ()
    if text.strip().lower() in words:
        raise InvalidOption(f"{option}={text}: a batch read of that would always be empty; give the other, or JSON")
    if not text.lstrip().startswith("{"):
        word = "earliest" if own_end == EARLIEST else "latest"
        raise InvalidOption(f'{option}={text!r}: give {word}, or JSON as {{"topic":{{"0":42}}}}')
    return parse_offsets(option, text, EARLIEST + LATEST - own_end)


def _moments(given: Mapping[str, str], end: str) -> tuple[QueueMoment, ...]:
    """Return one moment for every queue, or moments by queue."""
    name, by_queue = f"{end}Timestamp", f"{end}OffsetsByTimestamp"
    if name.lower() in given:
        return (QueueMoment(None, parse_moment(name, given[name.lower()])),)
    return parse_moments(by_queue, given[by_queue.lower()]) if by_queue.lower() in given else ()


def _table(given: Mapping[str, str]) -> str | None:
    """The metadata table asked for; which has no use for options about messages."""
    if "table" not in given:
        return None
    table = given["table"].strip().lower()
    if table not in TABLE_NAMES:
        raise InvalidOption(f"table={given['table']!r} is unknown; {nearest(table, TABLE_NAMES)}")
    about_messages = (
        "assign",
        *START_OPTION_NAMES,
        *END_OPTION_NAMES,
        *RECORD_OPTION_NAMES,
        *SPLIT_OPTION_NAMES,
        *ROW_OPTION_NAMES,
    )
    _none_of(given, about_messages, "a read of messages, not of a metadata table")
    return table


__all__ = ["EARLIEST", "LATEST", "InvalidOption", "ReadOptions", "parse_options"]
