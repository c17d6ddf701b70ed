"""What all tests share: a Java for Spark, and directories and ports of their own, to run side by side."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SHARED_MEMORY = Path("/dev/shm")
JAVA_OF_SETUP = Path(sys.prefix) / "java"


def pytest_configure() -> None:
    """Spark tests use the Java that `make setup` found and tried."""
    if (JAVA_OF_SETUP / "bin" / "java").exists():
        os.environ["JAVA_HOME"] = str(JAVA_OF_SETUP)


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    """The root of a store that does not exist yet."""
    return tmp_path / "store"


@pytest.fixture
def region_dir() -> Iterator[Path]:
    """A directory in shared memory, removed afterwards."""
    parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="slipstream-test-", dir=parent))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Gives ports of 127.0.0.1 that were free a moment ago."""

    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return find
