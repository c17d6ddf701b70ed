"""What the store's rules need to know of this broker and its topics when a message is put."""

from __future__ import annotations

from dataclasses import replace

from engine.front.connections.tables import TOPICS, Tables
from engine.settings.config import BrokerConfig
from store.message.delay import levels_ms
from store.message.host import Host
from store.put.policy import POLICIES, Facts
from store.tables import tables as broker_tables

MULTI_TAG = "MULTI_TAG"


class PutSettings:
    """The facts; `now` returns them with the newest topics."""

    def __init__(self, config: BrokerConfig, tables: Tables) -> None:
        self._tables = tables
        self._altered: set[str] | None = None  # topics since `now`; None: perhaps all
        self._facts = Facts(
            policy=POLICIES[config.compat],
            store_host=Host(config.broker_ip1, config.listen_port),
            cluster_name=config.broker_cluster_name,
            region_id=config.region_id,
            trace_on=config.trace_on,
            message_bytes_max=config.max_message_bytes,
            enable_lmq=config.enable_lmq,
            enable_multi_dispatch=config.enable_multi_dispatch,
            enabled_append_prop_crc=config.enabled_append_prop_crc,
            delay_level_max=len(levels_ms(config.message_delay_level)),
        )
        tables.follow(self._changed)

    def _changed(self, table: str, name: str | None) -> None:
        if table == TOPICS and name is None:
            self._altered = None
        elif table == TOPICS and name is not None and self._altered is not None:
            self._altered.add(name)

    def now(self) -> Facts:
        """Return the facts with the special topics; of very many topics only changed ones are looked at."""
        if self._altered is None or self._altered:
            topics, facts = self._tables.topics, self._facts
            names, self._altered = self._altered, set()
            looked = topics if names is None else {name: topics[name] for name in names if name in topics}
            multi_tag = {name for name, topic in looked.items() if topic.get("topicFilterType") == MULTI_TAG}
            batch = broker_tables.batch_topics({broker_tables.TOPIC_TABLE: looked}, TOPICS)
            gone = names if names is not None else facts.batch_topics | facts.multi_tag_topics
            batch, multi = facts.batch_topics - gone | batch, facts.multi_tag_topics - gone | multi_tag
            self._facts = replace(facts, batch_topics=batch, multi_tag_topics=multi)
        return self._facts
