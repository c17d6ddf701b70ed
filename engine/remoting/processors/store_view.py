"""What the clients role reads of the store: queues, index, single records, as far as they are dispatched."""

from __future__ import annotations

from engine.settings.config import BrokerConfig
from engine.shared_memory.cursors import BrokerCounters
from store.compat import line_of
from store.files.directory import StoreDirectory
from store.files.segment_files import SegmentFiles
from store.index.index_file import Geometry
from store.reading.index_search import IndexSearch, LogRecords
from store.reading.queue_view import LogLimits, Queues


class StoreView:
    """View of a running broker's store; any thread may ask."""

    def __init__(self, config: BrokerConfig, counters: BrokerCounters) -> None:
        self._counters = counters
        self.directory = StoreDirectory(config.store_path_root_dir, config.store_path_commit_log)
        self.files = files = SegmentFiles(config.store_path_commit_log, config.mapped_file_size_commit_log_bytes)
        self.queues = Queues(self.directory.root, files, self._limits, line_of(config.compat).queues)
        self.records = LogRecords(files, self._limits)
        geometry = Geometry(config.max_hash_slot_num, config.max_index_num)
        self.search = IndexSearch(self.directory.index, geometry, self.records)

    @property
    def max_physical_offset(self) -> int:
        """Return the offset at which the log ends."""
        return self._counters.max_physical_offset.read()

    def _limits(self) -> LogLimits:
        return LogLimits(self._counters.min_physical_offset.read(), self._counters.reput_from_offset.read())
