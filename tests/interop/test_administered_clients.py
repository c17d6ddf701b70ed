"""What mqadmin shows of Java clients at our broker and orders them to do, beside a real broker of its line.

One broker of each kind a line serves the whole module: at the real one `slipstream send` and `consume` work, too.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine.protocol.remoting.codes import RequestCode
from tests.harness.conditions import await_that
from tests.interop import rocketmq
from tests.interop.clients import QUICK, REAL_OF, SCENE_QUEUES, Cell, Served, differences, play, recorded, served
from tests.interop.needs import need
from tests.interop.remoting import Client
from tests.interop.rocketmq import MqAdmin, RealClient

SECONDS, SETTLE_SECONDS = 180, 60
OWN_SCENES = ("retry", "dead")
TOPIC, LINES_TOPIC, GROUP = "Scene-shown", "Scene-lines", "shown"
MESSAGES = 10  # 1, 2, 3 and 4 in the four queues
MASKS = (
    (r"\d+\.\d+\.\d+\.\d+(:\d+)?", "HOST"), (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", "DATE"),
    (r"\b[0-9A-F]{32,}\b", "ID"), (r"\b(1\d{12}|20\d{12,15})\b", "MOMENT"), (r"\b\d+\.\d+\b", "NUMBER"),
    (r"-(real|ours)\b", ""), (r"@[0-9a-f]+\b", "@OBJECT"), (r"\b(OFFLINE|CLUSTERING)( +)\d+", r"\1\2TPS"),
    (r"(CommitLog Offset:|spentTimeMills=) *\d+", r"\1 N"), (r"[ \t]+", " "),
)  # fmt: skip
THREADS = "#Consumer jstack#"  # of a consumer's running info: from there on its threads
# 5.3.3 keeps a topic itself as its group, while members subscribe to it.
NO_GROUP = re.compile(rf"MessageTrack \[consumerGroup={TOPIC},[^\]]*\]\s?")
# What a broker's figures say of this moment. RocketMQ 4.9.7 finds no first message in a log of less than 8 MiB, and has
# no distribution in the first minute. timerReadBehind: whole seconds since 5.3.3's timer thread, which looks once a
# second, looked last; it says 1 where that was a moment late. Ours has no timer wheel that could be behind.
FIGURES_OF_A_MOMENT = re.compile(
    r".*(Tps|Timestamp|TimeMax|Ratio.*|Capacity|AverageSize|putLatency\d+|GetTotalTodayNow|runtime|DistributeTime|Stamp"
    r"|ToFlush|Mills|BehindBytes|timerReadBehind)$"
)


class Consumers(RealClient):
    """Push consumers and producers of one JVM (java/Groups.java)."""

    main_class = "Groups"

    def __init__(self, home: Path, name_server: Served) -> None:
        super().__init__(home, name_server)
        self.properties = list(QUICK)

    def bodies(self, side: str) -> dict[str, int]:
        """How often the consumer there received each."""
        [line] = self.ask("bodies", name=f"consumer-{side}")
        return line


class Bed(NamedTuple):
    """Brokers of both kinds, and clients at both."""

    version: str
    sides: dict[str, Served]
    mqadmin: MqAdmin
    consumers: Consumers
    sent: dict[str, list[dict[str, Any]]]
    client_ids: dict[str, str]

    def said(self, side: str, command: str, *arguments: str) -> str:
        """What mqadmin prints there, without what is of one side and of one moment."""
        text = self.mqadmin.said(command, *arguments, names=self.sides[side].address)
        text, _, threads = text.partition(THREADS)
        for own, name in MASKS:
            text = re.sub(own, name, text)
        return NO_GROUP.sub("", text).strip() + (THREADS if "ConsumeMessageThread" in threads else "")

    def differences(self, *commands: str) -> list[str]:
        """Those of which mqadmin says something else of ours than of the real broker; in capitals: what is a side's."""
        return [text for command in commands for text in self._difference(command)]

    def lasting_differences(self, *commands: str) -> list[str]:
        """Likewise, of commands that change nothing, once what either side does behind its answers is done."""
        unlike: list[str] = []
        for command in commands:
            found: list[str] = []

            def is_settled(command: str = command, found: list[str] = found) -> bool:
                found[:] = self._difference(command)
                return not found

            with suppress(AssertionError):
                await_that(is_settled, command, SETTLE_SECONDS, pause=0.5)
            unlike += found
        return unlike

    def _difference(self, command: str) -> list[str]:
        real, ours = (self.said(side, *self.filled(side, command)) for side in self.sides)
        unlike = []
        if not real or "command failed" in real:
            unlike.append(f"{command} is nothing at RocketMQ's: {real}")
        return [*unlike, f"{command}\nRocketMQ:\n{real}\nours:\n{ours}"] if real != ours else unlike

    def filled(self, side: str, command: str) -> list[str]:
        """The words of a command there."""
        message = self.sent[side][5]
        own = {
            "CLIENT": self.client_ids[side],
            "BROKER": f"127.0.0.1:{self.sides[side].port}",
            "UNIQUE": message["id"],
            "PLACE": message["offsetId"],
        }
        return [own.get(word, word) for word in command.split()]


