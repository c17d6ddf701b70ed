"""Brings the index to disk: what the flusher does for it, and what the checkpoint says about it.

Implements: IndexService.flush (spec: store-formats, 13, 14)
RocketMQ's indexMsgTimestamp is the end of the newest full file, and moves only when a file is full. Our own note beside
it says how far the last file was on disk, so that a restart does not build that file again.
"""

from __future__ import annotations

from store.files.checkpoint import Checkpoint
from store.index.index_file import IndexFile
from store.index.service import IndexService


class IndexSync:
    """The index as the flusher sees it: another process puts into it."""

    def __init__(self, index: IndexService) -> None:
        self._index = index
        self._newest_full = ""

    def sync_full(self, checkpoint: Checkpoint) -> Checkpoint:
        """Bring a file that has become full to disk, and note its end. Raises OSError, IndexFileDamaged."""
        files = [path for path in self._index.files() if path.name > self._newest_full]
        for path in files[:-1]:
            self._index.sync_file(path)
            end_ms = IndexFile.open(path, self._index.geometry).header.end_timestamp_ms
            checkpoint = checkpoint._replace(index_msg_timestamp_ms=max(checkpoint.index_msg_timestamp_ms, end_ms))
            self._newest_full = path.name
        return checkpoint

    def whole_until_ms(self, checkpoint: Checkpoint, stored_ms: int) -> int:
        """Return up to when the index would be whole if a RocketMQ broker began after a crash.

        That is `stored_ms` where nothing would be missing. Such a broker deletes the files that end after its
        indexMsgTimestamp, and dispatches the log from the other two times on (unless messageIndexSafe is set). So
        records that are older, and in a deleted file, could no longer be found by key.
        """
        for path in self._index.files():
            header = IndexFile.open(path, self._index.geometry).header
            if header.end_timestamp_ms > checkpoint.index_msg_timestamp_ms:
                return header.begin_timestamp_ms
        return stored_ms

    def sync(self, checkpoint: Checkpoint, physical_offset: int) -> Checkpoint:
        """Bring all of it to disk and note how far that is; everything below the offset has been dispatched."""
        checkpoint = self.sync_full(checkpoint)
        files = self._index.files()
        if files:
            self._index.sync_file(files[-1])
        for path in reversed(files):
            count = IndexFile.open(path, self._index.geometry).count_below(physical_offset)
            if count > 1 or path == files[0]:
                return checkpoint._replace(index_offset=physical_offset, index_file=int(path.name), index_count=count)
        return checkpoint._replace(index_offset=physical_offset, index_file=0, index_count=0)
