"""What the rules for stored messages need to know of the broker that runs on a store: its settings, its topics.

Topics are looked up in config/topics.json, again whenever that file has changed; a store without one has no topics with
attributes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from store.files.file_state import state_in
from store.message.delay import levels_ms
from store.message.host import Host
from store.names import CONFIG, TOPICS
from store.put.policy import POLICIES, Facts
from store.tables import json_files
from store.tables import tables as broker_tables

MULTI_TAG = "MULTI_TAG"


class BrokerFacts:
    """The facts; `settings` of them those that stay, `current` with the topics."""

    def __init__(self, store: str, settings: Mapping[str, Any], store_host: Host) -> None:
        self._topics, self._changed = Path(store) / CONFIG / TOPICS, (0, 0, 0)
        self.topics: Mapping[str, Mapping[Any, Any]] = {}  # by name, as `current` last found them
        levels = levels_ms(str(settings["messageDelayLevel"]))
        self.settings = Facts(
            policy=POLICIES[str(settings["compat"])],
            store_host=store_host,
            cluster_name=str(settings["brokerClusterName"]),
            region_id=str(settings["regionId"]),
            trace_on=bool(settings["traceOn"]),
            message_bytes_max=int(settings["maxMessageSize"]),
            enable_lmq=bool(settings["enableLmq"]),
            enable_multi_dispatch=bool(settings["enableMultiDispatch"]),
            enabled_append_prop_crc=bool(settings["enabledAppendPropCRC"]),
            delay_level_max=len(levels),
        )

    def current(self) -> Facts:
        """Return the facts with the topics in topics.json. Raises MalformedConfig."""
        try:
            changed = state_in(os.stat(self._topics))
        except FileNotFoundError:
            return self.settings
        if changed != self._changed:
            value, path = json_files.read(self._topics), str(self._topics)
            self.topics = broker_tables.topics(value, path)
            multi_tag = frozenset(
                topic for topic, fields in self.topics.items() if fields.get("topicFilterType") == MULTI_TAG
            )
            batch = broker_tables.batch_topics(value, path)
            self.settings = replace(self.settings, batch_topics=batch, multi_tag_topics=multi_tag)
            self._changed = changed
        return self.settings
