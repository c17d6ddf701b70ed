"""Each reason has a code, advice and a command that exists, and a test that brings it about, named here."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import click
import pytest

from engine.protocol.ha.next_steps import NEXT, advice_of
from engine.protocol.ha.wire import CODES, CloseReason
from tools.cli import cli

TESTS = Path(__file__).resolve().parents[3]
HA, PROTOCOL = "engine/replication", "engine/protocol/ha"
REPRODUCED = {
    "PEER_CLOSED": f"{HA}/test_receiver.py::test_a_connection_that_breaks_inside_a_body_keeps_what_came",
    "HOUSEKEEPING": f"{HA}/test_receiver.py::test_a_silent_master_is_given_up_after_the_housekeeping_interval",
    "STOPPED": f"{PROTOCOL}/test_client.py::test_shutdown_is_final",
    "REQUEST_ABOVE_END": f"{HA}/test_sender_receiver.py::test_a_request_above_the_end_is_counted_and_refused",
    "REQUEST_BELOW_MIN": f"{PROTOCOL}/test_connection.py::test_a_request_below_the_masters_first_segment_is_refused",
    "ACK_NOT_SENT": "engine/monitoring/test_metrics.py::test_a_rejected_acknowledgement_is_counted_with_its_reason",
    "ACK_FELL": f"{HA}/test_sender.py::test_the_end_of_a_connection_frees_the_slot",
    "GAP": f"{HA}/test_sender.py::test_a_segment_that_is_open_is_sent_to_its_end_though_it_expired",
    "SLOTS_TAKEN": f"{HA}/test_sender_receiver.py::test_a_caller_that_waits_for_a_slot_is_refused_in_the_end",
    "KILLED": f"{HA}/test_sender_receiver.py::test_a_killed_sender_is_counted_by_its_listener",
    "NOT_A_SLAVE": f"{HA}/test_ha_listener.py::test_a_client_of_another_protocol_at_the_ha_port_is_no_slave",
    "GAVE_WAY": f"{HA}/test_ha_listener.py::test_a_slot_that_was_given_up_says_so",
    "OFFSET_MISMATCH": f"{HA}/test_receiver.py::test_a_bad_frame_leaves_nothing_behind_the_end",
    "BODY_SIZE": f"{HA}/test_sender_receiver.py::test_a_master_with_other_segments_is_refused_with_the_reason",
    "UNALIGNED_START": f"{PROTOCOL}/test_client.py::test_a_frame_is_refused_before_its_body",
    "SEGMENT_SIZE": f"{HA}/test_receiver_segments.py::test_the_connection_ends_before_a_byte_of_what_does_not_fit",
    "IMPLAUSIBLE_START": f"{PROTOCOL}/test_client.py::test_an_empty_log_does_not_begin_anywhere",
    "CONNECT_FAILED": f"{HA}/test_connect_reasons.py::test_an_address_that_the_system_does_not_take",
    "NO_LISTENER": f"{HA}/test_receiver.py::test_nobody_at_the_masters_address_is_tried_ever_more_seldom",
    "UNREACHABLE": f"{HA}/test_connect_reasons.py::test_no_way_to_that_host",
    "CONNECT_TIMEOUT": f"{HA}/test_connect_reasons.py::test_a_host_that_does_not_answer",
    "NO_ADDRESS": f"{HA}/test_connect_reasons.py::test_a_name_that_resolves_to_nothing",
    "OWN_ADDRESS": f"{HA}/test_sender_receiver.py::test_a_slave_that_was_given_its_own_ha_address_says_so",
    "REFUSED": f"{HA}/test_receiver.py::test_a_master_that_hangs_up_before_its_first_frame_refuses",
    "LOG_UNREADABLE": "engine/keeping/test_unreadable_slave.py",
    "DISK_FAILED": f"{HA}/test_receiver.py::test_a_slave_whose_disk_failed_reports_no_more",
    "NOT_ALLOWED": "net/test_access.py::test_lists_keep_a_stranger_from_every_port_and_say_which_key",
    "TLS": f"{HA}/test_tls_replication.py::test_which_slaves_are_refused_and_why",
    "DIVERGED": f"{HA}/test_other_histories.py::"
    "test_another_history_is_seen_and_remembered_until_somebody_removes_the_note",
    "AHEAD": f"{HA}/test_other_histories.py::"
    "test_a_slave_that_is_ahead_hears_so_and_goes_on_once_its_master_has_the_same",
    "HANDSHAKE": f"{HA}/test_greeting.py::test_an_invalid_greeting_ends_the_connection",
    "SIGNATURE": f"{HA}/test_greeting.py::test_another_secret_is_refused_on_both_sides",
    "OTHER_CLUSTER": f"{HA}/test_greeting.py::test_a_slave_of_another_cluster_is_refused",
    "FENCED": f"{HA}/test_greeting.py::test_a_slave_that_has_seen_a_newer_master_fences_this_one",
    "HISTORY_SEARCH": f"{PROTOCOL}/test_opening.py::test_the_beginning_of_a_log_is_searched_by_halves",
}


@cache
def sources_in(file: str) -> dict[str, str]:
    """The text of each test of a file, with what its parameters say."""
    text = (TESTS / file).read_text()
    return {
        node.name: "\n".join([ast.get_source_segment(text, node) or "", *map(ast.unparse, node.decorator_list)])
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    }


def test_every_reason_is_brought_about_by_a_test() -> None:
    assert set(REPRODUCED) == {reason.name for reason in CloseReason if reason}


@pytest.mark.parametrize("reason", REPRODUCED)
def test_that_test_is_there_and_looks_at_the_reason(reason: str) -> None:
    file, _colons, name = REPRODUCED[reason].partition("::")
    tests = sources_in(file)
    text = tests[name] if name else "".join(tests.values())
    words = CODES[CloseReason[reason]].value if reason == "LOG_UNREADABLE" else reason
    assert re.search(rf"CloseReason\.{words}\b|[\"']{words}[\"']", text), f"{name} does not name it"


@pytest.mark.parametrize("reason", [reason for reason in CloseReason if reason], ids=lambda reason: reason.name)
def test_each_reason_ends_with_a_command_to_type(reason: CloseReason) -> None:
    assert re.search(r"; next: `[^`]+`( \(on the (slave|master)\))?$", advice_of(reason, "/the/store"))
    for typed in NEXT.get(reason, "").split("; "):
        words = typed.split()
        if words[:1] == ["slipstream"]:
            assert exists(words[1:]), typed


def exists(words: list[str]) -> bool:
    """Whether `slipstream` has that command, with these options."""
    command: click.Command | None = cli
    with click.Context(cli) as context:
        while isinstance(command, click.Group):
            command = command.get_command(context, words.pop(0))
        if command is None:
            return False
        options = {option for parameter in command.params for option in parameter.opts}
        return all(word in options for word in words if word.startswith("-"))


def test_the_readers_own_store_is_filled_in_and_no_others() -> None:
    assert "`slipstream log verify /s`" in advice_of(CloseReason.LOG_UNREADABLE, "/s")
    assert "`slipstream log verify STORE` (on the slave)" in advice_of(CloseReason.ACK_FELL, "/s")
    assert advice_of(CloseReason.NONE) == "nothing ended"
