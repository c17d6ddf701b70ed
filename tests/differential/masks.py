"""What may differ between two brokers that did the same: fields that hold a moment. Each is counted, by its name.

A masked field is not left unlooked at: what follows from another field is compared with it, in each store by itself.
"""

from __future__ import annotations

from collections import Counter

STORE_TIMESTAMP = "record.storeTimestamp"
OP_BORN_TIMESTAMP = "record.bornTimestamp of op messages (the broker's clock)"
PROPERTY_CRC = "record.__CRC32# digits (they cover storeTimestamp)"
DELIVER_TIME = "queue.tagsCode of the delay topic (storeTimestamp + delay)"
EXT_STORE_TIME = "queue extension.msgStoreTime"
EXT_DELIVER_TIME = "queue extension.tagsCode of the delay topic"
BATCH_STORE_TIME = "batch queue.storeTime"
INDEX_BEGIN, INDEX_END = "index.beginTimestamp", "index.endTimestamp"
INDEX_TIME_DIFF = "index.timeDiff"
INDEX_NAME = "index file name (its moment of creation)"


class Masked:
    """How many bytes of which field were not compared, and how many bytes were."""

    def __init__(self) -> None:
        self.bytes_of: Counter[str] = Counter()
        self.compared = 0

    def hide(self, field: str, size: int, position: int, *both: bytearray) -> None:
        """Wipe a field in both copies, and count it once."""
        self.bytes_of[field] += size
        for copy in both:
            copy[position : position + size] = bytes(size)

    def lines(self) -> list[str]:
        """One line for each field: what `the mask` is."""
        total = sum(self.bytes_of.values())
        lines = [f"{count:>12,} bytes  {field}" for field, count in sorted(self.bytes_of.items())]
        return [f"{self.compared:>12,} bytes compared, {total:,} of them masked:", *lines]
