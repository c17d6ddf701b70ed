"""`slipstream send` and `slipstream consume` at a broker of ours, and what a consumer's share of the queues is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.clients.consuming.consumer import Consumer
from engine.producer import Producer
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.remoting.sockets.client import RemotingClient
from engine.shared_memory.cursors import BrokerCounters
from store.compat import LINES
from store.reading import extent
from store.reading.opened import open_store
from tests.harness import command_line
from tests.harness.conditions import await_that
from tests.harness.served_names import Serving
from tools.common.local_broker import LocalBroker

SIZES = {
    "mappedFileSizeCommitLog": 1 << 20, "ringSizeInBytes": 1 << 20, "maxMessageSize": 65536, "brokerName": "b",
    "brokerFastFailureEnable": "false", "osPageCacheBusyTimeOutMills": 600_000,
}  # fmt: skip
SECONDS = 300


def slipstream(*arguments: str, lines: str = "") -> command_line.Ran:
    patiently = ("--timeout", "120") if arguments[0] in ("send", "consume") else ()
    return command_line.run(*arguments, *patiently, lines=lines)


def in_ascii(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, in another encoding."""
    command = [sys.executable, "-m", "tools.cli", *arguments, "--timeout", "120"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    return subprocess.run(command, capture_output=True, encoding="ascii", timeout=SECONDS, check=False, env=environment)


def sent(broker: LocalBroker, topic: str, lines: str, *arguments: str) -> command_line.Ran:
    """Lines that are sent; what may be consumed of the broker is all of it afterwards."""
    done = slipstream("send", "-t", topic, "--broker", f"127.0.0.1:{broker.port}", *arguments, lines=lines)
    counters = BrokerCounters.attach(extent.require_running(broker.store).region_directory)
    await_that(lambda: counters.reput_from_offset.read() == counters.max_physical_offset.read(), "all is in its queue")
    return done


@pytest.fixture(scope="module", params=["4.9", "5"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path_factory.mktemp("client") / "b", compat=request.param, **SIZES) as broker:
        yield broker


def test_lines_are_sent_and_consumed_once_by_each_group(broker: LocalBroker) -> None:
    at = ("--broker", f"127.0.0.1:{broker.port}")
    three = sent(broker, "lines", "one\ntwo\n\nthree\n", "--tag", "a", "--property", "x=y")
    assert (three.exit_code, three.stdout) == (0, "3 messages to lines: 3 SEND_OK\n"), three.stderr
    assert sent(broker, "lines", "four\n").exit_code == 0
    first = slipstream("consume", "-g", "g", "-t", "lines", *at, "--from", "first")
    assert (first.exit_code, sorted(first.stdout.split())) == (0, ["four", "one", "three", "two"]), first.stderr
    assert slipstream("consume", "-g", "g", "-t", "lines", *at).stdout == "", "the group's offsets were committed"
    tagged = slipstream("consume", "-g", "tagged", "-t", "lines", *at, "--from", "first", "--tag", "a", "--json")
    shown = [json.loads(line) for line in tagged.stdout.splitlines()]
    assert sorted(one["body"] for one in shown) == ["one", "three", "two"]
    assert all(one["properties"]["x"] == "y" for one in shown)
    assert sent(broker, "letters", "\u00e9\nnext\n").exit_code == 0
    for printed in (["\\u00e9", "next"], []):  # a letter that the encoding lacks ends nothing: both are committed
        lacking = in_ascii("consume", "-g", "a", "-t", "letters", *at, "--from", "first")
        assert (lacking.returncode, sorted(lacking.stdout.split())) == (0, printed), lacking.stderr


def test_a_broker_without_acls_ignores_the_keys_of_a_command(
    broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("the secret\n")
    keys = ("--access-key", "reader-1", "--secret-key-file", str(tmp_path / "secret"))
    assert sent(broker, "signed", "one\n", *keys).exit_code == 0
    monkeypatch.setenv("SLIPSTREAM_ACCESS_KEY", "reader-1")
    monkeypatch.setenv("SLIPSTREAM_SECRET_KEY", "the secret")
    at = ("-t", "signed", "--broker", f"127.0.0.1:{broker.port}", "--from", "first")
    assert slipstream("consume", "-g", "signing", *at).stdout == "one\n"


def test_a_new_group_begins_at_a_time(broker: LocalBroker) -> None:
    """As the broker's line answers for a time: 4.9 with the message nearest to it."""
    at = ("-t", "timed", "--broker", f"127.0.0.1:{broker.port}")
    for word in ("early", "late"):
        assert sent(broker, "timed", word + "\n").exit_code == 0
    assert sorted(slipstream("consume", "-g", "sooner", *at, "--from", "-1d").stdout.split()) == ["early", "late"]
    last = max(message.store_timestamp_ms for message in open_store(broker.store).messages("timed"))
    later = slipstream("consume", "-g", "later", *at, "--from", str(last))
    assert (later.exit_code, "late" in later.stdout.split()) == (0, True), later.stderr
    wrong = slipstream("consume", "-g", "never", *at, "--from", "soon")
    assert (wrong.exit_code, "is not a time" in wrong.stderr) == (2, True)


def test_a_new_group_from_last_sees_new_messages_alone(broker: LocalBroker) -> None:
    """4.9 answers 0 for a group without offsets where the queue still has its first message."""
    at = ("-t", "old", "--broker", f"127.0.0.1:{broker.port}")
    assert sent(broker, "old", "\n".join(map(str, range(20)))).exit_code == 0
    assert slipstream("consume", "-g", "late", *at, "--from", "last").stdout == ""
    assert sent(broker, "old", "new\n").exit_code == 0
    assert slipstream("consume", "-g", "late", *at, "--from", "last").stdout == "new\n"


def test_a_consumer_tells_administrators_how_far_it_is(broker: LocalBroker) -> None:
    at = f"127.0.0.1:{broker.port}"
    assert sent(broker, "told", "one\ntwo\n").exit_code == 0

    def ask(client_id: str, group: str) -> RemotingCommand:
        with RemotingClient(at, SECONDS) as client:
            fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "true"}
            return client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)

    with Consumer(None, "telling", "told", broker=at, consume_from="first", timeout=SECONDS) as consumer:
        for _ in range(2):
            consumer.poll(1)
        assert consumer.poll(1, 0.0) == [], "which acknowledges the second one"
        answer = ask(consumer.client_id, "telling")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    body = bytes(answer.body).decode()
    told = offsets_by_queue(body)
    assert sum(state["commitOffset"] for queue, state in told.items() if '"told"' in queue) == 2
    assert '"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY"' in body and "thread " in body


def offsets_by_queue(body: str) -> dict[str, dict[str, Any]]:
    """The mqTable of a ConsumerRunningInfo, whose keys are objects."""
    entries = re.findall(r'(\{"brokerName"[^}]*\}):(\{[^}]*\})', body)
    return {queue: json.loads(state) for queue, state in entries}


def test_a_count_ends_it_and_the_rest_is_there_for_the_next(broker: LocalBroker) -> None:
    at = ("--broker", f"127.0.0.1:{broker.port}")
    assert sent(broker, "counted", "\n".join(map(str, range(20)))).exit_code == 0
    consume = ("consume", "-g", "counting", "-t", "counted", *at, "--from", "first")
    taken = [slipstream(*consume, "--count", "7") for _ in range(2)]
    assert [(one.exit_code, len(one.stdout.split())) for one in taken] == [(0, 7), (0, 7)], taken
    rest = slipstream(*consume)
    every = [number for one in (*taken, rest) for number in one.stdout.split()]
    assert sorted(map(int, every)) == list(range(20)), "each once"


@pytest.mark.parametrize("group", ["a group", "", "g" * 256, "DEFAULT_CONSUMER", "g\n"])
def test_a_group_that_javas_clients_would_refuse_is_made_nowhere(broker: LocalBroker, group: str) -> None:
    refused = slipstream("consume", "-g", group, "-t", "TBW102", "--broker", f"127.0.0.1:{broker.port}")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "is not a valid group name" in refused.stderr and refused.stderr.count("\n") == 1
    groups = json.loads(slipstream("groups", str(broker.store), "--json").stdout)["groups"]
    assert group not in {one["group"] for one in groups}


def test_groups_and_clients_are_shown(broker: LocalBroker) -> None:
    at = ("--broker", f"127.0.0.1:{broker.port}")
    assert sent(broker, "shown", "\n".join(map(str, range(9)))).exit_code == 0
    assert slipstream("consume", "-g", "showing", "-t", "shown", *at, "--from", "first", "--count", "4").exit_code == 0
    groups = json.loads(slipstream("groups", str(broker.store), "-g", "showing", "--json").stdout)["groups"]
    assert [one["group"] for one in groups] == ["showing"]
    assert groups[0]["members"] == [], "it has said goodbye"
    assert sum(queue["offset"] for queue in groups[0]["queues"]) == 4
    assert all(queue["lag"] == queue["end"] - queue["offset"] for queue in groups[0]["queues"])
    assert "showing" in slipstream("groups", str(broker.store)).stdout

    def clients() -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(slipstream("clients", str(broker.store), "--json").stdout)
        return shown

    await_that(lambda: clients()["clients"] == [], "their connections have ended")
    await_that(lambda: clients()["fronts"][0]["sends"] >= 9, "what was sent is counted")


def test_wrong_arguments_are_explained(broker: LocalBroker) -> None:
    at = ("--broker", f"127.0.0.1:{broker.port}")
    for arguments, code, words in (
        (("send", "-t", "x"), 2, "-n HOST:PORT"),
        (("send", "-t", "x", *at, "--property", "half"), 2, "NAME=VALUE"),
        (("send", "-t", "x", *at, "--property", "KEYS=a"), 2, "set by RocketMQ itself"),
        (("send", "-t", "a b", *at), 2, "illegal characters"),
        (("consume", "-g", "g", "-t", "never", *at), 2, "does not exist"),
        (("consume", "-g", "g", "-t", "x", "--broker", "127.0.0.1:1"), 3, "is it running"),
    ):
        ended = slipstream(*arguments, lines="line\n")
        assert (ended.exit_code, words in ended.stderr) == (code, True), ended
        assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("compat", list(LINES))
def test_a_topic_of_a_local_producer_alone_is_consumed_without_a_word_over_remoting(
    tmp_path: Path, compat: str
) -> None:
    names, told = Serving(), "through shared memory\n"
    try:
        at = f"127.0.0.1:{names.port}"
        with LocalBroker(tmp_path / "a", namesrvAddr=at, compat=compat, mappedFileSizeCommitLog=1 << 20) as broker:
            with Producer(broker.store, timeout=60.0) as producer:
                producer.send("local", b"through shared memory")
            for number, where in enumerate((("-n", at), ("-b", f"127.0.0.1:{broker.port}"))):
                line = ("consume", "-g", f"g{number}", "-t", "local", "--from", "first", "--count", "1", *where)
                await_that(lambda line=line: command_line.run(*line).stdout == told, "the topic is known and consumed")
    finally:
        names.stop()
