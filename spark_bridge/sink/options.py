"""Options of a write, checked: what the user gave to values, or an error that helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_bridge.options.flights import Flights, parse_flights
from spark_bridge.options.read import CLIENT_OPTION_NAMES, KAFKA_PREFIX
from spark_bridge.options.values import InvalidOption, choice, flag, local_path, nearest

WRITE_FLIGHT_NAMES = ("flightToken", "flightTokenFile", "flightRoots")
INCLUDE_HEADERS = "includeHeaders"  # of Kafka's users: the column is written where there is one
OPTION_NAMES = (
    "path",
    "topic",
    "acks",
    "idempotent",
    "writeId",
    "timeout",
    "systemProperties",
    "checkpointLocation",
    INCLUDE_HEADERS,
    *WRITE_FLIGHT_NAMES,
)
NOTHING, APPENDED, BROKER = "none", "appended", "broker"
ACKS = {
    "0": NOTHING, "1": APPENDED, "all": BROKER, "-1": BROKER, NOTHING: NOTHING, APPENDED: APPENDED, BROKER: BROKER,
}  # fmt: skip
TIMEOUT_SECONDS, TIMEOUT_SECONDS_MAX = 60.0, 24 * 3600.0
PATH_MISSING = (
    "option path is missing: the root directory of a broker's store; INSERT INTO and CREATE TABLE ... AS SELECT do not"
    ' tell a source the options of a table: write df.write.format("rocketmq").option("path", STORE).mode("append")'
    ".save()"
)
REFUSE, DROP = "refuse", "drop"


@dataclass(frozen=True)
class WriteOptions:
    """The options of one write. `topic` None: each row says it; `write_id` None: this write will not be repeated.

    `flights` are the servers of a broker's replicas, one of them the master's; None: the store is on the task's host.
    `drops_system_properties` None: those among headers only.
    """

    path: str
    topic: str | None = None
    acks: str = BROKER
    idempotent: bool = True
    write_id: str | None = None
    timeout_s: float = TIMEOUT_SECONDS
    drops_system_properties: bool | None = None
    flights: Flights | None = None


@dataclass(frozen=True)
class SinkColumns:
    """Places of the columns by part of a message; `is_keyed`: equal keys go to one queue, as Kafka's.

    `has_headers`: properties are Kafka's headers.
    """

    places: Mapping[str, int]
    is_keyed: bool
    has_headers: bool = False


def parse_write_options(options: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
    """Checked options. Raises InvalidOption naming the option, its value and what would do."""
    if overwrite:
        raise InvalidOption('a log cannot be overwritten: write with .mode("append"), or outputMode "append"')
    given = {name.lower(): value for name, value in options.items()}
    known = {name.lower() for name in (*OPTION_NAMES, *CLIENT_OPTION_NAMES)}
    for name in given:
        if name not in known and not name.startswith(KAFKA_PREFIX):
            raise InvalidOption(f"unknown option {name!r} of a write to rocketmq; {nearest(name, OPTION_NAMES)}")
    if not given.get("path"):
        raise InvalidOption(PATH_MISSING)
    acks = given.get("acks", BROKER).lower()
    if acks not in ACKS:
        raise InvalidOption(f"acks={given['acks']!r}: one of {', '.join(ACKS)}")
    flag(INCLUDE_HEADERS, given.get(INCLUDE_HEADERS.lower(), "true"))
    system = given.get("systemproperties")
    flights = parse_flights([given["path"]], given)
    return WriteOptions(
        path=given["path"] if flights else local_path("path", given["path"]),
        flights=flights,
        topic=_text("topic", given.get("topic")),
        acks=ACKS[acks],
        idempotent=flag("idempotent", given.get("idempotent", "true")),
        write_id=_text("writeId", given.get("writeid")),
        timeout_s=_seconds(given.get("timeout")),
        drops_system_properties=None if system is None else choice("systemProperties", system, (REFUSE, DROP)) == DROP,
    )


def _text(option: str, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise InvalidOption(f"{option} is empty")
    return value


def _seconds(text: str | None) -> float:
    if text is None:
        return TIMEOUT_SECONDS
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidOption(f"timeout={text!r}: seconds, as a number") from error
    if not 0 < value <= TIMEOUT_SECONDS_MAX:
        raise InvalidOption(f"timeout={text}: above 0, at most {TIMEOUT_SECONDS_MAX:.0f} seconds")
    return value
