"""The site builds from a checkout alone; its links lead somewhere, and nothing on it comes from elsewhere."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import slipstream
from engine.protocol.ha.wire import CloseReason, ReasonCode
from engine.settings import name_server_keys
from engine.settings.keys import KEYS, OWN_KEYS
from engine.shared_memory.counter_map import text as counters_text
from spark_bridge.options.read import OPTION_NAMES
from spark_bridge.sink.options import OPTION_NAMES as SINK_OPTION_NAMES
from tools.cli import cli
from tools.dev.bench import ledger
from tools.dev.bench.bed.figures import Results
from tools.dev.docs import (
    benchmarks,
    command_help,
    error_codes,
    hook,
    pictures,
    property_keys,
    reason_codes,
    request_codes,
)
from tools.dev.docs.places import PLACED, ROOT
from tools.dev.docs.texts import for_site
from tools.doctor.rows import MEANINGS, Code

BUILD_SECONDS = 900
LOADS = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src", "video": "src"}
NOT_LOADED = {"canonical", "next", "prev", "edit"}
OF_OTHERS = re.compile(r"@import[^;]*//|url\(\s*[\"']?(?:https?:)?//")
CODE_WORD = re.compile(r'^\s+code(?:, \w+)* = "([A-Z_]+)"', re.MULTILINE)


class Page(HTMLParser):
    """Links, anchors, and what a browser would load."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in LOADS and given.get(LOADS[tag]) and given.get("rel") not in NOT_LOADED:
            self.loaded.append(given[LOADS[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "html"
    proxy = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "tools.dev.docs", str(folder)],
        check=False,
        cwd=ROOT,
        env={**os.environ, **proxy},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return folder


@cache
def page(path: Path) -> Page:
    return Page(path)


def test_links_and_anchors_lead_somewhere(site: Path) -> None:
    wrong, count = [], 0
    for path in site.rglob("*.html"):
        for link in page(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            count += 1
            if not target.is_file():
                wrong.append(f"{path.relative_to(site)}: {link}")
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in page(target).anchors:
                wrong.append(f"{path.relative_to(site)}: {link}: no such anchor")
    assert not wrong
    assert count > 1000


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not [what for what in page(path).loaded if urlsplit(what).netloc], path
        missing = [
            what
            for what in page(path).loaded
            if path.name != "404.html"
            and not what.startswith("data:")
            and not (path.parent / unquote(urlsplit(what).path)).exists()
        ]
        assert not missing, path
        assert not OF_OTHERS.search(path.read_text()), path
    for path in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        assert not OF_OTHERS.search(path.read_text()), path


def test_every_document_is_a_page(site: Path) -> None:
    documents = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    for uri in [*map(str, documents), *PLACED]:
        html = uri.removesuffix(".md").removesuffix("README") + ("index.html" if uri.endswith("README.md") else ".html")
        assert (site / html).is_file(), uri
        assert html == "index.html" or f'href="{html}"' in (site / "index.html").read_text(), f"{uri}: not in the menu"


def test_the_python_reference_has_every_public_name(site: Path) -> None:
    shown = page(site / "reference" / "python.html").anchors
    names = {f"slipstream.{name}" for name in slipstream.__all__} - {"slipstream.__version__", "slipstream.main"}
    assert names <= shown and set(hook.TAKEN_AND_RETURNED) <= shown
    assert {"slipstream.Consumer.run", "slipstream.Producer.send", "slipstream.DatabaseOffsets.save"} <= shown


def test_every_error_code_of_the_source_has_a_cause_and_a_next_step() -> None:
    known, text = error_codes.faults(), error_codes.page()
    spelled = {
        code
        for package in ("engine", "ipc", "spark_bridge", "store", "tools")
        for path in (ROOT / package).rglob("*.py")
        if not str(path.relative_to(ROOT)).startswith(error_codes.NOT_THE_USERS)
        for code in CODE_WORD.findall(path.read_text())
    }
    assert len(spelled) > 60
    assert spelled <= {code for fault in known for code in fault.codes} | set(error_codes.OF_THE_COMMANDS)
    assert not [code for code in spelled if f"\n## {code}\n" not in text]
    nameless = [f"{fault.file}: {fault.name}" for fault in known if not fault.cause]
    assert not nameless
    with_next = {code for fault in known if fault.next_step for code in fault.codes}
    assert not spelled - with_next - set(error_codes.OF_THE_COMMANDS), (
        "a paragraph `Next: ...` in the docstring of the class: CONTRIBUTING.md"
    )


def test_every_reason_has_a_cause_and_a_command() -> None:
    text = reason_codes.page()
    for reason in ReasonCode:
        section = text.split(f"\n## {reason}\n", 1)[1].split("\n## ", 1)[0]
        assert reason is ReasonCode.OK or re.search(r"^\| .+ \| .{10,} \| `.+` \|$", section, re.MULTILINE)
    for end in CloseReason:
        assert end is CloseReason.NONE or f"`{end.name}`" in text
    assert set(MEANINGS) == set(Code)


def test_the_references_are_whole() -> None:
    keys, commands = property_keys.page(), command_help.page()
    every = (*KEYS, *name_server_keys.KEYS)
    assert not [key.name for key in every if f"| `{key.name}` |" not in keys or key.says[1:] not in keys]
    ours = [key for key in every if key.name in OWN_KEYS or key.name == "registerAllowList"]
    assert not [key.name for key in ours if key.default is None and "Default: " not in key.says]
    paths = [path for path, _text in command_help.helps(cli, "slipstream")]
    assert len(paths) > 40
    assert not [path for path in paths if f" {path}\n" not in commands]
    usage = (ROOT / "spark_bridge" / "USAGE.md").read_text()
    assert not [name for name in {*OPTION_NAMES, *SINK_OPTION_NAMES} if name not in usage and name != "paths"]
    assert (ROOT / "docs" / "counters.md").read_text() == counters_text()
    assert all(request_codes.at_brokers().values()) and len(request_codes.at_name_servers()) > 20


def test_the_pictures_are_as_drawn() -> None:
    for name, draw in pictures.PICTURES.items():
        drawn = draw().svg()
        assert (pictures.FOLDER / f"{name}.svg").read_text() == drawn, "python -m tools.dev.docs.pictures"
        assert all(part in drawn for part in ("<title", "<desc", "prefers-color-scheme: dark", "<text"))


def test_the_newest_figures_of_each_work_are_kept(tmp_path: Path) -> None:
    path, where = tmp_path / "benchmarks.json", ledger.machine(tmp_path)
    assert where["cpus"] and where["memory_gib"] and where["disk"] and socket.gethostname() not in where.values()
    measured = Results()
    measured.figure("a put", "slipstream", 4.0, "us", 9.5)
    measured.at_least("a put", 4.0, 8.0, "a peer")
    for loads in ((0.1, 0.2), (3.0, 2.5)):
        ledger.keep(path, [ledger.entry("latency", measured, where, loads, 3)])
    ledger.keep(path, [ledger.entry("append", measured, where, (0.0, 0.1), 1)])
    assert [(one["work"], one["load_before"]) for one in ledger.read(path)] == [("append", 0.0), ("latency", 3.0)]
    assert ledger.read(path)[1]["ratios"][0]["value"] == 0.5
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_the_page_of_figures_shows_each_with_its_load() -> None:
    text, works = benchmarks.page(), ledger.read(benchmarks.KEPT)
    assert works
    for one in works:
        assert f"load {one['load_before']} before" in text and f"\n## {one['work']}\n" in text
        assert all(f"| {of['work']} | {of['subject']} |" in text for of in one["figures"])


def test_texts_of_the_repository_become_those_of_the_site() -> None:
    text = "see `ARCHITECTURE.md` and [who\ncan](docs/security.md#x):\n- a\n- b\n\n```sh\n[a](docs/spark.md)\n```\n"
    assert for_site(text, "overview.md") == (
        "see [`ARCHITECTURE.md`](explanation/architecture.md) and [who\ncan](security.md#x):\n\n- a\n- b\n\n"
        "```sh\n[a](docs/spark.md)\n```\n"
    )
    assert for_site("[x](../README.md)", "clients.md") == "[x](overview.md)"
    assert for_site("[x](../tools/cli.py) `docs/spark.md`", "spark.md") == "x (`tools/cli.py`) `docs/spark.md`"
