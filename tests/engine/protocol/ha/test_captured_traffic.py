"""Real RocketMQ brokers' replication, captured on the wire, replayed at both of our ends.

Our slave is fed what the real masters sent and must end with their log; our master is fed what the real slaves reported
and must send the same frames. The captures and how they were made: tests/golden/HA.md.
"""

from __future__ import annotations

import base64
import json
import lzma
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.protocol.ha.client import HaClient
from engine.protocol.ha.client_kernel import ClientLimits
from engine.protocol.ha.connection import HaConnection
from engine.protocol.ha.connection_kernel import ConnectionLimits
from engine.protocol.ha.flow_monitor import FlowMonitor
from engine.protocol.ha.wire import FRAME_HEADER, FRAME_HEADER_BYTES, REPORT, REPORT_BYTES, Frame

GOLDEN = Path(__file__).parents[3] / "golden"
SEGMENT, BATCH = 256 * 1024, 32 * 1024
MASTER, SLAVE = "s2c", "c2s"


class Piece(NamedTuple):
    """What one read of the capture saw."""

    at_ms: int
    direction: str
    data: bytes


class Capture(NamedTuple):
    """One connection, from its opening on."""

    opened_ms: int
    pieces: list[Piece]

    def stream(self, direction: str) -> bytes:
        return b"".join(piece.data for piece in self.pieces if piece.direction == direction)

    def reports(self) -> list[int]:
        stream = self.stream(SLAVE)
        return [REPORT.unpack_from(stream, at)[0] for at in range(0, len(stream) - REPORT_BYTES + 1, REPORT_BYTES)]


class CapturedFrame(NamedTuple):
    """A frame, and the piece in which its header's first byte was seen."""

    piece: Piece
    frame: Frame
    body: bytes


def captures(version: str, name: str) -> dict[int, Capture]:
    found: dict[int, Capture] = {}
    with lzma.open(GOLDEN / f"rocketmq-{version}" / f"{name}.jsonl.xz", "rt") as lines:
        for line in map(json.loads, lines):
            at_ms = round(line["t"] * 1000)
            capture = found.setdefault(line["conn"], Capture(at_ms, []))
            if "data" in line:
                capture.pieces.append(Piece(at_ms, line["dir"], base64.b64decode(line["data"])))
    return found


def frames_of(capture: Capture) -> list[CapturedFrame]:
    stream = capture.stream(MASTER)
    starts, at = [], 0
    for piece in capture.pieces:
        if piece.direction == MASTER:
            starts.append((at, piece))
            at += len(piece.data)
    frames, at = [], 0
    while at + FRAME_HEADER_BYTES <= len(stream):
        frame = Frame(*FRAME_HEADER.unpack_from(stream, at))
        piece = next(piece for start, piece in reversed(starts) if start <= at)
        body = stream[at + FRAME_HEADER_BYTES : at + FRAME_HEADER_BYTES + frame.body_bytes]
        frames.append(CapturedFrame(piece, frame, body))
        at += FRAME_HEADER_BYTES + frame.body_bytes
    return frames


CONNECTIONS = [
    pytest.param(version, name, connection, id=f"{version}-{name}-{connection}")
    for version in ("4.9.7", "5.3.3")
    for name, connections in (("ha", 3), ("ha-sync", 1))
    for connection in range(connections)
]


def follow(client: HaClient, data: bytes, now_ms: int) -> tuple[bytes, list[bytes]]:
    """Feed one read to our slave; the log's bytes in it, and what our slave reports then."""
    log, reports = b"", []
    while data:
        header_space = client.header_space
        count = min(len(data), client.body_left + len(header_space))
        body = min(count, client.body_left)
        log += data[:body]
        header_space[: count - body] = data[body:count]
        client.received(count, now_ms)
        data = data[count:]
    report = client.report(now_ms)
    if report is not None:
        reports.append(report)
    return log, reports


