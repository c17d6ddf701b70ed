"""What the console refuses, each with a code, a line for the user and the status of HTTP."""

from __future__ import annotations


class WebError(Exception):
    """Raised at the start when the console cannot be served with the given options.

    Next: do what the end of the error says; `slipstream web --help` has all options.
    """

    code = "WEB"


class Refused(Exception):
    """Raised when a request is not served; the text goes to the page.

    Next: change what the error names; the page shows it.
    """

    code, status = "REFUSED", 400


class Busy(Refused):
    """Raised when the maximum number of requests is running.

    Next: wait until one has ended, then try again.
    """

    code, status = "BUSY", 503


class NotAllowed(Refused):
    """Raised for a request that was not allowed at the start.

    Next: open the address with the token that `slipstream web` printed, or start it with the option that the error
    names.
    """

    code, status = "NOT_ALLOWED", 403


class Unknown(Refused):
    """Raised for an unknown store, message or job.

    Next: return to the page and choose an existing one.
    """

    code, status = "UNKNOWN", 404
