"""Where the other brokers of this one's name answer: the file `slipstream.peers` of a store.

A master and its slaves tell each other their remoting addresses when they connect. Each keeps them, so that a master
which comes back, or which has lost sight of its slaves, can ask who the master is, also without a name server. One
process writes the file at a time: a slave's receiver, a master's clients role, or the supervisor before a promotion. An
address is a place to ask, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ipc.host_port import host_port
from store.names import PEERS
from store.notes import summed_json
from store.notes.summed_json import Damaged

PEERS_MAX = 8  # the newest


def read(root: Path | str) -> tuple[str, ...]:
    """Addresses, the oldest first; none from a file that is damaged, which the next connection replaces.

    Raises AccessDenied.
    """
    try:
        said = (summed_json.read(Path(root) / PEERS) or {}).get("peers")
    except (Damaged, OSError):
        return ()
    return usable(said if isinstance(said, list) else [])


def usable(said: Iterable[object]) -> tuple[str, ...]:
    """The addresses among what a file or a peer says, each once."""
    texts = [one for one in said if isinstance(one, str) and host_port(one) is not None]
    return tuple(dict.fromkeys(texts))[-PEERS_MAX:]


def add(root: Path | str, met: Iterable[str]) -> bool:
    """Keep these addresses, too; whether the file changed. Raises OSError."""
    known, met = read(root), usable(met)
    if set(met) <= set(known):
        return False
    kept = usable([*(one for one in known if one not in met), *met])
    summed_json.write(Path(root) / PEERS, {"peers": list(kept)})
    return True
