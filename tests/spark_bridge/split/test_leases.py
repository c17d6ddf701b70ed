"""Leases of reads by many threads: one a plan, whoever comes first."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from spark_bridge.split import leases
from spark_bridge.split.splits import LeaseTerms
from store.upkeep import leases as store_leases
from tests.harness.children import exit_code_of


def test_threads_that_read_one_plan_hold_one_lease(tmp_path: Path, monkeypatch) -> None:
    taken: list[tuple[int, ...]] = []
    acquire, barrier = store_leases.acquire, threading.Barrier(8)
    monkeypatch.setattr(store_leases, "acquire", lambda *a, **o: taken.append(a) or acquire(*a, **o))
    monkeypatch.setattr(leases, "_held", {})
    plans = [LeaseTerms(str(tmp_path), number, 600_000) for number in range(10)]

    def read() -> None:
        barrier.wait(60)
        for terms in plans * 20:
            leases.keep(terms)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(asked[1] for asked in taken) == list(range(10))
    for held in leases._held.values():
        held.release()


def test_leases_that_cannot_be_renewed_are_reported_once_a_store(tmp_path: Path, monkeypatch, caplog) -> None:
    folder = tmp_path / "slipstream.leases"

    def refused(lease: store_leases.Lease, now_ms: int | None = None) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(lease.path))

    monkeypatch.setattr(store_leases.Lease, "keep", refused)
    for number in range(3):
        leases.renewed(store_leases.Lease(folder / str(number), 0, 60_000, os.getpid()))
    (told,) = [record.getMessage() for record in caplog.records if str(tmp_path) in record.getMessage()]
    assert told.startswith(f"{tmp_path}: read without a lease (Permission denied: {folder}): retention may")


def test_a_child_of_a_reader_does_not_wait_for_its_threads(tmp_path: Path) -> None:
    with leases._lock:
        pid = os.fork()
        if not pid:
            os._exit(0 if leases._lock.acquire(timeout=10) else 1)
        assert exit_code_of(pid) == 0
