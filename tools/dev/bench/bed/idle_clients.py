"""Consumers that only wait: each with a connection, a heartbeat each 30 s and a pull that the broker holds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from engine.clients.connection import Connection
from engine.clients.consuming.requests import (
    EVERYTHING,
    LAST,
    Pull,
    Subscription,
    heartbeat_of,
    pull_fields,
    subscription_of,
)
from engine.protocol.remoting.codes import RequestCode
from engine.remoting.sockets.client import PeerUnreachable

MEMBERS, QUEUES = 10, 4  # of a group; of the topic
HEARTBEAT_SECONDS, ANSWER_SECONDS, READY_SECONDS = 30.0, 60.0, 120.0


class _Waiting:
    """One waiting consumer, the one with this number."""

    def __init__(self, port: int, topic: str, number: int) -> None:
        self._connection = Connection(f"127.0.0.1:{port}", ANSWER_SECONDS)
        self._topic, self._group, self._number = topic, f"idle-{number // MEMBERS}", number

    async def come(self) -> None:
        """Say who it is; the place where its queue ends is where it waits."""
        subscription = subscription_of(self._topic, Subscription(EVERYTHING), version_ms=1)
        self._body = heartbeat_of(f"127.0.0.1@{self._number}", self._group, LAST, [subscription])
        await self._connection.need(RequestCode.HEART_BEAT, body=self._body)
        place = {"topic": self._topic, "queueId": str(self._number % QUEUES)}
        answer = await self._connection.need(RequestCode.GET_MAX_OFFSET, place)
        offset = int((answer.ext_fields or {})["offset"])
        queue = {**place, "consumerGroup": self._group}
        self._pull = pull_fields(queue, Pull(offset, None, may_wait=True), Subscription(EVERYTHING), version_ms=1)

    async def stay(self) -> None:
        """Hold the pull and send heartbeats until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wait())
            group.create_task(self._live())

    async def _wait(self) -> None:
        while True:
            await self._connection.ask(RequestCode.PULL_MESSAGE, self._pull, timeout=ANSWER_SECONDS)

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            await self._connection.need(RequestCode.HEART_BEAT, body=self._body)

    async def go(self) -> None:
        """Close the connection to the broker."""
        await self._connection.close()


@contextmanager
def idle_clients(port: int, topic: str, count: int) -> Iterator[None]:
    """Keep consumers waiting at a broker until the block ends. Raises RuntimeError where they cannot."""
    loop, ready, failures = asyncio.new_event_loop(), threading.Event(), []

    async def live() -> None:
        every = [_Waiting(port, topic, number) for number in range(count)]
        try:
            for one in every:
                await one.come()
            staying = [loop.create_task(one.stay()) for one in every]
            ready.set()
            await asyncio.gather(*staying)
        except (PeerUnreachable, ExceptionGroup) as error:
            failures.append(error)
        finally:
            ready.set()
            for one in every:
                with suppress(PeerUnreachable):
                    await one.go()

    living = loop.create_task(live())
    thread = threading.Thread(target=lambda: _run(loop, living), name="idle clients", daemon=True)
    thread.start()
    try:
        if not ready.wait(READY_SECONDS) or failures:
            raise RuntimeError(f"{count} clients did not come to wait: {failures or 'no answer'}")
        yield
        if failures:
            raise RuntimeError(f"a client that waited was let down: {failures}")
    finally:
        loop.call_soon_threadsafe(living.cancel)
        thread.join()


def _run(loop: asyncio.AbstractEventLoop, living: asyncio.Task[None]) -> None:
    with suppress(asyncio.CancelledError):
        loop.run_until_complete(living)
    loop.close()
