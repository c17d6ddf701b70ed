"""How far consumers are, as text, made beside the role's other work: for the file, and for slaves that ask.

Implements: ConsumerOffsetManager.encode, AdminBrokerProcessor.getAllConsumerOffset
"""

from __future__ import annotations

import asyncio

from engine.protocol.tables.metadata import Metadata
from engine.remoting.loop.slices import in_slices
from store.tables.offset_texts import Written


class OffsetWriting:
    """Of one broker: one at a time, so that each finds whole what the one before it wrote."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata, self._lock = metadata, asyncio.Lock()

    async def compact(self) -> bytes:
        """As a slave hears it."""
        return await asyncio.to_thread((await self.texts()).compact)

    async def texts(self) -> Written:
        """To be put together."""
        async with self._lock:
            return await in_slices(self._metadata.offsets_in_steps())
