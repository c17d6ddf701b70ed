"""A load that goes on while brokers are killed: one numbered message after the other, and what came of each.

From RocketMQ's own producer (java/Load.java) where the master is RocketMQ's, from ours where it is ours. Nothing is
sent twice, so that a number without an answer is in the log once or not at all.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Protocol

from engine.errors import EngineError
from engine.producer import Producer
from ipc.errors import IpcError
from store.errors import StoreError
from tests.interop.rocketmq import Addressed, RealClient

TOPIC, QUEUES = "Matrix", 4
PAUSE_US = 2000
OK, UNKNOWN = "OK", "no answer"
PROGRESS_SECONDS = 300


def body_of(n: int) -> bytes:
    """What message number `n` holds, as java/Load.java makes it too."""
    return f"body {n} é消".encode() * (1 + n % 97)


class Load(Protocol):
    """Messages on their way, in the background."""

    outcomes: list[str]

    def stop(self) -> None:
        """No more messages; afterwards every outcome is known."""


class OurLoad:
    """Our producer; a new one whenever the broker was away."""

    def __init__(self, store: Path) -> None:
        self.outcomes: list[str] = []
        self.errors: list[str] = []
        self._store = str(store)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with Producer(self._store, timeout=5.0) as producer:
                    self._send(producer)
            except (EngineError, IpcError, StoreError, OSError) as error:
                self.errors.append(f"{type(error).__name__}: {error}")
                self._ended.wait(0.05)

    def _send(self, producer: Producer) -> None:
        while not self._ended.is_set():
            n = len(self.outcomes)
            outcome = UNKNOWN
            try:
                sent = producer.send(
                    TOPIC, body_of(n), tags=f"Tag{n % 3}", keys=f"key{n}", properties={"n": str(n)}, queue_id=n % QUEUES
                )
                outcome = OK if sent.status.value == "PUT_OK" else str(sent.status.value)
            finally:
                self.outcomes.append(outcome)
            self._ended.wait(PAUSE_US / 1e6)

    def stop(self) -> None:
        """Ends with the message that is on its way."""
        self._ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "our producer never came back"


class JavaLoad(RealClient):
    """RocketMQ's producer in its own JVM."""

    main_class = "Load"

    def __init__(self, home: Path, name_server: Addressed) -> None:
        super().__init__(home, name_server)
        self.outcomes: list[str] = []
        self.errors: list[str] = []
        self.__enter__()

    def arguments(self) -> list[str]:
        """As Load.java wants them."""
        return [*super().arguments(), TOPIC, str(PAUSE_US)]

    def heard(self, line: str) -> None:
        """One outcome, in the order of sending."""
        told = json.loads(line)
        if told["n"] != len(self.outcomes):
            self.errors.append(f"{told['n']} came after {len(self.outcomes)} others")
        if "error" in told:
            self.errors.append(told["error"])
        status = told.get("status", UNKNOWN)
        self.outcomes.append(OK if status == "SEND_OK" else status)


def await_outcomes(load: OurLoad | JavaLoad, count: int, *, only_ok: bool = True) -> None:
    """Wait until `count` more messages (that all went well) have their outcome."""
    deadline, pause, seen = time.monotonic() + PROGRESS_SECONDS, threading.Event(), len(load.outcomes)

    def there() -> int:
        return sum(outcome == OK or not only_ok for outcome in load.outcomes[seen:])

    while there() < count:
        assert time.monotonic() < deadline, f"{there()} of {count} messages; the last errors: {load.errors[-3:]}"
        pause.wait(0.05)
