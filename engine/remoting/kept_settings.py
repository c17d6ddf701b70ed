"""Holds the answer to a change of settings back until the server's file says them.

Implements: Configuration.update, as AdminBrokerProcessor.updateBrokerConfig and DefaultRequestProcessor.updateConfig
    call it
A change that the file does not take is in use all the same, as at a full disk whose files are to go earlier; it is
answered as failed, with the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from engine.protocol.remoting.codes import ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.sockets.server import Answered
from engine.settings import kept_settings


class KeptSettings:
    """The changes of one server, one after the other. Without a `file` none is kept."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._turn = asyncio.Lock()
        self._writer = ThreadPoolExecutor(1, "settings")

    async def change(
        self, request: RemotingCommand, answer: Answered, texts: Mapping[str, str], use: Callable[[str], None]
    ) -> Answered:
        """The answer, once the file says these texts, by key. Before that `use` is called with how long they last."""
        async with self._turn:
            why = "it was started without a file"
            if self._file:
                loop = asyncio.get_running_loop()
                why = await loop.run_in_executor(self._writer, kept_settings.why_not_kept, self._file, texts)
            use(f"until this process ends: {why}" if why else "here and in its file")
        if not (self._file and why) or answer is None or answer.code:
            return answer
        remark = f"{', '.join(texts)}: in use, and lost at the next start: {why}"
        return request.answer(ResponseCode.SYSTEM_ERROR, remark, version=answer.version, serialize=answer.serialize)

    def close(self) -> None:
        """What is being written is written."""
        self._writer.shutdown()
