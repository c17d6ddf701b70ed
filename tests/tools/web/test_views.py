"""What the console's pages are given: stores without a broker, hostile messages, live views, checks; in bounds."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path

import fastavro
import psutil
import pytest

from store.recovery.dispatch import Dispatcher
from tests.harness.conditions import await_that
from tests.harness.logs import FIRST_STORE_MS, QUEUE_FILE_BYTES, SmallLog
from tests.harness.served_console import Answer, ServedConsole
from tools.web.state.jobs import FINDINGS_MAX, KEPT_MAX
from tools.web.state.sharing import STREAMS_MAX
from tools.web.views.message import HEX_BYTES_MAX, TEXT_BYTES_MAX
from tools.web.views.search import LIMIT_MAX

HOSTILE = "</script><script>alert(1)</script>"
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}],
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> SmallLog:
    made = SmallLog(tmp_path_factory.mktemp("web") / "store", segment_bytes=1 << 20)
    for number in range(120):
        made.append("orders", b'{"order": %d}' % number, queue_id=number % 2, properties={"KEYS": f"A-{number} all"})
    made.append(
        "hostile", HOSTILE.encode() + b"\xff", properties={"KEYS": HOSTILE, HOSTILE: HOSTILE, "TAGS": "\x1b[2J"}
    )
    made.append("large", b"x" * (TEXT_BYTES_MAX - 1) + "é".encode() + b"y" * 100_000)
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), {"id": 7, "who": "Ann"})
    made.append("avro", stream.getvalue())
    Dispatcher(made.files, made.directory.consumequeue, QUEUE_FILE_BYTES).dispatch(0, made.end)
    return made


@pytest.fixture(scope="module")
def console(log: SmallLog) -> Iterator[ServedConsole]:
    with ServedConsole(log.root, "--allow-digest") as served:
        yield served


def asked(console: ServedConsole, path: str) -> Answer:
    answer = console.ask(f"/api/{path}")
    assert answer.status == 200, answer.body
    return answer


def offsets(answer: Answer) -> list[int]:
    return [one["offset"] for one in answer.json["messages"]]


def test_a_store_without_a_broker_is_shown(console: ServedConsole, log: SmallLog) -> None:
    (store,) = asked(console, "pipeline").json["stores"]
    assert not store["live"] and store["maxOffset"] == log.end
    picture = asked(console, "segments").json
    assert picture["segments"][0]["usedBytes"] == log.end and "no broker runs" in str(picture["victim"]["keptBy"])
    topics = {one["topic"]: one for one in asked(console, "topics").json["topics"]}
    assert topics["orders"]["queues"] == 2 and topics["orders"]["messagesPerSecond"] is None
    (first, second) = asked(console, "topic?topic=orders").json["queues"]
    sizes = [record.size for record in log.records if record.topic == "orders"]
    assert first["messages"] == second["messages"] == 60 and first["bytes"] + second["bytes"] == sum(sizes)
    assert first["firstMs"] == FIRST_STORE_MS
    for path in ("latency", "settings"):
        answer = console.ask(f"/api/{path}")
        assert answer.status == 409 and answer.json["code"] == "NO_BROKER"


def test_messages_are_looked_for_in_every_way(console: ServedConsole, log: SmallLog) -> None:
    seventh = log.records[7]
    assert offsets(asked(console, "search?by=key&value=A-7")) == [seventh.offset]
    assert offsets(asked(console, f"search?by=offset&value={seventh.offset}")) == [seventh.offset]
    between = asked(console, f"search?by=offset&value={seventh.offset - 1}")
    assert offsets(between) == [seventh.offset] and "no record begins" in between.json["notes"][0]
    queue = asked(console, "search?by=queue&topic=orders&queue=1&value=3&limit=2")
    assert offsets(queue) == [log.records[7].offset, log.records[9].offset]
    time = asked(console, f"search?by=time&topic=orders&queue=1&value={FIRST_STORE_MS + 6}&limit=1")
    assert offsets(time) == [seventh.offset]
    each = asked(console, f"search?by=time&topic=orders&value={FIRST_STORE_MS + 6}")
    assert offsets(each) == [log.records[6].offset, seventh.offset]
    newest = [record.offset for record in log.records[::-1]]
    assert offsets(asked(console, "search")) == newest[:25]
    orders = [record.offset for record in log.records[::-1] if record.topic == "orders"]
    assert offsets(asked(console, "search?by=newest&topic=orders&limit=3")) == orders[:3]
    identity = asked(console, f"message?offset={seventh.offset}").json["message"]["msgId"]
    assert offsets(asked(console, f"search?by=id&value={identity}")) == [seventh.offset]
    assert not offsets(asked(console, "search?by=id&value=nobody"))


def test_a_search_has_bounds_and_refuses_what_makes_no_sense(console: ServedConsole) -> None:
    assert len(offsets(asked(console, f"search?by=key&value=all&limit={LIMIT_MAX}"))) == LIMIT_MAX
    for wrong in (
        "by=nothing",
        "by=key",
        f"by=key&value={'x' * 600}",
        "by=queue&value=1",
        "by=offset&value=x",
        "limit=51",
        "by=time&topic=orders&value=yesterday",
        f"by=offset&value={'9' * 30}",
        "by=queue&topic=orders&queue=-1&value=0",
    ):
        answer = console.ask(f"/api/search?{wrong}")
        assert answer.status == 400 and answer.json["error"], wrong
    for strange in ("topic=../../etc", "topic=%00", "topic=..", f"topic={'t' * 500}"):
        assert not offsets(asked(console, f"search?by=queue&value=0&{strange}"))
        assert console.ask(f"/api/topic?{strange}").status == 404


def test_a_message_shows_its_body_in_every_form_and_never_as_markup(console: ServedConsole, log: SmallLog) -> None:
    hostile = next(record for record in log.records if record.topic == "hostile")
    answer = asked(console, f"message?offset={hostile.offset}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["message"]["properties"][HOSTILE] == HOSTILE
    assert answer.json["body"]["text"] is None and answer.json["body"]["json"] is None
    assert "3c 2f 73 63" in answer.json["body"]["hex"]
    order = asked(console, f"message?offset={log.records[3].offset}").json
    assert json.loads(order["body"]["json"]) == {"order": 3}
    near = order["neighbours"]
    assert near == {
        "logBefore": log.records[2].offset, "logAfter": log.records[4].offset,
        "queueBefore": log.records[1].offset, "queueAfter": log.records[5].offset,
    }  # fmt: skip
    assert asked(console, "message?offset=0").json["neighbours"]["logBefore"] is None
    last = asked(console, f"message?offset={log.records[-1].offset}").json["neighbours"]
    assert last["logAfter"] is last["queueAfter"] is last["queueBefore"] is None


def test_a_large_body_is_cut(console: ServedConsole, log: SmallLog) -> None:
    large = next(record for record in log.records if record.topic == "large")
    body = asked(console, f"message?offset={large.offset}").json["body"]
    assert body["text"] == "x" * (TEXT_BYTES_MAX - 1) and body["textCut"] and body["json"] is None
    assert body["hex"].count("\n") == HEX_BYTES_MAX // 16 - 1 and body["bytes"] == TEXT_BYTES_MAX + 100_001


def test_what_is_no_message_is_not_shown(console: ServedConsole, log: SmallLog) -> None:
    for offset in (1, log.end, 1 << 62):
        assert console.ask(f"/api/message?offset={offset}").status == 404
    assert console.ask("/api/message").status == 400
    assert console.ask("/api/message?offset=0&inner=0").status == 404


def test_a_body_is_decoded_by_a_schema_and_no_schema_makes_it_endless(console: ServedConsole, log: SmallLog) -> None:
    avro, large = (next(one.offset for one in log.records if one.topic == topic) for topic in ("avro", "large"))
    answer = console.post("/api/avro", {"offset": avro, "schema": json.dumps(SCHEMA)})
    assert json.loads(answer.json["value"]) == {"id": 7, "who": "Ann"}
    empty = {"type": "record", "name": "E", "fields": []}
    nothing = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "e", "type": empty}, {"name": "a", "type": {"type": "array", "items": "E"}}],
    }
    for schema in (
        "",
        "nonsense",
        "7",
        '"string"',
        json.dumps({"type": "array", "items": "null"}),
        json.dumps(nothing),
        "[" * 500,
        json.dumps({"type": "fixed", "name": "f", "size": 1 << 60}),
    ):
        refused = console.post("/api/avro", {"offset": avro, "schema": schema})
        assert refused.status == 400 and refused.json["error"], schema
    assert console.post("/api/avro", {"offset": large, "schema": '"bytes"'}).status == 400
    assert console.post("/api/avro", [1]).status == 400


def events(response: http.client.HTTPResponse) -> Iterator[dict[str, object]]:
    """The data of server-sent events."""
    while line := response.readline():
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def opened(console: ServedConsole, stack: ExitStack, view: str) -> http.client.HTTPResponse:
    connection = console.connection()
    stack.callback(connection.close)
    connection.request("GET", f"/events/{view}", headers={"authorization": f"Bearer {console.token}"})
    return connection.getresponse()


def test_live_views_go_on_and_are_bounded(console: ServedConsole) -> None:
    with ExitStack() as stack:
        first = opened(console, stack, "pipeline")
        assert first.headers["content-type"].startswith("text/event-stream")
        stream = events(first)
        assert [next(stream)["stores"] is not None for _ in range(3)] == [True] * 3
        others = [opened(console, stack, "lag") for _ in range(STREAMS_MAX - 1)]
        assert {other.status for other in others} == {200}
        full = opened(console, stack, "segments")
        assert full.status == 503 and json.loads(full.read())["code"] == "BUSY"
        assert asked(console, "pipeline").status == 200
        assert next(stream)
    # What has gone makes room again.
    with ExitStack() as stack:
        await_that(lambda: opened(console, stack, "lag").status == 200, "a slot for a live view")


def test_a_live_view_says_what_is_wrong_and_goes_on(console: ServedConsole) -> None:
    with ExitStack() as stack:

        def live() -> http.client.HTTPResponse | None:
            """None while the server has not noticed yet that those of another test have gone."""
            response = opened(console, stack, "latency")
            return response if response.status == 200 else None

        response = await_that(live, "a slot for a live view")
        lines = [response.readline() for _ in range(4)]
        assert b"event: problem\n" in lines and b"NO_BROKER" in lines[3]


def state_of(console: ServedConsole, number: int) -> dict[str, object]:
    jobs = {job["number"]: job for job in asked(console, "checks").json["jobs"]}
    return jobs[number]


def ended(console: ServedConsole, number: int) -> dict[str, object]:
    return await_that(
        lambda: job if (job := state_of(console, number))["state"] != "running" else None, f"job {number} ends"
    )


def test_a_check_is_followed_and_says_what_the_command_says(console: ServedConsole, log: SmallLog) -> None:
    started = console.post("/api/start", {"kind": "verify", "store": 0})
    assert started.status == 200
    job = ended(console, started.json["number"])
    assert job["state"] == "done" and job["total"] and job["done"] == job["total"]
    assert f"{len(log.records)} records up to offset {log.end:,}" in str(job["text"])
    doctor = ended(console, console.post("/api/start", {"kind": "doctor", "store": 0}).json["number"])
    assert doctor["well"] is False and doctor["findings"][0]["code"] == "STOPPED"
    digest = ended(console, console.post("/api/start", {"kind": "digest", "store": 0}).json["number"])
    assert digest["state"] == "done" and "no sealed segment" in str(digest["text"])


def test_the_doctor_connects_as_the_console_does(log: SmallLog, tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.client.authServer=false\n")
    with ServedConsole(log.root, "--tls-config", str(file)) as other:
        file.write_text("tls.client.authServer=perhaps\n")
        job = ended(other, other.post("/api/start", {"kind": "doctor", "store": 0}).json["number"])
    assert job["well"] is False and str(file) in str(job["text"]), "it reads that file, too"


def test_a_check_that_nobody_allowed_or_nobody_knows_is_refused(console: ServedConsole, log: SmallLog) -> None:
    for wrong in (
        {},
        {"kind": "rm"},
        {"kind": "verify", "store": 9},
        {"kind": ["verify"]},
        {"kind": "verify", "store": "x"},
    ):
        assert console.post("/api/start", wrong).status in (400, 404), wrong
    assert console.post("/api/cancel", {"number": 10_000}).status == 404
    assert console.ask("/api/start").status == 405
    with ServedConsole(log.root) as other:
        refused = other.post("/api/start", {"kind": "digest", "store": 0})
        assert refused.status == 403 and "--allow-digest" in refused.json["error"]


def held(console: ServedConsole, stack: ExitStack) -> int:
    """The processes of its checks, stopped until the stack ends, so that they still run then; how many there are."""
    return sum(is_stopped(child, stack) for child in psutil.Process(console.process.pid).children())


def is_stopped(child: psutil.Process, stack: ExitStack) -> bool:
    """Whether it stands still now, or has ended before somebody came to stop it."""
    over = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    try:
        child.suspend()
        await_that(lambda: child.status() in (psutil.STATUS_STOPPED, *over), "it stands still, or has ended")
        if child.status() in over:
            return False
    except psutil.NoSuchProcess:
        return False
    stack.callback(child.resume)
    return True


def two_held(console: ServedConsole, stack: ExitStack) -> list[int] | None:
    """Two checks that run and are stopped there; None where one of them was through before."""
    numbers = []
    for number in range(2):
        numbers.append(int(console.post("/api/start", {"kind": "verify", "store": number}).json["number"]))
        count = held(console, stack)
    if count == 2:
        return numbers
    stack.close()
    for number in numbers:
        ended(console, number)
    return None


def test_checks_are_bounded_cancelled_and_forgotten(tmp_path: Path) -> None:
    logs = [SmallLog(tmp_path / f"store{number}") for number in range(3)]
    for each in logs:
        each.fill(20)
        for record in each.records[:FINDINGS_MAX]:
            each.flip(record.offset + 40)
    with ServedConsole(*(each.root for each in logs)) as console:
        with ExitStack() as stack:
            first, second = await_that(lambda: two_held(console, stack), "two checks run")
            refused = console.post("/api/start", {"kind": "verify", "store": 2})
            states = [state_of(console, number)["state"] for number in (first, second)]
        assert (refused.status, states) == (503, ["running"] * 2)
        cancelled = console.post("/api/cancel", {"number": first})
        assert cancelled.json["state"] in ("cancelled", "done")
        ended(console, first)
        damaged = ended(console, second)
        assert damaged["findingsCount"] > 0 and not damaged["well"]
        for _ in range(KEPT_MAX + 2):
            number = console.post("/api/start", {"kind": "doctor", "store": 0}).json["number"]
            console.post("/api/cancel", {"number": number})
        assert len(asked(console, "checks").json["jobs"]) == KEPT_MAX
