"""docs/security.md says what the code does: its examples load, its table of requests is the table, its keys exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from engine.protocol.remoting.codes import KINDS, RequestKind
from engine.settings import config, keys, name_server_keys

PAGE = Path(__file__).resolve().parents[4] / "docs" / "security.md"
ROWS = {
    "a master's tables": RequestKind.TABLES, "digests of the log": RequestKind.LOG,
    "reads of settings": RequestKind.SETTINGS, "changes": RequestKind.CHANGE,
    "registrations": RequestKind.REGISTRATION,
}  # fmt: skip


@cache
def page() -> str:
    return PAGE.read_text()


def test_examples_of_the_security_page_are_valid_configurations(tmp_path: Path) -> None:
    of_broker, of_name_server, *_others = re.findall(r"```properties\n(.*?)```", page(), re.DOTALL)
    file = tmp_path / "one.properties"
    file.write_text(of_broker)
    settings, warnings = config.load(file)
    assert not warnings and str(settings.ha_allow_list) == "10.1.0.6/32;10.1.0.7/32"
    file.write_text(of_name_server)
    values, warnings = name_server_keys.load(file)
    assert not warnings and str(values["register_allow_list"]) == "10.1.0.0/28"


def test_the_security_pages_table_of_requests_is_that_of_the_code() -> None:
    for name, kind in ROWS.items():
        (cell,) = re.findall(rf"^\| {name} \| ([^|]*) \|", page(), re.MULTILINE)
        assert {int(code) for code in re.findall(r"\b\d{2,5}\b", cell)} == {
            int(code) for code, of in KINDS.items() if of is kind
        }, name


def test_every_allow_list_is_on_the_page_and_every_one_on_it_is_a_key() -> None:
    lists = {key.name for key in (*keys.KEYS, *name_server_keys.KEYS) if key.kind == "allow_list"}
    assert set(re.findall(r"\b\w+AllowList\b", page())) == lists


def test_tests_that_the_security_page_names_exist() -> None:
    root = PAGE.parent.parent
    assert not [name for name in re.findall(r"`(tests/[\w./]+)`", page()) if not (root / name).exists()]
