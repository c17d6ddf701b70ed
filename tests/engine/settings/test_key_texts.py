"""What the declarations say of each key, and what README has of it."""

from __future__ import annotations

import re
from pathlib import Path

from engine.settings import name_server_keys
from engine.settings.keys import KEYS, OWN_KEYS

ROW = re.compile(r"^\| `([\w.]+)` \| [^|]+ \| (.+) \|$", re.MULTILINE)
README = Path(__file__).resolve().parents[3] / "README.md"
CHARACTERS_MAX = 150


def test_every_key_says_what_it_does() -> None:
    for key in (*KEYS, *name_server_keys.KEYS):
        assert key.says, f"{key.name} says nothing: says=\"...\" of its declaration"
        assert 2 < len(key.says) <= CHARACTERS_MAX and not key.says.endswith(".") and "|" not in key.says, key.name
    shared = {key.name: key.says for key in KEYS}
    for key in name_server_keys.KEYS:
        if key.name in name_server_keys.SHARED:
            assert key.says == shared[key.name]


def test_the_table_of_our_own_keys_is_what_the_declarations_say() -> None:
    said = {key.name: key.says for key in (*name_server_keys.KEYS, *KEYS) if key.name in OWN_KEYS}
    said |= {key.name: key.says for key in name_server_keys.KEYS if key.name == "registerAllowList"}
    table = README.read_text().split("## Configuration", 1)[1].split("\n## ", 1)[0]
    assert dict(ROW.findall(table)) == said
