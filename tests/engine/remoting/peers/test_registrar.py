"""Who waits until the name servers know of a topic: also while a broker does not know yet what it registers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from engine.remoting.peers.name_servers import NameServers
from engine.remoting.peers.registrar import Registrar
from engine.settings.config import from_mapping
from engine.shared_memory.cursors import BrokerCounters

FIRST, SECOND = "127.0.0.1:1", "127.0.0.1:2"
SECONDS = 120.0


def registrar(directory: Path, *names: str) -> Registrar:
    """Of a broker whose HA port is not known yet, so nothing is registered; a test says what was answered."""
    config = from_mapping({"storePathRootDir": directory / "store", "namesrvAddr": ";".join(names)})
    nothing = cast(Any, None)
    counters = BrokerCounters.create(directory / "counters")
    names_now = NameServers(config, nothing, nothing)
    return Registrar(names_now, counters, nothing, nothing, nothing, nothing, nothing, end_turn=lambda: None)


def test_a_topic_that_is_made_before_the_first_registration_waits_for_it(tmp_path: Path) -> None:
    async def made() -> None:
        one = registrar(tmp_path, FIRST, SECOND)
        waiting = asyncio.create_task(one.registered(SECONDS))
        for address in (FIRST, SECOND):
            done, _ = await asyncio.wait({waiting}, timeout=0.01)
            assert not done, f"{address} has not said anything"
            one._note_answer(address, one._asked)
        await waiting

    asyncio.run(made())


@pytest.mark.parametrize(("names", "seconds"), [((), SECONDS), ((FIRST,), 0.01)])
def test_a_registration_waits_for_no_absent_name_server_and_not_too_long(
    tmp_path: Path, names: tuple[str, ...], seconds: float
) -> None:
    asyncio.run(registrar(tmp_path, *names).registered(seconds))
