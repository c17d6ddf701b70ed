"""The page of all keys of broker.properties and of a name server's file, from their declarations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

from engine.settings import client_keys, keys, name_server_keys
from engine.settings.key import Key
from engine.settings.unused_keys import UNUSED
from engine.shared_memory import live_settings
from tools.dev.docs.tables import code, table

HEAD = """# Keys

This page lists the keys of `broker.properties`, in RocketMQ's spelling and units. An unknown key stops the start; the
error names the nearest known key. *Live*: `slipstream admin updateBrokerConfig -b HOST:PORT -k KEY -v VALUE` changes
the key while the broker runs, and in the broker's file. *Slipstream only*: RocketMQ does not know the key.
[Configuration](../configuration.md) says how keys work together.

"""
COLUMNS = ("key", "what it does")
KEY = re.compile(r'^    (?:# (?P<heading>[^.;:\n]+)|\w+: .+ = key\((?:  #.*)?\s*"(?P<key>[^"]+)")', re.MULTILINE)


def page() -> str:
    """Return the whole page as Markdown."""
    parts = [HEAD]
    for heading, names in (_sections(keys) | _sections(client_keys)).items():
        known = [key for key in keys.KEYS if key.name in names]
        parts.append(f"## {heading[:1].upper()}{heading[1:]}\n\n{_table(known, keys.OWN_KEYS)}\n")
    own = frozenset({"remotingAllowList", "adminAllowList", "registerAllowList", "remotingConnectionsMax"})
    parts.append(f"## Name server\n\n{_table(name_server_keys.KEYS, own, live=())}\n")
    return "".join(parts) + _other_names()


def _sections(module: object) -> dict[str, list[str]]:
    """The names of keys below each comment of the source that is a heading."""
    sections: dict[str, list[str]] = {}
    names: list[str] = []
    for match in KEY.finditer(inspect.getsource(module)):  # type: ignore[arg-type]
        if match["heading"]:
            names = sections.setdefault(match["heading"].strip(), [])
        elif match["key"]:
            names = names if sections else sections.setdefault("clients", names)
            names.append(match["key"])
    return sections


def _table(some: Iterable[Key], own: frozenset[str], live: Iterable[str] = live_settings.NAMES) -> str:
    changeable = set(live)
    rows = [(code(key.name), _meaning(key, is_live=key.name in changeable, is_own=key.name in own)) for key in some]
    return table(COLUMNS, rows)


def _meaning(key: Key, *, is_live: bool, is_own: bool) -> str:
    """What a key does and allows, in one cell: the table then fits a screen of any width."""
    lines = [f"{key.says[:1].upper()}{key.says[1:]}.", f"Allowed: {key.allowed}."]
    if key.default is not None and str(key.default):
        lines[0] += f" Default: {code(str(key.default).lower() if isinstance(key.default, bool) else key.default)}."
    lines += [f"*{mark}.*" for mark, has in (("Live", is_live), ("Slipstream only", is_own)) if has]
    return "<br>".join(lines)


def _other_names() -> str:
    spellings = {**keys.SYNONYMS, **keys.OLD_SPELLINGS}
    rows = [(code(old), code(new)) for old, new in spellings.items()]
    stopping = [
        (code(name), code(unused.harmless), unused.why)
        for name, unused in sorted(UNUSED.items())
        if unused.harmless is not None
    ]
    warned = [(code(name), unused.why) for name, unused in sorted(UNUSED.items()) if unused.harmless is None]
    return (
        f"## Other names\n\n{table(('also accepted', 'as'), rows)}\n"
        "## Keys of RocketMQ that stop the start\n\nThis broker starts only with the value shown here, RocketMQ's "
        f"default.\n\n{table(('key', 'allowed', 'why'), stopping)}\n"
        "## Keys of RocketMQ without an effect\n\nThis broker warns about these and starts.\n\n"
        f"{table(('key', 'why'), warned)}\n"
    )
