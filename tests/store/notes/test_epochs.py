"""The files of epochs and of a divergence: read as written, refused in words when damaged; and whose role counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from store.epochs import EPOCH_MAX, Epoch, entries_of, entry_fields
from store.errors import OwnFileDamaged
from store.notes import divergence, epochs
from store.notes.divergence import Divergence
from store.notes.epochs import Epochs, Fence, SaidRole

NOTE = Divergence(4711, 9000, "10.0.0.1:10912", "pair:0", "00ff", "", 1_700_000_000_000)
FIRST = Epochs().promoted("pair:1", 100, 5)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert epochs.read(tmp_path) == Epochs()
    assert divergence.read(tmp_path) is None
    full = FIRST.fenced(Fence(7, "pair:2", "h:1", 6)).demoted("h:1")
    epochs.write(tmp_path, full)
    divergence.write(tmp_path, NOTE)
    assert (epochs.read(tmp_path), divergence.read(tmp_path)) == (full, NOTE)
    assert "offset 4711 on (here 00ff, there nothing)" in NOTE.text()
    assert divergence.remove(tmp_path)
    assert divergence.read(tmp_path) is None
    assert not divergence.remove(tmp_path)


@pytest.mark.parametrize("kind", ["a bit", "short", "empty", "no sum", "link", "directory", "order", "number"])
def test_what_is_damaged_is_refused_with_what_to_do(tmp_path: Path, kind: str) -> None:
    epochs.write(tmp_path, FIRST)
    divergence.write(tmp_path, NOTE)
    for module, path in ((epochs, epochs.path_of(tmp_path)), (divergence, divergence.path_of(tmp_path))):
        content = path.read_bytes()
        match kind:
            case "a bit":
                path.write_bytes(content.replace(b"pair", b"pais", 1))
            case "short":
                path.write_bytes(content[:-9])
            case "empty":
                path.write_bytes(b"")
            case "no sum":
                path.write_text(json.dumps({"version": 1, "epochs": []}))
            case "link":
                other = path.rename(tmp_path / f"other of {path.name}")
                path.symlink_to(other)
            case "directory":
                path.unlink()
                path.mkdir()
            case "order" if module is epochs:
                two = Epoch(1, 50, "pair:0", 5)
                epochs.write(tmp_path, Epochs((*FIRST.entries, two)))
            case "number" if module is epochs:
                epochs.write(tmp_path, Epochs((Epoch(0, -1, "pair:0", 5),)))
            case "number":
                divergence.write(tmp_path, Divergence(-1, 0, "", "", "", "", 0))
        if kind == "order" and module is divergence:
            continue
        said = r"slipstream\.(epochs|diverged): not a .*; (restore|compare) "
        with pytest.raises(OwnFileDamaged, match=said) as refused:
            module.read(tmp_path)
        assert refused.value.code == "OWN_FILE_DAMAGED"


def test_the_last_epoch_says_who_is_the_master() -> None:
    assert Epochs().makes_master("pair:0", is_master_by_file=True)
    assert not Epochs().makes_master("pair:1", is_master_by_file=False)
    assert FIRST.makes_master("pair:1", is_master_by_file=False)
    assert not FIRST.makes_master("pair:0", is_master_by_file=True), "a copy, or the old master that has caught up"
    assert not FIRST.demoted("h:1").makes_master("pair:1", is_master_by_file=True)
    assert FIRST.demoted("h:1").role is SaidRole.SLAVE


def test_a_newer_master_fences_until_its_epoch_is_followed() -> None:
    fence = Fence(2, "pair:0", "h:1", 6)
    fenced = FIRST.fenced(fence)
    assert fenced.is_fenced
    assert not fenced.makes_master("pair:1", is_master_by_file=False)
    assert FIRST.fenced(Fence(1, "pair:1", "h:1", 6)) == FIRST, "not newer"
    assert FIRST.fenced(Fence(1, "", "", 6)) == FIRST
    twins = FIRST.fenced(Fence(1, "pair:0", "h:1", 6))
    assert twins.is_fenced and not twins.entries, "two brokers began one epoch: who hears of it gives its own up"
    assert not twins.makes_master("pair:1", is_master_by_file=True)
    assert fenced.fenced(Fence(1, "pair:2", "h:2", 7)).fenced_by == fence
    again = fenced.following([*FIRST.entries, Epoch(2, 80 + 100, "pair:0", 6)])
    assert not again.is_fenced
    assert not again.makes_master("pair:1", is_master_by_file=False)
    assert again.promoted("pair:1", 500, 9).entries[-1] == Epoch(3, 500, "pair:1", 9)


def test_a_stranger_leaves_numbers_for_the_promotions_to_come(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="above"):
        entries_of([entry_fields(Epoch(EPOCH_MAX + 1, 0, "pair:0", 1))])
    (entry,) = entries_of([entry_fields(Epoch(EPOCH_MAX, 0, "pair:0", 1))])
    epochs.write(tmp_path, Epochs().following([entry]).promoted("pair:1", 5, 2).promoted("pair:2", 6, 3))
    assert epochs.read(tmp_path).last_epoch == EPOCH_MAX + 2


def test_a_cut_forgets_epochs_and_not_their_numbers() -> None:
    two = FIRST.promoted("pair:0", 200, 6)
    assert two.cut(150).entries == FIRST.entries
    assert two.cut(200).entries == FIRST.entries
    assert two.cut(100).next_epoch == 3, "no number is given twice"
    assert two.promoted("pair:1", 150, 7).entries == (*FIRST.entries, Epoch(3, 150, "pair:1", 7))
