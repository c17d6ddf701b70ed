"""The setting `affinity`, role by role."""

import pytest

from engine.settings.cpus import cpus_of, parse_cpus


@pytest.mark.parametrize(
    ("affinity", "role", "expected"),
    [
        ("", "writer", None),
        ("sync", "writer", {1}),
        ("sync", "receiver", {1}),
        ("sync", "flusher", None),
        ("2-3,1", "flusher", {1, 2, 3}),
        ("9", "writer", None),
    ],
)
def test_cpus_of_a_role(affinity: str, role: str, expected: set[int] | None) -> None:
    assert cpus_of(affinity, role, {1, 2, 3}) == expected


def test_a_list_of_cpus() -> None:
    assert parse_cpus("0,2-4,7") == {0, 2, 3, 4, 7}
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cpus("zero")
