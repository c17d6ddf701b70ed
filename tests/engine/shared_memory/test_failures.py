"""The texts of roles' errors in shared memory, as their readers see them."""

from __future__ import annotations

from pathlib import Path

from engine.shared_memory.failures import TEXT_BYTES, Failures


def test_a_text_that_stands_there_is_not_written_again_and_so_never_missing(region_dir: Path) -> None:
    failures = Failures.create(region_dir)
    long = "ä" * TEXT_BYTES
    for text in ("IO: no disk", "IO: no disc", long, ""):
        failures.note("dispatcher", text)
        seen = failures.text_of("dispatcher")
        assert seen.rstrip("\N{REPLACEMENT CHARACTER}") == text[: len(seen)] and bool(seen) == bool(text)
        failures._region.words.flags.writeable = failures._region.bytes.flags.writeable = False
        failures.note("dispatcher", text)
        failures._region.words.flags.writeable = failures._region.bytes.flags.writeable = True
    failures.note("flusher", "x")
    assert (failures.text_of("dispatcher"), failures.text_of("flusher")) == ("", "x")
    failures.close()
