"""Every page in a real browser: wide and narrow, light and dark, by keyboard, with what hostile producers sent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.producer import Producer
from tests.harness.axe import violations
from tests.harness.browser import SECONDS, Watched, browser, window
from tests.harness.conditions import await_that
from tests.harness.served_console import ServedConsole
from tools.common.local_broker import LocalBroker

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

HOSTILE = "<script>window.pwned=1</script><img src=x onerror=window.pwned=2>\"'><svg/onload=window.pwned=3>"
LONG = "T" * 127
WIDTHS = range(320, 1921, 64)
# What a page shows once it is complete.
PAGES = {
    "/": ".stages .here", "/segments": ".segment .cells", "/latency": "section .chart .bar", "/lag": ".chart",
    "/topics": "tbody a", "/search": "td .preview", "/checks": "form button", "/settings": "td .badge",
    "/message": "pre.body", "/topics?topic=orders": "tbody a",
}  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def offsets() -> dict[str, int]:
    return {}


@pytest.fixture(scope="module")
def console(
    chromium: Browser, offsets: dict[str, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedConsole]:
    folder = tmp_path_factory.mktemp("pair")
    with (
        LocalBroker(folder / "master", mappedFileSizeCommitLog=1 << 20) as master,
        LocalBroker(
            folder / "slave",
            brokerRole="SLAVE",
            brokerId=1,
            haMasterAddress=master.ha_address,
            mappedFileSizeCommitLog=1 << 20,
        ) as slave,
    ):
        with Producer(master.store, timeout=120.0) as producer:
            for number in range(200):
                producer.send("orders", f'{{"order": {number}}}'.encode(), keys=f"A-{number}", tags="new")
            sent = producer.send("hostile", HOSTILE.encode(), keys=HOSTILE.split()[0], properties={"note": HOSTILE})
            words = "a-key-" * 20
            producer.send(LONG, b"long", tags="w" * 90, keys=f"{'K' * 200} {words}", properties={"P" * 90: "v" * 400})
            offsets["hostile"] = sent.physical_offset
            offsets["first"] = 0
        with ServedConsole(master.store, slave.store) as served:
            asked = "/api/search?by=newest&topic=hostile"
            await_that(lambda: served.ask(asked).json["messages"], "the queues have what was sent")
            await_that(lambda: newest(served, LONG), "the queue has the message with long names")
            yield served


@pytest.fixture
def wide(chromium: Browser, console: ServedConsole) -> Iterator[Watched]:
    with window(chromium, 1920) as watched:
        enter(watched, console)
        yield watched
        check_quiet(watched, console)


def newest(console: ServedConsole, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = console.ask(f"/api/search?by=newest&topic={topic}").json["messages"]
    return found


def origin_of(console: ServedConsole) -> str:
    return f"http://127.0.0.1:{console.port}"


def enter(watched: Watched, console: ServedConsole) -> None:
    watched.page.goto(console.url)
    watched.page.wait_for_url(f"{origin_of(console)}/")


def check_quiet(watched: Watched, console: ServedConsole) -> None:
    assert not watched.faults
    assert not watched.foreign(origin_of(console))
    assert watched.page.evaluate("window.pwned") is None


UNNAMED = """() => [...document.querySelectorAll("a, button, input, select, textarea, progress, img, svg[role=img]")]
  .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length
    || one.hasAttribute("alt")))
  .map((one) => one.outerHTML.slice(0, 200))"""
# WCAG's contrast of every text that can be seen, against the next background that is not transparent.
PALE = """() => {
  const parts = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const linear = (v) => v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = parts(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const pale = [];
  for (const one of document.querySelectorAll("body *:not(svg *):not(option)")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !one.checkVisibility() || one.disabled || one.closest("noscript")) continue;
    const pair = [light(parts(getComputedStyle(one).color)), light(behind(one))].sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (contrast < 4.5) pale.push(`${contrast.toFixed(2)} ${one.outerHTML.slice(0, 120)}`);
  }
  return pale;
}"""
LOOKED_AT_BY_AXE = ((1920, "light"), (360, "dark"))  # axe takes seconds a page: each width and scheme once
LANDMARKS = ("main", "header", "h1", "nav#pages", "nav [aria-current]")


@pytest.mark.parametrize(("width", "scheme"), [(1920, "dark"), (1920, "light"), (360, "light"), (360, "dark")])
def test_every_page_is_whole_wide_and_narrow_light_and_dark(
    chromium: Browser, console: ServedConsole, width: int, scheme: str
) -> None:
    with window(chromium, width, scheme) as watched:
        enter(watched, console)
        page = watched.page
        for path, complete in PAGES.items():
            more = "&offset=0" if path == "/message" else ""
            page.goto(f"{origin_of(console)}{path}{'&' if '?' in path else '?'}store=0{more}")
            page.locator(complete).first.wait_for()
            assert page.locator("[role=alert]").count() == 0, path
            beyond = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert beyond <= 0, f"{path} is {beyond} pixels too wide at {width}"
            assert [page.locator(one).count() for one in LANDMARKS] == [1] * len(LANDMARKS), path
            assert page.evaluate("document.documentElement.lang") == "en" and "Slipstream" in page.title()
            assert not page.evaluate(UNNAMED), path
            assert not page.evaluate(PALE), path
            assert not page.locator("table:not(:has(caption))").count(), path
            if (width, scheme) in LOOKED_AT_BY_AXE:
                assert not violations(page), path
        check_quiet(watched, console)


# Beyond the window's edge, or beyond the broker's frame on the pipeline; and tracks on which nothing can be seen.
LOST = """() => {
  const lost = [];
  const beyond = document.documentElement.scrollWidth - innerWidth;
  if (beyond > 0) lost.push(`the page is ${beyond} pixels too wide`);
  for (const one of document.querySelectorAll(".broker .stages :is(th, td), .broker .track")) {
    const [own, frame] = [one.getBoundingClientRect(), one.closest(".broker").getBoundingClientRect()];
    if (own.right > frame.right) lost.push(`beyond its frame: ${one.textContent || "a track"}`);
    if (one.matches(".track") && own.width < 60) lost.push(`a track of ${own.width} pixels`);
  }
  const thin = [...document.querySelectorAll(".table :is(th, td)")].find((one) =>
    one.textContent.length > 5 && one.clientWidth && one.clientHeight > 20 * one.clientWidth);
  return thin ? [...lost, `a letter a line: ${thin.textContent}`] : lost;
}"""


@pytest.mark.parametrize("path", [*PAGES, f"/topics?topic={LONG}", f"/search?by=newest&topic={LONG}", "/message?long"])
def test_nothing_is_lost_at_any_width_between_whatever_the_names(
    chromium: Browser, console: ServedConsole, path: str
) -> None:
    complete = PAGES.get(path) or {"/t": "tbody a", "/s": "td .preview", "/m": "pre.body"}[path[:2]]
    offset = newest(console, LONG)[0]["offset"] if path == "/message?long" else 0
    with window(chromium, WIDTHS[0]) as watched:
        enter(watched, console)
        page = watched.page
        page.goto(f"{origin_of(console)}{path}{'&' if '?' in path else '?'}store=0&offset={offset}")
        page.locator(complete).first.wait_for()
        lost = {}
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            if found := page.evaluate(LOST):
                lost[width] = found[:3]
        assert not lost
        check_quiet(watched, console)


def test_axe_finds_what_is_wrong_and_a_page_without_a_token_whole(chromium: Browser, console: ServedConsole) -> None:
    with window(chromium, 360, "dark") as watched:
        watched.page.goto(f"{origin_of(console)}/")
        watched.page.locator("main.alone").wait_for()
        assert not violations(watched.page)
        watched.page.evaluate("document.querySelector('main').append(document.createElement('button'))")
        assert [line.split(":")[0] for line in violations(watched.page)] == ["critical button-name"]


def test_the_token_leaves_the_address_and_no_script_sees_the_cookie(wide: Watched, console: ServedConsole) -> None:
    assert console.token not in wide.page.url
    assert wide.page.evaluate("document.cookie") == ""
    assert wide.page.evaluate("history.length") <= 2
    cookies = wide.page.context.cookies()
    assert [(one["httpOnly"], one["sameSite"]) for one in cookies] == [(True, "Strict")]
    assert console.token not in str(cookies)


def test_the_console_is_used_by_keyboard_alone(wide: Watched, console: ServedConsole) -> None:
    page = wide.page
    page.locator(".stages .here").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.reload()
    page.locator("nav#pages a").first.wait_for()
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.textContent"))
        if reached[-1] == "Messages":
            break
    assert reached[0] == "Skip to content" and reached[-1] == "Messages", reached
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    page.locator("td .preview").first.wait_for()
    page.locator("select[name=by]").focus()
    page.keyboard.type("key")
    page.keyboard.press("Tab")
    page.keyboard.type("A-7")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("value=A-7"))
    link = page.locator("#results tbody a")
    link.first.wait_for()
    assert link.count() == 1
    link.focus()
    page.keyboard.press("Enter")
    page.locator("pre.body").wait_for()
    assert page.locator("[role=tab][aria-selected=true]").text_content() == "JSON"
    page.locator("[role=tab][aria-selected=true]").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "Hex"
    assert "7b 22 6f" in page.locator("pre.body").text_content()


def test_what_a_hostile_producer_sent_is_text(wide: Watched, console: ServedConsole, offsets: dict[str, int]) -> None:
    page = wide.page
    page.goto(f"{origin_of(console)}/search?store=0&by=newest&topic=hostile")
    page.locator("td .preview").first.wait_for()
    assert page.locator("td .preview").first.text_content() == HOSTILE
    page.goto(f"{origin_of(console)}/message?store=0&offset={offsets['hostile']}")
    page.locator("pre.body").wait_for()
    assert page.locator("pre.body").text_content() == HOSTILE
    assert page.locator("td .mono", has_text="onerror").first.text_content() == HOSTILE
    assert page.locator("main img, main script, main svg[onload]").count() == 0
    for value in (HOSTILE, "%3Cscript%3E"):
        page.goto(f"{origin_of(console)}/search?" + "&".join(("store=0", "by=key", f"value={value}", f"topic={value}")))
        page.locator("#results h2").wait_for()
        page.goto(f"{origin_of(console)}/topics?store=0&topic={value}")
        page.locator("[role=alert]").wait_for()
    wide.faults = [fault for fault in wide.faults if "404" not in fault]  # a topic that is not there


def test_neighbours_lead_through_the_log_and_the_queue(wide: Watched, console: ServedConsole) -> None:
    page = wide.page
    page.goto(f"{origin_of(console)}/message?store=0&offset=0")
    page.locator("pre.body").wait_for()
    for name in ("next in the log", "next in its queue"):
        page.locator(".neighbours a", has_text=name).click()
        page.wait_for_url(re.compile("offset=[1-9]"))
        page.locator("pre.body").wait_for()
    for name in ("previous in its queue", "previous in the log"):
        page.locator(".neighbours a", has_text=name).click()
        page.locator("pre.body").wait_for()
    page.wait_for_url(re.compile(r"offset=0$"))


def test_a_check_is_started_and_followed_from_the_page(wide: Watched, console: ServedConsole) -> None:
    page = wide.page
    page.goto(f"{origin_of(console)}/checks?store=1")
    page.locator("button[value=verify]").click()
    done = page.locator(".job", has_text="no findings")
    done.first.wait_for(timeout=SECONDS * 1000)
    assert "slave" in (done.first.text_content() or "")
    assert page.locator("button[value=digest]").count() == 0


def test_a_store_without_a_broker_is_shown_and_searched(chromium: Browser, tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "alone", mappedFileSizeCommitLog=1 << 20) as broker:
        with Producer(broker.store, timeout=120.0) as producer:
            producer.send("orders", b"left behind", keys="K")
        store = broker.store
    with ServedConsole(store) as console, window(chromium, 360, "dark") as watched:
        enter(watched, console)
        page = watched.page
        page.locator(".rest").wait_for()
        assert "no broker" in page.locator(".rest").text_content()
        page.goto(f"{origin_of(console)}/search?by=key&value=K")
        page.locator("td .preview", has_text="left behind").wait_for()
        page.goto(f"{origin_of(console)}/segments")
        page.locator(".segment").first.wait_for()
        page.goto(f"{origin_of(console)}/settings")
        page.locator("[role=alert]", has_text="NO_BROKER").wait_for()
        watched.faults = [fault for fault in watched.faults if "409" not in fault]
        check_quiet(watched, console)
