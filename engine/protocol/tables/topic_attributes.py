"""What an administrator may change of a topic's attributes, and what 5.x says to anything else.

Implements: AttributeParser, AttributeUtil.alterCurrentAttributes, TopicAttributes (5.x)
A change is `+key=value,-key`: put or replaced with +, taken away with -. A new topic takes + only. An attribute whose
effect this broker lacks is refused, although RocketMQ takes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

LONG_MAX = 2**63 - 1
LONG = re.compile(r"[+-]?[0-9]{1,19}")
MESSAGE_TYPE, MIXED = "message.type", "MIXED"


class WrongChange(Exception):
    """Raised for a change that is not allowed; the text is RocketMQ's.

    Next: `slipstream admin topicList`; give an attribute that may be changed, with a value that the text allows.
    """

    code = "TOPIC_ATTRIBUTES"


class Attribute(NamedTuple):
    """One key: a value of a set, or a whole number of at least -1. The set's order is that of Java's HashSet.

    `lacking`: why only the value `harmless` is taken, which asks for nothing.
    """

    changeable: bool
    values: tuple[str, ...] = ()
    harmless: str = ""
    lacking: str = ""

    def check(self, value: str) -> None:
        """Raise WrongChange for a value that is not allowed."""
        if self.values:
            if value not in self.values:
                raise WrongChange(f"value is not in set: [{', '.join(self.values)}]")
        elif not LONG.fullmatch(value):
            raise WrongChange(f'For input string: "{value}"')
        elif not -1 <= int(value) <= LONG_MAX:
            raise WrongChange(f"value is not in range(-1, {LONG_MAX})")
        if self.lacking and value != self.harmless:
            raise WrongChange(f"value {value} is not supported: {self.lacking}")


ATTRIBUTES = {
    "queue.type": Attribute(False, ("SimpleCQ", "BatchCQ")),
    "cleanup.policy": Attribute(False, ("COMPACTION", "DELETE"), "DELETE", "this broker does not compact topics"),
    MESSAGE_TYPE: Attribute(True, ("UNSPECIFIED", "TRANSACTION", "FIFO", MIXED, "DELAY", "NORMAL")),
    "reserve.time": Attribute(True, (), "-1", "this broker keeps every topic for fileReservedTime"),
}


def without_effect(config: Mapping[str, object]) -> list[str]:
    """Which attributes of a topic's configuration ask for what this broker lacks, as `key=value`."""
    attributes = config.get("attributes")
    if not isinstance(attributes, Mapping):
        return []
    return [
        f"{key}={attributes[key]}"
        for key, known in ATTRIBUTES.items()
        if known.lacking and str(attributes.get(key, known.harmless)) != known.harmless
    ]


def parsed(change: str) -> dict[str, str]:
    """Signed keys and their values. Raises WrongChange."""
    attributes: dict[str, str] = {}
    for part in _split(change, ","):
        if "=" in part:
            words = _split(part, "=")
            if len(words) < 2:
                raise WrongChange(f"Index {len(words)} out of bounds for length {len(words)}")
            key, value = words[:2]
            if "+" not in key:
                raise WrongChange(f"add/alter attribute format is wrong: {key}")
        else:
            key, value = part, ""
            if "-" not in key:
                raise WrongChange(f"delete attribute format is wrong: {key}")
        if key in attributes:
            raise WrongChange(f"key duplication: {key}")
        attributes[key] = value
    return attributes


def _split(text: str, separator: str) -> list[str]:
    """Split like Java's String.split: no parts of an empty text, no empty parts at the end."""
    parts = text.split(separator) if text else []
    while parts and not parts[-1]:
        parts.pop()
    return parts


def altered(
    before: Mapping[str, str] | None, changes: Mapping[str, str], known: Mapping[str, Attribute] = ATTRIBUTES
) -> dict[str, str]:
    """The attributes after a change; `before` is None for a new topic. Raises WrongChange.

    `known`: the attributes that there are; a group has none.
    """
    kept = dict(before or {})
    puts: dict[str, str] = {}
    drops: list[str] = []
    for signed, value in changes.items():
        key = signed[1:]
        if not key or "+" in key or "-" in key:
            raise WrongChange("kv string format wrong.")
        if key in puts or key in drops:
            raise WrongChange(f"alter duplication key. key: {key}")
        if before is None and not signed.startswith("+"):
            raise WrongChange(f"only add attribute is supported while creating topic. key: {key}")
        if signed.startswith("+"):
            puts[key] = value
        elif not signed.startswith("-"):
            raise WrongChange(f"wrong format key: {key}")
        elif key not in kept:
            raise WrongChange(f"attempt to delete a nonexistent key: {key}")
        else:
            drops.append(key)
    for key, value in puts.items():
        _attribute(key, known, is_new=before is None).check(value)
    for key in drops:
        _attribute(key, known, is_new=False)
    return {key: value for key, value in {**kept, **puts}.items() if key not in drops}


def _attribute(key: str, known: Mapping[str, Attribute], *, is_new: bool) -> Attribute:
    attribute = known.get(key)
    if attribute is None:
        raise WrongChange(f"unsupported key: {key}")
    if not is_new and not attribute.changeable:
        raise WrongChange(f"attempt to update an unchangeable attribute. key: {key}")
    return attribute
