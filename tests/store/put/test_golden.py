"""Every record of the golden stores, made again from its client's request by our policies: the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.message.host import Host
from store.message.record import Kind, Message, decode, inspect
from store.put.policy import POLICIES, Facts
from tests.harness.golden_requests import Requests
from tests.harness.reference_log import ReferenceLog
from tests.store.golden import STORES, unpack

SEGMENT_BYTES = 256 * 1024
COMPAT = {"rocketmq-4.9.7": "4.9", "rocketmq-5.3.3": "5"}
KINDS = {
    "master": {"batch", "committed", "delayed", "delivered", "given up", "half", "half checked", "op", "sent back"},
    "features": {"multi-dispatch"},
}


def facts_of(version: str, name: str) -> Facts:
    """The settings of the captured brokers."""
    is_features = name == "features"
    return Facts(
        policy=POLICIES[COMPAT[version]],
        store_host=Host("0.0.0.0", 0),
        enable_lmq=is_features,
        enable_multi_dispatch=is_features,
        enabled_append_prop_crc=is_features,
        batch_topics=frozenset({"featBcq"}),
    )


def records(root: Path) -> tuple[bytes, list[Message]]:
    """The whole log, and its messages in order."""
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    messages, at = [], 0
    while True:
        segment = at - at % SEGMENT_BYTES
        found = inspect(log[segment : segment + SEGMENT_BYTES], at - segment, at, check_body_crc=True)
        if found.kind is Kind.MESSAGE:
            messages.append(decode(log, at))
        elif found.kind is not Kind.BLANK:
            return log, messages
        at += found.size


@pytest.mark.parametrize(("version", "name"), STORES)
def test_our_policies_write_what_the_real_broker_wrote(version: str, name: str, tmp_path: Path) -> None:
    captured, messages = records(unpack(version, name, tmp_path))
    assert messages
    requests, ours = Requests(facts_of(version, name), seed=4), ReferenceLog(SEGMENT_BYTES)
    for draft, store_timestamp_ms, group in requests.drafts(messages):
        first = group[0].physical_offset
        made = ours.append(draft, store_timestamp_ms)
        assert made == captured[first : first + len(made)], f"{first}: {group[0].topic} {group[0].properties}"
    assert len(ours.data) == messages[-1].physical_offset + messages[-1].total_size
    assert KINDS[name] <= set(requests.kinds)
    if version == "rocketmq-5.3.3" and name == "features":
        assert {"inner batch", "sent back"} <= set(requests.kinds)
