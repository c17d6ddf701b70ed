"""Some thousand texts of `make fastjson`: what RocketMQ's classes read of them, we read, too."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.interop import rocketmq
from tests.interop.json_texts import FAULTS, compare, texts
from tests.interop.needs import need

SEED, COUNT = 7, 4000


@pytest.mark.interop
@pytest.mark.parametrize("version", rocketmq.VERSIONS)
def test_texts_of_clients_are_read_as_fastjson_reads_them(version: str) -> None:
    need([version])
    verdicts = compare(version, texts(SEED, COUNT))
    assert [one for one in verdicts if one.kind in FAULTS] == []
    counts = Counter(one.kind for one in verdicts)
    assert counts["the same"] > COUNT / 2
    assert counts["refused by both"] > COUNT / 10
