"""The rule about words of arrays finds each of the ways that it is against, and lets the others pass."""

from __future__ import annotations

import ast

import pytest

from tests.harness.trees import nodes_of
from tests.harness.words_of_arrays import faults

WORD = "class Word(IntEnum):\n    TAIL, HEAD = 0, 1\n"


def _faults(source: str) -> list[str]:
    return [ast.unparse(node) for _module, node in faults({"m": nodes_of(source)})]


@pytest.mark.parametrize(
    "source",
    [
        "HEAD, TAIL = 0, 1\nwords[at + TAIL]",
        "A, B, C = range(3)\nrows[row, B]",
        "STATE = 7\nwords[STATE]",
        "from m import HEAD\nHEAD = 2\nwords[HEAD]",
        "@kernel\ndef put(words: Words): words[at + 2]",
        "@inlined\ndef put(rows): rows[slot, 0]",
        f"@kernel\ndef put(at): pass\n{WORD}put(Word.HEAD)",
    ],
)
def test_each_forbidden_use_of_array_words_is_found(source: str) -> None:
    assert len(_faults(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        f"{WORD}words[at + Word.TAIL]",
        "HEADER_WORDS = 8\nwords[HEADER_WORDS + at]",
        "LENGTH = 4\ndata[at:LENGTH]",
        "@kernel\ndef put(ends, data: Bytes): ends[k + 1], data[at + 3], rows[0], rows.shape[1]",
        f"@kernel\ndef put(at): pass\n{WORD}put(int(Word.HEAD))",
        f"{WORD}@kernel\ndef get(at): pass\n@kernel\ndef put(at): get(Word.HEAD)",
    ],
)
def test_allowed_uses_of_array_words_pass(source: str) -> None:
    assert not _faults(source)
