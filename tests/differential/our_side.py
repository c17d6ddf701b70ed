"""Drives our broker with the list, through `Producer`: one message after the other, each waited for."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from engine.errors import EngineError
from engine.producer.producer import Producer, PutMessageStatus, SendRequest, SendResult
from engine.shared_memory.cursors import BrokerCounters
from store.errors import StoreError
from store.message.host import Host
from store.reading import extent
from tests.differential.operations import COMMIT, GROUP, EndTransaction, Operation, Put, SendBack
from tests.differential.settings import NEVER_MS, Hosts, Outcome, common_settings
from tests.harness.ha_node import wait_for
from tools.common.local_broker import LocalBroker

SEND_SECONDS = 60.0
RETRY_MAX_TIMES = 16  # of a subscription group, by default
NOWHERE = 2**40


def our_settings(hosts: Hosts, *, five: bool, features: bool) -> dict[str, Any]:
    """What only our broker is told."""
    settings = common_settings(features=features)
    settings |= {"brokerIP1": hosts.broker_ip, "brokerIP2": hosts.broker_ip, "listenPort": hosts.listen_port}
    settings |= {"compat": "5" if five else "4.9", "ringSizeInBytes": 1 << 20, "transactionCheckInterval": NEVER_MS}
    if five:
        settings |= {"timerWheelEnable": "false", "transactionOpMsgMaxSize": 1}
    if five and features:
        settings |= {"enabledAppendPropCRC": "true"}
    return settings


class OurSide:
    """The driver of one run."""

    def __init__(self, producer: Producer, hosts: Hosts) -> None:
        self._producer, self._hosts = producer, hosts
        self.outcomes: dict[int, Outcome] = {}

    def run(self, operations: Iterable[Operation]) -> dict[int, Outcome]:
        """Give it all operations; what became of each, by its number."""
        for number, operation in enumerate(operations):
            try:
                self.outcomes[number] = self._do(operation)
            except (StoreError, EngineError) as refused:
                self.outcomes[number] = Outcome(False, said=f"{refused.code}: {refused}")
            if isinstance(operation, Put) and operation.oneway:
                self.outcomes[number] = Outcome(None)
        return self.outcomes

    def _do(self, operation: Operation) -> Outcome:
        match operation:
            case Put():
                return self._put(operation)
            case SendBack():
                return self._send_back(operation)
            case EndTransaction():
                return self._end(operation)

    def _put(self, put: Put) -> Outcome:
        request = SendRequest(
            topic=put.topic,
            body=put.body,
            queue_id=put.queue_id,
            sys_flag=put.sys_flag,
            flag=put.flag,
            born_timestamp_ms=put.born_timestamp_ms,
            properties=put.properties or "",
            batch=put.batch,
            born_host=Host("::1" if put.ipv6 else "127.0.0.1", self._hosts.client_port),
            reconsume_times=put.reconsume_times,
        )
        result = self._producer.put_message(request, timeout=SEND_SECONDS)
        return Outcome(
            True, [int(text[-16:], 16) for text in result.message_id.split(",")], result.queue_id, result.queue_offset
        )

    def _send_back(self, back: SendBack) -> Outcome:
        origin = self.outcomes[back.origin]
        offset = origin.physical_offsets[0] if origin.stored else NOWHERE
        times = RETRY_MAX_TIMES if back.max_reconsume_times is None else back.max_reconsume_times
        self._producer.send_back(offset, group=back.group, delay_level=back.delay_level, max_reconsume_times=times)
        return Outcome(True)

    def _end(self, end: EndTransaction) -> Outcome:
        half = self.outcomes[end.half]
        if not half.stored:
            return Outcome(False, said="its half message was refused")
        result = SendResult(PutMessageStatus.PUT_OK, "", half.queue_id, half.queue_offset, half.physical_offsets[0])
        self._producer.end_transaction(result, commit=end.decision == COMMIT, group=GROUP)
        return Outcome(True)


def run(
    home: Path, operations: Iterable[Operation], config: Path, hosts: Hosts, *, five: bool, features: bool
) -> dict[int, Outcome]:
    """Everything from the start of our broker to its orderly end; its store is `home / "store"`.

    The topics are made by giving it the configuration that the real one wrote: no part of what is compared.
    """
    shutil.copytree(config, home / "store" / "config")
    with LocalBroker(home, **our_settings(hosts, five=five, features=features)) as broker:
        counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory, writable=True)
        with Producer(str(broker.store), timeout=SEND_SECONDS) as producer:
            outcomes = OurSide(producer, hosts).run(operations)
        wait_for(counters.reput_from_offset, counters.max_physical_offset.read())
    return outcomes
