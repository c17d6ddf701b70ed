"""Kombu and Celery themselves, over topics of a Slipstream broker with a name server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu import Connection, Consumer, Queue
from kombu.exceptions import OperationalError

from engine.clients.admin import AdminClient
from engine.clients.integrations.kombu_transport import register_kombu
from engine.clients.sending.producer import RemoteProducer
from store.message.topics import DEAD_PREFIX
from tests.harness.conditions import SECONDS, await_that
from tests.harness.page_blocks import ROOT
from tests.harness.served_names import Serving
from tools.common.local_broker import LocalBroker

register_kombu()

TASKS = 30
LONG = {"timeout": 120.0}
APP = """
import os, time
from celery import Celery
import slipstream

slipstream.register_kombu()
app = Celery("tasks", broker=os.environ["URL"])
app.conf.update(task_acks_late=True, broker_transport_options={"timeout": 120.0}, worker_prefetch_multiplier=1)


@app.task
def note(number):
    file = os.open(os.environ["SEEN"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{number}\\n".encode())
    os.close(file)
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    names = Serving()
    try:
        settings = {"mappedFileSizeCommitLog": 1 << 20, "messageDelayLevel": "1s " * 17 + "1s", "compat": "5"}
        at = f"127.0.0.1:{names.port}"
        with LocalBroker(tmp_path_factory.mktemp("kombu") / "b", namesrvAddr=at, **settings):
            with AdminClient(at, 120.0) as admin:
                await_that(admin.members, "the name server knows the broker")
            yield f"slipstream://{at}"
    finally:
        names.stop()


def got(connection: Connection, queue: Queue, decide: str, **options: bool) -> str:
    """The body of the next message of a queue, after what is decided about it."""
    bodies: list[str] = []

    def receive(body: str, message: object) -> None:
        bodies.append(body)
        if decide:
            getattr(message, decide)()

    with Consumer(connection, [queue], callbacks=[receive], **options):
        while not bodies:
            connection.drain_events(timeout=SECONDS)
    return bodies[0]


def test_messages_are_done_given_back_and_given_up(url: str) -> None:
    queue = Queue("jobs", routing_key="jobs")
    with Connection(url, transport_options=LONG) as connection:
        producer = connection.Producer()
        for body in ("one", "two"):
            producer.publish(body, routing_key="jobs", declare=[queue])
        assert sorted(got(connection, queue, "ack") for _ in range(2)) == ["one", "two"]
        producer.publish("three", routing_key="jobs")
        assert got(connection, queue, "requeue") == got(connection, queue, "reject") == "three"
        producer.publish("four", routing_key="jobs")
        assert got(connection, queue, "", no_ack=True) == "four"
        producer.publish("five", routing_key="jobs")
        assert got(connection, queue, "") == "five"
    with Connection(url, transport_options=LONG) as connection:
        assert got(connection, queue, "ack") == "five", "what was open when its channel ended is delivered again"
    at = url.removeprefix("slipstream://")
    with AdminClient(at, 120.0) as admin:
        dead = DEAD_PREFIX + "kombu-jobs"
        await_that(lambda: dead in admin.topics() and end_of(admin, dead) == 1, "`reject` made a dead letter")


def end_of(admin: AdminClient, topic: str) -> int:
    return sum(end for _first, end in admin.queues(topic).values())


def test_a_simple_queue_survives_strange_bytes_and_is_purged(url: str) -> None:
    with Connection(url, transport_options=LONG) as connection, connection.SimpleQueue("simple") as queue:
        queue.put({"a": 1})
        message = queue.get(timeout=SECONDS)
        assert message.payload == {"a": 1}
        message.ack()
        with RemoteProducer(url.removeprefix("slipstream://"), group="g", timeout=120.0) as producer:
            for body in (b"\xff", b"[]", b'{"properties": 1}'):
                producer.send("simple", body)
        queue.put("after")
        assert queue.get(timeout=SECONDS).payload == "after"
    with Connection(url, transport_options=LONG) as connection, connection.SimpleQueue("purged") as queue:
        for number in range(3):
            queue.put(number)
        await_that(lambda: queue.qsize() == 3, "all wait")
        assert (queue.clear(), queue.qsize()) == (3, 0)
        queue.put("last")
        assert queue.get(timeout=SECONDS).payload == "last"


def test_an_address_where_nobody_listens_is_an_error_of_kombus() -> None:
    with Connection("slipstream://127.0.0.1:1") as connection, pytest.raises(OperationalError):
        connection.SimpleQueue("simple").put("x", retry=True, retry_policy={"max_retries": 1})


@pytest.mark.crash
def test_celery_does_each_task_though_workers_are_killed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    seen = tmp_path / "seen"
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    environment = {**os.environ, "URL": url, "SEEN": str(seen), "PYTHONPATH": paths}
    worker = [sys.executable, "-m", "celery", "-A", "shop", "worker", "-c", "2", "-l", "INFO"]
    sending = "import shop, sys\nfor number in range(*map(int, sys.argv[1:])): shop.note.delay(number)"

    def send(first: int, end: int) -> None:
        command = [sys.executable, "-c", sending, str(first), str(end)]
        subprocess.run(command, env=environment, cwd=tmp_path, check=True, timeout=SECONDS)

    def noted() -> set[int]:
        return {int(line) for line in seen.read_text().split()} if seen.exists() else set()

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen(
                worker, env=environment, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
            )

    send(0, TASKS // 2)
    killed = start()
    await_that(noted, "a task is done")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    send(TASKS // 2, TASKS)
    last = start()
    try:
        await_that(lambda: noted() == {*range(TASKS)}, "all tasks are done")
        last.send_signal(signal.SIGTERM)
        assert last.wait(SECONDS) == 0, (tmp_path / "log").read_text()[-2000:]
    finally:
        if last.poll() is None:
            os.killpg(last.pid, signal.SIGKILL)
            last.wait()
