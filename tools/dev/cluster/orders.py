"""The demonstration's messages: put by a program in the master's node, known by number everywhere else.

python -m tools.dev.cluster.orders STORE COUNT BYTES
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator

from engine.producer import Producer

TOPIC = "orders"
BATCH = 500
SEND_SECONDS = 120.0


def body(number: int, size: int) -> bytes:
    """A message's body, between a half and one and a half of `size` bytes long, which says its number first."""
    block = hashlib.sha256(b"%d" % number).digest()
    length = max(16, size // 2 + number * 7919 % (size + 1))
    return (b"%012d " % number + block * (length // len(block) + 1))[:length]


def bodies(count: int, size: int) -> Iterator[bytes]:
    """Return the bodies of the first `count` messages."""
    return (body(number, size) for number in range(count))


def main() -> None:
    """Put them; says how many were taken by master and slave."""
    store, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    every, acknowledged = list(bodies(count, size)), 0
    with Producer(store, timeout=SEND_SECONDS) as producer:
        for first in range(0, count, BATCH):
            result = producer.send_batch(TOPIC, every[first : first + BATCH], timeout=SEND_SECONDS)
            assert result is not None
            acknowledged += len(every[first : first + BATCH]) if result.status.name == "PUT_OK" else 0
    print(json.dumps({"acknowledged": acknowledged}))


if __name__ == "__main__":
    main()
