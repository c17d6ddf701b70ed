"""What goes wrong between a Flight server and its clients: each error has a code, and crosses the wire as one line.

A server's path never crosses it: a remote reader has no use for it, and no right to know it. The client raises the
error that a reader in place would have got.
"""

from __future__ import annotations

from store.errors import StoreError


class FlightError(Exception):
    """All of this room's own errors.

    Next: the text says what to change; `slipstream flight --help`.
    """

    code = "FLIGHT"


class FlightRefused(FlightError):
    """A Flight server that is not started as it was asked for.

    Next: change the option that the message names.
    """

    code = "FLIGHT_REFUSED"


class InvalidTicket(FlightError):
    """A ticket that no Slipstream plan contains, or that names what this log does not have.

    Next: ask for a new plan (GetFlightInfo); tickets are not to be made or changed by hand.
    """

    code = "INVALID_TICKET"


class OtherBroker(FlightError):
    """A ticket of another broker's log.

    Next: give the ticket to a replica of the broker that the message names.
    """

    code = "OTHER_BROKER"


class TopicNotServed(FlightError):
    """A topic that this server does not serve.

    Next: read the topics that ListFlights shows, or have the server's operator add `--topic`.
    """

    code = "TOPIC_NOT_SERVED"


class NotLetIn(FlightError):
    """A client without the server's token.

    Next: send the header `authorization: Bearer TOKEN` with the token that `slipstream flight` printed or was given.
    """

    code = "UNAUTHENTICATED"


class AddressNotAllowed(FlightError):
    """A client whose address the server's list does not have.

    Next: add the address to `--allow`, or to `remotingAllowList` in the broker's file.
    """

    code = "ADDRESS_NOT_ALLOWED"


class TooManyStreams(FlightError):
    """As many streams, or plans, as the server serves at once.

    Next: try again when another one has ended; or a higher `--streams`.
    """

    code = "TOO_MANY_STREAMS"


class ServerStopping(FlightError):
    """A server that is about to end.

    Next: give the ticket to another replica, or to the server when it is back.
    """

    code = "SERVER_STOPPING"


class NotOffered(FlightError):
    """A call or an action that this server does not have.

    Next: GetFlightInfo, GetSchema, DoGet, ListFlights and the actions `store`, `explain` and `stream` are all there is.
    """

    code = "NOT_OFFERED"


class NotWritable(FlightError):
    """A server that takes no messages: it was started to read only, or no master runs on its store.

    Next: `slipstream flight STORE --writable` beside the master; name that server in `path`.
    """

    code = "NOT_WRITABLE"


class MayNotWrite(FlightError):
    """A client whose token lets it read only, or a topic that is not written to through Flight.

    Next: send the token of `--write-token-file`; write to a topic that the server serves.
    """

    code = "MAY_NOT_WRITE"


class InvalidPut(FlightError):
    """Rows, or a description of them, that no Slipstream writer sends.

    Next: write with the Spark format of the server's version; docs/flight.md says what a put is.
    """

    code = "INVALID_PUT"


class PutInterrupted(FlightError):
    """A write whose server went in the midst of it, or was not to be had in time.

    Next: run the task or the query again: rows that are in the log are not appended again.
    """

    code = "PUT_INTERRUPTED"


class RemoteFault(FlightError):
    """A fault on the server, not the client's doing; or an error that this version does not know.

    Next: the server's log has it in full.
    """

    code = "REMOTE_FAULT"


class ServerUnreachable(FlightError):
    """No Flight server answers there, or it went while it was asked.

    Next: look at the address, at the scheme (`grpc+tls://` for TLS) and whether `slipstream flight` runs there.
    """

    code = "SERVER_UNREACHABLE"

    def __init__(self, location: str, why: str) -> None:
        super().__init__(f"{location}: {why}; is `slipstream flight` running there, and TLS as the address says?")


class TicketBehind(StoreError):
    """The replica that was given a ticket does not hold yet what was planned.

    Next: give the ticket to another replica; `slipstream ha status` on the server's host says how far this one is.
    """

    code = "REPLICA_BEHIND"

    def __init__(self, broker: str, what: str, end: int, planned: int) -> None:
        super().__init__(
            f"{broker}: the replica that was asked holds {what} up to {end}, the ticket wants it up to {planned};"
            " give the ticket to another replica, or wait longer with replicaWaitSeconds"
        )
        self.end, self.planned = end, planned
