"""How messages are printed: bodies that inflate to too much are told, and nothing steers a terminal."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from rich.table import Table

from store.message.record import Message, SysFlag
from store.reading.opened import open_store
from tests.store.golden import STORES, unpack
from tools.common.message_text import BODY_BYTES_MAX, as_json, as_line, body_shown, escaped
from tools.common.watch import plain_console
from tools.run.consume import _text


@pytest.fixture
def message(tmp_path: Path) -> Message:
    """A message of a real store."""
    version, name = STORES[0]
    return next(iter(open_store(unpack(version, name, tmp_path)).messages()))


@pytest.fixture
def bomb(message: Message) -> Message:
    """A body of 64 MiB of zeros, compressed to 64 KiB."""
    return replace(message, body=zlib.compress(bytes(64 << 20)), sys_flag=int(SysFlag.COMPRESSED))


def test_a_body_that_inflates_to_too_much_is_reported_and_not_inflated(bomb: Message) -> None:
    body, problem = body_shown(bomb)
    assert body == bomb.body and str(BODY_BYTES_MAX) in problem
    assert len(as_line(bomb)) < 1000 and problem in as_line(bomb)
    fields = json.loads(as_json(bomb))
    assert fields["bodyProblem"] == problem and "body" not in fields


def test_consume_says_which_body_it_does_not_print(
    bomb: Message, message: Message, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _text(bomb) is None
    told = capsys.readouterr().err
    assert f"{bomb.topic}/{bomb.queue_id}#{bomb.queue_offset}" in told and "--json" in told and told.count("\n") == 1
    assert _text(replace(message, body=b"plain", sys_flag=0)) == "plain\n"


def test_a_body_within_the_bound_is_printed_as_its_sender_made_it(message: Message) -> None:
    text = "ä" * 1000
    packed = replace(message, body=zlib.compress(text.encode()), sys_flag=int(SysFlag.COMPRESSED))
    assert json.loads(as_json(packed))["body"] == text and as_line(packed).endswith(text)


def test_control_characters_are_escaped() -> None:
    assert escaped("a\x1b[2J\n\x85\u2028ä") == "a\\x1b[2J\\x0a\\x85\\x2028ä"


@pytest.mark.parametrize("is_table", [True, False])
def test_a_table_in_a_pipe_is_whole(is_table: bool, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("topic", "queues")
    table.add_row("t" * 300, "q" * 300)
    plain_console(is_table=is_table).print(table)
    assert "t" * 300 in (told := capsys.readouterr().out) and "q" * 300 in told
