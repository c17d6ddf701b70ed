"""Clients of RocketMQ, both lines, in scenes with brokers of either kind: what a client sees of ours and of theirs.

A cell is a client's version and a kind of broker; it is right where the client says of ours, line by line, what it
says of the real broker of that line. java/Scenes.java plays the scenes and leaves out what is never the same twice.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Empty
from typing import Any, NamedTuple

from engine.protocol.remoting.codes import RequestCode
from tests.harness.conditions import await_that
from tests.interop.recorder import Recorder, forms
from tests.interop.remoting import GET_ROUTE, Client
from tests.interop.rocketmq import Addressed, NameServer, RealClient
from tests.interop.sides import OurNameServer, OurSide, RealSide, Side

CLIENTS = ("4.9.7", "5.3.3")
REAL_OF = {"ours 4.9": "4.9.7", "ours 5": "5.3.3"}
KINDS = (*REAL_OF, *REAL_OF.values())
SCENES = tuple(
    "sync async oneway batch compressed large refusals queues pull blocking lite assigned push orderly suspended"
    " broadcast members restart tags delay retry dead commit rollback check checkAndRollback"
    " request query trace".split()
)
SCENE_QUEUES, CREATE_TOPIC = 4, 17
MIB = 1 << 20
RECORDED = Path(__file__).with_name("recorded")
SETTINGS = {
    "brokerName": "broker-a", "traceTopicEnable": "true", "transactionCheckInterval": 1000, "transactionTimeOut": 1000,
    "messageDelayLevel": "1s 2s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s", "maxMessageSize": 4 * MIB,
    "mappedFileSizeCommitLog": 64 * MIB,
}  # fmt: skip
QUICK = tuple(f"-Drocketmq.client.rebalance.{name}Interval=500" for name in ("wait", "min", "lock"))


class Cell(NamedTuple):
    """Which client at which broker."""

    client: str
    kind: str

    @property
    def name(self) -> str:
        """For files."""
        return f"{self.client}-at-{self.kind.replace(' ', '_')}"

    @property
    def recorded(self) -> Path:
        """What was recorded of it, if it is a real broker's."""
        return RECORDED / f"{self.name}.json.xz"


Seen = dict[str, list[dict[str, Any]]]  # what a client said in each scene


class ScenesClient(RealClient):
    """The JVM of one cell."""

    main_class = "Scenes"
    answer_seconds = 600.0  # a scene gives up what it waits for after 120 s, some wait for more than one thing

    def __init__(self, home: Path, name_server: Addressed, version: str) -> None:
        super().__init__(home, name_server)
        self.version = version
        self.properties = list(QUICK)


class Served(NamedTuple):
    """A broker and its name server."""

    address: str
    version: str
    port: int
    store: Path


def cells() -> list[Cell]:
    """The whole matrix."""
    return [Cell(client, kind) for client in CLIENTS for kind in KINDS]


@contextmanager
def served(home: Path, kind: str, scenes: Sequence[str], **settings: Any) -> Iterator[Served]:
    """A name server and a broker of that kind, with the topics of these scenes."""
    version = REAL_OF.get(kind, kind)
    is_ours = kind in REAL_OF
    with ExitStack() as stack:
        where = home / "names"
        names: OurNameServer | NameServer
        names = stack.enter_context(OurNameServer(where, version) if is_ours else NameServer(where, version))
        wanted = {**SETTINGS, "namesrvAddr": names.address, **settings}
        if is_ours:
            side: Side = OurSide(home / "broker", version, **{"ringSizeInBytes": 16 * MIB, **wanted})
        else:
            side = RealSide(home / "broker", version, **wanted)
        stack.callback(side.stop if is_ours else side.kill)
        side.start()
        make_topics(side.port, names.address, [f"Scene-{scene}" for scene in scenes])
        yield Served(names.address, version, side.port, side.store)


def make_topics(port: int, names: str, topics: Sequence[str]) -> None:
    """Each with SCENE_QUEUES queues, and known to the name server."""
    with Client(port) as broker, Client(int(names.rpartition(":")[2])) as name_server:
        for topic in topics:
            fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": SCENE_QUEUES, "perm": 6,
                      "writeQueueNums": SCENE_QUEUES, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
                      "order": False}  # fmt: skip
            answer = broker.request(CREATE_TOPIC, fields)
            assert answer["code"] == 0, answer
            known = f"the name server knows {topic}"
            await_that(lambda: name_server.request(GET_ROUTE, {"topic": topic})["code"] == 0, known)  # noqa: B023


