"""The other log of a pair, as a command names it: a directory, or a running broker's address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.remoting.peers.log_peer import ANSWER_SECONDS, LogPeer
from engine.remoting.sockets.client import RemotingClient
from store.notes import epochs
from store.reading.log_reader import open_log
from store.reading.replicas import LocalLog, LogView
from tools.common.tls import tls_of
from tools.replica.usage import is_address


@contextmanager
def open_other(text: str) -> Iterator[LogView]:
    """Open the log for the block. Raises NotAStore, PeerUnreachable, NotOurs, and what opening a log raises."""
    if is_address(text):
        with RemotingClient(text, ANSWER_SECONDS, tls_of()) as client:
            yield LogPeer(client)
        return
    yield LocalLog(open_log(text))


def epoch_of(other: LogView) -> int:
    """The newest epoch of that log; 0 before its first promotion. Raises OwnFileDamaged."""
    return other.extent.epoch if isinstance(other, LogPeer) else epochs.read(other.name).last_epoch
