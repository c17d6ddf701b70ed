"""The other log of a pair, as a command names it: a directory, or a running broker's address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.remoting.peers.log_peer import ANSWER_SECONDS, LogPeer
from engine.remoting.sockets.client import RemotingClient
from store.errors import NotAStore
from store.reading.log_reader import open_log
from store.reading.replicas import LocalLog, LogView
from tools.common.tls import tls_of

ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/\s]+):([0-9]{1,5})")


def is_address(text: str) -> bool:
    """Whether that is HOST:PORT, and no directory of that name is there."""
    return ADDRESS.fullmatch(text) is not None and not Path(text).exists()


@contextmanager
def open_other(text: str) -> Iterator[LogView]:
    """That log, while it is looked at. Raises NotAStore, PeerUnreachable, NotOurs, and what opening a log raises."""
    if is_address(text):
        with RemotingClient(text, ANSWER_SECONDS, tls_of()) as client:
            yield LogPeer(client)
        return
    if not Path(text).is_dir():
        raise NotAStore(text, "it is neither a directory nor HOST:PORT of a running broker")
    yield LocalLog(open_log(text))
