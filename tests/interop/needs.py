"""What a test needs of RocketMQ: skipped with the reason where it is not here, failed where that must not happen."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NoReturn

import pytest

from tests.interop import rocketmq


def need(versions: Iterable[str] = (rocketmq.VERSION,)) -> None:
    """Go on only if these versions can be run. In CI (CI=true) their absence is a failure."""
    for version in versions:
        reason = rocketmq.missing(version)
        if reason is not None:
            absent(reason)


def absent(reason: str) -> NoReturn:
    """Skip, but not in CI: what is skipped there is never run."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI runs the interop tests, but here they cannot: {reason}")
    pytest.skip(reason)
