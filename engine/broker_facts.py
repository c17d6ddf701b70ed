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

from store import broker_json, broker_tables
from store.message_id import Host
from store.message_policy import POLICIES, Facts

MULTI_TAG = "MULTI_TAG"


class BrokerFacts:
    """The facts; `settings` of them those that stay, `current` with the topics."""

    def __init__(self, store: str, settings: Mapping[str, Any], store_host: Host) -> None:
        self._topics, self._changed_ns = Path(store) / "config" / broker_tables.TOPICS, 0
        self.settings = Facts(
            policy=POLICIES[str(settings["compat"])], store_host=store_host,
            cluster_name=str(settings["brokerClusterName"]), region_id=str(settings["regionId"]),
            trace_on=bool(settings["traceOn"]), message_bytes_max=int(settings["maxMessageSize"]),
            enable_lmq=bool(settings["enableLmq"]), enable_multi_dispatch=bool(settings["enableMultiDispatch"]),
            enabled_append_prop_crc=bool(settings["enabledAppendPropCRC"]),
            timer_wheel_enable=bool(settings["timerWheelEnable"]),
        )  # fmt: skip

    def current(self) -> Facts:
        """With the topics as topics.json has them. Raises MalformedConfig."""
        try:
            changed_ns = os.stat(self._topics).st_mtime_ns
        except FileNotFoundError:
            return self.settings
        if changed_ns != self._changed_ns:
            value, path = broker_json.read(self._topics), str(self._topics)
            multi_tag = frozenset(
                topic
                for topic, fields in broker_tables.topics(value, path).items()
                if fields.get("topicFilterType") == MULTI_TAG
            )
            batch = broker_tables.batch_topics(value, path)
            self.settings = replace(self.settings, batch_topics=batch, multi_tag_topics=multi_tag)
            self._changed_ns = changed_ns
        return self.settings
