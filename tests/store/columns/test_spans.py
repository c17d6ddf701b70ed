"""Texts that repeat as dictionaries: the same values as texts, each distinct one once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.columns import spans
from store.columns.spans import dictionary_of, encoded, spelled_out, text
from store.columns.window import LogWindow

TEXTS = st.lists(st.sampled_from([None, b"", b"a", b"ab", b"orders-01", b"orders-02", "中".encode(), b"\xff", b"\xfe"]))


def spans_of(texts: list[bytes | None]) -> tuple[LogWindow, np.ndarray, np.ndarray, np.ndarray | None]:
    array = np.frombuffer(b"x" + b"".join(one or b"" for one in texts), np.uint8)
    lengths = np.array([len(one or b"") for one in texts], np.int64)
    is_there = np.array([one is not None for one in texts], np.bool_)
    starts = 1 + np.cumsum(lengths) - lengths
    return LogWindow("a segment", 0, array, len(array)), starts, lengths, None if is_there.all() else is_there


@pytest.mark.parametrize("distinct_max", [1, 2, 1024])
@given(texts=TEXTS)
def test_a_dictionary_has_the_values_of_the_texts(texts: list[bytes | None], distinct_max: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(spans, "DISTINCT_MAX", distinct_max)
        dictionary, plain = encoded(*spans_of(texts)), text(*spans_of(texts))
    dictionary.validate(full=True)
    assert dictionary.type == pa.dictionary(pa.int32(), pa.string())
    assert dictionary.to_pylist() == plain.to_pylist()
    held = dictionary.dictionary.to_pylist()
    assert len(set(held)) == len(held), "Parquet takes no value twice"
    if None not in texts:
        assert spelled_out(dictionary).equals(plain)


def test_distinct_bytes_that_are_one_text_are_one_value() -> None:
    dictionary = dictionary_of(np.array([0, 1, 2, 1], np.int32), pa.array(["a", "b", "a"]))
    assert dictionary.to_pylist() == ["a", "b", "a", "b"]
    assert dictionary.dictionary.to_pylist() == ["a", "b"]
