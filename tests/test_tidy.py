"""The rules of the tree, checked on its source. A rule that does not fit a place is changed here, with its reason."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("ipc", "store", "engine", "spark_bridge", "tools")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
MODULES = [*SOURCES, *sorted(ROOT.glob("*.py"))]

MAY_IMPORT = {
    "ipc": set(),
    "store": {"ipc"},
    "engine": {"store", "ipc"},
    "spark_bridge": {"store", "ipc"},
    "tools": {"engine", "spark_bridge", "store", "ipc"},
}
SINK_MAY_IMPORT = "engine.producer"  # a write to Spark's sink is a producer's; readers do without the engine
SHELLS = (
    "allocator", "broker_server", "dispatcher", "flusher", "group_transfer", "ha_listener", "housekeeper", "receiver",
    "sender", "writer",
)  # fmt: skip
# The tables, names and forms of bytes that need no file.
PROTOCOL_MAY_IMPORT = {
    "engine.protocol", "store.broker_tables", "store.delay", "store.errors", "store.fastjson", "store.record",
    "store.topics",
}  # fmt: skip
PROTOCOL_MAY_NOT_IMPORT = set("asyncio ctypes multiprocessing os select signal socket subprocess time".split())
FUNCTION_LINES_MAX, MODULE_LINES_MAX = 50, 400
COMMENT_SHARE_MAX = 0.20
EQUAL_LINES_MAX = 6
LONG_FOR_A_REASON = "tidy: long because"
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError|placeholder)\b")
# Nobody imports these: the command line finds them by name, people run them, Spark looks for them.
ENTRIES = re.compile(r"(tools/.*|pyspark_slipstream|.*/__init__|engine/warm)\.py")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports, also inside functions: `from a import b` is a.b."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: import by the full name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def calls(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_downwards(package: str) -> None:
    wrong = [
        f"{name_of(path)} imports {name}"
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] == package
        for name in imports_of(path)
        if name.partition(".")[0] in set(PACKAGES) - MAY_IMPORT[package] - {package}
        and not (name_of(path).startswith("spark_bridge/sink") and name.startswith(SINK_MAY_IMPORT))
    ]
    assert not wrong


def test_nobody_imports_tests() -> None:
    assert not [name_of(path) for path in SOURCES if any(name.startswith("tests") for name in imports_of(path))]


def test_a_shell_never_imports_a_shell() -> None:
    shells = {f"engine.{shell}" for shell in SHELLS}
    wrong = [
        f"engine/{shell}.py imports {name}"
        for shell in SHELLS
        for name in imports_of(ROOT / "engine" / f"{shell}.py")
        if shells & {name, name.rpartition(".")[0]}
    ]
    assert not wrong


def test_protocol_does_no_input_or_output() -> None:
    wrong = []
    for path in sorted((ROOT / "engine" / "protocol").rglob("*.py")):
        for name in imports_of(path):
            ours = name.partition(".")[0] in PACKAGES
            allowed = not ours or any(name == good or name.startswith(good + ".") for good in PROTOCOL_MAY_IMPORT)
            if not allowed or name.partition(".")[0] in PROTOCOL_MAY_NOT_IMPORT:
                wrong.append(f"{name_of(path)} imports {name}")
    assert not wrong


@pytest.mark.parametrize("path", [*MODULES, *TESTS], ids=name_of)
def test_a_module_says_what_it_is(path: Path) -> None:
    text = ast.get_docstring(tree_of(path))
    assert text, "it has no docstring"
    assert text.partition("\n")[0].rstrip().endswith((".", ":", "?")), "the first line is a sentence"


def test_functions_and_modules_are_short() -> None:
    wrong = []
    for path in [*MODULES, *TESTS]:
        text = path.read_text()
        if LONG_FOR_A_REASON in text:
            continue
        if (lines := text.count("\n")) > MODULE_LINES_MAX:
            wrong.append(f"{name_of(path)}: {lines} lines")
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    wrong.append(f"{name_of(path)}:{node.lineno}: {node.name} has {lines} lines")
    assert not wrong


def test_every_module_is_imported_or_run() -> None:
    imported = {name for path in MODULES for name in imports_of(path)}
    dead = []
    for path in MODULES:
        module = name_of(path).removesuffix(".py").replace("/", ".")
        used = any(name == module or name.startswith(module + ".") for name in imported)
        if not used and not ENTRIES.fullmatch(name_of(path)):
            dead.append(name_of(path))
    assert not dead


def test_shared_memory_is_never_packed_into() -> None:
    assert not [name_of(path) for path in (ROOT / "ipc").rglob("*.py") if any("pack_into" in c for c, _ in calls(path))]


def test_tests_wait_for_conditions_and_do_not_sleep() -> None:
    sleeping = {"time.sleep", "sleep", "asyncio.sleep"}
    assert not [f"{name_of(path)}:{line}" for path in TESTS for call, line in calls(path) if call in sleeping]


def test_no_error_passes_in_silence() -> None:
    wrong = []
    for path in [*MODULES, *TESTS]:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ExceptHandler):
                silent = all(isinstance(statement, ast.Pass) for statement in node.body)
                if node.type is None or (silent and ast.unparse(node.type) in ("Exception", "BaseException")):
                    wrong.append(f"{name_of(path)}:{node.lineno}")
    assert not wrong


def test_nothing_is_left_for_later() -> None:
    wrong = []
    for path in MODULES:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if UNFINISHED.search(line):
                wrong.append(f"{name_of(path)}:{number}: {line.strip()}")
    assert not wrong


def test_comments_are_rare() -> None:
    wrong = []
    for path in SOURCES:
        text = path.read_text()
        comments = sum(
            token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
        )
        lines = text.count("\n")
        if lines and comments / lines > COMMENT_SHARE_MAX:
            wrong.append(f"{name_of(path)}: {comments} of {lines} lines")
    assert not wrong


def test_nothing_is_written_twice() -> None:
    """No six equal lines in two places, imports and blank lines not counted."""
    seen: dict[tuple[str, ...], str] = {}
    wrong = []
    for path in SOURCES:
        imports = {
            line
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        lines = [
            (number, line.strip())
            for number, line in enumerate(path.read_text().splitlines(), start=1)
            if line.strip() and number not in imports
        ]
        for start in range(len(lines) - EQUAL_LINES_MAX + 1):
            window = tuple(line for _number, line in lines[start : start + EQUAL_LINES_MAX])
            where = f"{name_of(path)}:{lines[start][0]}"
            if window in seen:
                wrong.append(f"{where} and {seen[window]}")
            seen.setdefault(window, where)
    assert not wrong


def test_the_lock_names_versions_only() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert not [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9a-z.]+", line)]


def test_make_has_the_commands_that_the_readme_names() -> None:
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets is not None
    commands = "setup run quick test lint bench fuzz interop differential kills queues spark-versions clean"
    assert targets[1].split() == commands.split()
    named = set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text()))
    assert named == set(targets[1].split())
