"""Pages of what was freed, counted by the kernel in a process of its own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from spark_bridge.flight.client import RemoteStore
from spark_bridge.records.freed_memory import keep_freed_memory
from spark_bridge.scanning import scan
from tests.spark_bridge.columnar.side_files import make, write_side_files

COUNT = """
import resource
import numpy as np
from spark_bridge.records.freed_memory import keep_freed_memory

keep_freed_memory()

def batch():
    [np.ones(1 << 20, np.uint8) for _ in range(6)]

batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    batch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 20 * (6 << 20) // os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has other thresholds")
def test_arrays_of_the_next_batch_lie_in_the_pages_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))]:
        monkeypatch.delenv(name)
    ran = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, check=True, timeout=120)
    assert int(ran.stdout) < PAGES // 10


@pytest.mark.parametrize("by_side_files", [False, True])
def test_a_reader_keeps_freed_pages(tmp_path: Path, by_side_files: bool) -> None:
    store = make(tmp_path / "store")
    write_side_files(store.root, group_rows=16, end=store.end)
    keep_freed_memory.cache_clear()
    assert scan(store.root, columns=["body"], columnarSidecar=by_side_files).read_all().num_rows
    assert keep_freed_memory.cache_info().currsize == 1


def test_a_client_of_flight_keeps_freed_pages() -> None:
    keep_freed_memory.cache_clear()
    RemoteStore("grpc://127.0.0.1:1").close()
    assert keep_freed_memory.cache_info().currsize == 1
