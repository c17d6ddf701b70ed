"""How far a table is, as text and as numbers; and errors of others in one line, without what must not be shown."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bridge.lake.errors import Conflict, LakeFailed, OffsetsDamaged
from spark_bridge.lake.outside import Outside
from spark_bridge.lake.progress import NOTHING, UNKNOWN, Progress, QueueAt, StoreAt, as_text, from_text
from spark_bridge.stream.offsets import QueueKey

NUMBERS = st.integers(0, 2**63 - 1)
QUEUES = st.dictionaries(
    st.tuples(st.text(max_size=5), st.integers(0, 9)),
    st.builds(QueueAt, NUMBERS, st.integers(UNKNOWN, 2**63 - 1)),
    max_size=5,
)
PROGRESS = st.builds(Progress, st.dictionaries(st.text(max_size=5), st.builds(StoreAt, QUEUES, NUMBERS), max_size=3))


@given(PROGRESS)
def test_what_is_written_is_read(progress: Progress) -> None:
    assert from_text("t", as_text(progress)) == progress


@given(st.text(max_size=40) | st.sampled_from(["null", "1e400", '{"version":1}', '{"version":1,"stores":{"a":[]}}']))
def test_what_nobody_wrote_is_refused(text: str) -> None:
    with pytest.raises(OffsetsDamaged, match="t: its offsets"):
        from_text("t", text)


@pytest.mark.parametrize("at", ["[-1, 0]", "[1]", "[1, -2]", '["1", 2]', "[true, 2]", "[9223372036854775808, 0]"])
def test_numbers_are_bounded(at: str) -> None:
    with pytest.raises(OffsetsDamaged):
        from_text("t", '{"version":1,"stores":{"b":{"sum":1,"queues":{"orders":{"0":AT}}}}}'.replace("AT", at))


def test_the_mark_is_the_message_that_lies_furthest() -> None:
    key = QueueKey("b", "orders", 0)
    progress = NOTHING.advanced({key: QueueAt(5, 100), key._replace(queue_id=1): QueueAt(3, 700)}).summed({"b": 9})
    assert progress.stores["b"].mark == (("orders", 1), QueueAt(3, 700))
    further = progress.advanced({key: QueueAt(6, 900)})
    assert further.stores["b"].mark == (("orders", 0), QueueAt(6, 900))
    assert (progress.stores["b"].sum, further.stores["b"].sum) == (9, 0), "of the new mark nothing is known yet"
    assert further.offsets == {key: 6, key._replace(queue_id=1): 3}


def test_errors_of_others_are_one_line_without_credentials() -> None:
    secrets = {"s3.secret-access-key": "hush-hush", "uri": "postgresql://me:quiet@db/x", "token": "tok-1234"}
    outside = Outside("s3://me:quiet@lake/t", secrets)
    with pytest.raises(LakeFailed) as raised, outside.asked("the commit failed"):
        raise sqlite3.OperationalError("no hush-hush\nof postgresql://me:quiet@db/x with tok-1234")
    text = str(raised.value)
    assert "s3://***@lake/t: the commit failed: no *** of postgresql://***@db/x with ***" in text
    assert not any(secret in text + repr(outside) for secret in ("hush", "quiet", "tok-1234"))
    assert raised.value.__cause__ is None


def test_a_terminals_colours_and_what_rust_gave_up_are_one_plain_line() -> None:
    asked = Outside("t", {}).asked
    with pytest.raises(LakeFailed, match=r"^t: it fails: no such bucket > nowhere; correct that"), asked("it fails"):
        raise OSError("no such bucket \x1b[31m>\x1b[0m nowhere")
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    with pytest.raises(LakeFailed, match=r"^t: it fails: gave up; correct that"), asked("it fails"):
        raise panic("gave up")
    with pytest.raises(KeyboardInterrupt), asked("it fails"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("error", [Conflict("c"), ZeroDivisionError("ours"), KeyError("asked for")])
def test_the_projects_own_errors_pass_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)), Outside("t", {}).asked("it fails", KeyError):
        raise error
