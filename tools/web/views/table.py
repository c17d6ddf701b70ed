"""The console's views by their names, and how often a live one is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tools.web.state.asked import Asked
from tools.web.state.console import Console, Json
from tools.web.views import checks, lag, latency, message, pipeline, search, segments, settings, stores, topics


class View(NamedTuple):
    """The answer to a page's requests; `seconds` between two live ones, None where it is asked for once."""

    make: Callable[[Console, Asked], Json]
    seconds: float | None = None


VIEWS = {
    "stores": View(stores.view),
    "pipeline": View(pipeline.view, 1.0),
    "segments": View(segments.view, 2.0),
    "latency": View(latency.view, 2.0),
    "lag": View(lag.view, 5.0),
    "topics": View(topics.view, 3.0),
    "topic": View(topics.one_topic),
    "search": View(search.view),
    "message": View(message.view),
    "checks": View(checks.view, 0.5),
    "settings": View(settings.view),
}
