"""The writer's loop, compiled: from ring to ring and from message to message, without a turn of the interpreter.

Implements: the part of CommitLog.asyncPutMessage between two locks
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum

from engine.writer.compose_kernel import append_composed
from engine.writer.drain_kernel import CommitWord, DrainStop, JournalWord, Shared, Source, Target, drain, record_at
from ipc.arrays import Words
from ipc.compiled.atomics import monotonic_ms, monotonic_ns, wall_clock_ms
from ipc.compiled.kernels import kernel
from ipc.compiled.memory import bytes_at, carray, words_at
from ipc.ring import WORDS_PER_RING, ControlWord, await_bell, first_pending

SERVE_MS, NS_PER_MS = 200, 1_000_000
NEAR_NS = 100_000  # a lone producer's next record comes within it, or is not waited for awake,
FAR_WAITS = 16  # ... and so many behind that are not either


class SourceColumn(IntEnum):
    """`sources` has a row for every ring: where an opened ring's data and words lie; zeros: not opened."""

    DATA_AT = 0
    DATA_BYTES = 1
    WORDS_AT = 2
    WORDS = 3


@kernel
def serve(
    sources: Words, ring: int, target: Target, shared: Shared, slots: int, bytes_max: int, errno_at: int, bell: int
) -> int:
    """Drain the opened rings in turn, from `ring` on, while nothing but records asks for attention; sleep between them.

    Returns what the last `drain` came to, at the latest after SERVE_MS or `bytes_max`: so messages cost the writer no
    turn of the interpreter. `errno_at`, `bell`: counters to look at, to sleep on; it looks before it sleeps where the
    ring's owner is near, and was in time of late.
    """
    journal, controls = shared.journal, shared.controls
    begun_at = journal[record_at(journal, journal[JournalWord.VERSION]) + CommitWord.END]
    until_ms, far = monotonic_ms() + SERVE_MS, 1
    while True:
        now_ms = monotonic_ms()
        left = bytes_max - (journal[record_at(journal, journal[JournalWord.VERSION]) + CommitWord.END] - begun_at)
        if left <= 0 or now_ms >= until_ms or shared.counters[errno_at] != 0:
            return DrainStop.DRAINED
        data = carray(bytes_at(sources[ring, SourceColumn.DATA_AT]), (sources[ring, SourceColumn.DATA_BYTES],))
        words = carray(words_at(sources[ring, SourceColumn.WORDS_AT]), (sources[ring, SourceColumn.WORDS],))
        outcome = drain(Source(data, words, ring), target, shared, slots, wall_clock_ms(), left)
        if outcome == DrainStop.NEEDS_COMPOSING:
            outcome = append_composed(Source(data, words, ring), target, shared, slots, wall_clock_ms())
        if outcome != DrainStop.DRAINED:
            return outcome
        following = (ring + 1) % (controls.size // WORDS_PER_RING)  # the others first
        if first_pending(controls, following) < 0:
            look_ns = NEAR_NS if far == 0 and controls[ring * WORDS_PER_RING + ControlWord.NEAR] != 0 else 0
            began_ns = monotonic_ns()
            await_bell(shared.counters, bell, controls, look_ns, (until_ms - now_ms) * NS_PER_MS)
            is_far = monotonic_ns() - began_ns >= NEAR_NS
            far = FAR_WAITS if is_far else max(0, far - 1)
        ring = first_pending(controls, following)
        at = ring * WORDS_PER_RING
        if ring < 0 or sources[ring, SourceColumn.DATA_AT] == 0:
            return DrainStop.DRAINED
        if controls[at + ControlWord.ASKED] != controls[at + ControlWord.ANSWERED]:
            return DrainStop.DRAINED
