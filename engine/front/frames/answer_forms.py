"""Answers to sends, cut into what never changes and what does: the form that the compiled answers are written by.

An answer is made once, as for any other request, with marks where values go, and cut at these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from engine.front.frames.send_words import (
    FORM_PARTS,
    FORM_WORDS,
    PART_WORDS,
    PREFIXED,
    RECORDS_MAX,
    STATUS_CODES,
    AnswerForm,
    FormsWord,
    Hole,
)
from engine.protocol.remoting.frame import LENGTH_BYTES, RemotingCommand, Serialize, encode
from ipc.arrays import Bytes, Words

MARK = "@@{}@@"  # in a value, where nothing else has it
VALUES = (Hole.QUEUE_ID, Hole.QUEUE_OFFSET, Hole.MESSAGE_ID, Hole.TRANSACTION_ID)
MARKED: dict[Hole, str] = {hole: MARK.format(hole.name) for hole in VALUES}
KEYED = (AnswerForm.JSON, AnswerForm.ROCKETMQ)
ANSWERED = (*KEYED, AnswerForm.KEYLESS_JSON, AnswerForm.KEYLESS_ROCKETMQ)
KEYLESS_MARKED: dict[Hole, str] = {hole: mark for hole, mark in MARKED.items() if hole is not Hole.TRANSACTION_ID}
HEAD_BYTES = 2 * LENGTH_BYTES
CODE, OPAQUE = 12_345, 1_234_567_891
OPAQUE_AT, FIELDS_AT = 5, 17  # in a header of ROCKETMQ's
INT_BYTES, CODE_BYTES = 4, 2
VALUES_BYTES_MAX = 256 + 33 * RECORDS_MAX  # numbers, a unique key, message ids with commas

Part = tuple[bytes, int]  # and the hole behind it
MakeAnswer = Callable[[RemotingCommand, int, Mapping[Hole, str]], RemotingCommand]


class AnswerForms(NamedTuple):
    """Both forms and the codes of statuses in words, the parts in `text`."""

    words: Words
    text: Bytes
    bytes_max: int


def forms_of(make: MakeAnswer, codes: Mapping[int, int]) -> AnswerForms:
    """`make` answers a request with a code and values, without a transaction where there is no key; `codes`: the
    response code of each status."""
    words, text = np.zeros(FormsWord.END, np.int64), bytearray()
    for form in ANSWERED:
        request = RemotingCommand(0, OPAQUE, serialize=Serialize(form & 1))
        answer = make(request, CODE, MARKED if form in KEYED else KEYLESS_MARKED)
        parts = _parts_of_json(answer) if answer.serialize is Serialize.JSON else _parts_of_binary(answer)
        enter_form(words, form, parts, answer.serialize, text)
    words[FormsWord.STATUS_CODES : FormsWord.STATUS_CODES + STATUS_CODES] = -1
    for status, code in codes.items():
        words[FormsWord.STATUS_CODES + status] = code
    return AnswerForms(words, np.frombuffer(bytes(text), np.uint8).copy(), len(text) + VALUES_BYTES_MAX)


def enter_form(words: Words, form: int, parts: Sequence[Part], kind: Serialize, text: bytearray) -> None:
    """Write one form's words; its literals are appended to `text`."""
    assert len(parts) <= FORM_PARTS
    at = form * FORM_WORDS
    words[at] = len(parts)
    for number, (literal, hole) in enumerate(parts):
        place = at + 1 + number * PART_WORDS
        words[place : place + PART_WORDS] = len(text), len(literal), hole
        text += literal
    words[at + FORM_WORDS - 1] = kind


def _parts_of_json(answer: RemotingCommand) -> list[Part]:
    numbers = {f'"code":{CODE}': Hole.CODE, f'"opaque":{OPAQUE}': Hole.OPAQUE}
    return parts_of_json(encode(answer)[HEAD_BYTES:], numbers, {mark: hole for hole, mark in MARKED.items()})


def parts_of_json(header: bytes, numbers: Mapping[str, int], texts: Mapping[str, int]) -> list[Part]:
    """A header in JSON, cut where its `numbers` stand, which are given with their keys, and its `texts`."""
    cuts = list[tuple[int, int, int]]()
    for mark, hole in numbers.items():
        if (at := header.find(mark.encode())) >= 0:
            cuts.append((at + mark.find(":") + 1, at + len(mark), hole))
    for mark, hole in texts.items():
        if (at := header.find(f'"{mark}"'.encode()) + 1) > 0:
            cuts.append((at, at + len(mark), hole))
    return _cut(header, cuts)


def _parts_of_binary(answer: RemotingCommand) -> list[Part]:
    fixed = [
        (0, CODE_BYTES, int(Hole.CODE_16)),
        (OPAQUE_AT, OPAQUE_AT + INT_BYTES, int(Hole.OPAQUE_32)),
        (FIELDS_AT, FIELDS_AT + INT_BYTES, int(Hole.FIELDS_BYTES)),
    ]
    return parts_of_binary(encode(answer)[HEAD_BYTES:], fixed, {mark: hole for hole, mark in MARKED.items()})


def parts_of_binary(header: bytes, fixed: Sequence[tuple[int, int, int]], texts: Mapping[str, int]) -> list[Part]:
    """A header in RocketMQ's form, cut at places that are `fixed`, and where its `texts` stand."""
    cuts = list(fixed)
    for mark, hole in texts.items():
        if (at := header.find(mark.encode())) >= 0:
            cuts.append((at - INT_BYTES, at + len(mark), hole | PREFIXED))
    return _cut(header, cuts)


def _cut(header: bytes, cuts: list[tuple[int, int, int]]) -> list[Part]:
    parts, at = [], 0
    for begin, end, hole in sorted(cuts):
        parts.append((header[at:begin], int(hole)))
        at = end
    return [*parts, (header[at:], int(Hole.END))]
