"""What goes wrong between a Flight server and its clients: each error has a code, and crosses the wire as one line.

A server's path never crosses it: a remote reader has no use for it, and no right to know it. The client raises the
error that a reader in place would have got.
"""

from __future__ import annotations

from store.errors import StoreError


class FlightError(Exception):
    """Base class of the errors of Flight servers and clients.

    Next: the error says what to change; `slipstream flight --help`.
    """

    code = "FLIGHT"


class FlightRefused(FlightError):
    """Raised when a Flight server cannot be started with the given options.

    Next: change the option that the error names.
    """

    code = "FLIGHT_REFUSED"


class InvalidTicket(FlightError):
    """Raised for a ticket that no plan of this server contains, or that names data this log does not have.

    Next: ask for a new plan (GetFlightInfo); tickets are not to be made or changed by hand.
    """

    code = "INVALID_TICKET"


class OtherBroker(FlightError):
    """Raised for a ticket of another broker's log.

    Next: give the ticket to a replica of the broker that the error names.
    """

    code = "OTHER_BROKER"


class TopicNotServed(FlightError):
    """Raised for a topic that this server does not serve.

    Next: read the topics that ListFlights shows, or have the server's operator add `--topic`.
    """

    code = "TOPIC_NOT_SERVED"


class NotLetIn(FlightError):
    """Raised for a client without the server's token.

    Next: send the header `authorization: Bearer TOKEN` with the token that `slipstream flight` printed or was given.
    """

    code = "UNAUTHENTICATED"


class AddressNotAllowed(FlightError):
    """Raised for a client whose address is not in the server's allow list.

    Next: add the address to `--allow`, or to `remotingAllowList` in the broker's file.
    """

    code = "ADDRESS_NOT_ALLOWED"


class TooManyStreams(FlightError):
    """Raised when the server has its maximum number of streams or plans.

    Next: try again when another one has ended, or raise `--streams`.
    """

    code = "TOO_MANY_STREAMS"


class ServerStopping(FlightError):
    """Raised by a server that is stopping.

    Next: give the ticket to another replica, or to the server after its restart.
    """

    code = "SERVER_STOPPING"


class NotOffered(FlightError):
    """Raised for a call or an action that this server does not support.

    Next: GetFlightInfo, GetSchema, DoGet, ListFlights and the actions `store`, `explain` and `stream` are supported.
    """

    code = "NOT_OFFERED"


class NotWritable(FlightError):
    """Raised by a server that accepts no messages: it is read-only, or no master runs on its store.

    Next: `slipstream flight STORE --writable` on the master's host; name that server in `path`.
    """

    code = "NOT_WRITABLE"


class MayNotWrite(FlightError):
    """Raised for a client with a read-only token, or for a topic that cannot be written through Flight.

    Next: send the token of `--write-token-file`; write to a topic that the server serves.
    """

    code = "MAY_NOT_WRITE"


class InvalidPut(FlightError):
    """Raised for rows or commands that no Slipstream writer sends.

    Next: write with the Spark format of the server's version; docs/flight.md says what a put is.
    """

    code = "INVALID_PUT"


class PutInterrupted(FlightError):
    """Raised when the server of a write disappeared, or could not be reached in time.

    Next: run the task or the query again: rows that are already in the log are not appended again.
    """

    code = "PUT_INTERRUPTED"


class RemoteFault(FlightError):
    """Raised for a fault of the server, or an error that this version does not know.

    Next: read the server's log, which has the whole error.
    """

    code = "REMOTE_FAULT"


class ServerUnreachable(FlightError):
    """Raised when no Flight server answers, or it disappeared during a call.

    Next: check the address, the scheme (`grpc+tls://` for TLS) and whether `slipstream flight` runs there.
    """

    code = "SERVER_UNREACHABLE"

    def __init__(self, location: str, why: str) -> None:
        super().__init__(f"{location}: {why}; is `slipstream flight` running there, and is the scheme right (TLS)?")


class TicketBehind(StoreError):
    """Raised when the replica of a ticket does not have the planned messages yet.

    Next: give the ticket to another replica; `slipstream ha status` on the server's host shows how far it is.
    """

    code = "REPLICA_BEHIND"

    def __init__(self, broker: str, what: str, end: int, planned: int) -> None:
        super().__init__(
            f"{broker}: this replica has {what} up to {end}, the ticket needs it up to {planned};"
            " give the ticket to another replica, or wait longer with replicaWaitSeconds"
        )
        self.end, self.planned = end, planned
