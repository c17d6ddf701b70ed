"""Texts without which a regular expression matches nowhere: records without them need not be decoded.

Only characters outside of groups and sets count, in each alternative the longest piece of them. That is less than could
be known of an expression, never more: at an escape or an extension that is not listed here nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from store.message.properties import NAME_SEPARATOR

_UNSURE = "\ufffd\ud800-\udfff"  # shown for bytes that are no UTF-8, or in no UTF-8: records hold something else
_TOKEN = re.compile(
    rf"(?P<escaped>\\[^0-9A-Za-z{_UNSURE}])|(?P<place>\\[dDwWsSbBAZ]|[.^${_UNSURE}])"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\\\]])*\])|(?P<times>[*?]|\{(?=[0-9,])[0-9]*(?:,[0-9]*)?\})|(?P<again>\+)"
    r"|(?P<unknown>\\|\(\?)|(?P<open>\()|(?P<close>\))|(?P<alternative>\|)|(?P<plain>.)",
    re.DOTALL,
)


def literals_of(pattern: str) -> list[str]:
    """Return texts of which each text that the valid expression matches has one; none where that is not known."""
    literals, depth = [[""]], 0
    for token in _TOKEN.finditer(pattern):
        kind, pieces = token.lastgroup, literals[-1]
        depth += (kind == "open") - (kind == "close")
        if kind == "unknown":
            return []
        if kind == "alternative" and not depth:
            literals.append([""])
        elif kind in ("plain", "escaped") and not depth:
            pieces[-1] += token.group()[-1]
        else:
            if kind == "times":  # maybe not once
                pieces[-1] = pieces[-1][:-1]
            pieces.append("")
    longest = [max(pieces, key=len) for pieces in literals]
    return longest if all(longest) else []


def in_records(literals: Sequence[str]) -> re.Pattern[bytes]:
    """The expression that matches in a record whose body or property, shown as NAME=value, has one of the texts."""
    escaped = (re.escape(literal.encode()) for literal in literals)
    return re.compile(b"|".join(one.replace(b"=", b"[=" + NAME_SEPARATOR.encode() + b"]") for one in escaped))
