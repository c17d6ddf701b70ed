"""Write the generated parts of hand-written documents: `python -m tools.dev.docs.parts`.

A part stands between `<!-- generated: NAME -->` and `<!-- end of NAME -->`; all around it is written by people.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tools.dev.docs import compatibility, peer_figures
from tools.dev.docs.places import ROOT

PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"figures": peer_figures.part},
    "docs/compatibility.md": compatibility.PARTS,
}
PART = re.compile(r"(?P<begin><!-- generated: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end of (?P=name) -->)", re.DOTALL)


def current(document: str) -> str:
    """The text of a document with its parts as they would be written now. Raises KeyError for an unknown part."""
    made = PARTS[document]
    text = (ROOT / document).read_text()
    return PART.sub(lambda part: f"{part['begin']}\n{made[part['name']]()}\n{part['end']}", text)


def names_in(document: str) -> set[str]:
    """The names of the parts that a document has."""
    return {part["name"] for part in PART.finditer((ROOT / document).read_text())}


def main() -> None:
    """Write each document anew."""
    for document in PARTS:
        (ROOT / document).write_text(current(document))


if __name__ == "__main__":
    main()
