"""`slipstream log digest`: SHA-256 of each sealed segment, kept beside the store, for `log verify` to compare with."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from store.reading.log_reader import open_log
from store.verify import digests
from store.verify.verification import Verification
from tools.common.exit_codes import ExitCode
from tools.common.progress import Update, progress

IN_THE_WAY = ("DAMAGED", "BLANK_SIZE")


def digest(store: Path, shown: bool | None) -> int:
    """Note the SHA-256 of every sealed segment of STORE that has none yet."""
    reader = open_log(store)
    if reader.files is None:
        click.echo("no segments")
        return 0
    known = digests.read(store)
    size, bases = reader.files.segment_bytes, reader.files.base_offsets()
    wanted = [base for base in bases if base not in known and base + size <= reader.max_offset]
    if not wanted:
        click.echo(f"{len(known)} digests, no sealed segment without one")
        return 0
    verification = Verification(store, reader.max_offset, 0, compare_digests=False)
    with progress("verify", shown) as update:
        verification.on_progress = lambda: update(verification.bytes_checked, verification.bytes_total)
        damaged = [finding for finding in verification.findings() if finding.code in IN_THE_WAY]
    made = {base: known[base] for base in known if base in bases}
    paths = {base: str(reader.files.path_of(base)) for base in wanted}
    sound = [base for base in wanted if not any(finding.where.startswith(paths[base]) for finding in damaged)]
    with progress("digest", shown) as update:
        for number, base in enumerate(sound):
            on_progress = partial(_show_progress, update, number * size, len(sound) * size)
            with reader.files.open(base) as segment:
                made[base] = digests.digest_of(segment, on_progress)
    digests.write(store, made)
    for finding in damaged:
        click.echo(str(finding), err=True)
    refused = len(wanted) - len(sound)
    click.echo(f"{len(sound)} digests made, {len(made)} in all" + (f", {refused} refused" if refused else ""))
    return ExitCode.FOUND if refused else 0


def _show_progress(update: Update, before: int, total: int, done: int) -> None:
    update(before + done, total)
