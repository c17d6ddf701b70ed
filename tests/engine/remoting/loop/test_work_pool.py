"""Threads for what a loop must not wait for: what waits too long for one is refused, and never begun."""

from __future__ import annotations

import asyncio
import threading

import pytest

from engine.protocol.remoting.answers import Refused
from engine.protocol.remoting.codes import ResponseCode
from engine.remoting.loop.work_pool import WorkPool
from tests.harness.conditions import await_that


def test_what_waits_too_long_is_refused_and_never_begun() -> None:
    asyncio.run(_wait_too_long())


async def _wait_too_long() -> None:
    pool, held, begun = WorkPool("t", 1, 10, wait_ms=1), threading.Event(), list[int]()
    try:
        running = await _begun(pool, held)
        with pytest.raises(Refused) as refused:
            await pool.run(begun.append, 1)
        assert refused.value.code == ResponseCode.SYSTEM_BUSY and "[TIMEOUT_CLEAN_QUEUE]" in refused.value.remark
        assert not pool.size
    finally:
        held.set()
    assert await running, "who has begun is waited for, however long"
    assert await (await _begun(pool, held))
    assert not begun
    pool.close()


async def _begun(pool: WorkPool, held: threading.Event) -> asyncio.Task[bool]:
    """Somebody who waits in the pool's thread: on a busy machine a thread may not begin within its time."""
    while True:
        running = asyncio.create_task(pool.run(held.wait))
        await asyncio.to_thread(
            await_that,
            lambda task=running: task.done() or (pool._under_way and not pool.size),
            "the thread is busy, or late",
        )
        if not running.done() or running.exception() is None:
            return running


def test_without_a_limit_nothing_is_refused_but_too_many() -> None:
    asyncio.run(_too_many())


async def _too_many() -> None:
    pool, held = WorkPool("t", 1, 2), threading.Event()
    both = [asyncio.create_task(pool.run(held.wait)) for _ in range(2)]
    await asyncio.to_thread(await_that, lambda: pool._under_way == 2, "both are under way")
    with pytest.raises(Refused, match="REJECTREQUEST"):
        await pool.run(held.wait)
    held.set()
    assert all(await asyncio.gather(*both))
    pool.close()
