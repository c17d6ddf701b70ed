"""What this broker says of itself to another one of ours, and the secret that proves it: read when a connection begins.

Writes: slipstream.epochs of a slave, as its master's log has them
"""

from __future__ import annotations

from pathlib import Path

from engine.board.cursors import Board
from engine.protocol.ha.hello import Facts, Identity, SlaveGreeting
from engine.settings.config import BrokerConfig
from store.errors import OwnFileDamaged, StoreError
from store.files import divergence, epochs

SECRET_BYTES_MIN, SECRET_BYTES_MAX = 16, 64 * 1024
SECRET_ADVICE = "write at least 16 random bytes into it, the same on master and slave, readable by the broker alone"


class HaFacts:
    """Of one broker."""

    def __init__(self, config: BrokerConfig, board: Board) -> None:
        self._root, self._board, self._secret_file = config.store_path_root_dir, board, config.ha_secret_file
        self._is_required = config.ha_secret_required
        self._identity = Identity(config.broker_cluster_name, config.broker_name, config.broker_id)

    def now(self) -> Facts:
        """As it is at this moment. Raises OwnFileDamaged, OSError."""
        begin, end = self._board.min_physical_offset.read(), self._board.max_physical_offset.read()
        return Facts(self._identity, begin, end, epochs.read(self._root).entries)

    def secret(self) -> bytes:
        """What proves a name; empty without haSecretFile. Read each time: it may be another one by now.

        Raises OwnFileDamaged.
        """
        if self._secret_file is None:
            return b""
        path = Path(self._secret_file)
        try:
            with path.open("rb") as file:
                secret = file.read(SECRET_BYTES_MAX + 1).strip()
        except OSError as error:
            raise OwnFileDamaged(str(path), f"haSecretFile: {error.strerror}", SECRET_ADVICE) from error
        if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
            raise OwnFileDamaged(str(path), f"haSecretFile has {len(secret)} bytes", SECRET_ADVICE)
        return secret

    def greeting(self, nonce: bytes) -> SlaveGreeting:
        """What a slave begins a connection with. Raises OwnFileDamaged, OSError."""
        return SlaveGreeting(self.now(), self.secret(), nonce, is_required=self._is_required)

    def divergence_text(self) -> str:
        """What was noted about this log and its master's."""
        try:
            noted = divergence.read(self._root)
        except StoreError as error:
            return str(error)
        return "nothing is noted" if noted is None else noted.text()

    def follow(self, master: Facts) -> None:
        """Take over the master's epochs: our log is a part of its. Raises OwnFileDamaged, OSError."""
        own = epochs.read(self._root)
        first = master.epochs[0].epoch if master.epochs else 0
        taken = (*(one for one in own.entries if one.epoch < first), *master.epochs)
        if taken and taken != own.entries:
            epochs.write(self._root, own.following(taken))
