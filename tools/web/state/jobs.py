"""Checks that a page started: each a process of its own, so many at once, so many remembered, each with bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ipc.clock import wall_ms
from ipc.module_names import IMPORTED_FROM, named
from tools.common.tls import TLS_CONFIG
from tools.web.state.asked import Watched
from tools.web.state.errors import Busy, NotAllowed, Refused, Unknown

Json = dict[str, Any]
RUNNING_MAX, KEPT_MAX, FINDINGS_MAX, LINE_BYTES_MAX = 2, 20, 200, 1 << 20
ERROR_LINES, GRACE_SECONDS = 5, 10.0
KINDS = ("verify", "digest", "doctor")
FINDING, WORDS_MAX = ("level", "code", "where", "what", "advice"), 2000
RUNNING, DONE, FAILED, CANCELLED = "running", "done", "failed", "cancelled"


@dataclass
class Job:
    """One of them; `findings` are the first ones, `findings_count` all."""

    number: int
    kind: str
    store: Watched
    process: subprocess.Popen[bytes]
    began_ms: int
    state: str = RUNNING
    part: str = ""
    done: int = 0
    total: int = 0
    text: str = ""
    well: bool | None = None
    seconds: float = 0.0
    findings: list[Json] = field(default_factory=list)
    findings_count: int = 0
    began: float = field(default_factory=time.monotonic)

    def to_json(self) -> Json:
        """Return the job as plain values."""
        seconds = time.monotonic() - self.began if self.state == RUNNING else self.seconds
        return {
            "number": self.number, "kind": self.kind, "store": self.store.number, "label": self.store.label,
            "state": self.state, "part": self.part, "done": self.done, "total": self.total, "text": self.text,
            "well": self.well, "beganMs": self.began_ms, "seconds": round(seconds, 1), "findings": self.findings,
            "findingsCount": self.findings_count,
        }  # fmt: skip


class Jobs:
    """Jobs of one console."""

    def __init__(self, name_servers: str, tls_config: str | None, *, may_digest: bool) -> None:
        self._name_servers, self._may_digest = name_servers, may_digest
        self._environment = {TLS_CONFIG: tls_config} if tls_config else {}
        self._lock, self._jobs = threading.Lock(), deque[Job]()
        self._count = 0

    def shown(self) -> list[Json]:
        """Return all jobs, the newest first."""
        with self._lock:
            return [job.to_json() for job in reversed(self._jobs)]

    def start(self, kind: str, store: Watched) -> Json:
        """Begin one. Raises Refused, NotAllowed, Busy."""
        if kind not in KINDS:
            raise Refused(f"kind: one of {', '.join(KINDS)}")
        if kind == "digest" and not self._may_digest:
            raise NotAllowed("digests are written into the store; start the console with --allow-digest")
        with self._lock:
            running = [job for job in self._jobs if job.state == RUNNING]
            if len(running) >= RUNNING_MAX:
                raise Busy(f"{RUNNING_MAX} checks are already running; wait for one, or cancel it")
            if any(job.kind == kind and job.store == store for job in running):
                raise Busy(f"{kind} of {store.label} is already running")
            self._count += 1
            job = Job(self._count, kind, store, self._process(kind, store), wall_ms())
            self._jobs.append(job)
            while len(self._jobs) > KEPT_MAX:
                self._jobs.remove(next(each for each in self._jobs if each.state != RUNNING))
        threading.Thread(target=self._follow, args=(job,), name=f"job {job.number}", daemon=True).start()
        return job.to_json()

    def cancel(self, number: int) -> Json:
        """End one that runs; one that has ended stays as it is. Raises Unknown."""
        with self._lock:
            job = next((job for job in self._jobs if job.number == number), None)
            if job is None:
                raise Unknown(f"no job {number}")
            if job.state == RUNNING:
                job.state, job.seconds = CANCELLED, time.monotonic() - job.began
                job.process.terminate()
        return job.to_json()

    def stop(self) -> None:
        """End all, and wait for their ends."""
        with self._lock:
            running = [job for job in self._jobs if job.state == RUNNING]
        for job in running:
            self.cancel(job.number)
        for job in running:
            _await_end(job.process)

    def _process(self, kind: str, store: Watched) -> subprocess.Popen[bytes]:
        module = named("tools.web.job_process")
        path = os.pathsep.join(filter(None, (str(IMPORTED_FROM), os.environ.get("PYTHONPATH"))))
        return subprocess.Popen(
            [sys.executable, "-m", module, kind, os.fspath(store.path), self._name_servers],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self._environment, "PYTHONPATH": path},
        )

    def _follow(self, job: Job) -> None:
        assert job.process.stdout is not None
        assert job.process.stderr is not None
        while line := job.process.stdout.readline(LINE_BYTES_MAX):
            with self._lock:
                _note(job, line)
        last_lines = deque(job.process.stderr, maxlen=ERROR_LINES)
        _await_end(job.process)
        for stream in (job.process.stdout, job.process.stderr):
            stream.close()
        with self._lock:
            if job.state == RUNNING:
                job.seconds = time.monotonic() - job.began
                job.state = DONE if job.well is not None else FAILED
                job.text = job.text or b" ".join(list(last_lines)[-1:]).decode("utf-8", "replace").strip()[:500]


def _note(job: Job, line: bytes) -> None:
    """Take in one line of the process."""
    try:
        said = json.loads(line)
    except ValueError:
        return
    if said["kind"] == "progress":
        job.part, job.done, job.total = said["part"], said["done"], said["total"]
    elif said["kind"] == "finding":
        job.findings_count += 1
        if len(job.findings) < FINDINGS_MAX:
            job.findings.append({name: str(said.get(name, ""))[:WORDS_MAX] for name in FINDING})
    else:
        job.well, job.text = said["well"], said["text"]


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
