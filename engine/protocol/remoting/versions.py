"""What the versions are called that clients name by a number.

Implements: MQVersion
"""

from __future__ import annotations

from collections.abc import Iterator

FIRST = (
    "V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1", "V3_0_0_BETA1", "V3_0_0_BETA2", "V3_0_0_BETA3", "V3_0_0_BETA4",
    "V3_0_0_BETA5", "V3_0_0_BETA6_SNAPSHOT", "V3_0_0_BETA6", "V3_0_0_BETA7_SNAPSHOT", "V3_0_0_BETA7",
    "V3_0_0_BETA8_SNAPSHOT", "V3_0_0_BETA8", "V3_0_0_BETA9_SNAPSHOT", "V3_0_0_BETA9", "V3_0_0_FINAL",
)  # fmt: skip
LAST_OF_3_0, LINES, PATCHES = 15, (3, 4, 5), 10
WITHOUT_ZERO = range(3, 10)  # of 3.x: these have no x.0
HIGHER = "HIGHER_VERSION"


def _names() -> Iterator[str]:
    yield from FIRST
    for major in LINES:
        for minor in range(10):
            is_without_zero = major == 3 and (minor == 0 or minor in WITHOUT_ZERO)
            last = LAST_OF_3_0 + 1 if (major, minor) == (3, 0) else PATCHES
            for patch in range(int(is_without_zero), last):
                yield f"V{major}_{minor}_{patch}_SNAPSHOT"
                yield f"V{major}_{minor}_{patch}"
    yield HIGHER


NAMES = tuple(_names())


def version_name(number: int) -> str:
    """getVersionDesc; what is above all that RocketMQ knows is HIGHER_VERSION, as is what is below."""
    return NAMES[number] if 0 <= number < len(NAMES) else HIGHER