def play(home: Path, version: str, name_server: Addressed, scenes: Sequence[str]) -> Seen:
    """What a client of that version sees in these scenes."""
    seen: Seen = {}
    with ScenesClient(home / f"client-{version}", name_server, version) as client:
        for scene in scenes:
            client.tell(scene)
            try:
                lines, error = client.rest()
            except Empty:
                seen[scene] = [{"failed": "it did not end"}]
                break
            seen[scene] = lines if error is None else [*lines, {"failed": masked(error)}]
    return seen


def masked(text: str) -> str:
    """An error without addresses and times."""
    return re.sub(r"\d+\.\d+\.\d+\.\d+(:\d+)?", "HOST", re.sub(r"\d+ ?ms", "TIME", text))


class CellResult(NamedTuple):
    """What a cell's client saw, and by request code the forms in which its broker spoke."""

    seen: Seen
    forms: dict[int, list[str]]

    def joined(self, other: CellResult) -> CellResult:
        """With the forms of another run, too."""
        codes = sorted({*self.forms, *other.forms})
        every = {code: sorted({*self.forms.get(code, ()), *other.forms.get(code, ())}) for code in codes}
        return CellResult(self.seen, every)

    def write(self, path: Path) -> None:
        """As JSON, packed."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lzma.compress(json.dumps(self._asdict(), sort_keys=True, indent=1).encode()))

    @staticmethod
    def read(path: Path) -> CellResult:
        """What `write` wrote."""
        kept = json.loads(lzma.decompress(path.read_bytes()))
        return CellResult(kept["seen"], {int(code): texts for code, texts in kept["forms"].items()})


def recorded(cell: Cell) -> CellResult:
    """What a client saw at a real broker, and the forms in which that spoke to any client, when it was recorded."""
    result = CellResult.read(cell.recorded)
    for client in CLIENTS:
        result = result.joined(CellResult.read(cell._replace(client=client).recorded))
    return result


def with_lite_pulls(cell: Cell, real: CellResult) -> CellResult:
    """What a client is to see at `cell`, ours: a 5.x client's lite pulls work at compat=4.9, too, as 4.9's pulls do."""
    if cell.kind != "ours 4.9" or RequestCode.LITE_PULL_MESSAGE not in real.forms:
        return real
    older = CellResult.read(Cell("4.9.7", "4.9.7").recorded)
    pull, lite = (f"answer to {int(code)}:" for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))
    forms = [text.replace(pull, lite) for text in real.forms[RequestCode.PULL_MESSAGE]]
    return CellResult(
        real.seen | {scene: older.seen[scene] for scene in ("lite", "assigned")},
        real.forms | {int(RequestCode.LITE_PULL_MESSAGE): forms},
    )


def run_cell(home: Path, cell: Cell, scenes: Sequence[str] = SCENES, requests: Path | None = None) -> CellResult:
    """One cell, with a broker of its own; its clients' requests are kept in `requests`."""
    with served(home, cell.kind, scenes) as broker, Recorder(broker.address, broker.port) as recorder:
        seen = play(home, cell.client, broker._replace(address=recorder.address), scenes)
        if requests is not None:
            recorder.keep(requests)
        spoken = {code: sorted(map(str, each)) for code, each in forms(recorder.said).items()}
        return CellResult(seen, spoken)


def other_forms(real: CellResult, ours: CellResult) -> dict[int, list[str]]:
    """By request code: forms of ours that no real broker's answer has."""
    every = {code: sorted(set(texts) - set(real.forms.get(code, ()))) for code, texts in ours.forms.items()}
    return {code: texts for code, texts in every.items() if texts}


def differences(real: Seen, ours: Seen) -> dict[str, str]:
    """Scene by scene: nothing, or the first line that is not the same."""
    return {scene: difference(real.get(scene, []), ours.get(scene, [])) for scene in real}


def difference(real: list[dict[str, Any]], ours: list[dict[str, Any]]) -> str:
    """The first line that differs, and in which of its fields."""
    for theirs, mine in zip(real, ours, strict=False):
        if theirs != mine:
            fields = sorted(name for name in {*theirs, *mine} if theirs.get(name) != mine.get(name))
            name = fields[0]
            return f"{name}: RocketMQ {json.dumps(theirs.get(name))}, ours {json.dumps(mine.get(name))}"
    if len(real) != len(ours):
        return f"RocketMQ {len(real)} lines, ours {len(ours)}"
    return ""