@pytest.fixture(scope="module", params=rocketmq.VERSIONS)
def bed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    version: str = request.param
    need([version])
    home = tmp_path_factory.mktemp("administered")
    kind = next(ours for ours, real in REAL_OF.items() if real == version)
    topics = [topic.removeprefix("Scene-") for topic in (TOPIC, LINES_TOPIC)]
    with ExitStack() as stack:
        real = stack.enter_context(served(home / "real", version, topics))
        ours = stack.enter_context(served(home / "ours", kind, [*topics, *OWN_SCENES]))
        mqadmin = stack.enter_context(MqAdmin(home / "mqadmin", real))
        consumers = stack.enter_context(Consumers(home / "consumers", real))
        bed = Bed(version, {"real": real, "ours": ours}, mqadmin, consumers, {}, {})
        for side in bed.sides:
            begin(bed, side)
        yield bed


def begin(bed: Bed, side: str) -> None:
    """A producer, a group that consumed all of its messages, and one that did so and went."""
    names, ask = bed.sides[side].address, bed.consumers.ask
    ask("produce", name=f"producer-{side}", group="producers", names=names)
    sent = bed.sent[side] = []
    for queue in range(SCENE_QUEUES):
        first = len(sent)
        sent += ask("send", name=f"producer-{side}", topic=TOPIC, queue=queue, first=first, count=queue + 1)
    assert [line["status"] for line in sent] == ["SEND_OK"] * MESSAGES
    for group, name in (("gone", f"gone-{side}"), (GROUP, f"consumer-{side}")):
        ask("join", name=name, group=group, topic=TOPIC, names=names, first="true")
        await_that(lambda: ask("queues", name=name)[0]["received"] == MESSAGES, f"{name} has all", SECONDS)  # noqa: B023
        await_that(partial(is_through, bed, names, group, name), f"{group}'s offsets are the broker's", SECONDS)
    ask("leave", name=f"gone-{side}")

    def shown() -> list[str]:
        """Its id; none where mqadmin gives up a broker that it has asked for five seconds."""
        connection = bed.mqadmin.said("consumerConnection", "-g", GROUP, names=names)
        return re.findall(rf"\S+@consumer-{side}\S*", connection)

    [bed.client_ids[side]] = await_that(shown, "its connection is shown", SECONDS)


def is_through(bed: Bed, names: str, group: str, name: str) -> bool:
    """Whether the broker knows that the group has all, of its retry topic, too; its member says so now."""
    bed.consumers.ask("persist", name=name)
    said = bed.mqadmin.said("consumerProgress", "-g", group, names=names)
    return "Diff Total: 0" in said and f"%RETRY%{group}" in said


@pytest.mark.interop
def test_mqadmin_shows_the_same_of_clients_and_messages(bed: Bed) -> None:
    topic = f" -t {TOPIC}" if rocketmq.is_five(bed.version) else ""
    assert (
        bed.lasting_differences(
            "consumerProgress",
            f"consumerProgress -g {GROUP}",
            f"consumerProgress -g {GROUP} -s true",
            f"consumerConnection -g {GROUP}",
            f"producerConnection -g producers -t {TOPIC}",
            f"consumerStatus -g {GROUP}",
            f"topicStatus -t {TOPIC}",
            f"topicStatus -t %RETRY%{GROUP}",
            f"queryMsgById -i PLACE{topic}",
            f"queryMsgByKey -t {TOPIC} -k key5",
            f"queryMsgByUniqueKey -t {TOPIC} -i UNIQUE",
        )
        == []
    )
    told: dict[str, tuple[str | None, str | None]] = {}

    def are_the_same() -> bool:
        real, ours = (figures(bed.said(side, *bed.filled(side, "brokerStatus -b BROKER"))) for side in bed.sides)
        told.clear()
        told.update(
            {
                name: (real.get(name), ours.get(name))
                for name in {*real, *ours}
                if name not in real
                or name not in ours
                or (real[name] != ours[name] and not FIGURES_OF_A_MOMENT.fullmatch(name))
            }
        )
        return not told

    with suppress(AssertionError):
        await_that(are_the_same, "the figures", SETTLE_SECONDS, pause=0.5)
    assert told == {}


def figures(text: str) -> dict[str, str]:
    """What brokerStatus prints."""
    named = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {re.sub(r"/.*", "", name).strip(): value.strip() for name, value in named}


