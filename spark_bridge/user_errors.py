"""Errors of this source reach a user of Spark as one line: what, where, why, and what to do; not our own stack.

Spark sends a worker's error to the driver as text, stack and all. What has a code is ours and says all in its message;
anything else is a fault of this package, or of a user's function, and keeps its stack.
"""

from __future__ import annotations

import getpass
import inspect
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from spark_bridge import worker_process

HIDE_STACK = "SPARK_HIDE_TRACEBACK"  # PySpark's own switch (spark.sql.execution.pyspark.udf.hideTraceback.enabled)

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


class Unreadable(Exception):
    """Raised for a file or folder that this process may not use.

    Next: give the named user permission to read it and to enter the folders above it.
    """

    code = "UNREADABLE"

    def __init__(self, error: OSError) -> None:
        who = f"user {getpass.getuser()} (uid {os.geteuid()}) on {socket.gethostname()}"
        what = f"{error.filename}: {error.strerror} for {who}, who runs Spark's Python there"
        do = "give that user permission to read it and to enter the folders above it"
        super().__init__(f"{what}; {do}" if isinstance(error, PermissionError) else what)


@contextmanager
def one_line(*, of_files: bool = True) -> Iterator[None]:
    """Errors with a code lose their stack, and those of the system about files unless a user's code may raise them."""
    try:
        yield
    except Exception as error:
        readable = Unreadable(error) if of_files and isinstance(error, OSError) and _is_about_a_file(error) else error
        code = getattr(readable, "code", None)
        if not isinstance(code, str):
            raise
        if worker_process.module_run().startswith("pyspark."):
            os.environ[HIDE_STACK] = "1"  # it ends with this error
            text = " ".join(str(readable).split("\n"))
            readable.args = (text if text.startswith(code) else f"{code}: {text}",)
        raise readable.with_traceback(None) from None


def in_one_line(method: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
    """A method, or a generator, that Spark calls."""
    if inspect.isgeneratorfunction(method):

        @wraps(method)
        def generating(*args: Asked.args, **kwargs: Asked.kwargs) -> Any:
            with one_line():
                yield from method(*args, **kwargs)

        return generating

    @wraps(method)
    def calling(*args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        with one_line():
            return method(*args, **kwargs)

    return calling


def _is_about_a_file(error: OSError) -> bool:
    return bool(error.filename) and not hasattr(error, "code")


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that was asked for in a way that cannot be: raises why at the first thing that Spark asks of it.

    Raised while a reader is made it would be lost: Spark stops the reader then, which it does not have.
    """

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        with one_line():
            raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the reason for the refusal."""
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Raise the reason for the refusal."""
        self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Raise the reason for the refusal."""
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Raise the reason for the refusal."""
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Raise the reason for the refusal."""
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raise the reason for the refusal."""
        self._refuse()
