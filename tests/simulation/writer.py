"""A writer in virtual time: the real one on a master's log, and the real ring of a producer that never waits."""

from __future__ import annotations

import shutil
from enum import Enum
from typing import TYPE_CHECKING

from engine.producer.pipeline import Pipeline
from engine.producer.queue_slots import QueueSlots
from engine.shared_memory.latencies import create_latencies
from engine.shared_memory.queue_table import QueueTable
from engine.writer import writer
from engine.writer.drain_kernel import CommitWord, JournalWord
from engine.writer.journal import attach_journal, create_journal
from engine.writer.next_segment import SegmentAhead
from engine.writer.pages_ahead import PagesAhead
from ipc import ring
from ipc.arrays import Words
from ipc.compiled import atomics
from ipc.ring import ControlWord
from tests.simulation.logs import STORED_MS, TOPIC
from tests.simulation.receiver import Keeper
from tests.simulation.referee import Broken
from tests.simulation.world import Actor

if TYPE_CHECKING:
    from tests.simulation.master import Master

QUEUE = (TOPIC, 0)
QUEUES_MAX, PUTS_MAX, TURNS_MAX = 4, 250, 1000
BACK_WITHIN_MS = (10, 300, 1000)


class Death(Enum):
    """Where a writer is killed: between two turns, or before or after the word that commits what it takes."""

    BETWEEN_TURNS = 0
    BEFORE_COMMIT = 1
    AFTER_COMMIT = 2


class SegmentBeside(SegmentAhead):
    """Makes the next segment ready in turns of the writer's actor, not in a thread."""

    def start(self) -> None:
        """Begin nothing: the actor calls `look`."""


class PagesLater(PagesAhead):
    """Leaves all pages to the writer, as if its thread never had its turn."""

    def start(self) -> None:
        """Begin nothing: the writer populates what it needs."""


class Writing(Actor):
    """The writer of a master, over all of its processes; and the rings before it, as the supervisor makes them."""

    def __init__(self, master: Master) -> None:
        super().__init__(master.world)
        self._master, self._log, self._config = master, master.log, master.config
        counters, rings = self._log.counters, self._config.rings
        directory = counters.directory = master.log.root.with_suffix(".regions")
        directory.mkdir()
        create_latencies(directory, rings)
        QueueTable.create(directory, self._log.queue_offsets, QUEUES_MAX).close()
        create_journal(directory, rings, self._log.end)
        ring.create_rings(directory, rings).close()
        self._journal, self._controls = attach_journal(directory), ring.attach_rings(directory)
        self._journal.words[JournalWord.RECORDS + CommitWord.TIMESTAMP] = STORED_MS  # store times do not fall
        stored = [self._controls.words, QueueTable.attach(directory, writable=True).next_offsets]
        self._stored = [*stored, *(counters.region.words[at : at + 1] for at in writer.places_of(counters))]
        # Where another producer asks for something, the writer does not sleep until the first puts more.
        self._other = ring.ClaimedRing(directory, self._controls, self._config.ring_bytes, (0,))
        QueueSlots(self._other.ring, self._other.control, counters.writer_bell).ask(QUEUE)
        half = self._config.ring_bytes // 2
        self.pipeline = Pipeline(self._config, counters, puts_max=PUTS_MAX, bytes_max=half)
        self.pipeline.slots.ask(QUEUE)
        self._keeper = Keeper(self.world, self._log, lambda: None)
        self._dies: Death | None = None
        self._begin()
        self.wake()

    def _begin(self) -> None:
        counters, files, config = self._log.counters, self._log.files, self._config
        self._ahead = SegmentBeside(counters, files, writer.POPULATE_BYTES)
        self._writer: writer.Writer | None = writer.Writer(
            config, counters, counters.directory, files=files, ahead=self._ahead, pages=PagesLater(counters)
        )

    def kill(self) -> None:
        """Its process is killed now, or within a turn; the supervisor begins another one."""
        if self._writer is not None:
            self._dies = self.world.rng.choice(list(Death))
            if self._dies is Death.BETWEEN_TURNS:
                self._end()

    def _end(self) -> None:
        assert self._writer is not None
        with self._log.unsaid():
            self._writer.close()
        self._writer = self._dies = None
        self.stopped_until_ms = self.world.now_ms + self.world.rng.choice(BACK_WITHIN_MS)
        self.wake()

    def close(self) -> None:
        """All of it is gone, and the regions with it."""
        self.is_gone = True
        if self._writer is not None:
            self._end()
        self.pipeline.close()
        self._other.close()
        shutil.rmtree(self._log.counters.directory)

    # turns

    def turn(self) -> None:
        """Append what the ring holds."""
        end = self._log.end
        if self._writer is None:
            self._begin()
        elif self.world.chance(0.5):
            self._ahead.look()
        self._work()
        if self._log.end != end:
            self._master.appended()
        self._master.answer()
        if self._log.counters.writer_held_ms.read():
            self.wake(writer.HELD_LOOK_MS)
        elif self._config.ha_secret_file:
            self.wake(writer.TURN_MS_MAX)

    def _work(self) -> None:
        """Turn after turn until the ring is empty; each finds the segments that the one before has asked for."""
        writing, control, other = self._writer, self.pipeline.control, self._other.control
        assert writing is not None
        for _turn in range(TURNS_MAX):
            self._keeper.turn()
            atomics.publish(other, int(ControlWord.ASKED), int(other[ControlWord.ANSWERED]) + 1)
            before, version = [words.copy() for words in self._stored], self._version
            moved = writing.do_work(self.world.now_ms)
            if self._dies is not None and self._version == version + 1:
                self._die(before)
                return
            is_asked = control[ControlWord.ASKED] != control[ControlWord.ANSWERED]
            if not moved or (self.pipeline.head == self.pipeline.tail and not is_asked):
                return
        raise Broken("a ring is emptied", f"{self.pipeline.tail - self.pipeline.head} records are left")

    @property
    def _version(self) -> int:
        """How many commits there were."""
        return int(self._journal.words[JournalWord.VERSION])

    def _die(self, before: list[Words]) -> None:
        """Undo what the writer stored last, which nobody has seen: it was killed before that."""
        if self._dies is Death.BEFORE_COMMIT:
            self._journal.words[JournalWord.VERSION] -= 1
        for words, was in zip(self._stored, before, strict=True):
            words[:] = was
        self._end()
