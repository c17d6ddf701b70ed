"""Something that answers where a slave expects its master, and sends what no master of this log sends."""

from __future__ import annotations

from engine.protocol.ha.opening import ALL_THERE_IS
from engine.protocol.ha.wire import FRAME_HEADER, LOG_OFFSET_MAX, REPORT
from store.message.record import BLANK_BYTES, BLANK_MAGIC, FIXED_BYTES, MAGIC_V2
from tests.simulation.logs import HEAD, Log
from tests.simulation.network import BUFFER_BYTES, Connection
from tests.simulation.referee import Broken
from tests.simulation.settings import Settings
from tests.simulation.world import Actor, World


class Rogue(Actor):
    """Sends first, perhaps, what the true master would; then one thing that must not be taken."""

    def __init__(self, world: World, link: Connection, settings: Settings, log: Log) -> None:
        super().__init__(world)
        self._link, self._settings, self._log, self._at = link, settings, log, -1
        self._says_truth = False
        self._has_lied, self._rest = False, b""
        link.to_listener.reader = link.to_caller.writer = self
        self.wake(1)

    def turn(self) -> None:
        """A frame; the next a little later."""
        pipe, segment = self._link.to_caller, self._settings.segment_bytes
        if self._link.to_listener.is_ended or pipe.is_ended:
            return
        if self._rest:
            self._rest = self._rest[pipe.send(self._rest) :]
            self.wake(50)
            return
        if self._has_lied:
            self._look()
            return
        if self._at < 0 and not self._is_asked():
            self.wake(10)
            return
        self._link.to_listener.inbox.clear()
        if self._says_truth:
            end = min(self._log.end, self._at + self.world.rng.randint(1, 500), self._at + segment - self._at % segment)
            whole = self._log.boundary(end)
            end = whole if whole > self._at and self.world.chance(0.7) else end
            pipe.send(FRAME_HEADER.pack(self._at, end - self._at) + self._log.read(self._at, end))
            self._at, self._says_truth = end, self.world.chance(0.5) and end < self._log.end
        else:
            self._has_lied, lie = True, self._untrue(segment)
            said = pipe.send(lie[: FRAME_HEADER.size + self.world.rng.choice((1, 3, 7, len(lie)))])
            self._rest = lie[said:]
        self.wake(self.world.rng.choice((1, 50)))

    def _is_asked(self) -> bool:
        """Whether the slave has said where to begin; it is believed to be empty where it asks for all there is."""
        inbox, log = self._link.to_listener.inbox, self._log
        if len(inbox) < REPORT.size:
            return False
        (asked,) = REPORT.unpack_from(inbox)
        self._at = 0 if asked <= ALL_THERE_IS else asked
        self._says_truth = log.start <= asked < log.end and asked > ALL_THERE_IS and self.world.chance(0.7)
        return True

    def _look(self) -> None:
        """Who has read it has hung up."""
        owner, pipe = self._link.owner, self._link.to_caller
        has_read = pipe.room == BUFFER_BYTES and owner is not None and not owner.is_gone
        if (
            has_read
            and not owner.log.lacks_segment
            and owner.link is self._link
            and owner.stopped_until_ms <= self.world.now_ms - 1000
        ):
            raise Broken("what is untrue ends a connection", f"{owner.name} goes on")
        self.wake(500)

    def _untrue(self, segment: int) -> bytes:
        rng, at, room = self.world.rng, self._at, segment - self._at % segment
        body = rng.randbytes(rng.randint(1, 300))
        offsets = [LOG_OFFSET_MAX + segment, -segment, 7] if at == 0 else [at + 1, at - 1, at + segment, 0, -1]
        kinds = [
            lambda: FRAME_HEADER.pack(rng.choice(offsets[1:]), 0),
            lambda: FRAME_HEADER.pack(rng.choice(offsets), len(body)) + body,
            lambda: FRAME_HEADER.pack(at, room + 1) + body,
            lambda: FRAME_HEADER.pack(at, -1) + body,
        ]
        if at and self._log.start <= at <= self._log.end and self._log.boundary(at) == at:
            sizes = [size for size in (room - BLANK_BYTES + 1, room, segment * 3) if size >= FIXED_BYTES]
            misfit = HEAD.pack(rng.choice(sizes), MAGIC_V2) + body
            blank = HEAD.pack(rng.choice((room - 1, room + 8)), BLANK_MAGIC) + body
            kinds += [
                lambda: FRAME_HEADER.pack(at, min(len(misfit), room)) + misfit[:room],
                lambda: FRAME_HEADER.pack(at, min(len(blank), room)) + blank[:room],
            ]
        return rng.choice(kinds)()
