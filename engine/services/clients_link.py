"""What the transactions role and the clients role say to each other: as a front does, but without connections."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from engine.remoting.links.exchange import Bells, Json, Kind, Message
from engine.remoting.links.questions import Questions


class ClientsLink(Questions):
    """The services' pipe; `on_word` is given what the clients role says on its own account."""

    def __init__(self, directory: Path, fronts: int, bells: Bells, on_word: Callable[[Json], None]) -> None:
        self._on_word = on_word
        super().__init__(directory, fronts, bells, logging.getLogger("slipstream.transactions"))

    def _take(self, message: Message) -> None:
        if message.kind is Kind.WORD:
            self._on_word(message.fields)
        else:
            super()._take(message)
