"""Notebooks of docs/examples: their cells, checked for their form, and run one after the other as Jupyter does."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


def cells(notebook: str) -> list[dict[str, Any]]:
    """All cells. Fails for what is no notebook of form 4.5, or has outputs in it."""
    whole = json.loads((EXAMPLES / notebook).read_text())
    assert (whole["nbformat"], whole["nbformat_minor"]) == (4, 5)
    given: list[dict[str, Any]] = whole["cells"]
    assert len({cell["id"] for cell in given}) == len(given)
    for cell in given:
        assert cell["cell_type"] in ("markdown", "code") and all(isinstance(line, str) for line in cell["source"])
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), "outputs are not kept"
    return given


def code_of(notebook: str) -> list[dict[str, Any]]:
    """The cells that run."""
    return [cell for cell in cells(notebook) if cell["cell_type"] == "code"]


def text_of(cell: dict[str, Any]) -> str:
    """A cell's text."""
    return "".join(cell["source"])


def run(cell: dict[str, Any], names: dict[str, Any]) -> Any:
    """Run one cell among `names`; the value of a last line that is an expression, which Jupyter shows."""
    tree = ast.parse(text_of(cell))
    shown = tree.body[-1] if tree.body else None
    if not isinstance(shown, ast.Expr):
        exec(compile(tree, f"cell {cell['id']}", "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), f"cell {cell['id']}", "exec"), names)
    return eval(compile(ast.Expression(shown.value), f"cell {cell['id']}", "eval"), names)
