"""How long it took to make topics and groups that administrators asked for, as histograms.

Implements: AdminBrokerProcessor.updateAndCreateTopic, updateAndCreateTopicList, updateAndCreateSubscriptionGroup,
    updateAndCreateSubscriptionGroupList, as far as they measure themselves
"""

from __future__ import annotations

import time

from engine.monitoring.counted import GROUPS_MADE, NS_PER_MS, TOPICS_MADE, Counts
from engine.protocol.broker.admin_requests import LIST_BYTES_MAX
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from store.message.topics import is_system_topic
from store.tables import fastjson
from store.tables.fastjson import MalformedJson
from store.tables.java_fields import JavaFields

LISTED = "topicConfigList"
ONE_TOPIC, MANY_TOPICS = RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
ONE_GROUP = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
MANY_GROUPS = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
MAKING = frozenset({ONE_TOPIC, MANY_TOPICS, ONE_GROUP, MANY_GROUPS})


def note_made(counts: Counts, request: RemotingCommand, code: int, began_ns: int) -> None:
    """Note how long an answered request took; one that was refused before it was looked into is left out."""
    took_ms = (time.monotonic_ns() - began_ns) // NS_PER_MS
    status = "success" if code == ResponseCode.SUCCESS else "failure"
    if code == ResponseCode.NO_PERMISSION or (request.code == ONE_GROUP and code != ResponseCode.SUCCESS):
        return
    if request.code in (ONE_GROUP, MANY_GROUPS):
        counts.observe(GROUPS_MADE, took_ms, status)
    elif (names := _names(request)) is not None:
        counts.observe(TOPICS_MADE, took_ms, status, str(is_system_topic(names)).lower())


def _names(request: RemotingCommand) -> str | None:
    """The topic's name; of many, all in one word, as RocketMQ asks whether they are its own. None without any."""
    if request.code == ONE_TOPIC:
        return (request.ext_fields or {}).get("topic")
    try:
        value = fastjson.sent(request.body, LISTED, LIST_BYTES_MAX)
        listed = JavaFields(value, LISTED).objects(LISTED, LIST_BYTES_MAX)
        return "".join(f"{one.text('topicName')};" for one in listed)
    except MalformedJson:
        return None
