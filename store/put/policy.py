"""What the rules for stored messages (`PutRules`) need to know of a broker, and property strings by these rules."""

from __future__ import annotations

from dataclasses import dataclass

from store.compat import LINES, PutRules
from store.message.delay import DELAYS_MS
from store.message.host import Host
from store.message.properties import NAME_SEPARATOR, PAIR_SEPARATOR, parse_text
from store.put.java_map import JavaMap

POLICIES = {compat: line.put for compat, line in LINES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts of a broker that the rules need: its settings, its topics."""

    policy: PutRules
    store_host: Host
    cluster_name: str = "DefaultCluster"
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    message_bytes_max: int = 4 << 20
    delay_level_max: int = len(DELAYS_MS)
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    enabled_append_prop_crc: bool = False
    batch_topics: frozenset[str] = frozenset()  # whose attribute queue.type says BatchCQ
    multi_tag_topics: frozenset[str] = frozenset()

    @property
    def appends_crc(self) -> bool:
        """Whether records end in a `__CRC32#` property."""
        return self.policy.property_crc and self.enabled_append_prop_crc


def parse_properties(policy: PutRules, text: str) -> JavaMap:
    """A property string as the version's map."""
    return JavaMap(policy.map_capacity, parse_text(text).items())


def property_text(policy: PutRules, properties: JavaMap) -> str:
    """The map as the version writes it."""
    text = PAIR_SEPARATOR.join(f"{name}{NAME_SEPARATOR}{value}" for name, value in properties.ordered())
    return text + PAIR_SEPARATOR if text and policy.trailing_separator else text


def text_bytes(text: str) -> bytes:
    """The text as Java's getBytes(UTF_8): a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace")
