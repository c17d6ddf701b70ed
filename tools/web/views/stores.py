"""The stores that the console was started for, and which of them a broker runs on: what every page begins with."""

from __future__ import annotations

from store.reading import extent
from tools.web.state.asked import Asked, Watched
from tools.web.state.console import Console, Json


def view(console: Console, _asked: Asked) -> Json:
    """Return all stores, and what the console may do."""
    return {"stores": [_store(one) for one in console.stores], "mayDigest": console.may_digest}


def _store(watched: Watched) -> Json:
    running = extent.running(watched.path)
    settings = running.settings if running is not None else {}
    return {
        "number": watched.number,
        "label": watched.label,
        "live": running is not None,
        "role": settings.get("brokerRole"),
        "broker": settings.get("brokerName"),
        "brokerId": settings.get("brokerId"),
        "address": settings.get("storeHost"),
    }
