"""Flow control of a front, against a writer that the test plays: each refusal is made to happen; then it goes on."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.front.connections.near_wait import NearWait
from engine.front.frames.send_words import SendBlock
from engine.front.front import Front
from engine.front.sends import front_ring
from engine.front.sends.compiled_sends import ALONE_FROM
from engine.protocol.remoting.codes import RequestCode, ResponseCode
from engine.protocol.remoting.frame import RemotingCommand
from engine.protocol.sending import answers
from engine.protocol.store.retention import DiskState
from engine.remoting.links import exchange
from engine.settings.config import from_mapping
from engine.shared_memory import live_settings
from engine.shared_memory.cursors import BrokerCounters, BrokerState
from engine.shared_memory.queue_ends import QueueEnds
from ipc import waiting
from ipc.compiled.atomics import Followed
from tests.harness import played_clients, served_front
from tests.harness.conditions import await_that
from tests.harness.front_client import FrontClient
from tests.harness.played_writer import PlayedWriter
from tools.common.local_broker import free_port

RING_BYTES, CAPACITY = 1 << 20, 8
TOPIC, QUEUES = "t", 4
TOPICS = {TOPIC: {
    "topicName": TOPIC, "perm": 6, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "order": False,
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
}}  # fmt: skip
UNIQUE = "UNIQ_KEY\x017F0000010C3A18B4AAC27A3B9F0D0000"
PAUSE_SECONDS = 0.002
WITHIN_A_TURN_MS, FOR_EVER_MS = 1, 1 << 30
SLOT_LIMIT_MS = front_ring.SLOT_LIMIT_MS


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long this machine takes, the writer that a test plays says in time where a new queue is."""
    monkeypatch.setattr(front_ring, "SLOT_LIMIT_MS", FOR_EVER_MS)


def send(opaque: int = 1, body: bytes = b"x", *, queue_id: int = 0, fast: bool = True) -> RemotingCommand:
    """A send; `fast`: one that compiled code may take."""
    said = UNIQUE if fast else f"{UNIQUE}\x02clé\x01é"
    fields = {
        "a": "g", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": "1", "h": "0", "i": said,
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque, ext_fields=fields, body=body, version=407)


