"""consumerOffset.json where shared memory says what it did and more: of the file only its version is read."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from store.tables import json_files
from store.tables.offset_texts import GROUP_TOPICS
from store.tables.tables import OFFSET_TABLE, VERSION

HEAD_BYTES = 1024
HEAD = re.compile(
    rf'\{{\s*+"{VERSION}":(\{{[^{{}}"]*+(?:"\w++"[^{{}}"]*+)*+\}}),\s*+"(?:{GROUP_TOPICS}|{OFFSET_TABLE})":\{{'
)
HEADLESS = re.compile(rf'\{{\s*+"{OFFSET_TABLE}":\{{')


def without_offsets(path: Path) -> dict[Any, Any] | None:
    """Return what a sound file says, as an object without offsets.

    None where it does not begin as it is usually written.
    """
    with suppress(OSError, ValueError), path.open("rb") as file:
        begins = file.read(HEAD_BYTES).decode(errors="replace")
        if HEADLESS.match(begins):
            return {OFFSET_TABLE: {}}
        if head := HEAD.match(begins):
            return {VERSION: json_files.parse(head[1].encode(), str(path)), OFFSET_TABLE: {}}
    return None
