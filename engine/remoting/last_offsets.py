"""Asks the master before this one for consumers' offsets once more: none may go back by a promotion.

Where it does not answer, what was copied last is all there is.
"""

from __future__ import annotations

import logging

from engine.net.tls import RenewedContext
from engine.protocol.remoting.codes import REQUEST_VERSION, RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.tables.metadata import Metadata
from engine.remoting.link import NoAnswer, RemotingLink
from store.errors import StoreError
from store.names import CONSUMER_OFFSETS
from store.tables import fastjson
from store.tables import tables as broker_tables

log = logging.getLogger("slipstream.remoting")

SECONDS = 2.0
BYTES_MAX = 64 << 20


async def take_over(address: str, metadata: Metadata, how: RenewedContext | None) -> None:
    """Raise every offset to what the broker at that address has."""
    link = RemotingLink(address, SECONDS, how)
    try:
        answer = await link.ask(RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET, version=REQUEST_VERSION))
        if answer.code != ResponseCode.SUCCESS:
            log.warning("consumers' offsets: %s answers with code %d", address, answer.code)
        elif raise_offsets(metadata, bytes(answer.body)):
            log.info("consumers' offsets are raised to those of the master before, %s", address)
    except (NoAnswer, StoreError) as error:
        log.warning("consumers' offsets stay as they were copied last: %s", error)
    finally:
        link.close()


def raise_offsets(metadata: Metadata, body: bytes) -> bool:
    """Take the further one of both, for each queue; whether that changed anything. Raises MalformedData and -Config."""
    value = fastjson.loads(body, CONSUMER_OFFSETS, BYTES_MAX, as_written=True)
    theirs = broker_tables.consumer_offsets(value if isinstance(value, dict) else {}, CONSUMER_OFFSETS)
    merged = {}
    for key, offsets in theirs.items():
        ours = metadata.offsets.get(key, {})
        merged[key] = {**ours, **{queue: max(offset, ours.get(queue, offset)) for queue, offset in offsets.items()}}
    furthest = broker_tables.consumer_offsets_value(merged, None, None, broker_tables.OFFSET_CAPACITY)
    return metadata.take_consumer_offsets(furthest)
