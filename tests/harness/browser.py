"""A headless Chromium of the machine's own, driven by playwright; nothing is downloaded for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 120.0


def chromium() -> str | None:
    """CHROMIUM, else what lies on PATH."""
    given = os.environ.get("CHROMIUM")
    if given:
        return given
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """A running one. Skips the test where the machine has none."""
    path = chromium()
    if path is None:
        pytest.skip("no Chromium on this machine: set CHROMIUM, or install Debian's package chromium")
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox refuses root
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=arguments, timeout=SECONDS * 1000)
        try:
            yield running
        finally:
            running.close()


class Watched:
    """A page of a browser, with all that went wrong in it and whom it asked."""

    def __init__(self, context: BrowserContext) -> None:
        context.set_default_timeout(SECONDS * 1000)
        context.set_default_navigation_timeout(SECONDS * 1000)
        self.page: Page = context.new_page()
        self.faults: list[str] = []
        self.asked: set[str] = set()
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", self._refuse)
        self.page.on("request", lambda request: self.asked.add(request.url))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.faults.append(f"{kind}: {text}")

    def _refuse(self, dialog: Any) -> None:
        self.faults.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def foreign(self, origin: str) -> set[str]:
        """Requests to others."""
        return {url for url in self.asked if not url.startswith(f"{origin}/")}


@contextmanager
def window(running: Browser, width: int, scheme: str = "light") -> Iterator[Watched]:
    """A window of that width; narrow ones are high, as telephones are."""
    height = 1080 if width > 640 else 780
    context = running.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    try:
        yield Watched(context)
    finally:
        context.close()
