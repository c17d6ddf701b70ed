"""Asks the master before this one for its offsets once more: none may go back by a promotion.

Of consumers, and of delayed messages.
Where it does not answer, what was copied last is all there is.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

from engine.net.tls import RenewedContext
from engine.protocol.remoting.codes import REQUEST_VERSION, RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.tables.metadata import Metadata
from engine.remoting.loop.slices import in_slices
from engine.remoting.peers.link import NoAnswer, RemotingLink
from engine.shared_memory.delay_table import DelayTable
from ipc.errors import IpcError
from store.errors import StoreError
from store.names import CONSUMER_OFFSETS, DELAY_OFFSETS
from store.tables import fastjson
from store.tables import tables as broker_tables
from store.tables.json_steps import loads_in_steps

log = logging.getLogger("slipstream.remoting")

SECONDS = 2.0
BYTES_MAX = 64 << 20


async def take_over(address: str, metadata: Metadata, directory: Path, how: RenewedContext | None) -> None:
    """Raise every offset to what the broker at that address has; the delay role hears how far that one was."""
    link, delays = RemotingLink(address, SECONDS, how), dict[int, int]()
    try:
        theirs = await _asked(link, RequestCode.GET_ALL_CONSUMER_OFFSET)
        if await in_slices(raise_offsets(metadata, theirs)):
            log.info("consumers' offsets raised to those of the previous master, %s", address)
        delays = delays_of(await _asked(link, RequestCode.GET_ALL_DELAY_OFFSET))
    except (NoAnswer, StoreError) as error:
        log.warning("offsets are those of the last copy: %s", error)
    finally:
        link.close()
        with suppress(IpcError):  # only some roles of a broker, in one process
            table = DelayTable.attach(directory, writable=True)
            table.take(delays)
            table.close()


async def _asked(link: RemotingLink, code: RequestCode) -> bytes:
    """The body of the answer. Raises NoAnswer."""
    answer = await link.ask(RemotingCommand(code, version=REQUEST_VERSION))
    if answer.code != ResponseCode.SUCCESS:
        raise NoAnswer(link.address, f"code {answer.code} to request {int(code)}")
    return bytes(answer.body)


def delays_of(body: bytes) -> dict[int, int]:
    """Offsets by level. Raises MalformedData and -Config."""
    value = fastjson.loads(body, DELAY_OFFSETS, BYTES_MAX, as_written=True)
    return broker_tables.delay_offsets(value if isinstance(value, dict) else {}, DELAY_OFFSETS)


def raise_offsets(metadata: Metadata, body: bytes) -> Generator[int, None, bool]:
    """Take the further one of both, for each queue; whether that changed anything. Raises MalformedData and -Config."""
    value = yield from loads_in_steps(body, CONSUMER_OFFSETS, BYTES_MAX)
    value = value if isinstance(value, dict) else {}
    theirs = yield from broker_tables.consumer_offsets_in_steps(value, CONSUMER_OFFSETS)
    return (yield from metadata.raise_offsets(theirs))
