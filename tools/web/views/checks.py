"""The checks that were started from a page, and how far they are."""

from __future__ import annotations

from tools.web.state.asked import Asked
from tools.web.state.console import Console, Json
from tools.web.state.jobs import KINDS, RUNNING_MAX


def view(console: Console, _asked: Asked) -> Json:
    """Return all checks, the newest first."""
    return {
        "jobs": console.jobs.shown(), "kinds": KINDS, "runningMax": RUNNING_MAX, "mayDigest": console.may_digest
    }  # fmt: skip
