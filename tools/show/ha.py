"""`slipstream ha status`, at work: how each replica is doing."""

from __future__ import annotations

from engine.figures.ha_status import ha_status
from tools.common import watch as screen
from tools.show.ha_tables import status_view


def status(store: str, watch: bool, as_json: bool) -> int:
    """Each replica of the broker on STORE, once or until Ctrl-C. Raises NoBroker."""
    if as_json:
        screen.show_json(lambda: ha_status(store).to_json(), watch, "ha.status")
    elif watch:
        screen.watch(lambda: status_view(ha_status(store)))
    else:
        screen.plain_console().print(status_view(ha_status(store)))
    return 0
