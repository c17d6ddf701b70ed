"""Builds the site: `python -m tools.dev.docs [FOLDER]`. A warning, as of a link that leads nowhere, is a failure."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

CONFIGURATION = Path(__file__).with_name("mkdocs.yml")
os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")  # material's: mkdocs is pinned


def build_into(folder: Path | None) -> int:
    """Build it, into build/site unless another folder is named; the exit code."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    where = {} if folder is None else {"site_dir": str(folder.resolve())}
    config = load_config(str(CONFIGURATION), strict=True, **where)
    try:
        build(config)
    except Abort as failure:
        print(f"site: not built: {failure}", file=sys.stderr)
        return 1
    print(f"site: {Path(config.site_dir) / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(build_into(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
