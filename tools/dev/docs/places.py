"""Where each document of the repository stands on the site."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[3]
DOCS = "docs"
PLACED = {  # page of the site: document that does not lie in docs/, or is not written as a page there
    "overview.md": "README.md",
    "explanation/architecture.md": "ARCHITECTURE.md",
    "explanation/decisions.md": "DECISIONS.md",
    "reference/format.md": "store/FORMAT.md",
    "reference/protocol.md": "engine/protocol/PROTOCOL.md",
    "reference/spark-options.md": "spark_bridge/USAGE.md",
    "project/changelog.md": "CHANGELOG.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/security.md": "SECURITY.md",
    "examples/kafka.md": "docs/examples/kafka.ipynb",
    "examples/unseen-store.md": "docs/examples/unseen-store.ipynb",
    "examples/host-topics.md": "docs/examples/host_topics.py",
}
_PAGES = {path: uri for uri, path in PLACED.items()}


def document_of(page: str) -> str:
    """The document in the repository from which a page's links are meant."""
    return PLACED.get(page, f"{DOCS}/{page}")


def page_of(document: str) -> str | None:
    """The page on which a document of the repository stands; None: on none."""
    if document in _PAGES:
        return _PAGES[document]
    path = PurePosixPath(document)
    is_page = path.parts[:1] == (DOCS,) and (ROOT / path).is_file()
    return str(path.relative_to(DOCS)) if is_page else None
