"""A broker of each release line for a module's consumers, local and on the wire, and a topic for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.consumers import SIZES, Broker


@pytest.fixture(scope="module", params=["4.9", "5"])
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("consumer") / "b", compat=request.param, **SIZES) as broker:
        assert isinstance(broker, Broker)
        yield broker


@pytest.fixture(params=["local", "wire"])
def broker(request: pytest.FixtureRequest, started: Broker) -> Broker:
    started.is_local = request.param == "local"
    return started


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic and a group of the test's own."""
    return "".join(one if one.isalnum() else "_" for one in request.node.name)[:100]
