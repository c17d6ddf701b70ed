"""What a broker of each version does to a message before it stores it: one line a rule, one column a version.

Implements: the differences between 4.9.7 and 5.3.3 in SendMessageProcessor, MessageDecoder, CommitLog and the
transaction services (spec: store-formats, sections 3, 5, 8)
`POLICIES` is keyed by the setting `compat`. Nothing else asks for a version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from store.delay import DELAYS_MS
from store.java_map import JavaMap
from store.message_id import Host
from store.properties import MAX_PROPERTIES_BYTES, NAME_SEPARATOR, PAIR_SEPARATOR, parse_text


class Policy(NamedTuple):
    """The rules of one version."""

    map_capacity: int  # of the HashMap that a property string is parsed into
    trailing_separator: bool  # behind the last property
    adds_region: bool  # MSG_REGION and TRACE_ON, to batches too
    adds_unique_key: bool  # UNIQ_KEY where the client gave none, but not to batches
    removes_wait: bool  # from single messages, unless they are rewritten (delay, half)
    removes_pop_check: bool  # POP_CK
    stores_empty_bodies: bool
    dead_after_equal: bool  # a message to %RETRY% is dead at the greatest number of attempts; else only above it
    keeps_store_host_of_sent_back: bool
    long_retry_topics: bool  # topics above 127 bytes, in records of version 2


POLICIES = {
    "4.9": Policy(
        map_capacity=16, trailing_separator=False, adds_region=False, adds_unique_key=False, removes_wait=True,
        removes_pop_check=False, stores_empty_bodies=True, dead_after_equal=True, keeps_store_host_of_sent_back=True,
        long_retry_topics=False,
    ),
    "5": Policy(
        map_capacity=128, trailing_separator=True, adds_region=True, adds_unique_key=True, removes_wait=False,
        removes_pop_check=True, stores_empty_bodies=False, dead_after_equal=False, keeps_store_host_of_sent_back=False,
        long_retry_topics=True,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the rules need to know of a broker: its settings under our names."""

    policy: Policy
    store_host: Host
    cluster_name: str = "DefaultCluster"
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    delay_level_max: int = len(DELAYS_MS)
    message_bytes_max: int = 4 << 20


def parse_properties(policy: Policy, text: str) -> JavaMap:
    """A property string as the version's map."""
    return JavaMap(policy.map_capacity, parse_text(text).items())


def property_text(policy: Policy, properties: JavaMap) -> str:
    """The map as the version writes it."""
    text = PAIR_SEPARATOR.join(f"{name}{NAME_SEPARATOR}{value}" for name, value in properties.ordered())
    return text + PAIR_SEPARATOR if text and policy.trailing_separator else text


def text_bytes(text: str) -> bytes:
    """The text as Java's getBytes(UTF_8): a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace")


__all__ = ["MAX_PROPERTIES_BYTES", "POLICIES", "Facts", "Policy", "parse_properties", "property_text", "text_bytes"]
