"""Both ends of a replication against each other: days of faults in seconds, each reproducible from its seed.

The network delays, cuts streams anywhere, goes dead without a word; either node restarts, or stops reading with a frame
half-way behind a full buffer; the slave's recovery cuts its log back to a record; strangers name positions in a log
they lack. Whatever happens: the slave's log is a part of the master's, an acknowledgement is true, nothing is confirmed
that no slave holds, and when the faults end both logs are equal.
"""

from __future__ import annotations

import random
from collections import deque

import pytest

from engine.protocol.ha.client import HaClient, HaClientState
from engine.protocol.ha.client_kernel import ClientLimits
from engine.protocol.ha.connection import HaConnection, transfer_start
from engine.protocol.ha.connection_kernel import ConnectionLimits
from engine.protocol.ha.flow_monitor import FlowMonitor
from engine.protocol.ha.wire import FRAME_HEADER, REPORT, CloseReason, PeerError

SEGMENT, BATCH, BUFFER_BYTES = 4096, 1000, 60_000
CONNECTION_LIMITS = ConnectionLimits(SEGMENT, BATCH, 5000, 20_000, 3000)
CLIENT_LIMITS = ClientLimits(SEGMENT, 5000, 20_000, 5000)
PATTERN = random.Random(0).randbytes(65_521)
DAY_MS = 24 * 3600 * 1000


