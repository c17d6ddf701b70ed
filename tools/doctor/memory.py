"""Shared memory that killed brokers left: what of it nobody will come for is named with the command that removes it."""

from __future__ import annotations

import shlex
from pathlib import Path

from engine.shared_memory.region_directory.leftovers import Leftover, leftovers
from store.files import pointer
from tools.doctor import sessions
from tools.doctor.node import Node
from tools.doctor.rows import Level, Row, ok
from tools.show.ha_tables import bytes_text

NAMED_MAX = 4  # a row is to be read; who is asked again names the next


def rows(node: Node) -> list[Row]:
    """Check a running broker's shared memory on this host: its own, and what killed brokers left."""
    if node.running is None:
        return []
    own = node.running.region_directory
    gone = [left for left in leftovers(own.parent) if left.is_gone]
    said = f"it lies in {own}"
    user = sessions.user_who_takes_it(own)
    if user is None:
        return [_row(said, gone)]
    what = f"{said}, and systemd-logind deletes it under the running broker when the last session of user {user} ends"
    do = f"`loginctl enable-linger {user}`, or RemoveIPC=no in /etc/systemd/logind.conf, or use a system user"
    return [Row("shared memory", Level.OK, "OK", what, do), *([_row("", gone)] if gone else [])]


def rows_of_stopped(store: Path) -> list[Row]:
    """Check what a killed broker left, for a store without a broker. Raises NotAStore."""
    broker = pointer.read(store)
    regions = broker.regions() if broker is not None and broker.is_of_this_boot else None
    if regions is None:
        return []
    dead = leftovers(regions.parent)
    own = [left for left in dead if left.directory == regions]
    said = ""
    if own:
        said = f"{bytes_text(own[0].bytes)} in {regions} belong to the killed broker; its next start takes them over"
    gone = [left for left in dead if left.is_gone]
    return [_row(said, gone)] if said or gone else []


def _row(said: str, gone: list[Leftover]) -> Row:
    """Return the row about shared memory. It is OK either way: leftovers are not the fault of the broker examined."""
    if not gone:
        return ok("shared memory", said)
    size = bytes_text(sum(left.bytes for left in gone))
    more = len(gone) - NAMED_MAX
    stores = ", ".join(str(left.root) for left in gone[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    also = f"{size} more belong to killed brokers whose stores no longer exist: {stores}"
    names = " ".join(shlex.quote(str(left.directory)) for left in gone[:NAMED_MAX])
    following = f"`rm -r {names}`, unless a paused container uses them" + ("; then run this again" if more > 0 else "")
    return Row("shared memory", Level.OK, "OK", "; ".join(filter(None, (said, also))), following)
