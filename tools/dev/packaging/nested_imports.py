"""A module's text as it stands in the wheel: its absolute imports of our packages find them inside `slipstream`.

Only import statements are rewritten, where the syntax tree has them; line numbers stay. What names a module in another
way cannot be seen to the end, so it is refused: `ipc.module_names.named("engine.x")` is how a text names one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ipc.module_names import PACKAGES

OUTER = "slipstream"
FROM = re.compile(rb"from[ \t]+([\w.]+)")
IMPORTERS = frozenset("import_module __import__ find_spec run_module".split())  # calls that take a module's name
NAMERS = frozenset(["named", "removesuffix"])  # what adds to a name where it is installed, and what cuts that off


class CannotNest(Exception):
    """Raised for an import, or another way to name a module, that would not find it in the wheel."""

    code = "CANNOT_NEST"

    def __init__(self, file: str, line: int, what: str) -> None:
        super().__init__(f"{file}:{line}: {what}; see tools/dev/packaging/nested_imports.py")


class _Change(NamedTuple):
    """A replacement for bytes of one line, from `start` to `end`."""

    line: int
    start: int
    end: int
    text: bytes


def nested(text: str, file: str, root: Path) -> str:
    """The text of `file` for the wheel. `root` is where the packages lie. Raises CannotNest, SyntaxError."""
    tree = ast.parse(text, file)
    lines = text.encode().splitlines(keepends=True)
    for change in sorted(_changes(tree, lines, file), reverse=True):
        line = lines[change.line]
        lines[change.line] = line[: change.start] + change.text + line[change.end :]
    _refuse_other_names(tree, file, root)
    return b"".join(lines).decode()


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def _changes(tree: ast.Module, lines: list[bytes], file: str) -> Iterator[_Change]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _is_ours(node.module or ""):
            match = FROM.match(lines[node.lineno - 1], node.col_offset)
            if match is None or match[1].decode() != node.module:
                raise CannotNest(file, node.lineno, f"the name {node.module} is not beside its `from`")
            yield _Change(node.lineno - 1, match.start(1), match.end(1), f"{OUTER}.{node.module}".encode())
        elif isinstance(node, ast.Import) and any(_is_ours(alias.name) for alias in node.names):
            if node.end_lineno != node.lineno or node.end_col_offset is None:
                raise CannotNest(file, node.lineno, "`import` of a package of ours over several lines")
            text = "; ".join(_import_of(alias) for alias in node.names).encode()
            yield _Change(node.lineno - 1, node.col_offset, node.end_col_offset, text)


def _import_of(alias: ast.alias) -> str:
    """Turn one name of an `import` into a statement that binds the same name to the same module."""
    if not _is_ours(alias.name) or alias.asname:
        outer = f"{OUTER}." if _is_ours(alias.name) else ""
        return f"import {outer}{alias.name}" + (f" as {alias.asname}" if alias.asname else "")
    package, _dot, inner = alias.name.partition(".")
    loaded = f"import {OUTER}.{alias.name}; " if inner else ""
    return f"{loaded}from {OUTER} import {package}"


def _refuse_other_names(tree: ast.Module, file: str, root: Path) -> None:
    """Refuse texts that are the name of a module in the packages, unless `named` is called with them."""
    allowed = {
        argument
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _called(node) in NAMERS
        for argument in node.args
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in allowed and _is_module(node.value, root):
            raise CannotNest(file, node.lineno, f"the text {node.value!r} names a module without `named`")
        if isinstance(node, ast.Call) and _called(node) in IMPORTERS:
            _refuse_arguments(node, file)
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.modules":
            _refuse_name(node.slice, file)


def _refuse_arguments(call: ast.Call, file: str) -> None:
    for argument in call.args[:1]:
        _refuse_name(argument, file)


def _refuse_name(node: ast.expr, file: str) -> None:
    """A literal name, or the literal beginning of one, where Python looks a module up."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    if isinstance(first, ast.Constant) and isinstance(first.value, str) and _is_ours(first.value):
        raise CannotNest(file, node.lineno, f"the module {first.value!r} is looked up without `named`")


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_module(name: object, root: Path) -> bool:
    if not isinstance(name, str) or not re.fullmatch(r"\w+(\.\w+)+", name) or not _is_ours(name):
        return False
    path = root.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
