"""History.java for Slipstream's own clients: the same words, lines and kinds, each kind consumed by another habit.

    produce NAMES FIRST THREADS PAUSE_US        each kind in THREADS threads; numbers from FIRST on
    consume NAMES|STORE MEMBER [early]          a member of the group of each kind; early: acknowledges, then handles

The first line of standard input ends the sending, its end the program.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from typing import Any

from engine.clients.consuming import member as membership
from engine.clients.consuming.consumer import Consumer
from engine.clients.consuming.received import ReceivedMessage
from engine.clients.sending.producer import ProducerSettings, RemoteProducer
from engine.errors import EngineError
from engine.protocol.ha.put_status import PutMessageStatus
from ipc.clock import wall_ms
from store.message.record import Message
from tests.histories.checker import KINDS, NUMBERS_A_THREAD

TIMEOUT_SECONDS = float(os.environ.get("HISTORY_TIMEOUT_MS", "3000")) / 1000
AFTER_ERROR_SECONDS, HANDLING_SECONDS, EARLY_SECONDS, LOOK_SECONDS = 0.1, 0.002, 5.0, 0.1
membership.HEARTBEAT_SECONDS, membership.COMMIT_SECONDS, membership.REBALANCE_SECONDS = 1.0, 0.2, 1.0  # as History.java


pause_for = threading.Event().wait  # which nobody sets


def say(event: str, **fields: Any) -> None:
    """A line, whole also beside other threads' lines: a pipe takes it at once."""
    os.write(1, json.dumps({"e": event, **fields}).encode() + b"\n")


def decided(n: int) -> bool:
    """What becomes of a transaction."""
    return n % 2 == 0


def produce(names: str, first: int, count: int, pause: float) -> None:
    """Send until a line comes, and answer checks until standard input ends."""
    common: Any = {"timeout": TIMEOUT_SECONDS, "settings": ProducerSettings(retries=0)}
    plain = RemoteProducer(names, group="History-producers", **common)
    decide = RemoteProducer(names, group="History-deciders", on_check=_checked, **common)
    ended, threads = threading.Event(), []
    for number in range(len(KINDS) * count):
        kind = KINDS[number // count]
        of = decide if kind == "decide" else plain
        work = threading.Thread(target=_send, args=(of, kind, first + number * NUMBERS_A_THREAD, pause, ended))
        threads.append(work)
        work.start()
    say("ready")
    sys.stdin.readline()
    ended.set()
    for thread in threads:
        thread.join()
    say("quiet")
    sys.stdin.readline()
    for producer in (plain, decide):
        producer.close()


def _checked(message: Message) -> bool:
    return decided(int(bytes(message.body)))


def _send(producer: RemoteProducer, kind: str, first: int, pause: float, ended: threading.Event) -> None:
    n = first
    while not ended.is_set():
        begun, outcome, rest = wall_ms(), {}, pause
        try:
            outcome = _delivered(producer, kind, first, n)
        except EngineError as error:
            outcome, rest = {"error": str(error)}, AFTER_ERROR_SECONDS
        say("sent", kind=kind, n=n, begun=begun, at=wall_ms(), **outcome)
        n += 1
        pause_for(rest)


def _delivered(producer: RemoteProducer, kind: str, first: int, n: int) -> dict[str, object]:
    topic, body = f"History-{kind}", str(n)
    fields: Any = {"keys": body, "tags": "tag"}
    if kind == "decide":
        sent = producer.send_in_transaction(topic, body, lambda _half: decided(n) if n % 4 < 2 else None, **fields).half
    elif kind == "order":
        sent = producer.send(topic, body, queue_id=first // NUMBERS_A_THREAD % 4, **fields)
    elif kind == "delay":
        sent = producer.send(topic, body, delay_level=1 + n % 3, **fields)
    else:
        sent = producer.send(topic, body, **fields)
    status = "SEND_OK" if sent.status is PutMessageStatus.PUT_OK else sent.status.value
    return {"status": status, "queue": sent.queue_id, "offset": sent.queue_offset}


def consume(where: str, member: str, *, early: bool) -> None:
    """Be a member of the groups until standard input ends."""
    habits = {"plain": _by_run, "order": _by_run, "delay": _by_loop, "decide": _by_asyncio}
    consumers, threads = {}, []
    for kind in KINDS:
        options: Any = {"consume_from": "first", "ordered": kind == "order", "instance": member + kind}
        consumers[kind] = Consumer(where, f"History-{kind}", f"History-{kind}", **options).start()
        threads.append(threading.Thread(target=habits[kind], args=(kind, consumers[kind], early)))
        threads[-1].start()
    threading.Thread(target=_tell_shares, args=(list(consumers.values()),), daemon=True).start()
    say("ready")
    sys.stdin.readline()
    for consumer in consumers.values():
        consumer.stop()
    for thread in threads:
        thread.join()
    for consumer in consumers.values():
        consumer.close()


def _by_run(kind: str, consumer: Consumer, early: bool) -> None:
    consumer.run(lambda message: _handle(kind, message, consumer if early else None), workers=3)


def _by_loop(kind: str, consumer: Consumer, early: bool) -> None:
    for message in consumer:
        _handle(kind, message, consumer if early else None)


def _by_asyncio(kind: str, consumer: Consumer, early: bool) -> None:
    async def program() -> None:
        async for message in consumer:
            _handle(kind, message, consumer if early else None)

    asyncio.run(program())


def _handle(kind: str, message: ReceivedMessage, early: Consumer | None) -> None:
    queue = message.queue_id
    if early is not None and kind != "order":  # whose next message would be in hand together with this one
        message.ack()
        early.commit()
        pause_for(EARLY_SECONDS)
    if kind == "order":
        say("in", queue=queue, at=wall_ms())
    times, offset = message.reconsume_times, message.queue_offset
    say("got", kind=kind, n=int(message.text), queue=queue, offset=offset, times=times, at=wall_ms())
    if kind == "order":
        pause_for(HANDLING_SECONDS)
        say("out", queue=queue, at=wall_ms())


def _tell_shares(consumers: list[Consumer]) -> None:
    told: list[int] = []
    while True:
        assigned = [consumer.assignment() for consumer in consumers]
        shares = [
            sum(place.topic == f"History-{kind}" for place in places)
            for kind, places in zip(KINDS, assigned, strict=True)
        ]
        if shares != told:
            say("shares", of=shares)
            told = shares
        pause_for(LOOK_SECONDS)


def main() -> None:
    """Do what the arguments say until standard input ends."""
    role, where, *words = sys.argv[1:]
    if role == "produce":
        produce(where, int(words[0]), int(words[1]), int(words[2]) / 1_000_000)
    else:
        consume(where, words[0], early="early" in words)


if __name__ == "__main__":
    main()
