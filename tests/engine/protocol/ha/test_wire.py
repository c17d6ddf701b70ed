"""The formats and the reasons: fixed numbers that both RocketMQ and the counters depend on."""

from __future__ import annotations

from engine.protocol.ha.wire import ADVICE, FRAME_HEADER, REPORT, CloseReason, PeerError


def test_frame_header_and_report_have_rocketmqs_bytes() -> None:
    assert FRAME_HEADER.pack(0x12E, 0x202).hex() == "000000000000012e00000202"
    assert REPORT.pack(0x622).hex() == "0000000000000622"


def test_every_reason_has_advice() -> None:
    assert set(ADVICE) == set(CloseReason)


def test_an_error_says_what_where_and_what_to_do() -> None:
    error = PeerError(CloseReason.ACK_FELL, 4096, "acknowledged 8192 before")
    assert "ACK_FELL at offset 4096: acknowledged 8192 before; " in str(error)
    assert (error.code, error.reason, error.offset) == ("HA_PEER", CloseReason.ACK_FELL, 4096)
