"""Answers to pulls, cut into what never changes and what does: the forms that the compiled ones are written by.

Implements: PullMessageResponseHeader as it looks in a frame (spec: remoting, 7)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from engine.front.frames.answer_forms import OPAQUE, OPAQUE_AT, AnswerForms, enter_form, parts_of_binary, parts_of_json
from engine.front.frames.answer_kernel import HEAD_BYTES
from engine.front.frames.send_words import FORM_WORDS
from engine.front.pulls.pull_words import FORMS, KINDS, PullAnswer, PullHole
from engine.protocol.pulling.decision import Catch, QueueExtent, Status
from engine.protocol.remoting.frame import LENGTH_BYTES, RemotingCommand, Serialize
from ipc.arrays import Words

MARKED: dict[PullHole, int] = {hole: 900_000_000_000_000_000 + hole for hole in PullHole if hole >= PullHole.SUGGESTED}
STATUSES = {
    PullAnswer.FOUND: Status.FOUND,
    PullAnswer.NOTHING_MORE: Status.OFFSET_OVERFLOW_ONE,
    PullAnswer.NOTHING_EVER: Status.NO_MESSAGE_IN_QUEUE,
}
VALUES_BYTES_MAX = 256
INT_BYTES, REMARK_AT = 4, 13


class HeadValues(NamedTuple):
    """Values in a head beside those of the selection."""

    suggested: int
    topic_flag: int
    group_flag: int


MakeHead = Callable[[RemotingCommand, Catch, HeadValues], bytes]


def forms_of(make: MakeHead) -> AnswerForms:
    """Return the forms of answers; `make` is Python's way to write one up to its body."""
    words, text, longest = np.zeros(FORMS * FORM_WORDS, np.int64), bytearray(), 0
    extent = QueueExtent(MARKED[PullHole.MINIMUM], MARKED[PullHole.MAXIMUM])
    values = HeadValues(*(MARKED[hole] for hole in (PullHole.SUGGESTED, PullHole.TOPIC_FLAG, PullHole.GROUP_FLAG)))
    for answer, status in STATUSES.items():
        caught = Catch(status, MARKED[PullHole.NEXT_OFFSET], extent)
        for form in Serialize:
            begin = len(text)
            _enter(words, answer * KINDS + form, make(RemotingCommand(0, OPAQUE, serialize=form), caught, values), text)
            longest = max(longest, len(text) - begin)
    return AnswerForms(words, np.frombuffer(bytes(text), np.uint8).copy(), longest + VALUES_BYTES_MAX)


def _enter(words: Words, form: int, head: bytes, text: bytearray) -> None:
    """Cut one answer's head into fixed parts and holes, and enter it as `form`."""
    marks = {str(number): int(hole) for hole, number in MARKED.items()}
    kind, header = Serialize(head[LENGTH_BYTES:HEAD_BYTES][0]), head[HEAD_BYTES:]
    if kind is Serialize.JSON:
        parts = parts_of_json(header, {f'"opaque":{OPAQUE}': int(PullHole.OPAQUE)}, marks)
    else:
        remark_bytes = int.from_bytes(header[REMARK_AT : REMARK_AT + INT_BYTES])
        fields_at = REMARK_AT + INT_BYTES + remark_bytes
        fixed = (OPAQUE_AT, PullHole.OPAQUE_32), (fields_at, PullHole.FIELDS_BYTES)
        parts = parts_of_binary(header, [(at, at + INT_BYTES, int(hole)) for at, hole in fixed], marks)
    enter_form(words, form, parts, kind, text)
