"""Errors on the wire: a code and a line, in the class of Flight that says most; and made again on the client's side."""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyarrow import flight

from spark_bridge.flight import errors
from spark_bridge.options.rows import ERROR_COLUMN
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.bounds import OffsetsLost
from spark_bridge.plan.names import UnknownTopic
from spark_bridge.replica.replica import ReplicaBehind
from store.errors import CorruptRecord, QueueEntriesRemoved, SegmentRemoved, StoreError

log = logging.getLogger("slipstream.flight")

STACK_MAX = 50  # frames, whatever sys.tracebacklimit says
LINE_MAX = 2000  # of a text: gRPC's trailers are a few KiB
PATH = re.compile(r"(?<![\w:/.)\]}-])/(?:[^\s:;,'\"()/]+/)*[^\s:;,'\"()]*")
# PyArrow sends what GetSchema raises as a fault, with its stack: `sys.tracebacklimit` takes that away.
OF_GET_SCHEMA = re.compile(r"([A-Z][A-Z_]+): (.*?)\.? Detail: Python exception:")
_KINDS: dict[str, type[flight.FlightError]] = {
    errors.NotLetIn.code: flight.FlightUnauthenticatedError,
    errors.AddressNotAllowed.code: flight.FlightUnauthorizedError,
    errors.TopicNotServed.code: flight.FlightUnauthorizedError,
    errors.MayNotWrite.code: flight.FlightUnauthorizedError,
    errors.TooManyStreams.code: flight.FlightUnavailableError,
    errors.ServerStopping.code: flight.FlightUnavailableError,
    errors.TicketBehind.code: flight.FlightUnavailableError,
    "NO_BROKER": flight.FlightUnavailableError,
    "BROKER_OUT_OF_REACH": flight.FlightUnavailableError,
    errors.RemoteFault.code: flight.FlightInternalError,
}
# What may be otherwise in a moment, and what another replica may answer otherwise.
RETRIED = frozenset({errors.ServerUnreachable.code, errors.ServerStopping.code, errors.TooManyStreams.code})
ELSEWHERE = RETRIED | {
    errors.TicketBehind.code, errors.OtherBroker.code, SegmentRemoved.code, CorruptRecord.code, "BROKER_OUT_OF_REACH",
}  # fmt: skip


class Telling:
    """Makes an error of the server's one that may leave it: without the paths of its store."""

    def __init__(self, broker_name: str, places: Iterable[str]) -> None:
        self._broker = broker_name
        self._places = sorted(filter(None, places), key=len, reverse=True)

    def sent_as(self, error: BaseException) -> flight.FlightError:
        """Return the Flight error for the client, `CODE: text` and the same as JSON; log the server's own faults."""
        if isinstance(error, flight.FlightError):
            return error
        code = getattr(error, "code", None)
        if not isinstance(code, str):
            if not isinstance(error, OSError):
                stack = "".join(traceback.format_exception(error, limit=STACK_MAX))
                log.error("a fault while a client was served: %s", stack)
                code, text = errors.RemoteFault.code, f"{self._broker}: a fault of the server's; its log has it in full"
            else:
                log.error("the system refused a client's read: %s", error)
                code, text = errors.RemoteFault.code, f"{self._broker}: {error.strerror or 'an error of the system'}"
        else:
            text = self.without_paths(_text_of(error))
        numbers = {name: value for name, value in vars(error).items() if type(value) is int}
        line = " ".join(text.split())[:LINE_MAX]
        beside = json.dumps({"code": code, "text": line, "numbers": numbers}).encode()
        return _KINDS.get(code, flight.FlightServerError)(f"{code}: {line}", beside)

    def cleaned(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches whose rows tell of damage, without paths in what they tell."""
        for batch in batches:
            at = batch.schema.names.index(ERROR_COLUMN)
            texts = batch.column(at)
            if texts.null_count == len(texts):
                yield batch
                continue
            cleaned = [None if text is None else self.without_paths(text) for text in texts.to_pylist()]
            yield batch.set_column(at, batch.schema.field(at), pa.array(cleaned, texts.type))

    def without_paths(self, text: str) -> str:
        """The text with the broker's name where its store's places were; what else looks like a path goes."""
        for place in self._places:
            text = text.replace(place, self._broker)
        return PATH.sub("...", text)


def _text_of(error: BaseException) -> str:
    """Return an error's text; a replica that lags gets one that does not mention Spark."""
    if isinstance(error, ReplicaBehind):
        return str(errors.TicketBehind("the server", "the log", error.end, error.planned))
    return str(error)


def made_again(error: BaseException, location: str) -> Exception:
    """The error that a client raises for what a call of Flight's raised."""
    beside = getattr(error, "extra_info", b"") or b""
    try:
        fields = json.loads(beside)
        code, text, numbers = str(fields["code"]), str(fields["text"]), dict(fields["numbers"])
    except (ValueError, KeyError, TypeError):
        return _of_the_transport(error, location)
    kind = _by_code().get(code)
    if kind is None:
        made: Exception = errors.RemoteFault(f"{code}: {text}")
        vars(made)["code"] = code
        return made
    made = _made(kind, text, location)
    vars(made).update({name: value for name, value in numbers.items() if type(value) is int})
    return made


def _made(kind: type[Exception], text: str, location: str) -> Exception:
    made = kind.__new__(kind)
    Exception.__init__(made, f"{text} (from {location})")
    return made


def _of_the_transport(error: BaseException, location: str) -> Exception:
    """Translate an error that no Slipstream server has written."""
    why = " ".join(str(error).split(". gRPC client debug context")[0].split())[:LINE_MAX]
    if (line := OF_GET_SCHEMA.search(why)) is not None and (kind := _by_code().get(line[1])) is not None:
        return _made(kind, line[2], location)
    gone = (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightInternalError, pa.ArrowCancelled)
    if isinstance(error, flight.FlightUnauthenticatedError):
        return errors.NotLetIn(f"{location}: {why}")
    if isinstance(error, (*gone, OSError)):
        return errors.ServerUnreachable(location, why)
    return errors.RemoteFault(f"{location}: {why}")


def _by_code() -> dict[str, type[Exception]]:
    """Return every class of errors that a server may report, by its code."""
    known: list[type[Exception]] = [InvalidOption, UnknownTopic, OffsetsLost, SegmentRemoved, QueueEntriesRemoved]
    known += [*_below(StoreError), *_below(errors.FlightError), errors.TicketBehind]
    return {str(vars(kind)["code"]): kind for kind in known if "code" in vars(kind)}


def _below(kind: type[Exception]) -> Iterable[type[Exception]]:
    for sub in kind.__subclasses__():
        yield sub
        yield from _below(sub)
