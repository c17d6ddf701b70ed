"""Tasks of a micro-batch: every entry once, few tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_bridge.split.splits import QUEUE_COST_MIN, LogExtent
from spark_bridge.stream.plan import Part, pack

LOGS = [LogExtent(f"/data/{name}/commitlog", 1 << 30, 0, 1 << 40, 1 << 40) for name in ("north", "south")]


@st.composite
def parts(draw: st.DrawFn) -> list[Part]:
    found = []
    for queue_id in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 1 << 40))
        count = draw(st.one_of(st.integers(1, 20), st.integers(1, 3_000_000)))
        log = LOGS[draw(st.integers(0, 1))]
        found.append(
            Part(
                log,
                f"{log.commitlog}/{queue_id}",
                "orders",
                queue_id,
                start,
                start + count,
                draw(st.integers(91, 1 << 22)),
            )
        )
    return found


@given(parts(), st.integers(1, 16))
def test_every_entry_is_in_one_task_and_there_are_no_more_tasks_than_asked_for(
    wanted: list[Part], tasks_max: int
) -> None:
    tasks = pack(wanted, tasks_max)
    pieces = [(split.log, piece) for task in tasks for split in task for piece in split.pieces]
    for part in wanted:
        own = [(p.start, p.end) for log, p in pieces if (log, p.directory) == (part.log, part.directory)]
        assert own[0][0] == part.start
        assert own[-1][1] == part.end
        assert all(start < end for start, end in own)
        assert all(end == start for (_, end), (start, _) in zip(own, own[1:], strict=False))
    assert len(pieces) >= len(wanted)
    assert len(tasks) <= tasks_max + 1
    assert all(split.pieces for task in tasks for split in task)


def test_a_small_batch_of_many_queues_and_stores_is_one_task() -> None:
    small = [Part(LOGS[queue % 2], f"/{queue}", "orders", queue, 0, 100, 300) for queue in range(400)]
    assert sum(100 * 500 for _ in small) < QUEUE_COST_MIN
    (task,) = pack(small, 8)
    assert [len(split.pieces) for split in task] == [200, 200]


def test_nothing_to_read_is_no_task() -> None:
    assert pack([], 4) == []