def log_bytes(start: int, end: int) -> bytes:
    """The master's log is what this says: any range, without keeping it."""
    first = start % len(PATTERN)
    repeated = PATTERN * ((first + end - start) // len(PATTERN) + 1)
    return repeated[first : first + end - start]


class Pipe:
    """One direction of a connection: bytes in order, each part after a delay of its own."""

    def __init__(self, rng: random.Random, delay_ms_max: int) -> None:
        self._rng, self._delay_ms_max = rng, delay_ms_max
        self._parts: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self.is_dead = False

    @property
    def is_full(self) -> bool:
        """Whether nobody takes what was sent."""
        return self._bytes >= BUFFER_BYTES

    def send(self, data: bytes, now_ms: int) -> None:
        if self.is_dead:
            return
        arrives_ms = now_ms + self._rng.randint(0, self._delay_ms_max)
        if self._parts:
            arrives_ms = max(arrives_ms, self._parts[-1][0])
        self._parts.append((arrives_ms, data))
        self._bytes += len(data)

    def receive(self, now_ms: int) -> bytes:
        data = b""
        while self._parts and self._parts[0][0] <= now_ms and not self.is_dead:
            data += self._parts.popleft()[1]
        kept = self._rng.randint(0, len(data))  # the network cuts where it likes
        if kept < len(data):
            self._parts.appendleft((now_ms + 1, data[kept:]))
        self._bytes -= kept
        return data[:kept]


class Pair:
    """A master, a slave, the network between them, and what was promised so far."""

    def __init__(self, seed: int, delay_ms_max: int) -> None:
        self.rng = random.Random(seed)
        self.delay_ms_max = delay_ms_max
        self.now_ms = 0
        self.master_end = 0
        self.client = HaClient(CLIENT_LIMITS, 0)
        self.connection: HaConnection | None = None
        self.acknowledged = 0
        self.confirmed = 0  # confirm_offset, which answers puts
        self.sent = 0  # to this slave, over all connections
        self.stopped_until_ms = 0
        self.unsent = b""  # of a frame that is begun
        self.connections = 0
        self.reasons: set[CloseReason] = set()

    def step(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        if self.connection is None:
            self.connect()
            return
        if self.now_ms >= self.stopped_until_ms:
            self.slave_turn()
        self.master_turn()

    def connect(self) -> None:
        if not self.client.may_connect(self.now_ms):
            return
        self.connections += 1
        self.to_slave, self.to_master = Pipe(self.rng, self.delay_ms_max), Pipe(self.rng, self.delay_ms_max)
        self.connection = HaConnection(CONNECTION_LIMITS, FlowMonitor(self.now_ms), self.now_ms, self.sent)
        self.unsent = b""
        self.client.connected(self.now_ms)

    def hang_up(self, reason: CloseReason) -> None:
        self.reasons.add(reason)
        self.connection = None
        self.client.closed(reason, self.now_ms)

    def slave_turn(self) -> None:
        client = self.client
        data = self.to_slave.receive(self.now_ms)
        while data:
            header_space = client.header_space
            count = min(len(data), client.body_left + len(header_space))
            body = min(count, client.body_left)
            at = client.max_physical_offset
            assert data[:body] == log_bytes(at, at + body)
            header_space[: count - body] = data[body:count]
            client.received(count, self.now_ms)
            data = data[count:]
        report = client.report(self.now_ms)
        if report is not None:
            self.to_master.send(report, self.now_ms)
        if client.is_silent(self.now_ms):
            self.hang_up(CloseReason.HOUSEKEEPING)

    def master_turn(self) -> None:
        connection = self.connection
        if connection is None:
            return
        data = self.to_master.receive(self.now_ms)
        if data:
            connection.receive(data, self.now_ms, 0, self.master_end, self.confirmed)
        assert connection.slave_ack_offset <= self.client.max_physical_offset, "an acknowledgement is true"
        assert connection.next_transfer_offset <= self.master_end
        assert connection.held_offset <= self.client.max_physical_offset
        self.acknowledged = max(self.acknowledged, connection.slave_ack_offset)
        self.confirmed = max(self.confirmed, connection.held_offset)
        for _ in range(4):
            if self.to_slave.is_full:
                break
            if self.unsent:
                self.to_slave.send(self.unsent, self.now_ms)
                self.unsent = b""
            frame = connection.next_frame(self.now_ms, self.master_end)
            if frame is None:
                break
            start, size = frame
            assert start // SEGMENT == (start + max(size, 1) - 1) // SEGMENT
            assert size <= BATCH
            self.sent = max(self.sent, start + size)
            data = FRAME_HEADER.pack(start, size) + log_bytes(start, start + size)
            cut = self.rng.randint(0, len(data))
            self.to_slave.send(data[:cut], self.now_ms)
            self.unsent = data[cut:]
        if connection.is_silent(self.now_ms):
            self.hang_up(CloseReason.HOUSEKEEPING)

    def stranger(self) -> None:
        """Names a position, takes what is sent from there, and acknowledges it: no put is answered for that."""
        position = self.rng.choice([0, self.master_end, max(self.master_end - 1, 0), self.rng.randint(0, 1 << 62)])
        connection = HaConnection(CONNECTION_LIMITS, FlowMonitor(self.now_ms), self.now_ms)
        try:
            connection.receive(REPORT.pack(position), self.now_ms, 0, self.master_end, self.confirmed)
        except PeerError as error:
            assert error.reason in (CloseReason.REQUEST_ABOVE_END, CloseReason.NOT_A_SLAVE)
            return
        start = transfer_start(position, 0, self.master_end, SEGMENT)
        while connection.next_frame(self.now_ms, self.master_end) is not None:
            pass
        connection.receive(REPORT.pack(self.master_end), self.now_ms + 1, 0, self.master_end, self.confirmed)
        assert start <= self.confirmed or connection.held_offset == 0, "it was never sent what lies before"

    def fault(self) -> None:
        kind = self.rng.choice(["cut", "dead", "dead to master", "slave restarts", "master restarts", "slave stops"])
        if self.connection is None:
            return
        if kind in ("cut", "master restarts"):
            self.hang_up(CloseReason.PEER_CLOSED)
        elif kind == "dead":
            self.to_slave.is_dead = self.to_master.is_dead = True
        elif kind == "dead to master":
            self.to_master.is_dead = True
        elif kind == "slave stops":
            self.stopped_until_ms = self.now_ms + self.rng.choice([1000, 10_000, 60_000])
        else:
            self.restart_slave()

    def restart_slave(self) -> None:
        """Its recovery keeps what it acknowledged, and of the rest whole records only."""
        end = self.rng.randint(max(self.acknowledged, 0), self.client.max_physical_offset)
        self.hang_up(CloseReason.PEER_CLOSED)
        self.client = HaClient(CLIENT_LIMITS, end)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
@pytest.mark.parametrize(("delay_ms_max", "step_ms_max"), [(0, 2000), (40, 500), (3000, 2000)])
def test_days_of_faults_end_with_equal_logs(seed: int, delay_ms_max: int, step_ms_max: int) -> None:
    pair = Pair(seed, delay_ms_max)
    rng = pair.rng
    while pair.now_ms < DAY_MS // 4:
        if rng.random() < 0.3:
            pair.master_end += rng.choice([1, 200, 1000, SEGMENT, 3 * SEGMENT])
        if rng.random() < 0.01:
            pair.fault()
        if rng.random() < 0.02:
            pair.stranger()
        pair.step(rng.randint(1, step_ms_max))
    deadline_ms = pair.now_ms + 3600_000
    while pair.acknowledged < pair.master_end and pair.now_ms < deadline_ms:
        pair.step(100)
    assert pair.acknowledged == pair.client.max_physical_offset == pair.master_end == pair.confirmed
    assert pair.connections > 20
    assert pair.reasons == {CloseReason.PEER_CLOSED, CloseReason.HOUSEKEEPING}


def test_an_idle_pair_keeps_its_connection_for_days_by_heartbeats_alone() -> None:
    pair = Pair(seed=1, delay_ms_max=200)
    pair.master_end = 5000
    while pair.now_ms < 3 * DAY_MS:
        pair.step(1000)
    assert (pair.connections, pair.client.state) == (1, HaClientState.TRANSFER)
    assert pair.acknowledged == 5000


def test_a_slave_that_stops_behind_a_full_buffer_is_dropped_by_the_clock() -> None:
    pair = Pair(seed=3, delay_ms_max=0)
    pair.master_end = 100
    for _ in range(1000):
        pair.step(10)
    assert pair.acknowledged == 100
    pair.master_end = 100 * SEGMENT
    pair.stopped_until_ms = 1 << 62
    stopped_ms = pair.now_ms
    while pair.connection is not None:
        pair.step(10)
        assert pair.now_ms <= stopped_ms + CONNECTION_LIMITS.housekeeping_interval_ms + 20
    assert pair.to_slave.is_full
    assert pair.reasons == {CloseReason.HOUSEKEEPING}


def test_a_slave_of_another_history_is_refused_and_asks_seldom() -> None:
    pair = Pair(seed=2, delay_ms_max=0)
    pair.master_end = 10_000
    pair.client = HaClient(CLIENT_LIMITS, 10_001)
    refusals = 0
    while pair.now_ms < 3600_000:
        try:
            pair.step(50)
        except PeerError as error:
            assert error.reason is CloseReason.REQUEST_ABOVE_END
            pair.hang_up(CloseReason.PEER_CLOSED)
            refusals += 1
    assert 650 <= refusals <= 725, "every five seconds, after the first few"
