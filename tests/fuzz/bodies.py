"""JSON bodies with something wrong in them: another kind of value, a huge number, a long or an odd text, a depth."""

from __future__ import annotations

import json
import random
from typing import Any

ODD_TEXTS = (
    "", "a" * 65_536, "../../../../tmp/x", "/etc/passwd", "a/b", "..", ".", "a\0b", "\ud800", "%RETRY%../x", "%DLQ%",
    "\u202e", "\U0001f4a5" * 100, "null", "*", "a || b" * 1000, "{}", "C:\\x",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1 << 31,
    -(1 << 31),
    1 << 63,
    -(1 << 63),
    10**40,
    1e308,
    -0.0,
    [],
    {},
    [[]],
    [{}],
    [None],
    {"": None},
    [1] * 5000,
    {str(n): n for n in range(3000)},
    *ODD_TEXTS,
)
DEPTHS = (10, 900, 5000)
CHANGES_MAX = 4


def changed_json(dice: random.Random, body: bytes) -> bytes | None:
    """The body with some of its values replaced; None where it is no JSON."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    for _ in range(dice.randint(1, CHANGES_MAX)):
        value = _changed(dice, value)
    text = json.dumps(value, ensure_ascii=dice.random() < 0.7).encode("utf-8", "surrogatepass")
    if dice.random() < 0.1:  # deep, where a value stood
        depth = dice.choice(DEPTHS)
        text = text.replace(b"null", b"[" * depth + b"]" * depth)
    return text.replace(b"a", b"\xff", 1) if dice.random() < 0.05 else text


def _changed(dice: random.Random, value: Any) -> Any:
    """One place of it is another."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        name = dice.choice(list(value))
        if dice.random() < 0.1:
            return {other: kept for other, kept in value.items() if other != name}
        return {**value, name: _changed(dice, value[name])}
    if isinstance(value, list) and value and dice.random() < 0.9:
        at = dice.randrange(len(value))
        return [*value[:at], _changed(dice, value[at]), *value[at + 1 :]]
    return dice.choice(ODD_VALUES)
