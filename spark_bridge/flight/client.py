"""A client of Slipstream's Flight server: plans, tickets, and batches that go on where a server was lost.

    reader = read_remote("grpc://replica:8815", ScanRequest(("orders",), ("queueId", "body")), token=TOKEN)

A ticket gives the same rows in the same order wherever it is read. So a stream that breaks is asked for again, of the
same server or another replica's, and the rows that were handed on already are left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import flight

from spark_bridge.flight.access import bearer
from spark_bridge.flight.errors import ServerUnreachable, TooManyStreams
from spark_bridge.flight.request import EXPLAIN_ACTION, STORE_ACTION, ScanRequest
from spark_bridge.flight.wire_errors import ELSEWHERE, RETRIED, made_again
from spark_bridge.options.flights import SCHEMES
from spark_bridge.options.values import InvalidOption
from spark_bridge.records.freed_memory import keep_freed_memory
from spark_bridge.records.in_order import in_order

# Whether a Flight server is asked past the proxies that the environment names.
#
# gRPC asks any proxy of `grpc_proxy`, `https_proxy` and `http_proxy`, for this host's own addresses, too.
IN_PLAIN = "grpc+tcp", "grpc"
OF_THIS_HOST = "localhost"


def channel_options(location: str) -> list[tuple[str, int]]:
    """Return gRPC's options for a channel: a token in plain bytes, and a server on this host, bypass the proxy."""
    url = urlsplit(location)
    return [("grpc.enable_http_proxy", 0)] if url.scheme in IN_PLAIN or is_loopback(url.hostname or "") else []


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this host's own."""
    name = host.lower().rstrip(".")
    if name == OF_THIS_HOST or name.endswith(f".{OF_THIS_HOST}"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


CALL_S = 120.0  # for what is no stream
RETRY_S = 30.0
PAUSE_S = 0.2
STREAMS_AT_ONCE = 2  # of a read: the server makes the batches of one while those of another are on their way
AHEAD_BYTES = 8 << 20  # of a stream that may be on their way; gRPC's own guess grows to hundreds of MiB on a fast link
CHANNEL = [
    ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", AHEAD_BYTES),
    # An end that is gone without a word is noticed; to ask more often is a nuisance to gRPC's servers.
    ("grpc.keepalive_time_ms", 330_000), ("grpc.keepalive_timeout_ms", 20_000),
    # A server that was started again is found as soon as it is asked for: gRPC would wait up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200), ("grpc.max_reconnect_backoff_ms", 2_000),
]  # fmt: skip

Result = TypeVar("Result")


class RemotePlan(NamedTuple):
    """The plan of a server. `records` and `log_bytes` are -1 where they are not known without reading."""

    schema: pa.Schema
    tickets: tuple[bytes, ...]
    records: int
    log_bytes: int
    broker_name: str
    end: int


class PutCall:
    """Batches to a server, and its one answer."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self.writer, self._reader = writer, reader

    def send(self, batch: pa.RecordBatch) -> None:
        """Send one batch; wait while the server does."""
        self.writer.write_batch(batch)

    def answer(self) -> bytes:
        """Return what the server says when it has all and has done with it."""
        self.writer.done_writing()
        answer = self._reader.read()
        if answer is None:
            raise pa.ArrowInvalid("it ended without an answer")
        body: bytes = answer.to_pybytes()
        return body

    def reason(self, error: BaseException) -> BaseException:
        """Return why a write failed: closing gives a better error."""
        try:
            self.writer.close()
        except (pa.ArrowException, OSError) as better:
            return better
        return error

    def cancel(self) -> None:
        """Leave it: nobody waits for the rest."""
        with suppress(pa.ArrowException, OSError):
            self.writer.close()


class RemoteStore:
    """One server. A context manager; errors are those of a read in place, and ServerUnreachable."""

    def __init__(self, location: str, token: str | None = None, tls_roots: bytes | None = None) -> None:
        if not location.startswith(SCHEMES):
            shapes = "grpc://HOST:PORT or grpc+tls://HOST:PORT"
            raise InvalidOption(f"{location!r}: not an address of a Flight server; give {shapes}")
        self.location, self._headers = location, bearer(token)
        keep_freed_memory()  # gRPC takes that of batches from the C library
        try:
            options = [*CHANNEL, *channel_options(location)]
            self._client = flight.FlightClient(location, tls_root_certs=tls_roots, generic_options=options)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ServerUnreachable(location, " ".join(str(error).split())) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def store(self, timeout_s: float = CALL_S) -> dict[str, Any]:
        """Return the served log: brokerName, minPhysicalOffset, maxPhysicalOffset, segmentBytes, version..."""
        status: dict[str, Any] = self.ask(STORE_ACTION, b"", timeout_s)
        return status

    def ask(self, action: str, body: bytes, timeout_s: float = CALL_S) -> Any:
        """Return what an action answers with, from JSON."""
        asked = flight.Action(action, body)
        (result,) = self._asked(lambda options: list(self._client.do_action(asked, options)), timeout_s)
        return json.loads(result.body.to_pybytes())

    def explained(self, request: ScanRequest) -> Any:
        """Return what the request would touch, from JSON (`spark_bridge.flight.explaining`)."""
        return self.ask(EXPLAIN_ACTION, request.encoded())

    def topics(self, prefix: str = "") -> dict[str, int]:
        """The topics that are served, and how many messages their queues have."""
        infos = self._asked(lambda options: list(self._client.list_flights(prefix.encode(), options)))
        return {json.loads(info.descriptor.command)["topics"][0]: info.total_records for info in infos}

    def schema(self, request: ScanRequest) -> pa.Schema:
        """Return what the rows of a request look like."""
        return self._asked(lambda options: self._client.get_schema(_descriptor(request), options)).schema

    def plan(self, request: ScanRequest) -> RemotePlan:
        """The tickets of a request, against the log's end as it is now."""
        info = self._asked(lambda options: self._client.get_flight_info(_descriptor(request), options))
        beside = json.loads(info.app_metadata)
        tickets = tuple(endpoint.ticket.ticket for endpoint in info.endpoints)
        broker, end = beside["brokerName"], beside["maxPhysicalOffset"]
        return RemotePlan(info.schema, tickets, info.total_records, info.total_bytes, broker, end)

    def read(self, ticket: bytes, skip_rows: int = 0) -> Generator[pa.RecordBatch, None, None]:
        """A ticket's batches, without the first rows of them."""
        reader = None
        try:
            reader = self._client.do_get(flight.Ticket(ticket), flight.FlightCallOptions(headers=self._headers))
            for chunk in reader:
                batch = chunk.data
                if skip_rows >= batch.num_rows:
                    skip_rows -= batch.num_rows
                    continue
                yield batch.slice(skip_rows)
                skip_rows = 0
            reader = None
        except (pa.ArrowException, OSError) as error:
            raise made_again(error, self.location) from None
        finally:
            if reader is not None:
                reader.cancel()

    def table(self, request: ScanRequest) -> list[pa.RecordBatch]:
        """Return all rows of a metadata table, of one moment."""
        tickets = self.plan(request).tickets
        deadline = time.monotonic() + RETRY_S
        while True:
            try:
                return [batch for ticket in tickets for batch in self.read(ticket)]
            except TooManyStreams:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(PAUSE_S)

    @contextmanager
    def putting(self, command: bytes, schema: pa.Schema) -> Iterator[PutCall]:
        """A put under way. Raises what the server says."""
        call = None
        try:
            options = flight.FlightCallOptions(headers=self._headers)
            call = PutCall(*self._client.do_put(flight.FlightDescriptor.for_command(command), schema, options))
            yield call
            call.writer.close()
        except (pa.ArrowException, OSError) as error:
            raise made_again(error if call is None else call.reason(error), self.location) from None
        except BaseException:
            if call is not None:
                call.cancel()
            raise

    def _asked(self, call: Callable[[Any], Result], timeout_s: float = CALL_S) -> Result:
        """Make a call; ask again for a while where the server has as many streams as it takes."""
        deadline = time.monotonic() + RETRY_S
        while True:
            try:
                return call(flight.FlightCallOptions(timeout=timeout_s, headers=self._headers))
            except (pa.ArrowException, OSError) as error:
                refusal = made_again(error, self.location)
            if not isinstance(refusal, TooManyStreams) or time.monotonic() >= deadline:
                raise refusal
            time.sleep(PAUSE_S)


def read_ticket(stores: Sequence[RemoteStore], ticket: bytes, retry_s: float | None = None) -> Iterator[pa.RecordBatch]:
    """A ticket's batches from one of some replicas: those of `read_somewhere`."""
    return (batch for _store, batch in read_somewhere(stores, ticket, retry_s))


def read_somewhere(
    stores: Sequence[RemoteStore],
    ticket: bytes,
    retry_s: float | None = None,
    skip_rows: int = 0,
    left_for_another: Callable[[RemoteStore], None] = lambda _store: None,
) -> Iterator[tuple[RemoteStore, pa.RecordBatch]]:
    """A ticket's batches from one of some replicas, going on at another one where that breaks, and who gave each.

    One that cannot serve the ticket is left out, one that does not answer is asked again; `left_for_another` hears of
    each. Raises the last error when nothing came for `retry_s` (None: RETRY_S).
    """
    patience_s = RETRY_S if retry_s is None else retry_s
    able, done, deadline = list(stores), skip_rows, time.monotonic() + patience_s
    left = list(able)
    while True:
        store = left.pop(0)
        try:
            for batch in store.read(ticket, done):
                done += batch.num_rows
                yield store, batch
                deadline = time.monotonic() + patience_s  # from when more is asked for: its reader may take its time
            return
        except Exception as error:
            code = getattr(error, "code", "")
            if code not in RETRIED:
                able.remove(store)
            if code not in ELSEWHERE or not (able or left):
                raise
            if not left and time.monotonic() >= deadline:
                raise
        left_for_another(store)
        if not left:
            left = list(able)
            time.sleep(PAUSE_S)


def read_remote(
    location: str, request: ScanRequest, token: str | None = None, tls_roots: bytes | None = None
) -> pa.RecordBatchReader:
    """The rows of a request, in the order of a read in place; STREAMS_AT_ONCE tickets are read at a time.

    Raises what a read in place raises, at once where planning finds it; and ServerUnreachable.
    """
    store = RemoteStore(location, token, tls_roots)
    try:
        plan = store.plan(request)
    except BaseException:
        store.close()
        raise

    def batches() -> Iterator[pa.RecordBatch]:
        jobs = [partial(read_ticket, [store], ticket) for ticket in plan.tickets]
        with store:
            yield from in_order(jobs, min(STREAMS_AT_ONCE, len(jobs)))

    return pa.RecordBatchReader.from_batches(plan.schema, batches())


def _descriptor(request: ScanRequest) -> Any:
    return flight.FlightDescriptor.for_command(request.encoded())
