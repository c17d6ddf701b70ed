"""Which messages a consumer wants of a topic: tags by their hash codes, from its pull or from its group's heartbeats.

Implements: FilterAPI, SubscriptionData, ExpressionType, ExpressionMessageFilter (spec: remoting, 7)
A hash code may be another tag's, too: the exact comparison is the client's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ipc.arrays import Words
from store.message.properties import java_hash

ALL, TAG = "*", "TAG"
SEPARATOR = "||"
BLANK = "".join(map(chr, range(0x21)))  # what String.trim takes away
FILTERS_KEPT, LENGTH_KEPT = 4096, 1024
LENGTH_MAX = 64 * 1024  # as of one in a heartbeat: no client says more, and each tag costs us time
NO_CODES: Words = np.empty(0, np.int64)


class TagFilter(NamedTuple):
    """`codes` ascending, of the tags that are wanted; with `takes_all` any message is."""

    takes_all: bool
    codes: Words = NO_CODES


EVERYTHING = TagFilter(takes_all=True)


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression names tags."""
    return not expression_type or expression_type == TAG


def filter_of(subscription: str | None, expression_type: str | None) -> TagFilter | None:
    """Return what a pull says that it wants; None where it cannot be understood. The type is one of tags."""
    if subscription is not None and len(subscription) > LENGTH_MAX:
        return None
    made = _filter_of if subscription is None or len(subscription) <= LENGTH_KEPT else _filter_of.__wrapped__
    return made(subscription, expression_type)


@lru_cache(FILTERS_KEPT)
def _filter_of(subscription: str | None, expression_type: str | None) -> TagFilter | None:
    if expression_type == "":  # build() makes no codes for a type that is not null
        if not subscription:
            return None
        return EVERYTHING if subscription == ALL else TagFilter(takes_all=False)
    if not subscription or subscription == ALL:
        return EVERYTHING
    tags = subscription.split(SEPARATOR)
    while tags and not tags[-1]:
        tags.pop()
    if not tags:
        return None
    return _of_codes(java_hash(tag) for tag in (each.strip(BLANK) for each in tags) if tag)


def is_understood(subscription: str | None, expression_type: str | None) -> bool:
    """Whether an expression of another type than tags is one at all."""
    return is_tag_type(expression_type) or bool(subscription)


def filter_of_heartbeat(subscription: Mapping[str, Any]) -> TagFilter:
    """Return what a group's consumers said in their heartbeats of a topic."""
    if subscription.get("classFilterMode") or subscription.get("subString") == ALL:
        return EVERYTHING
    return _of_codes(subscription.get("codeSet") or ())


def _of_codes(codes: Iterable[int]) -> TagFilter:
    return TagFilter(takes_all=False, codes=np.array(sorted(set(codes)), np.int64))
