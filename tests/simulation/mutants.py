"""Wrong protocols, one line each, that the simulation must tell from the right one.

Each is a file, a text that is in it once, what stands there instead, and what that breaks.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.harness.children import exit_code_of
from tests.harness.logs import QUEUE_FILE_BYTES, SmallLog
from tests.simulation import plain

HA, FLUSHER, WRITER = "engine/protocol/ha/", "engine/keeping/flusher.py", "engine/writer/writer.py"
LISTENER, SENDERS = "engine/replication/ha_listener.py", "engine/replication/ha_senders.py"
SEEDS_MAX = 400


class Mutant(NamedTuple):
    """A line that is wrong."""

    kind: str
    path: str
    old: str
    new: str
    breaks: str


def _of(kind: str, file: str, *lines: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(kind, file if "/" in file else HA + file, *line) for line in lines]


MUTANTS = [
    *_of(
        "acknowledgements",
        "connection_kernel.py",
        ("if reported > sent:", "if reported > sent + 1:", "a byte that was never sent is acknowledged"),
        ("if reported > sent:", "if reported < 0:", "any number is an acknowledgement"),
        ("if reported < acked_before:", "if reported < 0:", "acknowledgements fall"),
        (
            "        acked = reported\n",
            "        acked = max(acked, sent)\n",
            "all that was sent is acknowledged at once",
        ),
        ("or connection[ConnectionWord.PROVES_FROM] != 0:", "or False:", "what proves nothing counts"),
        ("    connection[ConnectionWord.ACK] = acked\n", "", "acknowledgements are read and not noted"),
        (
            "return max(load_acquire(connection, ConnectionWord.NEXT), connection[ConnectionWord.REQUEST])",
            "return load_acquire(connection, ConnectionWord.NEXT)",
            "a slave may not repeat where it began",
        ),
    ),
    *_of(
        "acknowledgements",
        "connection.py",
        (
            "        if fault != CloseReason.NONE:",
            "        if fault == CloseReason.ACK_FELL:",
            "forged numbers are believed",
        ),
        ("        self.rest = data[whole:]", '        self.rest = b""', "reports cut by the network are lost"),
    ),
    *_of(
        "frames",
        "connection_kernel.py",
        (
            "    connection[ConnectionWord.NEXT] = start + size\n",
            "    connection[ConnectionWord.NEXT] = start + size - 1\n",
            "a byte is sent twice",
        ),
        (
            "return min(end - start, segment_bytes - start % segment_bytes, batch_bytes_max)",
            "return min(end - start, batch_bytes_max)",
            "a frame crosses a segment's end",
        ),
        ("    flow[FlowWord.IN_WINDOW] += size\n", "", "the flow is not counted"),
        ("    if heartbeat_wait_ms(connection, limits, now_ms) <= 0:", "    if False:", "a master without heartbeats"),
    ),
    *_of(
        "frames",
        "flow_kernel.py",
        ("        flow[FlowWord.IN_WINDOW] = 0\n", "", "a window never ends"),
    ),
    *_of(
        "offset check",
        "client_kernel.py",
        ("    if end != 0 and offset != end:", "    if end != 0 and offset > end:", "frames from before are appended"),
        ("body_bytes > segment_bytes - position:", "body_bytes > segment_bytes:", "a body crosses a segment's end"),
        (
            "    if end != 0 and offset != end:",
            "    if end != 0 and body_bytes and offset != end:",
            "a heartbeat says anything",
        ),
        ("    if end != 0 and offset != end:", "    if end != 0 and offset < end:", "frames leave a gap"),
        ("offset < 0 or body_bytes < 0 or", "offset < 0 or", "a body below zero"),
        ("        if position != 0:\n", "        if False:\n", "an empty log begins within a segment"),
        ("offset > LOG_OFFSET_MAX or", "", "an empty log begins anywhere"),
        (
            "return size - BLANK_BYTES if size <= room - BLANK_BYTES else -1",
            "return size - BLANK_BYTES if size <= room else -1",
            "a record leaves no room for the blank one",
        ),
        (
            "return size - BLANK_BYTES if size == room else -1",
            "return size - BLANK_BYTES",
            "a blank record of any size",
        ),
        ("            client[ClientWord.RECORD_LEFT] -= step\n", "", "records are not followed"),
    ),
    *_of(
        "slave's end",
        "client_kernel.py",
        (
            "return client[ClientWord.MAX_PHYSICAL] - client[ClientWord.HEAD_BYTES]",
            "return client[ClientWord.MAX_PHYSICAL]",
            "what may yet be refused is published",
        ),
        (
            "    client[ClientWord.MAX_PHYSICAL] += count\n",
            "    client[ClientWord.MAX_PHYSICAL] += count + 1\n",
            "a slave reports a byte that it lacks",
        ),
        (
            "    if client[ClientWord.REPORTED] == end and not heartbeat_is_due:",
            "    if client[ClientWord.REPORTED] == end:",
            "a slave without heartbeats",
        ),
    ),
    *_of(
        "slave's end",
        "client.py",
        (
            "        self.max_physical_offset = self.end  # the head of a record that came in part comes again\n",
            "",
            "half a head comes twice",
        ),
        ("        self._head_bytes = 0\n", "", "half a head is still there after a connection"),
        ("        self.reported_offset = -1\n", "", "a new connection has no first report"),
        (
            "        self.body_left = self._header_filled = self._frames = 0",
            "        self._frames = 0",
            "a frame goes on in the next connection",
        ),
        (
            "        self._connect_at_ms = now_ms + reconnect_pause_ms(reason, self.failures, self.limits)",
            "        self._connect_at_ms = now_ms + 1000 * self.limits.reconnect_interval_ms",
            "a slave gives up",
        ),
    ),
    *_of(
        "proof",
        "connection.py",
        (
            "self.proves_from = start if start > self.known_offset else 0",
            "self.proves_from = 0",
            "a first report confirms the position that it names",
        ),
        (
            "counts = min(self.slave_ack_offset, self.known_offset) if self.proves_from else self.slave_ack_offset",
            "counts = self.slave_ack_offset",
            "what is not proved is held",
        ),
        (
            "            self.known_offset = self.recovered_offset\n",
            "            pass\n",
            "an empty disk that begins behind has what lies before",
        ),
        (
            "(nobody_waits and self.slave_ack_offset > self.proves_from)",
            "self.slave_ack_offset > self.proves_from",
            "a put that waits is confirmed by what came after it",
        ),
        ("now_ms - self._reported_ms <= self.limits.slave_timeout_ms", "False", "nobody is waited for"),
        (
            "        if offset > max_physical_offset and not asks_for_all:\n",
            "        if False:\n",
            "a slave that has more is served",
        ),
        (
            "            counts = min(counts, self.flushed_offset)\n",
            "            pass\n",
            "what is on no disk counts as if it were",
        ),
        (
            "elif self.greeting is not None and self.slave_request_offset == UNKNOWN_OFFSET:",
            "elif False:",
            "frames are sent before the welcome",
        ),
    ),
    *_of(
        "overlap",
        "opening.py",
        ("        if own != data[:count]:", "        if False:", "bytes are not compared"),
        (
            "        if frame.physical_offset != self._position:",
            "        if False:",
            "bytes are compared with those of another place",
        ),
        (
            "        if self._position == self.tail.end:",
            "        if self._position > self.tail.start:",
            "the first bytes alone are compared",
        ),
        (
            "self.is_over, self.rest_bytes = True, self._body_left",
            "self.is_over, self.rest_bytes = True, 0",
            "what follows the bytes compared is lost",
        ),
        ("        self._position += count\n", "", "the same bytes are compared again"),
    ),
    *_of(
        "overlap",
        "client.py",
        (
            "opens = tail.data or search is not None or greeting is not None",
            "opens = False",
            "a connection begins without a look",
        ),
        (
            "                self.body_left = opening.rest_bytes\n",
            "                self.body_left = 0\n",
            "the rest of a frame is taken for the next one",
        ),
    ),
    *_of(
        "confirm_offset",
        "group_transfer.py",
        (
            "return min(best[slaves_needed - 1], max_physical_offset)",
            "return min(best[0], max_physical_offset)",
            "one slave counts for several",
        ),
        (
            "return min(best[slaves_needed - 1], max_physical_offset)",
            "return max_physical_offset",
            "slaves that are there have everything",
        ),
        (
            "    if len(best) < slaves_needed:\n        return 0",
            "    if not best:\n        return 0\n    slaves_needed = 1",
            "fewer slaves are enough",
        ),
        (
            "    slaves_needed = in_sync_replicas - 1",
            "    slaves_needed = in_sync_replicas - 2",
            "a replica less is enough",
        ),
        (
            "        best[identity] = max(offset, best.get(identity, -1))",
            "        best[len(best)] = offset",
            "an old connection and its successor are two slaves",
        ),
    ),
    *_of(
        "confirm_offset",
        "put_status.py",
        (
            "    if needed > 1 and reached.confirm_offset < end_offset:",
            "    if needed > 1 and reached.confirm_offset < end_offset - 100:",
            "a put is answered before its last bytes are held",
        ),
        (
            "    if needed > 1 and reached.confirm_offset < end_offset:",
            "    if needed > 1 and reached.confirm_offset <= end_offset:",
            "the last put is never confirmed",
        ),
        ("        elif now_ms >= slave_deadline_ms:", "        elif now_ms < 0:", "a put waits for ever"),
        (
            "    elif policy.wait_for_flush and reached.flushed_offset < end_offset:",
            "    elif policy.wait_for_flush and reached.flushed_offset < 0:",
            "SYNC_FLUSH does not wait",
        ),
    ),
    *_of(
        "in step",
        "group_transfer.py",
        (
            "return sum(max_physical_offset - offset < fallbehind_bytes_max for offset in _best_acks(acks))",
            "return len(_best_acks(acks))",
            "who is far behind is in step",
        ),
        (
            "return sum(max_physical_offset - offset < fallbehind_bytes_max for offset in _best_acks(acks))",
            "return sum(max_physical_offset - ack.slave_ack_offset < fallbehind_bytes_max for ack in acks)",
            "connections are counted, not slaves",
        ),
    ),
    *_of(
        "in step",
        "policy.py",
        (
            "    return max(min(policy.in_sync_replicas, 1 + in_sync_slaves), policy.replicas_min)",
            "    return min(policy.in_sync_replicas, 1 + in_sync_slaves)",
            "no replica is the least",
        ),
        (
            "    return max(min(policy.in_sync_replicas, 1 + in_sync_slaves), policy.replicas_min)",
            "    return policy.replicas_min",
            "never more than the least",
        ),
        (
            "return not policy.check_before_append or replicas_needed(policy, in_sync_slaves) <= 1 + in_sync_slaves",
            "return True",
            "stored though too few are there",
        ),
    ),
    *_of(
        "callers",
        "callers.py",
        (
            "(caller, now_ms) if len(self._callers) > self._limits.callers_max else None",
            "(caller, now_ms) if False else None",
            "the table of callers has no end",
        ),
        (
            "        if overdue[mute] > 0:\n            return mute",
            "        if False:\n            return mute",
            "strangers keep their slots",
        ),
        (
            "        return len(self.reports) >= REPORT_BYTES",
            "        return len(self.reports) >= 1",
            "a byte is a report",
        ),
        ("        self._waiting.pop(number, None)\n", "", "who has left waits still"),
        (
            "        return min(served, key=lambda caller: held.get(caller.crowd, 0), default=None)",
            "        return None",
            "nobody is served",
        ),
    ),
    *_of(
        "listener",
        LISTENER,
        (
            "slot = next((n for n in range(HA_CONNECTIONS_MAX) if n not in self._senders), None)",
            "slot = 0 if len(self._senders) < HA_CONNECTIONS_MAX else None",
            "a slot is given twice",
        ),
        (
            "in self._senders.values() if not process.gives_way]",
            "in self._senders.values()]",
            "a sender that gives way still counts as a holder",
        ),
        ("        process.gives_way = True\n", "", "the listener forgets that a sender gives way"),
        (
            "        waiting.publish(self._counters.ha[process.slot].state, HaSlotState.FREE)"
            "  # a killed sender could not\n",
            "",
            "a killed sender keeps its slot",
        ),
        (
            "            waiting.publish(words.state, HaSlotState.FREE)\n",
            "",
            "senders of a killed listener keep their slots",
        ),
        (
            "            self._poll.register(self._listening, select.EPOLLIN)\n",
            "",
            "what lacked room once accepts no more",
        ),
        (
            "            self._forget(fd)\n            return\n        try:",
            "            return\n        try:",
            "who has gone keeps its place",
        ),
        ("        for caller in self._callers.overdue(now_ms):", "        for caller in []:", "who is silent stays"),
        (
            "            if (state := words.state.read()) == HaSlotState.FREE:",
            "            if (state := words.state.read()) < 0:",
            "the slave before proves the next one",
        ),
        ("        waiting.ring(self._counters.ack_bell)\n", "", "the end of a sender rings no bell"),
        (
            "        self._forget(caller.number)\n        return True",
            "        return True",
            "who has a sender waits still",
        ),
        (
            "            self._look_at_ms = now_ms + LOOK_MS\n            self._look(now_ms)\n",
            "            pass\n",
            "nobody looks at the clock",
        ),
    ),
    *_of(
        "listener",
        SENDERS,
        (
            "acknowledged != self.acknowledged or not is_owing:",
            "acknowledged != self.acknowledged:",
            "who owes nothing is overdue",
        ),
        ("        if heard != self.heard:", "        if False:", "nobody is heard"),
    ),
    *_of(
        "disk",
        FLUSHER,
        ("                file_io.sync_data(fd)\n", "", "what is on no disk is called flushed"),
        ("            end = min(end, built_to)\n", "", "a slave's mark is within a record"),
    ),
    *_of(
        "writer",
        WRITER,
        ("        drain_kernel.redo(self._shared)\n", "", "what a dead writer has committed is not shown"),
        (
            "            drain_kernel.roll(self._segment.array, self._segment.base_offset, self._shared)",
            "            pass",
            "a full segment is not ended",
        ),
    ),
]


def play(mutant: Mutant | None, seeds: range) -> tuple[int, str]:
    """In a child: the first seed that catches it and the rule that it breaks; (-1, "") when none does."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        try:
            os.write(writing, _first_catch(mutant, seeds).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        seed, _colon, rule = answer.read().partition(":")
    exit_code_of(pid)
    return int(seed or -1), rule


def _first_catch(mutant: Mutant | None, seeds: range) -> str:
    warnings.simplefilter("ignore")  # numbers of wrong protocols overflow
    change = () if mutant is None else (mutant.path, mutant.old, mutant.new)
    sys.meta_path.insert(0, plain.Plain(*change))
    from tests.simulation import scenario

    for seed in seeds:
        try:
            scenario.play(seed)
        except scenario.Failed as failed:
            return f"{seed}:{failed.rule}"
    return "-1:"


def prepare() -> None:
    """Import what no mutant changes, once for all children, with what they call of it compiled."""
    import ssl  # noqa: F401

    import numba  # noqa: F401

    from store.recovery import log_end, overlap, recovery

    with TemporaryDirectory() as root:
        log = SmallLog(Path(root))
        log.fill(3)
        log.directory.mark_running()
        recovery.recover(log.directory, log.segment_bytes, QUEUE_FILE_BYTES)
        overlap.last_bytes(log.files, 0, log.end)
        log_end.bytes_missing(log.files, 0, log.end)


def main() -> int:
    """Each mutant must be caught, the right protocol by none of the first seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX)
    parser.add_argument("--each", type=int, default=1, help="every so many mutants of the list")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="", help="those with this in what they break")
    asked = parser.parse_args()
    prepare()
    missed, began = 0, time.process_time()
    for mutant in [each for each in MUTANTS[asked.first :: asked.each] if asked.only in each.breaks + each.kind]:
        seed, rule = play(mutant, range(asked.seeds))
        missed += seed < 0
        print(f"{mutant.kind}: {mutant.breaks}: {f'seed {seed}, {rule}' if seed >= 0 else 'NOT CAUGHT'}", flush=True)
    times = os.times()
    print(f"{len(MUTANTS)} mutants, {missed} not caught, {time.process_time() - began + times.children_user:.0f} s")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
