"""One member of a group in a process of its own: joins, says so, waits for a line, consumes, and reports as JSON.

python -m tools.dev.bench.bed.members.consume KIND ADDRESS TOPIC GROUP --messages 400000
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click
import numpy as np

from tools.dev.bench.bed.members.kinds import KINDS, Asked, Member

PATIENCE_SECONDS = 1.0
STAMP_BYTES = 20  # of a body: when it was sent, monotonic nanoseconds in digits


@click.command()
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("address")
@click.argument("topic")
@click.argument("group")
@click.option("--queues", default=1, help="Of the topic, that are this member's.")
@click.option("--one-by-one", is_flag=True, help="One message a turn.")
@click.option("--messages", default=0, help="How many to consume.")
@click.option("--warm", default=0, help="How many of these come before the clock runs.")
@click.option("--seconds", default=0.0, help="Instead: wait this long for a message.")
@click.option("--timed", is_flag=True, help="Bodies begin with the time of their sending.")
def main(kind: str, messages: int, warm: int, seconds: float, timed: bool, **joined: Any) -> None:
    """Consume TOPIC as a member of GROUP."""
    member = KINDS[kind](Asked(**joined, patience=seconds or PATIENCE_SECONDS))
    try:
        member.join()
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(_idle(member) if seconds else _consume(member, messages, warm, timed)), flush=True)
    finally:
        member.close()


def _consume(member: Member, messages: int, warm: int, timed: bool) -> dict[str, float]:
    began_ns, cpu, count, before = time.monotonic_ns(), time.process_time(), 0, 0
    taken: list[int] = []
    for bodies in member.turns():
        count += len(bodies)
        now = time.monotonic_ns()
        if timed and count > warm:
            taken += (now - int(bytes(body[:STAMP_BYTES])) for body in bodies)
        if not before and count >= warm > 0:
            began_ns, cpu, before = now, time.process_time(), count
        if count >= messages:
            break
    report = {"messages": count - before, "seconds": (now - began_ns) / 1e9, "began_ns": began_ns,
              "ended_ns": now, "cpu_seconds": time.process_time() - cpu}  # fmt: skip
    if taken:
        p50, p99 = np.percentile(taken, [50, 99]) / 1000
        report |= {"p50_us": float(p50), "p99_us": float(p99)}
    return report


def _idle(member: Member) -> dict[str, float]:
    began, cpu = time.monotonic(), time.process_time()
    next(member.turns())
    return {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu}


if __name__ == "__main__":
    main()
