"""Imports in the wheel bind the same names to the same modules as in the checkout; what would not is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.dev.packaging.backend import without_relative_links
from tools.dev.packaging.nested_imports import CannotNest, nested

FORMS = [
    ("import engine.x", "import slipstream.engine.x; from slipstream import engine"),
    ("import store", "from slipstream import store"),
    ("import engine.x as y, json", "import slipstream.engine.x as y; import json"),
    ("import json, engine", "import json; from slipstream import engine"),
    ("import store as s", "import slipstream.store as s"),
    ("from store import a", "from slipstream.store import a"),
    ("from store.files import b as c, d", "from slipstream.store.files import b as c, d"),
    ("from engine import (\n    x,  # why\n    y,\n)", "from slipstream.engine import (\n    x,  # why\n    y,\n)"),
    ("def f():\n    from  ipc.ring import r; import tools.cli as t",
     "def f():\n    from  slipstream.ipc.ring import r; import slipstream.tools.cli as t"),
    ("if TYPE_CHECKING: from spark_bridge.x import Y", "if TYPE_CHECKING: from slipstream.spark_bridge.x import Y"),
    ("x = 'ö'; from store import a", "x = 'ö'; from slipstream.store import a"),
    ("import engineering, storeroom.engine\nfrom tools_of import store", None),
    ("from . import x\nfrom .store import y", None),
    ("store = {'engine': 'import engine.x'}; store['engine'] = 'tools: from store import a'", None),
    ("call(named('engine.x'), 'engine.errors is the module')", None),
]  # fmt: skip
REFUSED = [
    ("\nfrom \\\n  engine import x", 2),
    ("import json, \\\n  engine", 1),
    ("import_module('engine')", 1),
    ("a = 1\nimportlib.import_module(f'store.{a}')", 2),
    ("__import__('tools')", 1),
    ("find_spec('spark_bridge')", 1),
    ("sys.modules['engine'].x", 1),
    ("run([python, '-m',\n     'engine.x'])", 2),
    ("x = 'engine.x'", 1),
]
MODULES = {"engine/__init__.py": "E = 1", "engine/x.py": "X = 2", "store/__init__.py": "from engine import x as a"}
ASKED = """
import json
import engine.x as one, store
def lazily():
    import engine.x
    from store import a
    return engine.E, engine.x.X, a.X, store.a.X, one.X
print(json.dumps(lazily()))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("text", "expected"), FORMS, ids=[text for text, _ in FORMS])
def test_a_form_of_import(text: str, expected: str | None, root: Path) -> None:
    assert nested(text, "a.py", root) == (text if expected is None else expected)


@pytest.mark.parametrize(("text", "line"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_would_not_find_its_module_is_refused_by_file_and_line(text: str, line: int, root: Path) -> None:
    with pytest.raises(CannotNest, match=rf"^store/b\.py:{line}: "):
        nested(text, "store/b.py", root)


def test_names_are_bound_as_before_also_beside_packages_of_the_same_names(root: Path) -> None:
    wheel, hostile = root / "wheel", root / "hostile"
    for name, text in {**MODULES, "asked.py": ASKED, "__init__.py": ""}.items():
        inside = wheel / "slipstream" / name
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.write_text(nested(text, name, root))
    for name in MODULES:
        (hostile / name).parent.mkdir(parents=True, exist_ok=True)
        (hostile / name).write_text("raise SystemExit('the project has packages of these names')")
    commands = ["-c", ASKED], ["-c", f"import sys; sys.path.insert(1, {str(wheel)!r}); import slipstream.asked"]
    for command, folder in zip(commands, (root, hostile), strict=True):
        run = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
        assert (run.returncode, run.stderr) == (0, "")
        assert json.loads(run.stdout) == [1, 2, 2, 2, 2]


def test_a_readme_on_an_index_page_has_no_link_to_a_file_beside_it() -> None:
    text = "[a](https://a.b/c) [the table](docs/t.md) [b](#here) `[x](y)` [docs/t.md](docs/t.md)"
    expected = "[a](https://a.b/c) the table (`docs/t.md`) [b](#here) `x (`y`)` docs/t.md"
    assert without_relative_links(text) == expected
