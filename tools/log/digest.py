"""`slipstream log digest`: SHA-256 of each sealed segment, kept beside the store, for `log verify` to compare with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from store.reading.log_reader import open_log
from store.verify import digests
from store.verify.finding import Finding
from store.verify.verification import Verification
from tools.common.exit_codes import ExitCode
from tools.common.output_form import json_text
from tools.common.progress import Update, progress

IN_THE_WAY = ("DAMAGED", "BLANK_SIZE")


class Digested(NamedTuple):
    """The result of a run: digests made now, all that there are, why segments got none."""

    made: int
    known: int
    damaged: list[Finding]
    refused: int


def digest(store: Path, shown: bool | None, as_json: bool) -> int:
    """Note the SHA-256 of every sealed segment of STORE that has none yet."""
    outcome = digest_sealed(store, lambda title: progress(title, shown))
    for finding in outcome.damaged:
        click.echo(str(finding), err=True)
    sums = {"made": outcome.made, "inAll": outcome.known, "refused": outcome.refused}
    click.echo(json_text("log.digest", sums) if as_json else line_of(outcome))
    return ExitCode.FOUND if outcome.refused else 0


def line_of(outcome: Digested) -> str:
    """Return the outcome as one line for people."""
    if not outcome.made and not outcome.refused:
        return f"{outcome.known} digests, no sealed segment without one" if outcome.known else "no sealed segment"
    refused = f", {outcome.refused} refused" if outcome.refused else ""
    return f"{outcome.made} digests made, {outcome.known} in all{refused}"


def digest_sealed(store: Path, progress_of: Callable[[str], AbstractContextManager[Update]]) -> Digested:
    """Do it. `progress_of` is entered with the name of each part of the work."""
    reader = open_log(store)
    if reader.files is None:
        return Digested(0, 0, [], 0)
    known = digests.read(store)
    size, bases = reader.files.segment_bytes, reader.files.base_offsets()
    wanted = [base for base in bases if base not in known and base + size <= reader.max_offset]
    if not wanted:
        return Digested(0, len(known), [], 0)
    verification = Verification(store, reader.max_offset, 0, compare_digests=False)
    with progress_of("verify") as update:
        verification.on_progress = lambda: update(verification.bytes_checked, verification.bytes_total)
        damaged = [finding for finding in verification.findings() if finding.code in IN_THE_WAY]
    made = {base: known[base] for base in known if base in bases}
    paths = {base: str(reader.files.path_of(base)) for base in wanted}
    sound = [base for base in wanted if not any(finding.where.startswith(paths[base]) for finding in damaged)]
    with progress_of("digest") as update:
        for number, base in enumerate(sound):
            on_progress = partial(_show_progress, update, number * size, len(sound) * size)
            with reader.files.open(base) as segment:
                made[base] = digests.digest_of(segment, on_progress)
    digests.write(store, made)
    return Digested(len(sound), len(made), damaged, len(wanted) - len(sound))


def _show_progress(update: Update, before: int, total: int, done: int) -> None:
    update(before + done, total)
