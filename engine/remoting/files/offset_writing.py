"""How far consumers are, as text, made beside the role's other work: for the file, and for slaves that ask.

Implements: ConsumerOffsetManager.encode, AdminBrokerProcessor.getAllConsumerOffset
"""

from __future__ import annotations

import asyncio

from engine.protocol.tables.metadata import Metadata
from engine.remoting.loop.slices import in_slices
from store.tables.offset_texts import Written


class OffsetWriting:
    """Texts of one broker's offsets, made one at a time: each finds complete what the one before wrote."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata, self._lock = metadata, asyncio.Lock()

    async def compact(self) -> bytes:
        """Return the offsets' JSON as a slave receives it."""
        return await asyncio.to_thread((await self.texts()).compact)

    async def texts(self) -> Written:
        """Return the offsets' texts, which are still to be put together."""
        async with self._lock:
            return await in_slices(self._metadata.offsets_in_steps())
