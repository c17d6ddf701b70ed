"""The parts of a store that a broker's settings ask for: what recovery, dispatcher and flusher have to agree on."""

from __future__ import annotations

from engine.settings.config import BrokerConfig
from store.compat import line_of
from store.files.directory import StoreDirectory
from store.index.service import IndexService
from store.message.delay import levels_ms
from store.queues.batch_consume_queue import batch_file_bytes_of
from store.queues.queue_set import QueueKinds


def index_of(config: BrokerConfig) -> IndexService | None:
    """The store's index; None where messageIndexEnable is false."""
    if not config.message_index_enable:
        return None
    directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
    return IndexService(directory.index, config.max_hash_slot_num, config.max_index_num, safe=config.message_index_safe)


def kinds_of(config: BrokerConfig) -> QueueKinds:
    """Extensions, batch queues' files, multi-dispatch, delays."""
    return QueueKinds(
        ext_file_bytes=config.queue_ext_file_bytes if config.enable_consume_queue_ext else 0,
        batch_file_bytes=batch_file_bytes_of(config.batch_queue_file_bytes),
        multi_dispatch=config.enable_multi_dispatch,
        lmq=config.enable_lmq,
        rules=line_of(config.compat).queues,
        delays_ms=levels_ms(config.message_delay_level),
    )
