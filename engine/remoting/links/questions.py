"""The end of a pipe to the clients role: questions that are asked again if it dies, words, what it says taken once.

Fronts and the transactions role have one each.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engine.net.log_lines import Seldom
from engine.remoting.links.exchange import Bells, Json, Kind, Message, Pipe

QUESTIONS_MAX = 100_000


class Questions:
    """One end, of the pipe with this number; who has it says what is done with the other kinds of messages."""

    def __init__(self, directory: Path, number: int, bells: Bells, log: logging.Logger) -> None:
        self._pipe = Pipe(directory, number, is_front=True, bells=bells)
        self._bell = bells.fronts[number]
        self._numbers = itertools.count(time.monotonic_ns())  # a predecessor's answers have other numbers
        self._questions: dict[int, tuple[Json, Callable[[Json], None]]] = {}
        self._seldom = Seldom(log)
        self._pipe.send(Kind.HELLO, number)

    @property
    def bell(self) -> int:
        """Readable when there is something to `receive`."""
        return self._bell

    def ask(self, what: str, fields: Json, on_answer: Callable[[Json], None]) -> bool:
        """Ask the clients role; `on_answer` is called once it has answered, however often it died meanwhile.

        False where too much is asked already. What is asked must do no harm when it is done twice.
        """
        number, question = next(self._numbers), {"what": what, **fields}
        if len(self._questions) >= QUESTIONS_MAX or not self._pipe.send(Kind.QUESTION, number, question):
            return False
        self._questions[number] = question, on_answer
        return True

    def tell(self, what: str, fields: Json) -> bool:
        """Say something to the clients role that needs no answer; False where there is no room for it now."""
        return self._pipe.send(Kind.WORD, 0, {"what": what, **fields})

    def receive(self) -> None:
        """Take what has come; the bell stays rung while there is more."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        for message in self._pipe.receive():
            try:
                self._take(message)
            except Exception:  # it must not be taken again by the next process, and the next
                what = "a message of the clients role failed: kind %d"
                self._seldom.tell(what, message.kind, level=logging.ERROR, error=True)
        if self._pipe.has_more:
            os.eventfd_write(self._bell, 1)

    def _take(self, message: Message) -> None:
        match message.kind:
            case Kind.ANSWER:
                question = self._questions.pop(message.number, None)
                if question is not None:
                    question[1](message.fields)
            case Kind.HELLO:
                self._begin_again()

    def _begin_again(self) -> None:
        """The clients role is a new process: it is asked again what it has not answered."""
        for number, (question, _on_answer) in self._questions.items():
            self._pipe.send(Kind.QUESTION, number, question)

    def close(self) -> None:
        """Unmap the pipe to the clients role."""
        self._pipe.close()
