"""Members of enumerations are numbers to kernels, whoever hands them over."""

from __future__ import annotations

import os
import subprocess
import sys
from enum import IntEnum

import numpy as np
import pytest

from ipc.arrays import Words
from ipc.compiled import carried, compiler
from ipc.compiled.compiler import kernel
from ipc.module_names import SOURCES


class Word(IntEnum):
    """Some words."""

    FIRST = 0
    LAST = 3


class OtherWord(IntEnum):
    """Those of another array."""

    SECOND = 1


def _word(words: Words, index: int) -> int:
    return int(words[index])


@pytest.mark.parametrize("may_be_kept", [True, False], ids=["kept on disk", "not kept"])
def test_a_kernel_has_one_form_for_numbers_and_members(monkeypatch: pytest.MonkeyPatch, may_be_kept: bool) -> None:
    if not may_be_kept:
        monkeypatch.setattr(compiler, "folder_of", lambda *_: None)
    word = kernel(_word)

    @kernel
    def of_another_kernel(words: Words) -> tuple[int, int]:
        return word(words, Word.LAST), word(words, OtherWord.SECOND)

    words = np.arange(10, 14)
    assert [word(words, index) for index in (Word.LAST, 0, OtherWord.SECOND, 2)] == [13, 10, 11, 12]
    assert of_another_kernel(words) == (13, 11)
    assert len(word.signatures) == 1


NUMBERS = """
from enum import IntEnum
import numpy as np
from ipc import waiting
from ipc.compiled import atomics
from ipc.counters import Cursor

class Word(IntEnum):
    SECOND = 1
    LAST = 3

cursor = Cursor(np.zeros(2, np.int64), 0, "state")
for compiled in (atomics.publish, atomics.raise_to):
    compiled(cursor.words, cursor.index, 0)
    compiled.compile = None  # nothing is looked for any more
waiting.publish(cursor, Word.SECOND)
waiting.raise_to(cursor, Word.LAST)
assert cursor.read() == Word.LAST
"""


def test_waiting_hands_numbers_over() -> None:
    """Finding the form for a member takes numba 0.1 ms each time; carried code takes members as they are."""
    by_numba = {**os.environ, carried.ASKED: carried.BASELINE}
    subprocess.run([sys.executable, "-c", NUMBERS], cwd=SOURCES, env=by_numba, check=True, timeout=600)
