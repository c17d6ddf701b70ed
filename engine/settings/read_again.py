"""What is said of a properties file that was read again while its server runs: by a broker, by a name server."""

from __future__ import annotations

import logging
from collections.abc import Sequence

WARNINGS_MAX = 20


def outcome(file: str, applied: Sequence[str], restart: Sequence[str]) -> str:
    """Return the result of a reading in words: settings that were applied, keys that need a restart."""
    said = [f"applied: {', '.join(applied)}"] if applied else []
    said += [f"need a restart: {', '.join(restart)}"] if restart else []
    return f"{file} was read; {'; '.join(said)}" if said else f"{file} was read: nothing has changed"


def tell_warnings(log: logging.Logger, warnings: Sequence[str]) -> None:
    """Log the first warnings; the next start shows all of them."""
    for warning in warnings[:WARNINGS_MAX]:
        log.warning("%s", warning)