class Bed:
    """A master's front, a writer that does what the test says, clients."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.port, self.directory = free_port(), directory
        self.config = from_mapping(
            {
                "storePathRootDir": directory / "store",
                "brokerIP1": "127.0.0.1",
                "listenPort": self.port,
                "ringSizeInBytes": RING_BYTES,
                "mappedFileSizeCommitLog": 4 << 20,
                "sendThreadPoolQueueCapacity": CAPACITY,
                "osPageCacheBusyTimeOutMills": FOR_EVER_MS,
                "waitTimeMillsInSendQueue": FOR_EVER_MS,
                **settings,
            }
        )
        self.counters = BrokerCounters.create(directory / "counters")
        waiting.publish(self.counters.broker_state, BrokerState.RUNNING)
        live_settings.publish(self.counters, self.config)
        QueueEnds.create(directory, {})
        exchange.create(directory, 1)
        self.bells = exchange.Bells.make(1)
        self.works, self._ends, self._step = threading.Event(), threading.Event(), threading.Lock()

    @contextmanager
    def served(self) -> Iterator[Bed]:
        with served_front.served(self.config, self.counters, self.bells) as front:
            self.front = front
            self.writer = PlayedWriter(pipeline_of(front), self.counters, RING_BYTES)
            writing = threading.Thread(target=self._write, name="writer", daemon=True)
            writing.start()
            try:
                yield self
            finally:
                self._ends.set()
                writing.join()
                FrontClient.close_all()
        self.bells.close()

    def _write(self) -> None:
        while not self._ends.wait(PAUSE_SECONDS):
            with self._step:
                if self.works.is_set() and not self.writer.answer():
                    self.writer.take(100)

    def rest(self) -> None:
        """The writer does nothing from now on."""
        self.works.clear()
        with self._step:
            """Its last step is over."""

    @contextmanager
    def clients(self) -> Iterator[None]:
        """The clients role, and a first message: the writer has said where its queues are."""
        tables = {"topics": dict(TOPICS), "groups": {}, "subscriptions": {}}
        with played_clients.played(self.directory, self.bells, tables):
            await_that(lambda: self.front._tables.is_complete, "the tables were told")
            yield

    def begin(self) -> FrontClient:
        """A client whose queues have slots; from then on the writer rests."""
        client = FrontClient(self.port)
        self.works.set()
        for queue_id in range(QUEUES):
            assert self.exchange(client, send(queue_id=queue_id)).code == ResponseCode.SUCCESS
        self.rest()
        await_that(lambda: self.under_way == 0, "that is known to be over")
        return client

    @staticmethod
    def exchange(client: FrontClient, request: RemotingCommand) -> RemotingCommand:
        client.send(request)
        return client.take()

    @property
    def under_way(self) -> int:
        """Sends without an answer, as anybody sees them."""
        return self.counters.fronts[0].sends_in_flight.read()

    def sends_again(self, *clients: FrontClient) -> None:
        """The writer works: what is under way is stored, and what is sent then, too."""
        self.works.set()
        await_that(lambda: self.under_way == 0, "all is answered")
        for client in clients:
            await_that(lambda client=client: self._is_stored(client), "what it sends then is stored")  # type: ignore[misc]

    def _is_stored(self, client: FrontClient) -> bool:
        """One more message of a client, behind the answers that it has not taken."""
        answer = self.exchange(client, send(999))
        while answer.opaque != 999:
            answer = client.take()
        return answer.code == ResponseCode.SUCCESS


def sends_of(front: Front) -> Any:
    return front._sends


def pipeline_of(front: Front) -> Any:
    return sends_of(front).tasks.ring.pipeline


@contextmanager
def opened(directory: Path, **settings: object) -> Iterator[Bed]:
    with Bed(directory, **settings).served() as bed, bed.clients():
        yield bed


def refused(answer: RemotingCommand, text: str) -> bool:
    """Whether it says that, with any numbers."""
    said = (answer.remark or "").split("period in queue: ")
    return answer.code == ResponseCode.SYSTEM_BUSY and said[0] == text.split("period in queue: ")[0]


def test_before_a_front_knows_its_topics_it_rejects_and_then_goes_on(region_dir: Path) -> None:
    with Bed(region_dir).served() as bed:
        early = FrontClient(bed.port)
        assert refused(bed.exchange(early, send()), answers.REJECTED)
        with bed.clients():
            bed.sends_again(early)


@pytest.mark.parametrize("rings_from", [0, 1 << 30])
def test_the_writer_is_rung_for_when_what_came_is_read_if_not_before(region_dir: Path, rings_from: int) -> None:
    with opened(region_dir) as bed:
        client, bell = bed.begin(), bed.counters.writer_bell
        sends = sends_of(bed.front)
        bed.counters.region.words[bell.index + Followed.WAITERS] = 1
        for n in range(3):
            sends.compiled.kernels.block[SendBlock.RINGS_FROM], before = rings_from, bell.read()
            client.send(send(n))
            await_that(lambda n=n: bed.under_way == n + 1, "it is under way")  # type: ignore[misc]
            await_that(lambda before=before: bell.read() == before + 1, "the writer is rung for")  # type: ignore[misc]
        bed.sends_again(client)


def test_one_connection_that_sends_again_and_again_is_waited_for_as_one_alone(
    region_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[bool] = []

    def wait(of: NearWait, *, is_alone: bool) -> None:
        waits.append(is_alone)
        waited(of, is_alone=is_alone)

    waited = NearWait.wait
    monkeypatch.setattr(NearWait, "wait", wait)
    with opened(region_dir) as bed:
        one, other = bed.begin(), FrontClient(bed.port)
        bed.works.set()
        for client, fast, goal in ((one, True, True), (other, True, False), (one, True, False), (one, False, False)):
            for n in range(2 * ALONE_FROM if goal else 1):
                assert bed.exchange(client, send(n, fast=fast)).code == ResponseCode.SUCCESS
            assert waits[-1] is goal
        bed.sends_again(one, other)


@pytest.mark.parametrize("fast", [(True, True), (False, False), (True, False), (False, True)])
def test_one_connection_has_half_of_all_that_may_be_under_way(region_dir: Path, fast: tuple[bool, bool]) -> None:
    with opened(region_dir) as bed:
        greedy, other = bed.begin(), FrontClient(bed.port)
        half = CAPACITY // 2
        greedy.send(*(send(n, fast=fast[n % 2]) for n in range(half)))
        await_that(lambda: bed.under_way == half, "they are under way")
        for n in range(4):  # in either way, and as often as it likes
            assert refused(bed.exchange(greedy, send(100 + n, fast=fast[n % 2])), answers.OVERLOADED)
        other.send(*(send(n, fast=fast[n % 2]) for n in range(half)))
        await_that(lambda: bed.under_way == CAPACITY, "another one's are taken meanwhile")
        third = FrontClient(bed.port)
        assert refused(bed.exchange(third, send()), answers.OVERLOADED), "and no more of anybody's"
        assert bed.counters.fronts[0].sends_refused.read() == 5
        bed.sends_again(greedy, other, third)


@pytest.mark.parametrize("fast", [True, False])
def test_bytes_under_way_are_bounded_headers_among_them(region_dir: Path, fast: bool) -> None:
    limits = {"sendBytesInFlightMax": 1 << 20, "sendThreadPoolQueueCapacity": 1000}
    with opened(region_dir, **limits) as bed:
        greedy, other = bed.begin(), FrontClient(bed.port)
        body = bytes(100_000)
        greedy.send(*(send(n, body, fast=fast) for n in range(5)))
        await_that(lambda: bed.under_way == 5, "they are under way")
        assert refused(bed.exchange(greedy, send(9, body, fast=fast)), answers.OVERLOADED)
        other.send(*(send(n, body, fast=fast) for n in range(4)))
        await_that(lambda: bed.under_way == 9, "another one's are taken meanwhile")
        bytes_in_flight = bed.counters.fronts[0].bytes_in_flight  # said a word later in the same turn
        await_that(lambda: bytes_in_flight.read() > 9 * len(body), "their bytes, too")
        third = FrontClient(bed.port)
        third.send(*(send(n, body, fast=fast) for n in range(5)))
        assert refused(third.take(), answers.OVERLOADED)
        bed.sends_again(greedy, other, third)


def test_what_waits_too_long_before_the_ring_is_taken_back(region_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_ring, "SLOT_LIMIT_MS", WITHIN_A_TURN_MS)
    with opened(region_dir, waitTimeMillsInSendQueue=WITHIN_A_TURN_MS) as bed:
        client = FrontClient(bed.port)
        client.send(send(1), send(2))  # nobody says which slot the queue has
        for opaque in (1, 2):
            answer = client.take()
            assert answer.opaque == opaque and refused(answer, answers.TIMED_OUT), answer
            assert "size of queue: " in str(answer.remark)
        bed.sends_again(client)
        assert len(bed.writer.taken) == 1, "what was taken back is in no log"


def test_what_waits_for_its_new_queue_waits_behind_nobody_and_has_more_time(
    region_dir: Path,
) -> None:
    assert SLOT_LIMIT_MS > 300
    with opened(region_dir, waitTimeMillsInSendQueue=WITHIN_A_TURN_MS) as bed:
        client = FrontClient(bed.port)
        client.send(send(1), send(2))
        await_that(lambda: bed.counters.fronts[0].send_wait_ms.read() > 300, "they wait, some turns long")
        bed.works.set()
        assert [client.take().code for _ in range(2)] == [ResponseCode.SUCCESS] * 2


def test_without_fast_failure_nothing_is_taken_back(region_dir: Path) -> None:
    settings = {"waitTimeMillsInSendQueue": WITHIN_A_TURN_MS, "brokerFastFailureEnable": "false"}
    with opened(region_dir, **settings) as bed:
        client = FrontClient(bed.port)
        client.send(send(1), send(2))
        await_that(lambda: bed.counters.fronts[0].send_wait_ms.read() > 300, "they wait, some turns long")
        bed.works.set()
        assert [client.take().code for _ in range(2)] == [ResponseCode.SUCCESS] * 2


def test_a_log_that_takes_nothing_rejects_and_gives_back_what_waits(region_dir: Path) -> None:
    with opened(region_dir) as bed:
        client, other = bed.begin(), FrontClient(bed.port)
        client.send(send(1), send(2, queue_id=9))
        unknown = client.take()
        assert unknown.opaque == 2 and unknown.code != ResponseCode.SUCCESS, "no such queue: told at once"
        bed.front._tables.topics[TOPIC]["writeQueueNums"] = bed.front._tables.topics[TOPIC]["readQueueNums"] = 16
        client.send(send(3, queue_id=9))  # parked: its queue has no slot
        await_that(lambda: pipeline_of(bed.front).parked_puts == 1, "it is parked, and the writer rests since before")
        tasks = sends_of(bed.front).tasks
        tasks.config = tasks.config.replaced(page_cache_busy_timeout_ms=300)
        answer = client.take()
        assert answer.opaque == 3 and refused(answer, answers.STORE_BUSY), answer
        assert refused(bed.exchange(other, send(4)), answers.REJECTED)
        assert other.ask(777, b"still").body == b"still", "what is no send is served"
        bed.works.set()
        assert (client.take().opaque, len(bed.writer.taken)) == (1, QUEUES + 1)
        await_that(lambda: bed.exchange(other, send(5)).code == ResponseCode.SUCCESS, "it takes sends again")
        bed.sends_again(client, other)


def test_a_ring_that_is_full_parks_and_then_takes_back(region_dir: Path) -> None:
    limits = {"sendThreadPoolQueueCapacity": 1000, "waitTimeMillsInSendQueue": 300}
    with opened(region_dir, **limits) as bed:
        client, body = bed.begin(), bytes(200_000)
        client.send(*(send(n, body) for n in range(5)))
        await_that(lambda: bed.under_way == 5, "five fit")
        client.send(send(5, body))
        answer = client.take()
        assert answer.opaque == 5 and refused(answer, answers.TIMED_OUT), answer
        bed.sends_again(client)
        assert len(bed.writer.taken) == QUEUES + 5 + 1


def test_a_put_that_the_writer_does_not_take_ends_as_unknown(region_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(region_dir) as bed:
        client = bed.begin()
        monkeypatch.setattr(pipeline_of(bed.front), "_patience_ms", 200)
        client.send(send(1), send(2, fast=False))
        said = [client.take() for _ in range(2)]
        assert {answer.opaque for answer in said} == {1, 2}
        assert {(answer.code, answer.remark) for answer in said} == {(ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR")}
        bed.works.set()
        await_that(lambda: len(bed.writer.taken) == QUEUES + 2, "the writer wakes up")
        bed.sends_again(client)


@pytest.mark.parametrize("fast", [True, False])
def test_a_full_disk_refuses_sends_alone_and_takes_them_again(region_dir: Path, fast: bool) -> None:
    with opened(region_dir) as bed:
        client = bed.begin()
        client.send(send(1, fast=fast))
        await_that(lambda: bed.under_way == 1, "it is under way")
        waiting.note(bed.counters.disk_used_percent, 97)
        waiting.note(bed.counters.disk_state, int(DiskState.READ_ONLY))
        answer = bed.exchange(client, send(2, fast=fast))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and "CL:  0.97" in str(answer.remark)
        assert client.ask(777, b"still").body == b"still"
        bed.works.set()
        assert (client.take().opaque, len(bed.writer.taken)) == (1, QUEUES + 1), "what was under way is stored"
        waiting.note(bed.counters.disk_state, 0)
        bed.sends_again(client)


def test_a_client_that_hangs_up_with_sends_under_way_leaves_nothing_behind(region_dir: Path) -> None:
    with opened(region_dir) as bed:
        well = bed.begin()
        for _turn in range(20):
            gone = FrontClient(bed.port)
            gone.send(*(send(n, fast=bool(n % 2)) for n in range(CAPACITY // 2)))
            await_that(lambda: bed.under_way, "something of it is under way")
            gone.sock.close()
            bed.works.set()
            await_that(lambda: bed.under_way == 0, "all is done")
            bed.rest()
        tasks, pipeline = sends_of(bed.front).tasks, pipeline_of(bed.front)
        await_that(
            lambda: not (tasks._of_peer or tasks._tasks or tasks._bytes or pipeline.puts or pipeline.bytes),
            "nothing left",
        )
        bed.sends_again(well)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, ResponseCode.SYSTEM_ERROR),
        (errno.EIO, ResponseCode.SERVICE_NOT_AVAILABLE),
        (errno.EMSGSIZE, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_a_record_that_the_log_refuses_fails_only_its_sender(
    region_dir: Path, number: int, code: int, fast: bool
) -> None:
    with opened(region_dir) as bed:
        client = bed.begin()
        client.send(send(1, fast=fast))
        await_that(lambda: bed.under_way == 1, "it is under way")
        bed.writer.take(1, refusing=number)
        answer = client.take()
        assert (answer.opaque, answer.code) == (1, code) and answer.remark
        bed.sends_again(client)
