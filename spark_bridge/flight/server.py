"""The Flight service: calls of clients to a served store, inside of limits; errors tell no more than they should.

Writing waits where the client does (gRPC's back-pressure), in one of gRPC's threads, with one batch on its way and, for
a few streams, one made ahead. A thread of the server's bounds what gRPC does not. Once a second it looks for streams
that nobody takes and connections that are too many, not allowed, or silent; more often, for clients that send more
than requests need.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from pyarrow import flight

from spark_bridge.flight import puts
from spark_bridge.flight.access import CALL, Door
from spark_bridge.flight.connections import Peer, Unasked, established, hang_up, peer_of, received
from spark_bridge.flight.errors import (
    AddressNotAllowed,
    FlightRefused,
    MayNotWrite,
    NotOffered,
    NotWritable,
    ServerStopping,
)
from spark_bridge.flight.explaining import sent
from spark_bridge.flight.followed import FollowedStore
from spark_bridge.flight.questions import STREAM_ACTION
from spark_bridge.flight.request import EXPLAIN_ACTION, STORE_ACTION, ScanRequest, parsed
from spark_bridge.flight.served import Opened, ServedStore
from spark_bridge.flight.served_tables import ServedTables
from spark_bridge.flight.streams import DEFAULT_LIMITS, Limits, Stream, Streams, Turns
from spark_bridge.flight.tickets import TableTicket, parsed_of_any_kind
from spark_bridge.flight.wire_errors import Telling
from spark_bridge.options.rows import ERROR_COLUMN
from spark_bridge.options.values import InvalidOption

log = logging.getLogger("slipstream.flight")

LOOK_S = 1.0
QUICK_LOOK_S = 0.1  # at what comes unasked, which may be a gigabyte in a second
LOOK_SHARE = 0.1  # of a CPU, at most, for very many connections
STRANGER_S = 10.0  # in which a connection has to make a call that is let in
GRACE_S = 2.0
STOP_S = 30.0

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


class Writers(NamedTuple):
    """Rule of who may write: callers with this token, or every caller without one."""

    token: str | None = None


class Certificate(NamedTuple):
    """The certificate of a server, in PEM; `clients` may issue those that clients must show, None: they need none."""

    chain: bytes
    key: bytes
    clients: bytes | None = None


def _in_one_line(method: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
    """Wrap a method of a call: whatever it raises becomes a Flight error of one line."""

    @wraps(method)
    def calling(*args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        server = args[0]
        assert isinstance(server, FlightServer)
        try:
            return method(*args, **kwargs)
        except Exception as error:
            raise server.sent_as(error) from None

    return calling


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves from the moment it is made. Raises FlightRefused where it cannot listen.

    `may_enter` decides by a client's address; without `writers` nothing is written. `stop` ends it, with what is
    under way.
    """

    def __init__(
        self,
        store: ServedStore,
        address: tuple[str, int],
        *,
        token: str | None,
        certificate: Certificate | None = None,
        may_enter: Callable[[str], bool] = lambda _host: True,
        limits: Limits = DEFAULT_LIMITS,
        version: str = "",
        writers: Writers | None = None,
    ) -> None:
        host, port = address
        self._store, self._may_enter, self._limits, self._version = store, may_enter, limits, version
        self._streams = Streams(limits)
        self._tables, self._followed = ServedTables(store), FollowedStore(store)
        self._writers, self._puts = writers, Turns("puts", limits.puts, 2 * limits.puts)
        self._plans = Turns("plans", limits.plans, limits.plans_waiting)
        self._looks = Turns("looks of streams", limits.looks, limits.looks_waiting)
        self._unasked = Unasked()
        self._known: set[Peer] = set()  # connections that made a call that was let in
        self._unseen: set[Peer] = set()  # of them, those that the last look did not find
        self._first_seen: dict[Peer, float] = {}
        self._stopping = threading.Event()
        self._telling = Telling(store.broker_name, store.places)
        self.sent_as = self._telling.sent_as
        door = Door(token, self.sent_as, None if writers is None else writers.token)
        scheme = "grpc" if certificate is None else "grpc+tls"
        shown = f"[{host}]" if ":" in host else host
        tls: dict[str, Any] = {}
        if certificate is not None:
            tls = {"tls_certificates": [(certificate.chain, certificate.key)]}
            if certificate.clients is not None:
                tls |= {"verify_client": True, "root_certificates": certificate.clients}
        try:
            super().__init__(f"{scheme}://{shown}:{port}", middleware={CALL: door}, **tls)
        except Exception as error:
            why = " ".join(str(error).split())
            what = f"{shown}:{port} cannot be listened on ({why}); another --port (0: any free one), or --host"
            raise FlightRefused(what) from None
        self.location = f"{scheme}://{shown}:{self.port}"
        self._watcher = threading.Thread(target=self._watch, name="flight-watch", daemon=True)
        self._watcher.start()

    @property
    def broker_name(self) -> str:
        """Return the name of the broker whose log is served."""
        return self._store.broker_name

    def stop(self) -> None:
        """End: what is under way gets a moment for its batch, and is hung up on then."""
        self._stopping.set()
        self._streams.stop()
        ending = threading.Thread(target=self.shutdown, name="flight-shutdown", daemon=True)
        ending.start()
        ending.join(GRACE_S)
        deadline = time.monotonic() + STOP_S
        while ending.is_alive() and time.monotonic() < deadline:
            hang_up(self.port, lambda _peer: True)
            ending.join(LOOK_S / 10)
        self._watcher.join(STOP_S)
        self._streams.close()
        self._followed.close()
        self._store.close()

    @_in_one_line
    def list_flights(self, context: Any, criteria: bytes) -> list[Any]:
        """A flight for each topic whose name begins as the criteria say."""
        self._entered(context)
        with self._plans.taken():
            listed = self._store.listed(criteria.decode("utf-8", "replace"))
            schema = self._store.schema(ScanRequest())
        return [flight.FlightInfo(schema, _descriptor(ScanRequest((topic,))), [], count, -1) for topic, count in listed]

    @_in_one_line
    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """The plan of a request: an endpoint, of this server, for each part."""
        self._entered(context)
        request = _request(descriptor)
        with self._plans.taken():
            plan = self._of(request).plan(request)
        endpoints = [flight.FlightEndpoint(ticket, []) for ticket in plan.tickets]
        beside = json.dumps({"brokerName": plan.broker_name, "maxPhysicalOffset": plan.end})
        return flight.FlightInfo(
            plan.schema, descriptor, endpoints, plan.records, plan.log_bytes, ordered=True, app_metadata=beside
        )

    @_in_one_line
    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Return what the rows of a request look like."""
        self._entered(context)
        request = _request(descriptor)
        return flight.SchemaResult(self._of(request).schema(request))

    @_in_one_line
    def do_get(self, context: Any, ticket: Any) -> Any:
        """Stream the record batches of a ticket."""
        stream = Stream(self._entered(context), self.sent_as)
        self._streams.enter(stream)
        context.get_middleware(CALL).at_end(lambda: self._streams.leave(stream))
        opened = self._opened(ticket.ticket)
        tells = ERROR_COLUMN in opened.schema.names
        batches = self._telling.cleaned(opened.batches) if tells else opened.batches
        stream.begin(batches, opened.lease, self._streams.ahead)
        return flight.GeneratorStream(opened.schema, stream)

    @_in_one_line
    def do_action(self, context: Any, action: Any) -> list[Any]:
        """`store`: whose log it is, its ends; `explain`: what a request would touch; `stream`: what a driver asks."""
        self._entered(context)
        if action.type == EXPLAIN_ACTION:
            request = parsed(action.body.to_pybytes())
            with self._plans.taken():
                return [flight.Result(sent([] if request.is_of_table else self._store.explained(request)))]
        if action.type == STREAM_ACTION:
            with self._looks.taken():
                return [flight.Result(self._followed.answer(action.body.to_pybytes()))]
        if action.type != STORE_ACTION:
            known = f"{STORE_ACTION}, {EXPLAIN_ACTION} and {STREAM_ACTION}"
            raise NotOffered(f"there is no action {action.type[:255]!r}; there are {known}")
        writable = self._writers is not None and puts.takes_puts(self._store.root)
        status = {"version": self._version, "takesPuts": writable, **self._store.status()}
        return [flight.Result(json.dumps(status).encode())]

    @_in_one_line
    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """List the actions that do_action takes."""
        self._entered(context)
        return [
            (STORE_ACTION, "whose log it is, from which offset to which, as JSON"),
            (EXPLAIN_ACTION, "what a request would touch: splits, bytes, queues; JSON to JSON"),
            (STREAM_ACTION, "how far queues reach, and what a batch of a stream may take: JSON to JSON"),
        ]

    @_in_one_line
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Rows into the master's rings; the answer is how many, when they are as safe as was asked for."""
        peer, call = self._entered(context), context.get_middleware(CALL)
        if self._writers is None:
            raise NotWritable("this server only reads; start one with --writable beside the master")
        if not call.may_write:
            raise MayNotWrite("this token is one of readers; send the token of --write-token-file")
        if descriptor.descriptor_type != flight.DescriptorType.CMD:
            raise InvalidOption("a put's descriptor is a command, as JSON; docs/flight.md says which")
        put, stream = puts.parsed(descriptor.command), puts.Incoming(peer, self.sent_as)
        with self._puts.taken():
            self._streams.enter(stream)
            try:
                stream.receive(reader, self._store.served)
                written = puts.done(put, self._store.root, stream)
            finally:
                self._streams.leave(stream)
        puts.answer(writer, written)

    @_in_one_line
    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Refuse the call: the server has no DoExchange."""
        self._entered(context)
        raise NotOffered("this server has no DoExchange; plan with GetFlightInfo, read with DoGet")

    def _of(self, request: ScanRequest) -> ServedStore | ServedTables:
        """Return the part that answers a request: tables or store."""
        return self._tables if request.is_of_table else self._store

    def _opened(self, text: bytes) -> Opened:
        """A ticket's batches; a table's rows are made in the turn of a plan."""
        ticket = parsed_of_any_kind(text)
        if not isinstance(ticket, TableTicket):
            return self._store.opened(ticket)
        with self._plans.taken():
            return self._tables.opened(ticket)

    def _entered(self, context: Any) -> Peer:
        """Return the caller's address. Raises AddressNotAllowed, ServerStopping."""
        peer = peer_of(context.peer())
        if not self._may_enter(peer.host):
            raise AddressNotAllowed(f"{peer.host} is not allowed here; add it to --allow of this server")
        if self._stopping.is_set():
            raise ServerStopping("this server ends now; ask another replica, or this one when it is back")
        self._known.add(peer)
        self._unasked.let_in(peer)
        return peer

    def _watch(self) -> None:
        looked_at, pause_s = time.monotonic(), QUICK_LOOK_S
        while not self._stopping.wait(pause_s):
            now = time.monotonic()
            try:
                unwanted = self._unasked.too_much(received(self.port), self._streams.peers())
                if now - looked_at >= LOOK_S:
                    looked_at = now
                    unwanted |= self._looked_after(now)
                if unwanted:
                    hang_up(self.port, unwanted.__contains__)
            except Exception:
                log.exception("a look at the Flight server's connections failed; the next one is tried")
            pause_s = max(QUICK_LOOK_S, (time.monotonic() - now) / LOOK_SHARE)

    def _looked_after(self, now: float) -> set[Peer]:
        """Do each second's upkeep; return the peers to hang up on."""
        self._streams.keep()
        self._store.sweep()
        self._followed.sweep(now)
        return self._streams.idle_peers(now) | self._unwelcome(now)

    def _unwelcome(self, now: float) -> set[Peer]:
        """Connections of addresses that are not allowed, those that never called, and those beyond the bound."""
        peers = established(self.port)
        self._first_seen = {peer: self._first_seen.get(peer, now) for peer in peers}
        unseen = self._known.difference(peers)  # gone, or here since a moment ago: the next look knows
        self._known -= unseen & self._unseen
        self._unseen = unseen
        over = len(peers) - self._limits.connections
        strangers = [peer for peer in peers if peer not in self._known]
        silent = {peer for peer in strangers if over > 0 or now - self._first_seen[peer] > STRANGER_S}
        callers = [peer for peer in peers if peer in self._known]
        newest = sorted(callers, key=lambda peer: self._first_seen[peer], reverse=True)
        surplus = set(newest[: max(0, over - len(strangers))])
        return silent | surplus | {peer for peer in peers if not self._may_enter(peer.host)}


def _request(descriptor: Any) -> ScanRequest:
    """A command is a request as JSON; a path of one part is a topic."""
    if descriptor.descriptor_type == flight.DescriptorType.CMD:
        return parsed(descriptor.command)
    if descriptor.descriptor_type == flight.DescriptorType.PATH and len(descriptor.path) == 1:
        return ScanRequest((descriptor.path[0].decode("utf-8", "replace"),))
    raise InvalidOption("a descriptor is a command, a request as JSON, or a path of one part, a topic")


def _descriptor(request: ScanRequest) -> Any:
    return flight.FlightDescriptor.for_command(request.encoded())
