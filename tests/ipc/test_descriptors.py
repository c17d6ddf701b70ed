"""Tests of ipc.descriptors."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ipc.descriptors import await_readable, await_ready

SELECT_MAX = 1_024


@pytest.fixture
def far() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a connection, of which the first has a number that select() refuses."""
    number = SELECT_MAX + 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft <= number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * number), hard))
    with ExitStack() as stack:
        here, there = (stack.enter_context(one) for one in socket.socketpair())
        taken = os.dup(here.fileno())
        while taken < number:
            stack.callback(os.close, taken)
            taken = os.dup(here.fileno())
        yield stack.enter_context(socket.socket(fileno=taken)), there
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_descriptors_beyond_those_of_select_are_waited_for(far: tuple[socket.socket, socket.socket]) -> None:
    here, there = far
    assert here.fileno() >= SELECT_MAX
    assert not await_readable(here, timeout_ms=0)
    assert not await_ready([here], [], 1)
    assert await_ready([here], [here], 0), "there is room"
    there.sendall(b"x")
    assert await_readable(here.fileno(), timeout_ms=60_000)
    assert here.recv(1) == b"x"
    there.close()
    assert await_readable(here, timeout_ms=60_000), "the end is something to read"


def test_nothing_to_wait_for_is_a_pause() -> None:
    assert not await_readable(timeout_ms=1)
