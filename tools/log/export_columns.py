"""The columns of `slipstream log export`: the Arrow type of each, and what of a message it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tools.log.options import NotReadable

if TYPE_CHECKING:  # an unknown column is reported without loading numpy
    from store.message.record import Message

Field = Callable[["Message"], Any]
COLUMNS: dict[str, tuple[str, Field]] = {  # name: Arrow type, what of a message
    "topic": ("string", lambda m: m.topic),
    "queueId": ("int32", lambda m: m.queue_id),
    "queueOffset": ("int64", lambda m: m.queue_offset),
    "physicalOffset": ("int64", lambda m: m.physical_offset),
    "msgId": ("string", lambda m: m.message_id),
    "tags": ("string", lambda m: m.tags),
    "keys": ("string", lambda m: m.keys),
    "properties": ("map", lambda m: m.properties),
    "body": ("binary", lambda m: bytes(m.body)),
    "flag": ("int32", lambda m: m.flag),
    "sysFlag": ("int32", lambda m: m.sys_flag),
    "bornTimestamp": ("timestamp", lambda m: m.born_timestamp_ms),
    "storeTimestamp": ("timestamp", lambda m: m.store_timestamp_ms),
    "bornHost": ("string", lambda m: f"{m.born_host.ip}:{m.born_host.port}"),
    "storeHost": ("string", lambda m: f"{m.store_host.ip}:{m.store_host.port}"),
    "reconsumeTimes": ("int32", lambda m: m.reconsume_times),
    "preparedTransactionOffset": ("int64", lambda m: m.prepared_transaction_offset),
    "bodyCrc": ("int32", lambda m: m.body_crc),
}


def chosen_columns(columns: str | None) -> list[str]:
    """Return the named columns, in the text's order; all of them without a text. Raises NotReadable."""
    names = list(COLUMNS) if columns is None else [name.strip() for name in columns.split(",")]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or len(set(names)) < len(names):
        what = f"no column {unknown[0]!r}" if unknown else "a column is named twice"
        raise NotReadable(f"--columns: {what}; there are {', '.join(COLUMNS)}")
    return names
