"""What a read would touch, wherever its stores lie: planned here, or by the Flight servers that its paths name.

A server answers in JSON, with the names of `log plan --json`. It does not say where its store is, so the client puts
the server's address there. A split is a ticket, as it is for a read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from spark_bridge.flight.errors import RemoteFault
from spark_bridge.flight.reader_decoding import decodes_here, undecoded
from spark_bridge.flight.request import ScanRequest
from spark_bridge.options.flights import Flights
from spark_bridge.options.read import ReadOptions, parse_options
from spark_bridge.plan.explanation import ReadPlan, StorePlan, explained

STORES = "stores"
SAID = {
    "brokerName": "broker_name", "isRunning": "is_running", "beginOffset": "begin_offset",
    "dispatchedOffset": "dispatched_offset", "endOffset": "end_offset", "splits": "splits", "bytes": "bytes",
    "queues": "queues", "ranges": "ranges", "records": "records",
}  # fmt: skip


def explain_options(options: Mapping[str, str]) -> ReadPlan:
    """The plan that a batch read with these options would have now. Raises InvalidOption, and what `explain` raises."""
    return explain(parse_options(options))


def explain(parsed: ReadOptions) -> ReadPlan:
    """Return what `explain_options` returns, from parsed options.

    Raises what the read would raise when Spark plans it, and RemoteFault for an answer that cannot be read.
    """
    if parsed.table is not None or parsed.flights is None:
        return explained(parsed)
    return _remote(parsed, parsed.flights)


def _remote(parsed: ReadOptions, flights: Flights) -> ReadPlan:
    from spark_bridge.flight.replicas import answers  # gRPC is for those who need it

    asked = undecoded(flights.asked) if decodes_here(parsed.rows) else flights.asked
    request = ScanRequest(options=asked)
    plans: list[StorePlan] = []
    for said, location, _replicas in answers(flights, lambda store: store.explained(request)):
        plans += received(said, location)
    return ReadPlan(plans)


def sent(plans: Iterable[StorePlan]) -> bytes:
    """Return the plans as a server sends them."""
    return json.dumps({STORES: [{said: getattr(plan, name) for said, name in SAID.items()} for plan in plans]}).encode()


def received(answer: object, location: str) -> list[StorePlan]:
    """Return what a server has said. Raises RemoteFault."""
    try:
        stores = answer[STORES]  # type: ignore[index]
        return [
            StorePlan(path=location, **{name: _value(name, store[said]) for said, name in SAID.items()})
            for store in stores
        ]
    except (KeyError, TypeError, ValueError):
        what = "it explains a read in a way that this version does not know"
        raise RemoteFault(f"{location}: {what}; use the server's version here") from None


def _value(name: str, value: Any) -> Any:
    """Check a value's kind. Raises TypeError, ValueError."""
    if name == "queues":
        return {_printable(queue): _of_kind(int, entries) for queue, entries in dict(value).items()}
    if name == "ranges":
        return [(_of_kind(int, start), _of_kind(int, end)) for start, end in value]
    if name == "broker_name":
        return _printable(value)
    return _of_kind(bool if name == "is_running" else int, value)


def _printable(value: object) -> str:
    """A name that may stand in a terminal."""
    text = str(_of_kind(str, value))
    if not text.isprintable():
        raise ValueError("no name")
    return text


def _of_kind(kind: type, value: object) -> Any:
    if type(value) is not kind:
        raise TypeError(kind.__name__)
    return value
