"""What mkdocs calls while it builds the site: adds the pages that do not lie in docs/, and leads links to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

import slipstream
from tools.dev.docs import (
    benchmarks,
    command_help,
    error_codes,
    places,
    property_keys,
    reason_codes,
    request_codes,
    texts,
)

NOT_SHOWN = {"__version__", "main"}
TAKEN_AND_RETURNED = (  # by public names
    "engine.clients.consuming.consumer.Options",
    "engine.clients.consuming.received.ReceivedMessage",
    "engine.clients.sending.publishing.RemoteSendResult",
    "engine.producer.broker_puts.SendResult",
)
PYTHON = """# Python reference

The names of `import slipstream`, by alphabet, and what they take and return. [Python clients](../python-clients.md) and
[Spark](../spark.md) explain how to use them.
"""


def _python_names() -> str:
    """A section for each public name, in which mkdocstrings shows signatures and docstrings of the sources."""
    names = sorted({f"slipstream.{name}" for name in set(slipstream.__all__) - NOT_SHOWN}, key=str.lower)
    return "\n".join([PYTHON, *(f"::: {name}\n" for name in [*names, *TAKEN_AND_RETURNED])])


# Pages that are made from the code each time the site is built, by their place on it.
PAGES: dict[str, Callable[[], str]] = {
    "benchmarks.md": benchmarks.page,
    "how-to/error-codes.md": error_codes.page,
    "how-to/reason-codes.md": reason_codes.page,
    "reference/commands.md": command_help.page,
    "reference/keys.md": property_keys.page,
    "reference/python.md": _python_names,
    "reference/requests.md": request_codes.page,
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents beside the code and the pages made from it; give pages that nobody placed a place."""
    for uri, path in places.PLACED.items():
        files.append(File.generated(config, uri, content=texts.read(path)))
    for uri, made in PAGES.items():
        files.append(File.generated(config, uri, content=made()))
    for uri, picture in benchmarks.pictures().items():
        files.append(File.generated(config, uri, content=picture))
    for file in list(files):
        if file.src_uri.endswith((".ipynb", ".py")):
            file.inclusion = InclusionLevel.INCLUDED
    _place_the_rest(config.nav or [], [file.src_uri for file in files.documentation_pages()])
    return files


def _place_the_rest(nav: list[Any], pages: list[str]) -> None:
    """Pages that the configuration does not name stand under How-to, behind the others."""
    named = {uri for entry in nav for part in entry.values() for uri in (part if isinstance(part, list) else [part])}
    guides = next(entry["How-to"] for entry in nav if "How-to" in entry)
    guides += sorted(set(pages) - named)


def on_page_markdown(markdown: str, page: Any, **_others: Any) -> str:
    """Turn links and lists of the repository into the site's; mkdocs calls it for each page."""
    return texts.for_site(markdown, page.file.src_uri)
