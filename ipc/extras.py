"""What an extra of the package brings, and the one line that is said where it is missing."""

from __future__ import annotations

from importlib.util import find_spec

from ipc.module_names import DISTRIBUTION


class ExtraMissing(ImportError):
    """Raised where a package of an extra is asked for and not installed.

    Next: `pip install 'slipstream-log[EXTRA]'`, with the extra that the message names; in a checkout `make setup`.
    """

    code = "EXTRA_MISSING"

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the package {package}, which is not installed here; run"
            f" `pip install '{DISTRIBUTION}[{extra}]'`, in a checkout `make setup`",
            name=package,
        )


def require_spark(what: str) -> None:
    """Raise ExtraMissing unless what Spark's bridge imports is there."""
    _require(what, "spark", "pyspark", "pyarrow")


def require_arrow(what: str) -> None:
    """Raise ExtraMissing unless what scans give is there."""
    _require(what, "arrow", "pyarrow")


def require_kombu(what: str) -> None:
    """Raise ExtraMissing unless what Kombu's transport imports is there."""
    _require(what, "kombu", "kombu")


def require_otel(what: str) -> None:
    """Raise ExtraMissing unless what makes spans is there."""
    _require(what, "otel", "opentelemetry")


def require_web(what: str) -> None:
    """Raise ExtraMissing unless what the web console imports is there."""
    _require(what, "web", "starlette", "uvicorn")


def require_lake(what: str, kind: str | None = None) -> None:
    """Raise ExtraMissing unless what writes tables is there; those of a kind, iceberg or delta, where one is named."""
    writers = {"iceberg": ["pyiceberg"], "delta": ["deltalake"]}
    _require(what, "lake", "pyarrow", *writers.get(kind or "", []))


def _require(what: str, extra: str, *packages: str) -> None:
    for package in packages:
        try:
            is_there = find_spec(package) is not None
        except ValueError:  # a module without a spec, which Kombu makes of itself when it is loaded
            is_there = True
        if not is_there:
            raise ExtraMissing(what, package, extra)
