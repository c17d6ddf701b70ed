"""The public face in a checkout: every name is there, and importing it costs nothing that is not asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import slipstream
from engine.producer import Producer
from ipc import extras
from tests.harness.installed import ROOT

HEAVY = "numpy numba pyspark pyarrow click rich asyncio"


def test_importing_it_loads_nothing_heavy() -> None:
    script = f"import sys, slipstream; assert not set({HEAVY!r}.split()) & set(sys.modules); dir(slipstream)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


def test_every_public_name_is_there() -> None:
    assert {name: getattr(slipstream, name) for name in slipstream.__all__}.keys() <= set(dir(slipstream))
    assert slipstream.Producer is Producer
    with pytest.raises(AttributeError, match="no attribute 'Broker'"):
        getattr(slipstream, "Broker")  # noqa: B009 - mypy knows that it is not there


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "slipstream", "--version"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, cwd=ROOT)
    assert ran.stdout.startswith("slipstream ")


@pytest.mark.parametrize(
    ("name", "extra"), [("scan", "arrow"), ("lake", "lake"), ("processing", "otel"), ("register_kombu", "kombu")]
)
def test_the_extra_that_is_named_is_all_that_is_needed(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _name: None)
    monkeypatch.delitem(vars(slipstream), name, raising=False)
    with pytest.raises(extras.ExtraMissing, match=rf"`pip install 'slipstream-log\[{extra}\]'`"):
        getattr(slipstream, name)


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_a_missing_extra_is_reported_in_one_line(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == missing else name)
    monkeypatch.delitem(vars(slipstream), "session", raising=False)
    with pytest.raises(extras.ExtraMissing) as raised:
        _ = slipstream.session
    assert str(raised.value) == (
        f"slipstream.session needs the package {missing}, which is not installed here; run"
        " `pip install 'slipstream-log[spark]'`, in a checkout `make setup`"
    )
    assert (raised.value.code, raised.value.name) == ("EXTRA_MISSING", missing)
