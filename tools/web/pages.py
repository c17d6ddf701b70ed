"""Where the console's pages and their files lie: data of the package, served as they are."""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).parent / "static"
STATIC_PREFIX = "/static/"
SHELL_PAGE, ENTER_PAGE, LOCKED_PAGE, NOWHERE_PAGE = (
    STATIC / f"{name}.html" for name in ("shell", "enter", "locked", "nowhere")
)
PAGES = ("/", "/segments", "/latency", "/lag", "/topics", "/search", "/message", "/checks", "/settings")
