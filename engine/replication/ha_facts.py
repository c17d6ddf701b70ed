"""What this broker says of itself to another Slipstream broker, and the secret that proves it.

Both are read when a connection begins.
Writes: slipstream.epochs of a slave, as its master's log has them; slipstream.peers of a slave
"""

from __future__ import annotations

from pathlib import Path

from engine.protocol.ha.hello import Identity, Introduction, SlaveGreeting
from engine.settings.config import BrokerConfig
from engine.shared_memory.addresses import host_and_port
from engine.shared_memory.cursors import BrokerCounters
from store.errors import OwnFileDamaged, StoreError
from store.notes import divergence, epochs, peers

SECRET_BYTES_MIN, SECRET_BYTES_MAX = 16, 64 * 1024
SECRET_ADVICE = "write at least 16 random bytes into it, the same on master and slave, readable only by the broker"


def secret_of(config: BrokerConfig) -> bytes:
    """Return the secret in the broker's haSecretFile, read by `secret_in`."""
    return secret_in(config.ha_secret_file)


def secret_in(file: Path | str | None) -> bytes:
    """Return what proves a name; empty without a file.

    Read each time: it may be another one by now. Raises OwnFileDamaged.
    """
    if file is None:
        return b""
    path = Path(file)
    try:
        with path.open("rb") as opened:
            secret = opened.read(SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        raise OwnFileDamaged(str(path), f"haSecretFile: {error.strerror}", SECRET_ADVICE) from error
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise OwnFileDamaged(str(path), f"haSecretFile has {len(secret)} bytes", SECRET_ADVICE)
    return secret


class HaFacts:
    """Facts that one broker says of itself."""

    def __init__(self, config: BrokerConfig, counters: BrokerCounters) -> None:
        self._root, self._counters, self._config = config.store_path_root_dir, counters, config
        self._remoting = host_and_port(config.broker_ip1, config.listen_port)
        self._is_required = config.ha_secret_required
        self._identity = Identity(config.broker_cluster_name, config.broker_name, config.broker_id)

    def now(self) -> Introduction:
        """Return the facts at this moment. Raises OwnFileDamaged, OSError."""
        begin, end = self._counters.min_physical_offset.read(), self._counters.max_physical_offset.read()
        entries, met = epochs.read(self._root).entries, peers.read(self._root)
        return Introduction(self._identity, begin, end, entries, self._remoting, met)

    def secret(self) -> bytes:
        """Return the secret that `secret_of` reads."""
        return secret_of(self._config)

    def greeting(self, nonce: bytes) -> SlaveGreeting:
        """Return what a slave begins a connection with. Raises OwnFileDamaged, OSError."""
        return SlaveGreeting(self.now(), self.secret(), nonce, is_required=self._is_required)

    def divergence_text(self) -> str:
        """Return what was noted about this log and its master's."""
        try:
            noted = divergence.read(self._root)
        except StoreError as error:
            return str(error)
        return "no divergence was noted" if noted is None else noted.text()

    def follow(self, master: Introduction) -> None:
        """Take over the master's epochs: our log is a part of its. Raises OwnFileDamaged, OSError."""
        said = (*master.peers, master.remoting)
        peers.add(self._root, (one for one in said if one not in ("", self._remoting)))
        own = epochs.read(self._root)
        first = master.epochs[0].epoch if master.epochs else 0
        taken = (*(one for one in own.entries if one.epoch < first), *master.epochs)
        if taken and taken != own.entries:
            epochs.write(self._root, own.following(taken))
