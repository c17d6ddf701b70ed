"""A producer process of a test: sends numbered messages one by one, and writes down what was answered.

    python -m tests.harness.appender STORE NAME COUNT OUT

Each line of OUT is JSON: the body, and either the acknowledged place or the name of the error (outcome not known).
A message without an answer is never sent again, so whatever is in the log twice is the log's fault.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from engine.errors import EngineError
from engine.producer import Producer
from ipc.errors import IpcError

TOPICS = ("kill-a", "kill-b")
PAYLOAD = "x" * 200


def main(store: str, name: str, count: int, out: Path) -> None:
    """Send `count` messages, in turn to two topics."""
    with Producer(store, timeout=120.0) as producer, out.open("w", buffering=1) as lines:
        for number in range(count):
            body = f"{name}-{number}-{PAYLOAD}"
            fields: dict[str, object] = {"body": body}
            try:
                result = producer.send(TOPICS[number % 2], body, tags=name, keys=f"{name}{number}")
                fields |= {
                    "status": result.status.value, "topic": TOPICS[number % 2], "queue_id": result.queue_id,
                    "queue_offset": result.queue_offset, "physical_offset": result.physical_offset,
                }  # fmt: skip
            except (EngineError, IpcError) as error:
                fields["error"] = error.code
            lines.write(json.dumps(fields) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
