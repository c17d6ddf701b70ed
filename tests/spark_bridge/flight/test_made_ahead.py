"""A batch made while the one before it is sent: in its order, so many at a time, let go of with its stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_bridge.flight.connections import Peer
from spark_bridge.flight.errors import TooManyStreams
from spark_bridge.flight.streams import Limits, Stream, Streams
from tests.harness.conditions import await_that

PEER = Peer("127.0.0.1", 1)


class Made:
    """Numbered batches, how many of them were asked for, and how many may be made."""

    def __init__(self, count: int, error: Exception | None = None, may: int = 100) -> None:
        self.asked, self._count, self._error = 0, count, error
        self.may, self.closed = threading.Semaphore(may), threading.Event()

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for number in range(self._count):
                self.asked += 1
                assert self.may.acquire(timeout=120)
                yield pa.RecordBatch.from_pydict({"number": [number]})
            if self._error is not None:
                raise self._error
        finally:
            self.closed.set()


@pytest.fixture
def streams() -> Iterator[Streams]:
    made = Streams(Limits(ahead=2))
    yield made
    made.close()


def begun(streams: Streams, made: Made) -> Stream:
    stream = Stream(PEER, lambda error: error)
    streams.enter(stream)
    stream.begin(made.batches(), None, streams.ahead)
    return stream


def number(batch: pa.RecordBatch) -> int:
    (told,) = batch.column("number").to_pylist()
    return int(told)


def test_only_the_next_batch_is_made_while_one_is_sent(streams: Streams) -> None:
    made = Made(5)
    stream = begun(streams, made)
    for taken in range(3):
        assert number(next(stream)) == taken
        await_that(lambda taken=taken: made.asked == taken + 2, "the next one is asked for")
    assert [number(batch) for batch in stream] == [3, 4]
    assert made.asked == 5
    with pytest.raises(StopIteration):
        next(stream)


def test_batches_made_ahead_are_limited_over_all_streams(streams: Streams) -> None:
    all_made = [Made(3) for _ in range(4)]
    under_way = [begun(streams, made) for made in all_made]
    for stream in under_way:
        assert number(next(stream)) == 0
    await_that(lambda: [made.asked for made in all_made] == [2, 2, 1, 1], "two are made ahead")
    assert number(next(under_way[3])) == 1, "the others have theirs when they ask"
    assert all_made[3].asked == 2
    streams.leave(under_way[0])
    assert number(next(under_way[2])) == 1
    await_that(lambda: all_made[2].asked == 3, "a stream that ended gave its place back")
    assert [[number(batch) for batch in stream] for stream in under_way[1:]] == [[1, 2], [2], [2]]


def test_an_error_of_a_batch_made_ahead_is_raised_in_its_place(streams: Streams) -> None:
    stream = begun(streams, Made(2, TooManyStreams("as a batch fails")))
    assert [number(next(stream)) for _ in range(2)] == [0, 1]
    with pytest.raises(TooManyStreams, match="as a batch fails"):
        next(stream)
    assert [number(batch) for batch in begun(streams, Made(3))] == [0, 1, 2]


def test_an_abandoned_stream_closes_the_batch_that_is_being_made(streams: Streams) -> None:
    for _ in range(5):  # more than are made at a time
        made = Made(4, may=2)
        stream = begun(streams, made)
        assert [number(next(stream)) for _ in range(2)] == [0, 1]
        await_that(lambda made=made: made.asked == 3, "the next one is being made")
        streams.leave(stream)
        made.may.release()
        assert made.closed.wait(120), "whoever made it has closed what it came from"


def test_behind_the_end_batches_are_made_when_they_are_asked_for(streams: Streams) -> None:
    made = Made(3)
    stream = begun(streams, made)
    streams.close()
    assert [number(batch) for batch in stream] == [0, 1, 2]
