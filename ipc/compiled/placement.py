"""Where a thread runs, for kernels: hold it to one CPU while it sleeps, and give it back its CPUs afterwards.

The scheduler wakes a sleeper on an idle CPU if there is one, which costs an interrupt to that CPU and several times
what the wake-up itself does. Who is woken by processes of one CPU, again and again, is woken there at once.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

from ipc.arrays import Words
from ipc.compiled.atomics import address_of
from ipc.compiled.kernels import external, kernel

_getaffinity: Any = external("sched_getaffinity", "int32", "int32", "int64", "int64")
_setaffinity: Any = external("sched_setaffinity", "int32", "int32", "int64", "int64")

MASK_WORDS, BITS = 16, 64  # glibc's cpu_set_t: 1024 CPUs
MASK_BYTES = MASK_WORDS * 8
PLACE_WORDS = 2 * MASK_WORDS


@kernel
def hold_to(cpu: int, place: Words) -> bool:
    """Let this thread run on `cpu` alone, if that is one of several that it may use; `place` keeps which these are."""
    if cpu < 0 or cpu >= MASK_WORDS * BITS or _getaffinity(0, MASK_BYTES, address_of(place, 0)) != 0:
        return False
    place[MASK_WORDS:] = 0
    place[MASK_WORDS + cpu // BITS] = 1 << (cpu % BITS)
    others = 0
    for word in range(MASK_WORDS):
        others |= place[word] & ~place[MASK_WORDS + word]
    is_allowed = place[cpu // BITS] & place[MASK_WORDS + cpu // BITS] != 0
    return is_allowed and others != 0 and _setaffinity(0, MASK_BYTES, address_of(place, MASK_WORDS)) == 0


@kernel
def let_go(place: Words) -> None:
    """Give the thread back what `hold_to` took."""
    _setaffinity(0, MASK_BYTES, address_of(place, 0))
