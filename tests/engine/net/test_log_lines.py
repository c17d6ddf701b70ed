"""Log lines of strangers' making: one line, escaped, bounded; thousands of a kind are a count."""

from __future__ import annotations

import io
import logging
import time

import pytest

from engine.net import log_lines
from engine.net.log_lines import OneLine, Seldom
from engine.net.printable import LINE_CHARACTERS_MAX, one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä", "plain ä"), ("a\nb", "a\\nb"), ("\x1b[31m", "\\x1b[31m"), ("\u202e", "\\u202e"),
        ("\ud800", "\\ud800"), ("\x85\u2028", "\\x85\\u2028"),
    ],
)  # fmt: skip
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_a_long_line_is_cut() -> None:
    assert one_line("x" * 10_000_000) == "x" * LINE_CHARACTERS_MAX + "... (10000000 characters)"


def test_the_formatter_keeps_each_message_on_its_line() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(OneLine("%(message)s"))
    record = logging.LogRecord("n", logging.INFO, "f", 1, "name %s", ("a\nforged",), None)
    handler.handle(record)
    assert stream.getvalue() == "name a\\nforged\n"


def test_the_first_line_is_logged_at_once_the_rest_as_a_count(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    seldom = Seldom(logging.getLogger("slipstream.test"))
    for n in range(5000):
        seldom.tell("peer %d", n)
    now += log_lines.AGAIN_SECONDS
    seldom.tell("peer %d", 5000)
    assert [record.getMessage() for record in caplog.records] == [
        "peer 0",
        "peer 5000 (and 4999 more since the last such line)",
    ]
