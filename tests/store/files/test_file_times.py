"""When a file's time of change shows its next change."""

from __future__ import annotations

import pytest

from store.files.file_times import is_settled

SECOND_NS, MS_NS = 1_000_000_000, 1_000_000


@pytest.mark.parametrize(
    ("part_ns", "later_ns", "settled"),
    [
        (0, SECOND_NS + 1, True),
        (0, SECOND_NS, False),  # a file system that may count whole seconds
        (0, 200 * MS_NS, False),
        (4 * MS_NS, 101 * MS_NS, True),
        (4 * MS_NS, 100 * MS_NS, False),
        (1, 101 * MS_NS, True),
        (4 * MS_NS, -SECOND_NS, False),  # a time from the future
    ],
)
def test_a_change_is_seen_once_the_clock_of_the_file_system_has_gone_on(
    part_ns: int, later_ns: int, settled: bool
) -> None:
    changed_ns = 1_760_000_000 * SECOND_NS + part_ns
    assert is_settled(changed_ns, changed_ns + later_ns) is settled
