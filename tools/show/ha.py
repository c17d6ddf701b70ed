"""`slipstream ha status`, at work: how each replica is doing."""

from __future__ import annotations

from engine.monitoring.ha_status import ha_status
from tools.common import exit_codes
from tools.common import watch as screen
from tools.show.ha_tables import status_view


def status(store: str, watch: bool, as_json: bool) -> int:
    """Each replica of the broker on STORE, once or until Ctrl-C; the exit code says its verdict. Raises NoBroker."""
    if watch and not as_json:
        screen.watch(lambda: status_view(ha_status(store)))
    looked = ha_status(store)
    if watch:
        screen.show_json(lambda: ha_status(store).to_json(), watch, "ha.status")
    elif as_json:
        screen.show_json(looked.to_json, watch, "ha.status")
    else:
        screen.plain_console().print(status_view(looked))
    return exit_codes.of_verdict(looked.verdict)
