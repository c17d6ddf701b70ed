"""What the declarations say of each key."""

from __future__ import annotations

from engine.settings import name_server_keys
from engine.settings.keys import KEYS

CHARACTERS_MAX = 150


def test_every_key_says_what_it_does() -> None:
    for key in (*KEYS, *name_server_keys.KEYS):
        assert key.says, f'{key.name} says nothing: says="..." of its declaration'
        assert 2 < len(key.says) <= CHARACTERS_MAX and not key.says.endswith(".") and "|" not in key.says, key.name
    shared = {key.name: key.says for key in KEYS}
    for key in name_server_keys.KEYS:
        if key.name in name_server_keys.SHARED:
            assert key.says == shared[key.name]
