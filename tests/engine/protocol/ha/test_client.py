"""The slave's side: where bytes belong, what is refused, what is reported and when."""

from __future__ import annotations

import random

import pytest

from engine.protocol.ha.client import HaClient, HaClientState, reconnect_pause_ms
from engine.protocol.ha.client_kernel import ClientLimits
from engine.protocol.ha.wire import FRAME_HEADER, LOG_OFFSET_MAX, REPORT, CloseReason, PeerError

SEGMENT, HEARTBEAT_MS, HOUSEKEEPING_MS, RECONNECT_MS = 1000, 5000, 20_000, 5000
LIMITS = ClientLimits(SEGMENT, HEARTBEAT_MS, HOUSEKEEPING_MS, RECONNECT_MS)


def follower(end: int = 0, now_ms: int = 0) -> HaClient:
    client = HaClient(LIMITS, end)
    client.connected(now_ms)
    return client


def feed(client: HaClient, log: bytearray, data: bytes, now_ms: int = 0) -> None:
    """What recvmsg_into([log, header_space]) does, as if the bytes had come in one read."""
    while data:
        header_space = client.header_space
        count = min(len(data), client.body_left + len(header_space))
        body = min(count, client.body_left)
        log += data[:body]
        header_space[: count - body] = data[body:count]
        client.received(count, now_ms)
        data = data[count:]


def frame(offset: int, body: bytes = b"") -> bytes:
    return FRAME_HEADER.pack(offset, len(body)) + body


def test_states_have_rocketmqs_ordinals() -> None:
    assert [(state.name, state.value) for state in HaClientState] == [("READY", 0), ("TRANSFER", 2), ("SHUTDOWN", 4)]


def test_every_split_of_the_stream_gives_the_same_log() -> None:
    stream = frame(100, b"first") + frame(105) + frame(105, b"second!") + frame(112, b"x") + frame(113)
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            client, log = follower(100), bytearray()
            for part in (stream[:first], stream[first:second], stream[second:]):
                feed(client, log, part)
            assert (bytes(log), client.max_physical_offset, client.body_left) == (b"firstsecond!x", 113, 0)


def test_one_byte_at_a_time_gives_the_same_log() -> None:
    client, log = follower(), bytearray()
    for byte in frame(2000, b"hello") + frame(2005, b"world"):
        feed(client, log, bytes([byte]))
    assert (bytes(log), client.max_physical_offset) == (b"helloworld", 2010)


@pytest.mark.parametrize("seed", range(20))
def test_random_frames_cut_at_random_places(seed: int) -> None:
    rng = random.Random(seed)
    body = rng.randbytes(3 * SEGMENT)
    stream, at = b"", 0
    while at < len(body):
        size = min(rng.choice([0, 1, 7, 300, SEGMENT]), SEGMENT - at % SEGMENT)
        stream += frame(SEGMENT + at, body[at : at + size])
        at += size
    client, log = follower(), bytearray()
    while stream:
        cut = rng.randint(1, 700)
        feed(client, log, stream[:cut])
        stream = stream[cut:]
    assert (bytes(log), client.max_physical_offset) == (body, 4 * SEGMENT)


def test_an_empty_log_begins_where_the_masters_bytes_do_and_not_by_a_heartbeat() -> None:
    client, log = follower(), bytearray()
    assert client.report(0) == REPORT.pack(0)
    feed(client, log, frame(3000))
    assert (client.max_physical_offset, client.report(1)) == (0, None)
    feed(client, log, frame(3000) + frame(3000, b"first"))
    assert (bytes(log), client.report(2)) == (b"first", REPORT.pack(3005))


