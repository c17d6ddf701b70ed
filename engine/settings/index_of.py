"""The index that a broker's settings ask for: one place for its directory and the size of its files."""

from __future__ import annotations

from engine.settings.config import BrokerConfig
from store.files.directory import StoreDirectory
from store.index.service import IndexService


def index_of(config: BrokerConfig) -> IndexService | None:
    """The store's index; None where messageIndexEnable is false."""
    if not config.message_index_enable:
        return None
    directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
    return IndexService(
        directory.index, config.max_hash_slot_num, config.max_index_num, safe=config.message_index_safe
    )
