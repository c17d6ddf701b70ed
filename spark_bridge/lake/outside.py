"""Turns errors of catalogs, storage and their clients into LakeFailed, in one line and without credentials."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

import pyarrow as pa

from spark_bridge.lake.errors import Conflict, LakeError, LakeFailed

SECRET = re.compile(r"secret|token|password|credential|key|sas|connection", re.IGNORECASE)
USER_OF_URL = re.compile(r"://[^/@\s]+@")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
PANICS_OF = "pyo3_runtime"
PACKAGES = frozenset({
    "pyiceberg", "sqlalchemy", "sqlite3", "psycopg2", "requests", "urllib3", "botocore", "fsspec", "s3fs", "adlfs",
    "gcsfs", "deltalake", "_internal", "pydantic", "pyarrow",
})  # fmt: skip
HIDDEN, HIDDEN_LEAST = "***", 4  # shorter values are no secrets, and stand in every second word
TEXT_MAX = 600
GOES_ON = "correct that and start again; the load continues after its last commit"


class Outside:
    """A catalog or a storage that is asked with secrets, which are never shown."""

    def __init__(self, table: str, properties: Mapping[str, str]) -> None:
        self.table = self._without_user(table)
        values = [value for name, value in properties.items() if SECRET.search(name) and len(value) >= HIDDEN_LEAST]
        self._secrets = sorted(values, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"Outside({self.table!r})"

    @contextmanager
    def asked(self, what: str, *but: type[Exception]) -> Iterator[None]:
        """Raise LakeFailed for foreign errors in the block, except `but`; the project's own errors pass unchanged."""
        try:
            yield
        except Exception as error:
            if isinstance(error, (LakeError, Conflict, *but)) or not _is_foreign(error):
                raise
            raise self.failed(what, error) from None
        except BaseException as error:  # deltalake's, where its Rust gave up
            if type(error).__module__ != PANICS_OF:
                raise
            raise self.failed(what, error) from None

    def failed(self, what: str, error: BaseException) -> LakeFailed:
        """Return the error as one line with the table's name."""
        return LakeFailed(f"{self.table}: {what}: {self.text_of(error)}; {GOES_ON}")

    def text_of(self, error: BaseException) -> str:
        """Return what an error says, without what must not be shown, nor a terminal's colours."""
        text = " ".join(COLOURS.sub("", str(error)).split()) or type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return self._without_user(text)[:TEXT_MAX]

    @staticmethod
    def _without_user(text: str) -> str:
        return USER_OF_URL.sub(f"://{HIDDEN}@", text)


def _is_foreign(error: Exception) -> bool:
    """Whether it comes from one of their packages, by its class or by where it was raised."""
    if isinstance(error, OSError | pa.ArrowException):
        return True
    raised_in = _module_of(error.__traceback__)
    return any(name.partition(".")[0] in PACKAGES for name in (type(error).__module__, raised_in))


def _module_of(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
