"""Changes of a topic's attributes: what 5.x allows, and its words for what it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.tables.topic_attributes import WrongChange, altered, parsed


def test_a_new_topic_takes_attributes_a_known_one_changes_them() -> None:
    made = altered(None, parsed("+queue.type=BatchCQ,+message.type=FIFO,+reserve.time=-1"))
    assert made == {"queue.type": "BatchCQ", "message.type": "FIFO", "reserve.time": "-1"}
    changed = altered(made, parsed("+message.type=DELAY,-reserve.time"))
    assert changed == {"queue.type": "BatchCQ", "message.type": "DELAY"}
    assert altered({}, parsed("")) == {}


@pytest.mark.parametrize(
    ("before", "change", "said"),
    [
        (None, "queue.type=BatchCQ", "add/alter attribute format is wrong: queue.type"),
        (None, "queue.type", "delete attribute format is wrong: queue.type"),
        (None, "+a=1,+a=2", "key duplication: +a"),
        (None, "+queue.type=", "Index 1 out of bounds for length 1"),
        (None, "+unknown=1", "unsupported key: unknown"),
        (None, "-queue.type", "only add attribute is supported while creating topic. key: queue.type"),
        (None, "+queue.type=Other", "value is not in set: [SimpleCQ, BatchCQ]"),
        (None, "+message.type=x", "value is not in set: [UNSPECIFIED, TRANSACTION, FIFO, MIXED, DELAY, NORMAL]"),
        (None, "+reserve.time=soon", 'For input string: "soon"'),
        (None, "+reserve.time=-2", "value is not in range(-1, 9223372036854775807)"),
        ({}, "+queue.type=BatchCQ", "attempt to update an unchangeable attribute. key: queue.type"),
        ({}, "-message.type", "attempt to delete a nonexistent key: message.type"),
        ({"message.type": "FIFO"}, "+message.type=DELAY,-message.type", "alter duplication key. key: message.type"),
        ({}, "m+essage.type=DELAY", "kv string format wrong."),
        ({}, "+-=1", "kv string format wrong."),
        (None, "+cleanup.policy=COMPACTION", "value COMPACTION is not supported: this broker does not compact topics"),
        ({}, "+reserve.time=7", "value 7 is not supported: this broker keeps every topic for fileReservedTime"),
    ],
)
def test_an_invalid_change_is_refused_in_rocketmqs_words(
    before: dict[str, str] | None, change: str, said: str
) -> None:  # fmt: skip
    with pytest.raises(WrongChange) as raised:
        altered(before, parsed(change))
    assert str(raised.value) == said


@given(
    st.none() | st.dictionaries(st.sampled_from(["queue.type", "message.type"]), st.just("FIFO")),
    st.text(st.sampled_from("+-=,qm.1"), max_size=12),
)
def test_any_text_is_a_change_or_wrong(before: dict[str, str] | None, change: str) -> None:
    try:
        found = altered(before, parsed(change))
    except WrongChange as wrong:
        assert str(wrong)
    else:
        assert all("+" not in key for key in found)
