"""Answers what other Slipstream brokers ask about this one's log: what it holds, and digests of its ranges.

A digest is made on a thread of its own, one request after the other: the loop goes on answering others.
"""

from __future__ import annotations

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from engine.protocol.broker.log_requests import (
    Extent,
    Wanted,
    extent_body,
    extent_signature,
    nonce_of,
    wanted_of,
)
from engine.protocol.remoting.answers import Answerer, Refused
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.replication.ha_facts import secret_of
from engine.settings.config import BrokerConfig, BrokerRole
from engine.shared_memory.addresses import host_and_port
from engine.shared_memory.cursors import BrokerCounters, Reign
from engine.shared_memory.region_directory import role_request
from store.epochs import entry_fields
from store.errors import StoreError
from store.files.segment_files import SegmentFiles
from store.notes import epochs
from store.reading import log_ranges

WAITING_MAX = 16  # requests for digests; more are refused
OWN_QUESTIONS: set[tuple[int, int]] = set()  # ranges that this process asks others for: answered to nobody meanwhile


def run_of(counters: BrokerCounters) -> str:
    """Return what tells this run of a broker from all others, and leads to nothing."""
    return hashlib.blake2b(counters.directory.name.encode(), digest_size=8).hexdigest()


def extent_now(config: BrokerConfig, counters: BrokerCounters, files: SegmentFiles, now_ms: int) -> Extent:
    """What this broker says of itself and its log; `now_ms` is wall time.

    Raises OwnFileDamaged, AccessDenied, OSError.
    """
    known = epochs.read(config.store_path_root_dir)
    is_master, fence = config.broker_role is not BrokerRole.SLAVE, known.fenced_by
    return Extent(
        config.broker_cluster_name,
        config.broker_name,
        config.broker_id,
        counters.own_broker_id.read(),
        is_master,
        files.segment_bytes,
        counters.min_physical_offset.read(),
        counters.max_physical_offset.read(),
        host_and_port(config.broker_ip2, counters.ha_listen_port.read()),
        known.last_epoch,
        known.next_epoch,
        [entry_fields(one) for one in known.entries],
        now_ms,
        run_of(counters),
        counters.reign.read() != Reign.ASKS,
        fence.broker if fence and known.is_fenced else "",
        fence.epoch if fence and known.is_fenced else 0,
        role_request.claimed(counters.directory),
    )


class LogAnswers(Answerer):
    """The requests of our own that a broker answers."""

    def __init__(self, config: BrokerConfig, counters: BrokerCounters) -> None:
        super().__init__(config.compat)
        self._config, self._counters = config, counters
        self._files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
        self._hashing = ThreadPoolExecutor(1, "digests")
        self._waiting = 0
        self.handlers = {RequestCode.GET_LOG_EXTENT: self._extent}

    def begin(
        self, request: RemotingCommand, connection: int, now_ms: int
    ) -> RemotingCommand | asyncio.Future[RemotingCommand | None] | None:
        """Return the answer, or an awaitable of it; None for a request that this class does not handle."""
        if request.code == RequestCode.GET_LOG_DIGESTS and not request.is_response:
            return asyncio.ensure_future(self._digests(request))
        return self.answer(request, connection, now_ms) if request.code in self.handlers else None

    def close(self) -> None:
        """Cancel digests that have not begun."""
        self._hashing.shutdown(wait=False, cancel_futures=True)

    def _extent(self, request: RemotingCommand, _connection: int, now_ms: int) -> RemotingCommand:
        nonce = nonce_of(request)
        answer = self.with_json(request, extent_body(extent_now(self._config, self._counters, self._files, now_ms)))
        if not nonce:
            return answer
        signed = extent_signature(secret_of(self._config), nonce, answer.body)
        return replace(answer, ext_fields={"signature": signed})

    async def _digests(self, request: RemotingCommand) -> RemotingCommand | None:
        low, high = self._counters.min_physical_offset.read(), self._counters.max_physical_offset.read()
        try:
            wanted = wanted_of(request, low, high, log_ranges.BYTES_MAX, log_ranges.PARTS_MAX)
            if (wanted.start, wanted.end) in OWN_QUESTIONS:
                raise Refused(ResponseCode.NO_PERMISSION, "this is a request of this broker, sent back to it")
            if self._waiting >= WAITING_MAX:
                raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "too many requests for digests at once")
            digests = await self._made(wanted)
        except Refused as refused:
            answer = self.answered(request, refused.code, refused.remark)
        except (StoreError, OSError) as error:
            answer = self.answered(request, ResponseCode.SYSTEM_ERROR, f"the range cannot be read: {error}")
        else:
            answer = self.with_json(request, {"digests": digests})
        return None if request.is_oneway else answer

    async def _made(self, wanted: Wanted) -> list[str]:
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._hashing, log_ranges.digests, self._files, *wanted)
        finally:
            self._waiting -= 1
