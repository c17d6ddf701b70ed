"""Kombu's transport `slipstream://HOST:PORT` (a name server's): Celery's queues as topics, its workers as their groups.

    slipstream.register_kombu()
    app = Celery("shop", broker="slipstream://10.0.0.1:9876")

A queue is the topic of the same name, consumed by the group `kombu-QUEUE`. What is not acknowledged when its worker
ends or dies is delivered again. `reject` without `requeue` makes a dead letter of the group. Fanout exchanges, and with
them Celery's remote control, are not served.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.json import dumps, loads

from engine.clients.access import Credentials
from engine.clients.admin import AdminClient, TopicSettings
from engine.clients.cluster import log
from engine.clients.consuming.back_off import DEAD_LETTER
from engine.clients.consuming.consumer import Consumer
from engine.clients.consuming.received import ReceivedMessage
from engine.clients.consuming.requests import LAST
from engine.clients.names import ClientError
from engine.clients.sending.producer import RemoteProducer
from engine.errors import EngineError
from engine.remoting.sockets.client import PeerRefused, PeerUnreachable
from ipc.module_names import named, version_here

GROUP_PREFIX = "kombu-"
WAIT_SECONDS = 0.2  # for a message, shared by the queues of a channel
REST_SECONDS = 0.02  # of a channel that may take no more, or that got nothing
REQUEUED_LEVEL = 1  # of a message that is given back: a second
TIMEOUT_SECONDS = 5.0


class Acknowledgements(virtual.QoS):  # type: ignore[misc]
    """What a channel's messages become: done, delivered again, or a dead letter. Brokers restore what is left."""

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message, from any thread."""
        super().ack(delivery_tag)
        self.channel.settle(delivery_tag, ReceivedMessage.ack)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give a message back, or up."""
        super().ack(delivery_tag)
        level = REQUEUED_LEVEL if requeue else DEAD_LETTER
        self.channel.settle(delivery_tag, lambda message: message.retry(level))


class Channel(virtual.Channel):  # type: ignore[misc]
    """A producer, a consumer of each queue that is read, and the messages that are not acknowledged."""

    QoS = Acknowledgements
    do_restore = False

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        client = connection.client
        self._where = f"{client.hostname}:{client.port or KombuTransport.default_port}"
        self._how: dict[str, Any] = {
            "timeout": float(client.transport_options.get("timeout", TIMEOUT_SECONDS)),
            "tls_config": client.transport_options.get("tls_config"),
            "credentials": Credentials(client.userid, client.password or "") if client.userid else None,
        }
        self._consumers_of: dict[str, Consumer] = {}
        self._producer: RemoteProducer | None = None
        self._open: dict[str, ReceivedMessage] = {}
        self._needs_no_ack: set[str] = set()
        with self._admin() as admin:
            admin.members()  # Kombu tries again, or says so, where nobody answers

    def settle(self, tag: str, end: Callable[[ReceivedMessage], object]) -> None:
        """End a message: from any thread, once."""
        message = self._open.pop(tag, None)
        if message is not None:
            end(message)

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """Consume from a queue; with `no_ack` its messages are done when they arrive."""
        (self._needs_no_ack.add if no_ack else self._needs_no_ack.discard)(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Return one message of a queue; None if it has none now."""
        message = super().basic_get(queue, no_ack, **kwargs)
        if message is not None and no_ack:
            self.settle(message.delivery_tag, ReceivedMessage.ack)
        return message

    def close(self) -> None:
        """Leave the groups; what is not acknowledged is delivered again."""
        super().close()
        for client in (*self._consumers_of.values(), self._producer):
            if client is not None:
                client.close()
        self._consumers_of.clear()

    def _consumer(self, queue: str) -> Consumer:
        if queue not in self._consumers_of:
            options = {"consume_from": "first", "acknowledges": False, **self._how}
            self._consumers_of[queue] = Consumer(self._where, GROUP_PREFIX + queue, queue, **options)
        return self._consumers_of[queue].start()

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        wait = WAIT_SECONDS / max(1, len(self._active_queues))
        for message in self._consumer(queue).poll(1, wait):
            try:
                payload = loads(message.body)
                payload["properties"]["delivery_tag"] = tag = message.offset_message_id
            except (LookupError, TypeError, ValueError) as error:
                log.warning("%r is no message of Kombu's, and becomes a dead letter: %s", message, error)
                message.retry(DEAD_LETTER)
                continue
            self._open[tag] = message
            if queue in self._needs_no_ack:
                self.settle(tag, ReceivedMessage.ack)
            return payload
        raise Empty

    def _put(self, queue: str, message: Any, **_kwargs: Any) -> None:
        if self._producer is None:
            self._producer = RemoteProducer(self._where, group="kombu", **self._how)
        self._producer.send(queue, dumps(message))

    def _admin(self) -> AdminClient:
        return AdminClient(self._where, **self._how)

    def _new_queue(self, queue: str, **_kwargs: Any) -> None:
        with self._admin() as admin:
            if queue not in admin.topics():
                for member in admin.members():
                    if member.broker_id == 0:
                        admin.create_topic(member.address, TopicSettings(queue))

    def _has_queue(self, queue: str, **_kwargs: Any) -> bool:
        with self._admin() as admin:
            return queue in admin.topics()

    def _size(self, queue: str) -> int:
        with self._admin() as admin:
            return sum(offset.lag for offset in admin.offsets(GROUP_PREFIX + queue, queue).values())

    def _purge(self, queue: str) -> int:
        consumer, size = self._consumer(queue), self._size(queue)  # a group without members has no offsets to reset
        with self._admin() as admin:
            admin.reset_offsets(consumer.group, queue, -1)
        for place in consumer.assignment():  # the other members hear of it within seconds
            consumer.seek(place, LAST)
        consumer.commit()
        return size


class KombuTransport(virtual.Transport):  # type: ignore[misc]
    """What Kombu makes of a URL with the scheme `slipstream`."""

    Channel = Channel
    default_port = 9876
    driver_type, driver_name = "slipstream", "slipstream"
    polling_interval = REST_SECONDS
    connection_errors = (*virtual.Transport.connection_errors, PeerUnreachable, PeerRefused, OSError)
    channel_errors = (*virtual.Transport.channel_errors, ClientError, EngineError)

    def driver_version(self) -> str:
        """Return the release of Slipstream."""
        return version_here()


def register_kombu() -> None:
    """Have Kombu, and Celery with it, know URLs with `slipstream://`. Call it before one is used."""
    TRANSPORT_ALIASES["slipstream"] = f"{named('engine.clients.integrations.kombu_transport')}:KombuTransport"
