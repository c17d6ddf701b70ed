"""The blocks of the page of recipes run, with the libraries that they name and a broker of this test."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import psycopg
import pytest

from engine.clients.admin import AdminClient
from engine.clients.cluster import log
from engine.clients.sending.producer import RemoteProducer
from store.message.topics import DEAD_PREFIX
from tests.harness.conditions import await_that
from tests.harness.page_blocks import blocks_of
from tests.harness.postgres import postgres
from tests.harness.served_names import Serving
from tools.common.local_broker import LocalBroker

PAGE = "python-recipes.md"
SIZES = {"mappedFileSizeCommitLog": 1 << 20, "brokerFastFailureEnable": "false", "osPageCacheBusyTimeOutMills": 600_000}
BLOCKS = "psycopg sqlalchemy fastapi celery slipstream structlog pydantic".split()
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    serving = Serving()
    try:
        at = f"127.0.0.1:{serving.port}"
        with LocalBroker(tmp_path_factory.mktemp("recipes") / "b", namesrvAddr=at, **SIZES):
            with AdminClient(at, 120.0) as admin:
                await_that(admin.members, "the name server knows the broker")
            yield at
    finally:
        serving.stop()


@pytest.fixture
def run(names: str, request: pytest.FixtureRequest) -> Run:
    """Run the block of a library with a topic of this test; the names that it made."""
    topic = "".join(one if one.isalnum() else "_" for one in request.node.name)

    def run(library: str, bodies: tuple[str, ...] = (), **instead: str) -> dict[str, Any]:
        with RemoteProducer(names, group="test", timeout=120.0) as producer:
            for body in bodies:
                producer.send(topic, body)
        text = blocks_of(PAGE)[BLOCKS.index(library)].text
        shown = {"10.0.0.1:9876": names, '"orders"': f'"{topic}"', "timeout=5.0": "timeout=120.0", **instead}
        for written, other in shown.items():
            text = text.replace(written, other)
        made: dict[str, Any] = {"__name__": "page"}
        exec(compile(text, f"docs/{PAGE}, {library}", "exec"), made)
        return made

    return run


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres() as address:
        yield address


def test_the_page_has_a_block_of_each_library() -> None:
    texts = [block.text for block in blocks_of(PAGE)]
    imports = [[line for line in text.split("\n") if line.startswith(("import", "from"))] for text in texts]
    assert all(name in " ".join(lines) for name, lines in zip(BLOCKS, imports, strict=True))


@pytest.mark.parametrize("library", ["psycopg", "sqlalchemy"])
def test_offsets_are_in_the_database(library: str, run: Run, database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("DROP TABLE IF EXISTS orders, slipstream_offsets")
        connection.execute("CREATE TABLE orders (body TEXT)")
    url = f"postgresql+psycopg://?{database.replace(' ', '&')}"
    instead = {"dbname=bank": database, "postgresql+psycopg:///bank": url}
    made = run(library, ("one",), **instead, **{"ordered=True": 'ordered=True, consume_from="first"'})
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT body FROM orders").fetchall() == [("one",)]
        assert connection.execute("SELECT sum(next_offset) FROM slipstream_offsets").fetchone() == (1,)
    if library == "sqlalchemy":
        made["engine"].dispose()


def test_an_application_of_fastapi_sends_and_consumes(run: Run) -> None:
    made = run("fastapi", ("before",))
    app, received = made["app"], made["received"]

    async def serve(body: str) -> None:
        async with app.router.lifespan_context(app):
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
                answer = await client.post("/orders", content=body)
            assert answer.status_code == 200 and len(answer.json()["message_id"]) == 32
            await asyncio.to_thread(await_that, lambda: body in received, "the message is consumed")

    for body in ("first", "second"):  # a lifespan, and another one
        asyncio.run(serve(body))
    assert sorted(received) == ["before", "first", "second"]


def test_a_task_of_celery_is_a_message(run: Run, names: str) -> None:
    run("celery")
    with AdminClient(names, 120.0) as admin:
        await_that(lambda: sum(end for _first, end in admin.queues("celery").values()) == 1, "the task is a message")


def test_messages_are_traced(run: Run) -> None:
    made = run("slipstream", **{"span.set_attribute(": "noted = ("})
    assert made["noted"] == ("order.id", "17") and made["span"].get_span_context() is not None


def test_lines_of_the_clients_are_json(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    made = run("structlog", **{"StreamHandler()": "StreamHandler(sys.stdout)", "import logging": "import logging, sys"})
    try:
        log.warning("%d messages were lost", 3)
        line = json.loads(capsys.readouterr().out)
        assert (line["event"], line["level"], line["logger"]) == ("3 messages were lost", "warning", log.name)
    finally:
        logging.getLogger("slipstream.clients").removeHandler(made["handler"])


def test_what_no_model_accepts_is_a_dead_letter(run: Run, names: str, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = ('{"number": 1, "amount": 2.5}', "no JSON", '{"number": "x"}')
    made = run("pydantic", bodies, **{"consumer.run(handle, workers=4)": ""})
    consumer = made["consumer"]
    running = threading.Thread(target=partial(consumer.run, made["handle"], workers=4))
    running.start()
    try:
        with AdminClient(names, 120.0) as admin:
            dead = DEAD_PREFIX + "models"
            await_that(lambda: dead in admin.topics() and ends(admin, dead) == 2, "two are dead letters")
        await_that(lambda: sum(consumer.lag().values()) == 0, "the others are done")
    finally:
        consumer.stop()
        running.join()
    assert "order 1 of 2.5" in capsys.readouterr().out


def ends(admin: AdminClient, topic: str) -> int:
    return sum(end for _first, end in admin.queues(topic).values())
