"""`slipstream warm`: compiles all kernels for this machine now, so that no first start has to; or removes them."""

from __future__ import annotations

import os
import sys
import tempfile

import click

from tools.common.output_form import form, json_text
from tools.common.progress import working


@click.command()
@click.option("--remove", is_flag=True, help="Remove the compiled kernels of every version, before an uninstallation.")
@form("Print one JSON object.")
def warm(remove: bool, as_json: bool) -> int:
    """Compile all kernels now, so that the first start is quick.

    This takes half a minute to some minutes, once for each version. The kernels are written to $NUMBA_CACHE_DIR if it
    is set. Otherwise they are written next to the sources if this user may write there, else to $CACHE_DIRECTORY
    (CacheDirectory= of a systemd service), $XDG_CACHE_HOME/slipstream, ~/.cache/slipstream, or a folder for temporary
    files. A service whose user can only read uses the kernels next to the sources.
    """
    from ipc.compiled.kernel_folders import base_folder, remove_kernels

    given = os.environ.get("NUMBA_CACHE_DIR", "")
    if remove:
        gone = remove_kernels(given)
        text = json_text("warm", {"removed": len(gone), "kept": None})
        click.echo(text if as_json else f"removed {len(gone)} folders of kernels")
        return 0
    from ipc.compiled import carried

    if carried.library() is not None:
        text = json_text("warm", {"removed": None, "kept": str(carried.FOLDER)})
        click.echo(
            text if as_json else f"warm: nothing is to be compiled: kernels came with the package, in {carried.FOLDER}"
        )
        return 0
    from engine.settings.config import from_mapping
    from engine.warm import warm_up
    from ipc.compiled.kernels import tell_progress_to

    scratch = tempfile.gettempdir()
    with working("loading compiled kernels") as show:
        tell_progress_to(show if sys.stderr.isatty() else lambda line: click.echo(f"slipstream: {line}", err=True))
        warm_up(from_mapping({"regionPath": scratch, "storePathRootDir": scratch}), verification=True)
    place = base_folder(given)
    kept = f"kernels are in {place}" if place else "kernels compiled but not kept: no folder is writable"
    text = json_text("warm", {"removed": None, "kept": str(place) if place else None})
    click.echo(text if as_json else f"warm: {kept}")
    return 0 if place else 1
