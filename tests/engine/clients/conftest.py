"""A client that waits for ever fails its test, with what each thread was doing."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator

import pytest

from tests.harness.conditions import SECONDS


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """End the process of a test that hangs."""
    faulthandler.dump_traceback_later(3 * SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
