"""What a broker of each version does to a message before it stores it: one line a rule, one column a version.

Implements: the differences between 4.9.7 and 5.3.3 in SendMessageProcessor, MessageDecoder, CommitLog, HookUtils,
MultiDispatch (LmqDispatch) and the transaction services (spec: store-formats, sections 3, 5, 8)
`POLICIES` is keyed by the setting `compat`. Nothing else asks for a version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from store.message.delay import DELAYS_MS
from store.message.host import Host
from store.message.properties import NAME_SEPARATOR, PAIR_SEPARATOR, parse_text
from store.put.java_map import JavaMap


class Policy(NamedTuple):
    """The rules of one version."""

    map_capacity: int  # of the HashMap that a property string is parsed into
    trailing_separator: bool  # behind the last property
    adds_region: bool  # MSG_REGION and TRACE_ON, to batches too
    adds_unique_key: bool  # UNIQ_KEY where the client gave none, but not to batches
    adds_transaction_id: bool  # __transactionId__ to half messages that have a UNIQ_KEY
    removes_wait: bool  # from single messages, unless they are written out once more (delay, half)
    removes_pop_check: bool  # POP_CK
    stores_empty_bodies: bool
    measures_text: bool  # limits count UTF-16 units of the text, then bytes of the property string
    dead_at_limit: bool  # a message to %RETRY% is dead at the greatest number of attempts; else only above it
    told_dead: bool  # … and says so: DELAY=-1
    half_when_retried: bool  # a retried message with a delay may still be a half message
    keeps_store_host: bool  # of a message that a consumer sends back
    long_retry_topics: bool  # up to 255 bytes, in records of version 2
    timers: bool  # TIMER_* go to the timer's topic
    inner_batches: bool
    property_crc: bool
    multi_dispatch_of_all: bool  # any queue may be named, not only %LMQ%; in any topic
    multi_dispatch_repeats: bool  # a queue named twice counts twice
    ops_in_batches: bool  # op messages collect offsets, each with a comma behind it


POLICIES = {
    "4.9": Policy(
        map_capacity=16, trailing_separator=False, adds_region=False, adds_unique_key=False, adds_transaction_id=False,
        removes_wait=True, removes_pop_check=False, stores_empty_bodies=True, measures_text=True, dead_at_limit=True,
        told_dead=False, half_when_retried=True, keeps_store_host=True, long_retry_topics=False, timers=False,
        inner_batches=False, property_crc=False, multi_dispatch_of_all=True, multi_dispatch_repeats=False,
        ops_in_batches=False,
    ),
    "5": Policy(
        map_capacity=128, trailing_separator=True, adds_region=True, adds_unique_key=True, adds_transaction_id=True,
        removes_wait=False, removes_pop_check=True, stores_empty_bodies=False, measures_text=False,
        dead_at_limit=False, told_dead=True, half_when_retried=False, keeps_store_host=False, long_retry_topics=True,
        timers=True, inner_batches=True, property_crc=True, multi_dispatch_of_all=False, multi_dispatch_repeats=True,
        ops_in_batches=True,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the rules need to know of a broker: its settings, its topics."""

    policy: Policy
    store_host: Host
    cluster_name: str = "DefaultCluster"
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    message_bytes_max: int = 4 << 20
    delay_level_max: int = len(DELAYS_MS)
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    enabled_append_prop_crc: bool = False
    timer_wheel_enable: bool = True
    timer_precision_ms: int = 1000
    timer_max_delay_s: int = 3 * 24 * 3600
    batch_topics: frozenset[str] = frozenset()  # whose attribute queue.type says BatchCQ
    multi_tag_topics: frozenset[str] = frozenset()

    @property
    def appends_crc(self) -> bool:
        """Whether records end in a `__CRC32#` property."""
        return self.policy.property_crc and self.enabled_append_prop_crc


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