@pytest.mark.parametrize(
    ("why", "announced", "offset", "size"),
    [
        ("a heartbeat of no log", None, 1 << 62, 0),
        ("bytes of no log", None, 1 << 62, 5),
        ("the first place that is too far", None, (LOG_OFFSET_MAX // SEGMENT + 1) * SEGMENT, 0),
        ("bytes of another place than the heartbeat's", 3000, 4000, 5),
        ("a heartbeat of another place", 3000, 4000, 0),
    ],
)
def test_an_empty_log_does_not_begin_anywhere(why: str, announced: int | None, offset: int, size: int) -> None:
    client = follower()
    if announced is not None:
        feed(client, bytearray(), frame(announced))
    with pytest.raises(PeerError) as caught:
        feed(client, bytearray(), FRAME_HEADER.pack(offset - offset % SEGMENT, size))
    assert caught.value.reason is CloseReason.IMPLAUSIBLE_START, why
    assert (client.max_physical_offset, client.body_left) == (0, 0)
    client.closed(caught.value.reason, 0)
    client.connected(10_000)
    feed(client, bytearray(), frame(5000, b"a master"))
    assert client.max_physical_offset == 5008


@pytest.mark.parametrize(
    ("why", "end", "offset", "size", "reason"),
    [
        ("a gap", 100, 101, 5, CloseReason.OFFSET_MISMATCH),
        ("a repetition", 100, 99, 5, CloseReason.OFFSET_MISMATCH),
        ("a heartbeat of another log", 100, 4000, 0, CloseReason.OFFSET_MISMATCH),
        ("a size below zero", 100, 100, -1, CloseReason.BODY_SIZE),
        ("a body that crosses the segment's end", 900, 900, 101, CloseReason.BODY_SIZE),
        ("an offset below zero", 0, -1000, 0, CloseReason.BODY_SIZE),
        ("a start inside a segment", 0, 1001, 5, CloseReason.UNALIGNED_START),
    ],
)
def test_a_frame_is_refused_before_its_body(why: str, end: int, offset: int, size: int, reason: CloseReason) -> None:
    client = follower(end)
    with pytest.raises(PeerError) as caught:
        feed(client, bytearray(), FRAME_HEADER.pack(offset, size))
    assert caught.value.reason is reason, why
    assert (client.max_physical_offset, client.body_left) == (end, 0)


def test_the_first_report_goes_out_at_once_and_names_the_end() -> None:
    client = follower(777)
    assert client.report(0) == REPORT.pack(777)
    assert client.report(0) is None


def test_a_report_for_every_growth_and_after_silence() -> None:
    client, log = follower(100), bytearray()
    client.report(0)
    feed(client, log, frame(100, b"abc"), 10)
    assert client.report(10) == REPORT.pack(103)
    assert client.report(10 + HEARTBEAT_MS) is None
    assert client.report(11 + HEARTBEAT_MS) == REPORT.pack(103)


def test_a_part_of_a_body_may_be_reported() -> None:
    client, log = follower(100), bytearray()
    client.report(0)
    feed(client, log, frame(100, b"abcdef")[:-2])
    assert client.report(0) == REPORT.pack(104)


def test_housekeeping_looks_at_the_last_read_not_at_our_own_reports() -> None:
    client = follower(100, now_ms=0)
    for now_ms in range(0, HOUSEKEEPING_MS + 1, 1000):
        client.report(now_ms)
    assert not client.is_silent(HOUSEKEEPING_MS)
    assert client.is_silent(HOUSEKEEPING_MS + 1)


def test_a_connection_that_worked_is_tried_again_at_once_and_one_that_fails_ever_later() -> None:
    client, pauses, now_ms = follower(100), [], 0
    feed(client, bytearray(), frame(100))
    for _ in range(9):
        client.closed(CloseReason.PEER_CLOSED, now_ms)
        pauses.append(client.wait_ms(now_ms))
        now_ms += pauses[-1]
        assert client.may_connect(now_ms) and not client.may_connect(now_ms - 1)
        client.connected(now_ms)
    assert pauses == [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]


def test_what_cannot_be_taken_is_asked_for_seldom() -> None:
    assert reconnect_pause_ms(CloseReason.OFFSET_MISMATCH, 0, LIMITS) == RECONNECT_MS
    assert reconnect_pause_ms(CloseReason.HOUSEKEEPING, 5, LIMITS) == 0


def test_a_half_received_header_is_forgotten_with_its_connection() -> None:
    client, log = follower(100), bytearray()
    feed(client, log, frame(100, b"abc") + frame(103, b"lost")[:7])
    client.closed(CloseReason.PEER_CLOSED, 10)
    client.connected(2000)
    assert client.report(2000) == REPORT.pack(103)
    feed(client, log, frame(103, b"again"))
    assert (bytes(log), client.max_physical_offset) == (b"abcagain", 108)


def test_shutdown_is_final() -> None:
    client = follower()
    client.closed(CloseReason.STOPPED, 0)
    assert client.state is HaClientState.SHUTDOWN
    assert not client.may_connect(1 << 40)
