"""One producer process of a measurement: warm up, say so, wait for the word, append, print what it took (JSON).

python -m tools.dev.bench.bed.load STORE --work batch --size 1024 --messages 1000000
"""

from __future__ import annotations

import json
import sys
import time

import click
import numpy as np

from engine.producer.producer import Producer, PutMessageStatus

BATCH = 4096
WARM_MESSAGES, WARM_SENDS = 20_000, 500  # in batches; one by one
TIMEOUT_SECONDS = 60.0


def _append(producer: Producer, topic: str, bodies: np.ndarray, messages: int, keyed: bool) -> list[int]:
    sent = 0
    while sent < messages:
        count = min(len(bodies), messages - sent)
        keys = [f"{number:012x}" for number in range(sent, sent + count)] if keyed else None
        producer.send_batch(topic, bodies[:count], queue_id=0, keys=keys, wait=False, timeout=TIMEOUT_SECONDS)
        sent += count
    producer.flush(TIMEOUT_SECONDS)
    return []


def _one_by_one(producer: Producer, topic: str, body: bytes, messages: int, wait: bool) -> list[int]:
    """Return the nanoseconds that each call took."""
    taken = []
    for _ in range(messages):
        began = time.perf_counter_ns()
        result = producer.send(topic, body, queue_id=0, wait=wait, timeout=TIMEOUT_SECONDS)
        taken.append(time.perf_counter_ns() - began)
        if result is not None and result.status is not PutMessageStatus.PUT_OK:
            raise click.ClickException(f"a send was answered {result.status.value}")
    return taken


@click.command()
@click.argument("store")
@click.option("--work", type=click.Choice(["batch", "keyed", "sync", "nowait"]), default="batch")
@click.option("--size", default=1024, help="Bytes of a body.")
@click.option("--messages", default=100_000)
@click.option("--topic", default="bench")
def main(store: str, work: str, size: int, messages: int, topic: str) -> None:
    """Append MESSAGES bodies of SIZE bytes to the broker of STORE."""
    bodies = np.random.default_rng(1).integers(0, 256, (BATCH, size), dtype=np.uint8)
    body = bodies[0].tobytes()
    with Producer(store, timeout=TIMEOUT_SECONDS) as producer:

        def send(count: int) -> list[int]:
            if work in ("batch", "keyed"):
                return _append(producer, topic, bodies, count, work == "keyed")
            return _one_by_one(producer, topic, body, count, work == "sync")

        send(WARM_MESSAGES if work in ("batch", "keyed") else WARM_SENDS)
        print("ready", flush=True)
        sys.stdin.readline()
        began_ns, cpu = time.monotonic_ns(), time.process_time()
        taken = send(messages)
        producer.flush(TIMEOUT_SECONDS)
        ended_ns = time.monotonic_ns()
    figures: dict[str, float] = {
        "began_ns": began_ns, "ended_ns": ended_ns, "messages": messages, "cpu_seconds": time.process_time() - cpu
    }  # fmt: skip
    if taken:
        p50, p99, p999 = np.percentile(taken, [50, 99, 99.9]) / 1000
        figures |= {"p50_us": float(p50), "p99_us": float(p99), "p999_us": float(p999)}
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
