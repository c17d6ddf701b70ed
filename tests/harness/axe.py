"""axe-core, the rules of accessibility that people reach for, run inside a page: its script comes with a package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

PACKAGE, SCRIPT = "axe_playwright_python", "axe.min.js"
# Its answer with what is wrong alone; nothing of it leaves the page, frames there are none.
RUN = "() => axe.run(document, {resultTypes: ['violations'], iframes: false})"


@cache
def _script() -> str:
    return files(PACKAGE).joinpath(SCRIPT).read_text(encoding="utf-8")


def violations(page: Page) -> list[str]:
    """What every rule of it finds, one line a rule: how bad, which, what to do, and the first places."""
    page.evaluate(_script())
    return [_line(one) for one in page.evaluate(RUN)["violations"]]


def _line(violation: dict[str, Any]) -> str:
    places = [node["html"][:160] for node in violation["nodes"]]
    return f"{violation['impact']} {violation['id']}: {violation['help']}: {len(places)} times, {places[:3]}"
