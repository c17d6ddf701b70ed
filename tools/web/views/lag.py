"""The lag of each replica and group over the last quarter of an hour, with the reasons for it."""

from __future__ import annotations

from ipc.clock import wall_ms
from tools.web.state.asked import Asked
from tools.web.state.console import Console, Json
from tools.web.state.history import EVERY_SECONDS, MINUTES, curves_of


def view(console: Console, _asked: Asked) -> Json:
    """Return the curves of all stores that have any."""
    return {
        "now": wall_ms(),
        "minutes": MINUTES,
        "everySeconds": EVERY_SECONDS,
        "stores": [
            {"number": number, "label": console.stores[number].label, "curves": curves, "error": error}
            for number, curves, error in curves_of(console.sampling.histories)
        ],
    }
