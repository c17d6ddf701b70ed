"""Places in the log of records that somebody waits for, kept when later records take their descriptors.

A ring has few descriptors, and a wait for slaves or for the disk may be long: a waiting call must find its place all
the same. So each publish first collects what it would overwrite; the order of publishing is the order of places.
"""

from __future__ import annotations

from engine.errors import EngineError
from ipc.arrays import Words
from ipc.ring import DESCRIPTOR_WORDS, ControlWord, Descriptor

RecordPlace = tuple[int, int]  # physical offset, or -errno when refused; queue offset


class AwaitedPlaces:
    """Places that one ring keeps. `expect` and `free_until` are for the thread that publishes, the others for any."""

    def __init__(self, control: Words, words: Words) -> None:
        self._control, self._descriptors = control, words.reshape(-1, DESCRIPTOR_WORDS)
        self._expected: dict[int, list[RecordPlace]] = {}  # by number, ascending; empty until the place is kept

    def expect(self, number: int) -> None:
        """Somebody waits for record `number`, the last one published."""
        self._expected[number] = []

    def forget(self, number: int) -> None:
        """Nobody waits for it any more."""
        self._expected.pop(number, None)

    def free_until(self, tail: int) -> int:
        """Records from `tail` on below the answer may be published: no place that is waited for is lost by that."""
        head = int(self._control[ControlWord.HEAD])
        # A copy in one step: while a list of pairs is made, a collection may run, and another thread forget its number.
        for number, kept in self._expected.copy().items():
            if number >= head:
                return min(tail, number) + len(self._descriptors)
            if not kept:
                kept.append(self.described(number))
        return tail + len(self._descriptors)

    def place_of(self, number: int) -> RecordPlace:
        """The place of a record that the writer has passed."""
        place, kept = self.described(number), self._expected.get(number)
        # Its descriptor gets another place only once the record that has it now is published.
        if int(self._control[ControlWord.TAIL]) - number <= len(self._descriptors):
            return place
        if kept:
            return kept[0]
        raise EngineError(f"the place of record {number} was overwritten by later records before it was read")

    def described(self, number: int) -> RecordPlace:
        """Return a record's place from its descriptor, if no later record has the descriptor."""
        descriptor = self._descriptors[number % len(self._descriptors)]
        return int(descriptor[Descriptor.PHYSICAL_OFFSET]), int(descriptor[Descriptor.QUEUE_OFFSET])