@pytest.mark.parametrize(("version", "name", "connection"), CONNECTIONS)
@pytest.mark.parametrize("cuts", ["as captured", "seed 1", "seed 2"])
def test_our_slave_takes_what_a_real_master_sent(version: str, name: str, connection: int, cuts: str) -> None:
    capture = captures(version, name)[connection]
    expected = b"".join(each.body for each in frames_of(capture))
    start = capture.reports()[0]
    client = HaClient(ClientLimits(SEGMENT, 5000, 20_000, 5000), start)
    client.connected(capture.opened_ms)
    first_report = client.report(capture.opened_ms)
    assert first_report == REPORT.pack(start)
    log, reported = b"", [start]
    rng = random.Random(cuts)
    for piece in capture.pieces:
        if piece.direction == SLAVE:
            continue
        rest = piece.data
        while rest:
            cut = len(rest) if cuts == "as captured" else rng.randint(1, 50_000)
            more, reports = follow(client, rest[:cut], piece.at_ms)
            log, rest = log + more, rest[cut:]
            reported += [REPORT.unpack(report)[0] for report in reports]
    assert log == expected
    assert reported == sorted(reported)
    first_offset = frames_of(capture)[0].frame.physical_offset
    assert reported[-1] == client.max_physical_offset == first_offset + len(expected) == capture.reports()[-1]


@pytest.mark.parametrize(("version", "name", "connection"), CONNECTIONS)
def test_our_master_sends_what_a_real_master_sent(version: str, name: str, connection: int) -> None:
    """Frame by frame in the captured order: where a frame starts, where it is cut, when silence gets a heartbeat.

    What a capture cannot show is how far the master's log reached: as far as the frame of that moment, unless the frame
    is a whole batch, behind which there may be more.
    """
    capture = captures(version, name)[connection]
    captured = frames_of(capture)
    log_end = max(each.frame.physical_offset + each.frame.body_bytes for each in captured)
    opened_ms = capture.opened_ms
    ours = HaConnection(ConnectionLimits(SEGMENT, BATCH, 5000, 20_000, 3000), FlowMonitor(opened_ms), opened_ms)
    compared = 0
    for piece in capture.pieces:
        if piece.direction == SLAVE:
            is_first = ours.slave_request_offset < 0  # the end decides where its transfer begins
            end = end_at_that_moment(captured[0], log_end) if is_first else log_end
            ours.receive(piece.data, piece.at_ms, 0, end)
            continue
        for each in [each for each in captured if each.piece is piece]:
            if each.frame.body_bytes == 0 and piece.at_ms - ours.last_write_ms <= 5000:
                continue  # the capture's clock is not the master's: by this one the heartbeat came a moment early
            end = end_at_that_moment(each, log_end)
            sent = ours.next_frame(piece.at_ms, end)
            if each.body and sent == Frame(each.frame.physical_offset, 0):
                sent = ours.next_frame(piece.at_ms, end)  # and by this one it was due just before these bytes came
            assert sent == each.frame
            compared += 1
    assert (ours.slave_ack_offset, ours.next_transfer_offset, ours.acks_rejected) == (log_end, log_end, 0)
    assert compared >= sum(bool(each.body) for each in captured)


def end_at_that_moment(each: CapturedFrame, log_end: int) -> int:
    end = each.frame.physical_offset + each.frame.body_bytes
    cut_by_rule = each.frame.body_bytes == BATCH or (each.body and end % SEGMENT == 0)
    return log_end if cut_by_rule else end


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_new_slave_of_a_long_log_is_sent_the_last_segment_only(version: str) -> None:
    """Connection 2 of the captures, with the log known in full: no timing is left to chance."""
    capture = captures(version, "ha")[2]
    captured = [each for each in frames_of(capture) if each.body]
    log_end = captured[-1].frame.physical_offset + captured[-1].frame.body_bytes
    ours = HaConnection(ConnectionLimits(SEGMENT, BATCH, 5000, 20_000, 3000), FlowMonitor(0), 0)
    ours.receive(REPORT.pack(0), 0, 0, log_end)
    sent = []
    while (frame := ours.next_frame(0, log_end)) is not None:
        sent.append(frame)
    assert sent[0].physical_offset == captured[0].frame.physical_offset == log_end - log_end % SEGMENT
    assert sent == [each.frame for each in captured]


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_all_captured_connections_tell_of_the_same_log(version: str) -> None:
    connections = captures(version, "ha")
    log = bytearray()
    for capture in connections.values():
        for each in frames_of(capture):
            start = each.frame.physical_offset
            assert start <= len(log), "no gap"
            overlap = log[start : start + len(each.body)]
            assert each.body.startswith(overlap)
            log += each.body[len(overlap) :]
    assert {connections[1].reports()[-1], connections[2].reports()[-1]} == {len(log)}
