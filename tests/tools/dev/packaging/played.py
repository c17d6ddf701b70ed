"""What checks in roots of their own have in common: options, mounts that go with the process, a scratch folder."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from tools.dev.packaging import layers


def ledger_options(declared: Callable[..., None]) -> click.Command:
    """A command with `--ledger` and `--images`."""
    ledger = click.option("--ledger", type=click.Path(path_type=Path, dir_okay=False))
    kept = "Where images are kept for another run."
    images = click.option("--images", type=click.Path(path_type=Path, file_okay=False), help=kept)
    return click.command()(ledger(images(declared)))


def play_in_own_mounts(
    prefix: str, play: Callable[[Path, Path], str], ledger: Path | None, images: Path | None
) -> None:
    """Play in a scratch folder, of which nothing is left, with the images; write the page that comes of it."""
    layers.in_own_mounts()
    scratch = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        page = play(scratch, images or scratch / "images")
    finally:
        layers.remove(scratch)
    click.echo("nothing is left")
    if ledger is not None:
        ledger.write_text(page)