@pytest.mark.interop
def test_orders_of_mqadmin_reach_a_java_consumer(bed: Bed) -> None:
    """What it answers (221, 307), a message put before its listener (309), its offsets set back (220)."""
    topic = f" -t {TOPIC}" if rocketmq.is_five(bed.version) else ""
    assert (
        bed.lasting_differences(
            f"getConsumerStatus -g {GROUP} -t {TOPIC}",
            f"getConsumerStatus -g {GROUP} -t {TOPIC} -i CLIENT",
            f"consumerStatus -g {GROUP} -i CLIENT -s",
        )
        == []
    )
    assert bed.differences(f"queryMsgById -i PLACE -g {GROUP} -d CLIENT{topic}") == []
    for side in bed.sides:
        assert bed.consumers.bodies(side)["body 5"] == 2, side
    assert bed.differences(f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0") == []
    for side in bed.sides:
        again = partial(again_all, bed, side)
        await_that(again, f"the consumer of {side} receives all once more", SECONDS)
        knows = partial(is_through, bed, bed.sides[side].address, GROUP, f"consumer-{side}")
        await_that(knows, "and the broker knows", SECONDS)


def again_all(bed: Bed, side: str) -> bool:
    """Whether each message came once more."""
    return bed.consumers.bodies(side) == {f"body {n}": 2 + (n == 5) for n in range(MESSAGES)}


@pytest.mark.interop
def test_mqadmin_changes_the_offsets_of_groups_without_members(bed: Bed) -> None:
    assert (
        bed.differences(
            "updateSubGroup -b BROKER -g cloned",
            f"cloneGroupOffset -s gone -d cloned -t {TOPIC} -o true",
            f"resetOffsetByTime -g gone -t {TOPIC} -s 0",
            "consumerProgress -g gone",
        )
        == []
    )
    gone = ["0"] * SCENE_QUEUES
    if rocketmq.is_five(bed.version):
        of_one = f"resetOffsetByTime -g gone -t {TOPIC} -s 0 -b BROKER -q 3 -o"
        assert bed.differences(f"{of_one} 2", f"{of_one} 9", "consumerProgress -g gone") == []
        gone[3] = "2"
    for group, offsets in (("cloned", ["1", "2", "3", "4"]), ("gone", gone)):
        for side, served_there in bed.sides.items():
            with Client(served_there.port) as client:
                asked = [{"consumerGroup": group, "topic": TOPIC, "queueId": queue} for queue in range(SCENE_QUEUES)]
                answers = [client.request(RequestCode.QUERY_CONSUMER_OFFSET, fields) for fields in asked]
            assert [answer["extFields"]["offset"] for answer in answers] == offsets, f"{group} of {side}"


@pytest.mark.interop
def test_a_consumer_tries_again_and_gives_up_as_at_a_real_broker(bed: Bed, tmp_path: Path) -> None:
    real = recorded(Cell(bed.version, bed.version)).seen
    seen = play(tmp_path, bed.version, bed.sides["ours"], OWN_SCENES)
    unlike = differences({scene: real[scene] for scene in OWN_SCENES}, seen)
    assert unlike == dict.fromkeys(OWN_SCENES, "")


@pytest.mark.interop
def test_members_of_slipstream_consume_share_a_topic_of_a_real_broker(bed: Bed, tmp_path: Path) -> None:
    """Through the name server: what `slipstream send` sends comes to both, and to nobody again."""
    names = ("-n", bed.sides["real"].address, "--timeout", "120")
    consume = ("consume", "-g", "lines", "-t", LINES_TOPIC, *names)
    outputs = [tmp_path / f"member-{number}" for number in range(2)]
    members = [follow(output, *consume, "--from", "first", "--follow") for output in outputs]
    sent: list[str] = []

    def is_shared() -> bool:
        """Whether what is sent now comes to the members in halves."""
        lines = [f"line-{len(sent) + number}" for number in range(2 * SCENE_QUEUES)]
        sent.extend(lines)
        done = slipstream("send", "-t", LINES_TOPIC, *names, lines="\n".join(lines) + "\n")
        assert done.stdout == f"{len(lines)} messages to {LINES_TOPIC}: {len(lines)} SEND_OK\n", done.stderr
        await_that(lambda: set(lines) <= set(received(*outputs)), "all lines came", SECONDS)
        return [len(set(lines) & set(received(output))) for output in outputs] == [SCENE_QUEUES] * 2

    try:
        await_that(is_shared, "both members have two queues", SECONDS)
    finally:
        for member in members:
            member.send_signal(signal.SIGINT)
    assert [member.wait(SECONDS) for member in members] == [0, 0]
    assert set(received(*outputs)) == set(sent)
    assert slipstream(*consume, "--from", "first").stdout == "", "their offsets are the broker's"


def slipstream(*arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    """A command from its beginning to its end."""
    command = [sys.executable, "-m", "tools.cli", *arguments]
    return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=SECONDS, check=False)


def follow(output: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A command that goes on."""
    command = [sys.executable, "-u", "-m", "tools.cli", *arguments]
    with output.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def received(*outputs: Path) -> list[str]:
    """What members printed."""
    return [line for output in outputs for line in output.read_text().split()]
