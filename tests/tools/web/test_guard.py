"""Who may ask the console, under which name, from which page; and what a browser is allowed to do with its answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.logs import SmallLog
from tests.harness.served_console import ServedConsole
from tools.web.pages import PAGES


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedConsole]:
    log = SmallLog(tmp_path_factory.mktemp("web") / "store")
    for number in range(20):
        log.append("orders", f"order {number}".encode(), properties={"KEYS": f"A-{number}"})
    with ServedConsole(log.root) as served:
        yield served


def test_without_the_token_there_are_static_files_only(console: ServedConsole) -> None:
    for path in (*PAGES, "/api/stores", "/api/pipeline", "/events/pipeline", "/nowhere"):
        answer = console.ask(path, token=False)
        assert answer.status == 401 and b"orders" not in answer.body, path
    assert console.ask("/static/style.css", token=False).status == 200
    wrong = ("?token=", "?token=wrong", f"?token={console.token[:-1]}", f"?token={console.token}x", "?token=%FF%00")
    assert {console.ask(f"/{each}", token=False).status for each in wrong} == {401}
    assert console.ask("/", token=False, authorization="Bearer ").status == 401
    assert console.ask("/", token=False, authorization=f"Basic {console.token}").status == 401


def test_the_token_of_the_address_is_exchanged_for_a_cookie(console: ServedConsole) -> None:
    entered = console.ask(f"/?token={console.token}", token=False)
    cookie = entered.headers["set-cookie"]
    assert entered.status == 200 and {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    pair = cookie.partition(";")[0]
    assert console.token not in cookie and console.token.encode() not in entered.body
    assert console.ask("/api/stores", token=False, cookie=pair).json["stores"][0]["live"] is False
    for other in (f"{pair}x", pair.replace("=", "=x"), "slipstream=1", '"; "', pair.partition("=")[2]):
        assert console.ask("/api/stores", token=False, cookie=other).status == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{}", 200), ("localhost:{}", 200), ("LOCALHOST:{}", 200), ("[::1]:{}", 200), ("127.0.0.9:{}", 200),
        ("localhost", 200), ("localhost:1", 421), ("rebound.example:{}", 421), ("10.1.2.3:{}", 421), ("", 421),
        ("127.0.0.1.nip.io:{}", 421), ("localhost.:{}", 421), ("[::1", 421), ("localhost@evil:{}", 421),
    ],
)  # fmt: skip
def test_a_page_that_has_our_address_by_its_own_name_is_not_answered(
    console: ServedConsole, host: str, status: int
) -> None:
    assert console.ask("/api/stores", host=host.format(console.port)).status == status
    assert console.ask("/static/style.css", token=False, host=host.format(console.port)).status == status


def test_every_answer_has_a_policy_that_lets_only_our_own_files_run(console: ServedConsole) -> None:
    for path, token in (("/", True), ("/", False), ("/static/js/main.js", False), ("/api/stores", True), ("/no", True)):
        headers = console.ask(path, token=token).headers
        policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["connect-src"] == "'self'", path
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'" and "unsafe" not in str(policy)
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store" and "server" not in headers


def test_no_page_has_a_script_or_a_style_of_its_own_or_a_foreign_address(console: ServedConsole) -> None:
    for path in sorted((Path(__file__).parents[3] / "tools/web/static").rglob("*.*")):
        text = path.read_text()
        outside = text.replace("http://www.w3.org/", "")
        assert "http://" not in outside and "https://" not in outside, path
        if path.suffix == ".html":
            assert (
                "<script>" not in text
                and "style=" not in text
                and "<style" not in text
                and " on" not in text.lower().replace(" one", "").replace(" on to", "")
            ), path
        if path.suffix == ".js":
            for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
                assert word not in text, path


def test_a_foreign_page_is_refused_whatever_it_asks_with(console: ServedConsole) -> None:
    own = {"origin": f"http://127.0.0.1:{console.port}", "content_type": "application/json"}
    for changed in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"http://127.0.0.1:{console.port + 1}"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "cors"},
        {"sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors"},
    ):
        assert console.ask("/api/stores", method="POST", body=b"{}", **{**own, **changed}).status == 403, changed
    assert console.ask("/api/stores", method="POST", body=b"{}", content_type="application/json").status == 403
    assert console.ask("/api/stores", method="POST", body=b"{}", origin=own["origin"]).status == 415
    assert console.ask("/api/stores", method="POST", token=False, body=b"{}", **own).status == 401
    assert console.ask("/api/stores", sec_fetch_site="cross-site", sec_fetch_mode="no-cors").status == 403
    assert console.ask("/", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status == 200
    assert console.ask("/api/stores", method="POST", body=b"[" * 70_000, **own).status == 413
    assert console.ask("/api/stores", method="POST", body=b"{}", **own).status == 405


def test_numbers_and_names_are_checked(console: ServedConsole) -> None:
    for query in ("store=1", "store=-1", "store=x", "store=1e3", f"store={'9' * 40}", "store=%00", "store=%C2%B2"):
        answer = console.ask(f"/api/segments?{query}")
        assert answer.status in (400, 404) and set(answer.json) == {"code", "error"}, query
    assert console.ask("/static/../guard.py").status == 404
    assert console.ask("/api/nothing").status == 404
    assert b"There is no such page" in console.ask("/nowhere").body
    assert console.ask("/static/%2e%2e/guard.py").status == 404
    assert console.ask("/static//etc/passwd").status == 404
