"""Documents of the repository, made ready for mkdocs: its Markdown wants blank lines that others do without."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from tools.dev.docs.places import ROOT, document_of, page_of

LINK = re.compile(
    r"\[(?P<text>[^\]]+)\]\((?!\w+:|#)(?P<to>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)"
    r"|(?<![`\w])`(?P<named>(?:[\w.-]+/)*[\w.-]+\.(?:md|ipynb))`(?!`)"
)
ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
FENCE = re.compile(r"\s*```")
CELL = re.compile(r"^# %%(?P<kind> \[markdown\])?\n", re.MULTILINE)


def read(path: str) -> str:
    """A document as Markdown: notebooks, too, their cells one after the other."""
    text = (ROOT / path).read_text()
    if path.endswith(".ipynb"):
        cells = ((cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"])
        return "\n\n".join(body if kind == "markdown" else _code(body) for kind, body in cells)
    return _percent_cells(text) if path.endswith(".py") else text


def _percent_cells(text: str) -> str:
    """A program with `# %%` between its cells."""
    _before, *parts = CELL.split(text)
    cells = zip(parts[::2], parts[1::2], strict=True)
    return "\n\n".join(re.sub(r"^# ?", "", body, flags=re.MULTILINE) if kind else _code(body) for kind, body in cells)


def _code(body: str) -> str:
    return f"```python\n{body.strip()}\n```" if body.strip() else ""


def for_site(markdown: str, page: str) -> str:
    """The text of a page of the site: links lead to pages, and documents that are named are links."""
    parts = _parts(markdown)
    return "\n".join(text if is_code else _prose(text, page) for is_code, text in parts)


def _parts(markdown: str) -> Iterator[tuple[bool, str]]:
    """(whether it is a block of code, text), one after the other."""
    lines: list[str] = []
    is_code = False
    for line in markdown.split("\n"):
        if FENCE.match(line):
            if not is_code:
                yield False, "\n".join(lines)
                lines = [line]
            else:
                yield True, "\n".join([*lines, line])
                lines = []
            is_code = not is_code
        else:
            lines.append(line)
    yield is_code, "\n".join(lines)


def _prose(text: str, page: str) -> str:
    lines: list[str] = []
    is_list, before = False, ""
    for line in text.split("\n"):
        is_item = bool(ITEM.match(line))
        begins_list, begins_table = is_item and not is_list, line.startswith("|") and not before.startswith("|")
        if (begins_list or begins_table) and before.strip():
            lines.append("")
        is_list = is_item or (is_list and bool(line.strip()) and line.startswith(" "))
        lines.append(line)
        before = line
    return LINK.sub(lambda match: _led(match, page), "\n".join(lines))


def _led(link: re.Match[str], page: str) -> str:
    home = PurePosixPath(document_of(page)).parent
    if (name := link["named"]) is not None:
        to = next((uri for document in (name, home / name) if (uri := page_of(os.path.normpath(document)))), page)
        return link[0] if to == page else f"[`{name}`]({_relative(to, page)})"
    document = os.path.normpath(home / link["to"])
    if (uri := page_of(document)) is not None:
        return f"[{link['text']}]({_relative(uri, page)}{link['anchor'] or ''})"
    return f"{link['text']} (`{document}`)" if (ROOT / document).exists() else link[0]


def _relative(to: str, page: str) -> str:
    return os.path.relpath(to, PurePosixPath(page).parent)
