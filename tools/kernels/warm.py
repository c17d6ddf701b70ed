"""`slipstream warm`: compiles all kernels for this machine now, so that no first start has to; or removes them."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial

import click

from tools.common.output_form import form, json_text
from tools.common.progress import working


@click.command()
@click.option("--remove", is_flag=True, help="Remove the compiled kernels of every version, before an uninstallation.")
@click.option("--native", is_flag=True, help="Compile for this CPU alone, and say what that gains. Takes minutes.")
@form("Print one JSON object.")
def warm(remove: bool, native: bool, as_json: bool) -> int:
    """Compile all kernels now, so that the first start is quick.

    This takes half a minute to some minutes, once for each version. The kernels are written to $NUMBA_CACHE_DIR if it
    is set. Otherwise they are written next to the sources if this user may write there, else to $CACHE_DIRECTORY
    (CacheDirectory= of a systemd service), $XDG_CACHE_HOME/slipstream, ~/.cache/slipstream, or a folder for temporary
    files. A service whose user can only read uses the kernels next to the sources.

    With --native they are compiled for this CPU alone. A process takes them where SLIPSTREAM_COMPILE=native is set.
    """
    from ipc.compiled import carried
    from ipc.compiled.kernel_folders import base_folder, remove_kernels

    given = os.environ.get("NUMBA_CACHE_DIR", "")
    if remove and native:
        raise click.UsageError("--remove and --native exclude each other")
    if remove:
        gone = remove_kernels(given)
        return _say(as_json, f"removed {len(gone)} folders of kernels", removed=len(gone))
    if native:
        return _compile_natively(as_json)
    if carried.library() is not None:
        text = f"warm: nothing is to be compiled: kernels came with the package, in {carried.FOLDER}"
        return _say(as_json, text, kept=str(carried.FOLDER))
    _compile()
    place = base_folder(given)
    kept = f"kernels are in {place}" if place else "kernels compiled but not kept: no folder is writable"
    _say(as_json, f"warm: {kept}", kept=str(place) if place else None)
    return 0 if place else 1


def _say(
    as_json: bool,
    text: str,
    *,
    removed: int | None = None,
    kept: str | None = None,
    gains: dict[str, float] | None = None,
) -> int:
    click.echo(json_text("warm", {"removed": removed, "kept": kept, "gains": gains}) if as_json else text)
    return 0


def _compile() -> None:
    from engine.settings.config import from_mapping
    from engine.warm import by_two, warm_up
    from ipc.compiled.kernels import tell_progress_to

    scratch = tempfile.gettempdir()
    with working("loading compiled kernels") as show:
        tell_progress_to(show if sys.stderr.isatty() else lambda line: click.echo(f"slipstream: {line}", err=True))
        config = from_mapping({"regionPath": scratch, "storePathRootDir": scratch})
        by_two(partial(warm_up, config, verification=True))


def _compile_natively(as_json: bool) -> int:
    from ipc.compiled import carried
    from tools.kernels import native_gain

    kept = native_gain.compile_natively()
    if kept is None:
        return _say(as_json, "warm: nothing is kept: no folder is writable, or compiling failed") or 1
    gains = native_gain.gains()
    listed = ", ".join(f"{what} {times:.2f}" for what, times in gains.items())
    text = (
        f"warm: kernels for this CPU are in {kept}\ntimes as fast as the code for any x86-64-v3: {listed}\n"
        f"next: set {carried.ASKED}={carried.NATIVE} for the processes that shall take them"
    )
    return _say(as_json, text, kept=kept, gains=gains)
