"""Compiled atomics and the futex: ordered loads and stores of shared words, and sleeping until one changes.

A waiter does "waiters += 1; fence; look again; futex_wait"; a publisher "store-release; fence; if waiters: futex_wake".
Without the two fences a wake-up is lost on x86 too (the store is still in its buffer when the other side looks).
A waiter killed in its sleep leaves `waiters` one too high: that costs a needless system call, never a lost wake-up.

`words` is any C-contiguous int64 array over shared memory; `index` and the next one are a `Followed`.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from ipc.arrays import Words
from ipc.compiled.kernels import external, instruction, ir, kernel, types
from ipc.machine import of_this

FUTEX_WAIT, FUTEX_WAKE = 0, 1
WAKE_ALL = 0x7FFFFFFF
SYS_FUTEX = of_this({"x86_64": 202, "aarch64": 98})
NS_PER_S = 1_000_000_000


class Followed(IntEnum):
    """A word that others follow, from its index on: its value, and how many sleep until that changes."""

    VALUE = 0
    WAITERS = 1


class Timespec(IntEnum):
    """Fields of the system's struct timespec."""

    SECONDS = 0
    NANOSECONDS = 1


TIMESPEC_WORDS = len(Timespec)

# libc's syscall(2): resolved by name when loaded, so that compiled code can be kept on disk.
_syscall: Any = external("syscall", "int64", *["int64"] * 7)


def _require_writable(array: Any) -> None:
    """A waiter writes too (it signs on): on a read-only mapping that would be a segmentation fault."""
    from numba.core.errors import TypingError

    if not array.mutable:
        raise TypingError("the region is mapped read-only; attach it with writable=True to publish or to wait")


def _element(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(array.data, [arguments[1]])


@instruction
def load_acquire(_typing: Any, array: Any, index: Any) -> Any:
    """The word at `index`, read before anything that follows."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_element(context, builder, signature, arguments), "acquire", 8)

    return types.int64(array, types.intp), generate


@instruction
def store_release(_typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Write the word at `index` after everything that came before."""

    _require_writable(array)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[2], _element(context, builder, signature, arguments), "release", 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), generate


def _read_modify_write(operation: str, what: str) -> Any:
    def exchange(_typing: Any, array: Any, index: Any, value: Any) -> Any:
        _require_writable(array)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = _element(context, builder, signature, arguments)
            return builder.atomic_rmw(operation, word, arguments[2], "seq_cst")

        return types.int64(array, types.intp, types.int64), generate

    exchange.__doc__ = what
    return instruction(exchange)


fetch_add = _read_modify_write("add", "Add to the word at `index`, whoever else adds; what it was before.")
fetch_max = _read_modify_write("max", "Raise the word at `index` to a value, whoever else does; what it was before.")


def _fence(ordering: str, what: str) -> Any:
    def order(_typing: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
            builder.fence(ordering)
            return context.get_dummy_value()

        return types.void(), generate

    order.__doc__ = what
    return instruction(order)


fence = _fence("seq_cst", "No load or store crosses this line.")
release_fence = _fence("release", "Stores before it stay before those after it; x86-64 needs no instruction.")


@instruction
def address_of(_typing: Any, array: Any, index: Any) -> Any:
    """The address of the element at `index`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(_element(context, builder, signature, arguments), ir.IntType(64))

    return types.int64(array, types.intp), generate


@kernel
def sign_on(words: Words, index: int) -> None:
    """Count as one who sleeps on the word. What is looked at behind this is read behind it: an atomic addition alone
    lets Arm's newer CPUs read first (`ldaddal`, `ldapr`)."""
    fetch_add(words, index + Followed.WAITERS, 1)
    fence()


@kernel
def sign_off(words: Words, index: int) -> None:
    """Sleep on the word no longer."""
    fetch_add(words, index + Followed.WAITERS, -1)


@kernel
def wake(words: Words, index: int) -> None:
    """Wake everybody who sleeps on the word, if anybody does."""
    # The new value was stored before. Without the fence the count of waiters might be read first, and a sleeper that
    # signs on in between, and still sees the old value, would not be woken.
    fence()
    if load_acquire(words, index + Followed.WAITERS) != 0:
        _syscall(SYS_FUTEX, address_of(words, index), FUTEX_WAKE, WAKE_ALL, 0, 0, 0)


@kernel
def publish(words: Words, index: int, value: int) -> None:
    """Announce `value`: all that was written before is visible to who reads it; sleepers wake."""
    store_release(words, index, value)
    wake(words, index)


@kernel
def raise_to(words: Words, index: int, value: int) -> bool:
    """Announce that the word has come to `value`, sleepers wake; False when another of its writers said so before."""
    is_news = fetch_max(words, index, value) < value
    if is_news:
        wake(words, index)
    return is_news


@kernel
def ring(words: Words, index: int) -> None:
    """Ring a doorbell: a word with many writers, which only ever counts up while somebody sleeps on it."""
    fence()
    if load_acquire(words, index + Followed.WAITERS) != 0:
        fetch_add(words, index, 1)
        _syscall(SYS_FUTEX, address_of(words, index), FUTEX_WAKE, WAKE_ALL, 0, 0, 0)


_clock_gettime: Any = external("clock_gettime", "int32", "int32", "int64")
CLOCK_REALTIME, CLOCK_MONOTONIC = 0, 1


@kernel
def wall_clock_ms() -> int:
    """Milliseconds since the epoch: for what is written. What is measured goes by `monotonic_ms`."""
    now = np.empty(TIMESPEC_WORDS, np.int64)
    _clock_gettime(CLOCK_REALTIME, address_of(now, 0))
    return now[Timespec.SECONDS] * 1000 + now[Timespec.NANOSECONDS] // 1_000_000


@kernel
def monotonic_ns() -> int:
    """Return the time of time.monotonic_ns, from compiled code."""
    now = np.empty(TIMESPEC_WORDS, np.int64)
    _clock_gettime(CLOCK_MONOTONIC, address_of(now, 0))
    return now[Timespec.SECONDS] * NS_PER_S + now[Timespec.NANOSECONDS]


@kernel
def monotonic_ms() -> int:
    """Return the time of ipc.clock.monotonic_ms, from compiled code."""
    return monotonic_ns() // 1_000_000


_sched_yield: Any = external("sched_yield", "int32")


@kernel
def give_way() -> None:
    """Let those go first that wait for this CPU: who looks at a word may keep from it who is to change that."""
    _sched_yield()


@kernel
def await_change(words: Words, index: int, seen: int, timeout_ns: int) -> int:
    """Sleep until the word is no longer `seen`, or the time is over; its value then.

    Returns early (with `seen`) when a signal arrives, so that the interpreter can handle it.
    """
    now = load_acquire(words, index)
    if now != seen or timeout_ns <= 0:
        return now
    time_to_wait = np.empty(TIMESPEC_WORDS, np.int64)
    time_to_wait[Timespec.SECONDS] = timeout_ns // NS_PER_S
    time_to_wait[Timespec.NANOSECONDS] = timeout_ns % NS_PER_S
    sign_on(words, index)
    now = load_acquire(words, index)  # again: a change before the signing on has woken nobody
    if now == seen:
        # The kernel compares 32 bits; a word that moved by a multiple of 2^32 in between costs one time-out.
        low = seen & 0xFFFFFFFF
        _syscall(SYS_FUTEX, address_of(words, index), FUTEX_WAIT, low, address_of(time_to_wait, 0), 0, 0)
        now = load_acquire(words, index)
    sign_off(words, index)
    return now
