"""Checks what lies around the log: the checkpoint, and the tables of config/*.json.

Their formats have no CRCs, except Slipstream's part of the checkpoint: it is checked whether they can be read, and
whether the checkpoint speaks of this log.
"""

from __future__ import annotations

from collections.abc import Iterator

from store.errors import StoreError
from store.files import checkpoint as checkpoint_file
from store.files.directory import StoreDirectory
from store.recovery import last_run
from store.tables import json_files
from store.verify.finding import Finding

CHECKPOINT_AGAIN = (
    "remove the file while no broker runs: the next start makes it again, and looks at all of the log once"
)
CONFIG_AGAIN = "restore it from its .bak or from a replica while no broker runs, or write it again with `mqadmin`"


def checkpoint_findings(directory: StoreDirectory, max_offset: int, *, live: bool) -> Iterator[Finding]:
    """Yield what is wrong with the checkpoint; none is fine."""
    path = directory.checkpoint
    try:
        with path.open("rb") as file:
            content = file.read(checkpoint_file.FILE_BYTES + 1)
    except FileNotFoundError:
        return
    if len(content) < checkpoint_file.FILE_BYTES:
        what = f"{len(content)} bytes long instead of {checkpoint_file.FILE_BYTES}: it is ignored"
        yield Finding("CHECKPOINT", str(path), what, CHECKPOINT_AGAIN)
        return
    if reason := checkpoint_file.damage(content):
        yield Finding("CHECKPOINT", str(path), reason, CHECKPOINT_AGAIN)
        return
    checkpoint = checkpoint_file.decode(content)
    is_lower_bound = not live and not last_run.read(directory).is_copy
    if is_lower_bound and (checkpoint.flushed_offset or 0) > max_offset:
        what = f"the log was on disk up to offset {checkpoint.flushed_offset}, and now ends at {max_offset}"
        yield Finding("CHECKPOINT", str(path), what, "restore the log's end from a replica, or remove the checkpoint")


def config_findings(directory: StoreDirectory) -> Iterator[Finding]:
    """Yield a finding for each table that cannot be read."""
    for path in sorted(directory.config.glob("*.json")):
        if not path.is_file():
            continue
        try:
            problem = json_files.load(path).problem
        except StoreError as error:
            problem = str(error)
        if problem:
            yield Finding("CONFIG_FILE", str(path), " ".join(problem.split()), CONFIG_AGAIN)
