"""What masters say through a name server: whole, bounded, and proved to whoever made up the number."""

from __future__ import annotations

import pytest

from engine.protocol.ha import relayed
from engine.protocol.ha.relayed import PREFIX

SECRET, OURS, ITS = b"of this pair and nobody else", b"o" * 16, b"i" * 16
CLAIM = '{"broker_name": "Paar-ü"}'.encode() * 20


def test_words_come_back_whole_and_prove_a_claim_once() -> None:
    said = relayed.signed(SECRET, ITS, OURS, CLAIM)
    texts = relayed.texts_of(said)
    assert all(len(text) <= 255 and text.isprintable() for text in texts)
    heard = relayed.relayed_of(["10.0.0.1:8888", *reversed(texts)])
    assert heard == said and relayed.is_proved(SECRET, OURS, heard)
    assert not relayed.is_proved(SECRET, b"n" * 16, heard), "it was said to another one, or before"
    assert not relayed.is_proved(b"another secret of some length", OURS, heard)
    assert not relayed.is_proved(b"", OURS, relayed.signed(b"", ITS, OURS, CLAIM)), "no secret proves nothing"
    assert not relayed.is_proved(SECRET, b"", relayed.signed(SECRET, ITS, b"", CLAIM)), "before our number was known"
    for forged in (heard._replace(claim=b"{}"), heard._replace(nonce=OURS), heard._replace(signature=b"")):
        assert not relayed.is_proved(SECRET, OURS, forged)


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [7],
        [f"{PREFIX}:0"],
        [f"{PREFIX}:x:AAAA"],
        [f"{PREFIX}:1:AAAA"],
        [f"{PREFIX}:0:AAAA"],
        [f"{PREFIX}:0:WzEsMiwzLDRd"],
        [f"{PREFIX}:0:ü"],
        [f"{PREFIX}:0:W10="],
    ],
)
def test_a_strangers_words_are_nothing(texts: list[object]) -> None:
    assert relayed.relayed_of(texts) is None
