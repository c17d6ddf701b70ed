"""What the console refuses, each with a code, a line for the user and the status of HTTP."""

from __future__ import annotations


class WebError(Exception):
    """Raised at the start, when the console cannot be served as it is asked for.

    Next: do what the message ends with; `slipstream web --help` has all options.
    """

    code = "WEB"


class Refused(Exception):
    """Raised when a request is not served; the text goes to the page.

    Next: change what the text names; the page shows it.
    """

    code, status = "REFUSED", 400


class Busy(Refused):
    """Raised when as much is under way as may be.

    Next: wait for what is under way, then try again.
    """

    code, status = "BUSY", 503


class NotAllowed(Refused):
    """Raised when what is asked for was not allowed at the start.

    Next: open the address with the token that `slipstream web` printed, or start it with the option that the text
    names.
    """

    code, status = "NOT_ALLOWED", 403


class Unknown(Refused):
    """Raised when there is no such store, message or job.

    Next: go back to the page and choose what is there now.
    """

    code, status = "UNKNOWN", 404
