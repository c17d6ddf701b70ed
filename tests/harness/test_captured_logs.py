"""What tests read of captured logs has pytest's form, whatever loggers a worker has met before."""

from __future__ import annotations

import logging

import pytest
from pyspark.logger import PySparkLogger


def test_a_logger_of_pyspark_leaves_captured_logs_their_form(caplog: pytest.LogCaptureFixture) -> None:
    theirs = PySparkLogger("what a query's error leaves behind")
    theirs.addHandler(caplog.handler)
    try:
        raise LookupError("a fault")
    except LookupError:
        logging.getLogger("slipstream.test").exception("said")
    finally:
        theirs.removeHandler(caplog.handler)
    assert "said" in caplog.text and caplog.text.count("Traceback (most recent call last)") == 1
