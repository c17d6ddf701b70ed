"""Which delays a store's queues were built with: what --delay-levels says, else its broker, else RocketMQ's default."""

from __future__ import annotations

from pathlib import Path

from store.files import pointer
from store.message.delay import DEFAULT_LEVELS, levels_ms
from tools.log.options import NotReadable

KEY = "messageDelayLevel"


def delays_of(levels: str | None, store: Path) -> tuple[int, ...]:
    """The delays in ms. A broker that runs on `store`, or was killed there, has noted them. Raises NotReadable."""
    if levels is None:
        broker = pointer.read(store)
        levels = str(broker.fields["settings"].get(KEY, DEFAULT_LEVELS)) if broker is not None else DEFAULT_LEVELS
    try:
        return levels_ms(levels)
    except ValueError as error:
        raise NotReadable(f"--delay-levels: {error}; write it as in {KEY}: 1s 5s 1m 2h") from error
