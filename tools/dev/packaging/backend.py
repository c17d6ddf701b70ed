"""The build back end that pyproject.toml names (PEP 517): setuptools, on a tree in which our packages lie in one.

In the wheel there are two names: the package `slipstream`, with the five packages nested in it and `slipstream.py` as
its `__init__`, and the module `pyspark_slipstream`, which Spark looks for. An editable installation puts the checkout
itself on sys.path, as it is. The source distribution is the checkout, so that it builds the same wheel.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import prepare_metadata_for_build_editable

from ipc.compiled import carried
from ipc.module_names import PACKAGES, RELEASE, SOURCES, version_of
from tools.dev.packaging.nested_imports import OUTER, nested
from tools.dev.packaging.places import folder_of

__all__ = ["build_editable", "build_sdist", "build_wheel", "prepare_metadata_for_build_editable"]

Settings = dict[str, Any] | None
FACE, SPARK_ENTRY = "slipstream.py", "pyspark_slipstream.py"
COMMAND = f"""\"\"\"`python -m {OUTER}`.\"\"\"

from {OUTER} import main

main()
"""
SETTINGS = ("pyproject.toml", "LICENSE")
FOLDERS = (*PACKAGES, ".ci", "docs", "tests")
TOP_FILES = (
    "*.md",
    "*.py",
    ".dockerignore",
    ".gitignore",
    "Dockerfile",
    "LICENSE",
    "Makefile",
    "compose.yaml",
    "pyproject.toml",
    "requirements.lock",
)
NOT_SHIPPED = shutil.ignore_patterns("__pycache__", "*.egg-info", carried.FOLDER.name)
MAN = "docs/man"  # pages that `make man` made, installed below share/man
ONLY_FOR_BUILDS = ("tools/dev",)
TAGS = ("--python-tag", "cp311", "--abi-tag", "abi3", "--platform-tag")
SYSTEM = "manylinux_2_28"
MACHINE = "machine"  # a setting: the kind of machine whose compiled code the wheel is to have
VERSION = '''"""The version of this package, as the build back end found it."""

VERSION = "{}"
'''
RELATIVE_LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:|#)([^)\s]+)\)")


class NoLibrary(Exception):
    """Raised for a wheel with compiled code that was not made, or was made of other sources."""

    def __init__(self, machine: str) -> None:
        super().__init__(
            f"no compiled code of these sources for {machine}: python -m tools.dev.carried --machine {machine}"
        )


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """The wheel of this folder. Metadata is not taken from elsewhere: it is the nested tree's.

    Raises NoLibrary where the setting `machine` names one that there is no compiled code for.
    """
    settings = dict(config_settings or {})
    wanted = settings.pop(MACHINE, None)
    folder = folder_of(wanted or os.uname().machine)
    said = carried.listed(folder)
    if wanted and said is None:
        raise NoLibrary(wanted)
    with _scratch_tree() as tree:
        nest(Path.cwd(), tree)
        if said:
            _carry(said, folder, tree / OUTER)
        name = _in(tree, build_meta.build_wheel, os.path.abspath(wheel_directory), settings)
    return _tagged(Path(wheel_directory, name), said["machine"]) if said else name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """The source distribution of this folder: what `make lint` and `make test` need, and nothing that they made."""
    with _scratch_tree() as tree:
        copy_checkout(Path.cwd(), tree)
        return _in(tree, build_meta.build_sdist, os.path.abspath(sdist_directory), config_settings)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """The folder itself on sys.path: Spark looks for pyspark_* modules there, not through import hooks."""
    settings = {**(config_settings or {}), "editable_mode": "compat"}
    return str(build_meta.build_editable(wheel_directory, settings, metadata_directory))


def nest(checkout: Path, tree: Path) -> None:
    """Make in `tree` what the wheel is made of. Raises CannotNest."""
    for name in SETTINGS:
        shutil.copy2(checkout / name, tree / name)
    version = stamp(checkout, tree)
    (tree / "README.md").write_text(without_relative_links((checkout / "README.md").read_text()))
    for package in PACKAGES:
        shutil.copytree(checkout / package, tree / OUTER / package, ignore=NOT_SHIPPED)
    for room in ONLY_FOR_BUILDS:
        shutil.rmtree(tree / OUTER / room)
    shutil.copy2(checkout / FACE, tree / OUTER / "__init__.py")
    shutil.copy2(checkout / SPARK_ENTRY, tree / SPARK_ENTRY)
    shutil.copytree(checkout / MAN, tree / MAN)
    (tree / OUTER / "py.typed").touch()
    (tree / OUTER / "release.py").write_text(VERSION.format(version))
    for path in [*(tree / OUTER).rglob("*.py"), tree / SPARK_ENTRY]:
        text = path.read_text(encoding="utf-8")
        path.write_text(nested(text, _in_checkout(path.relative_to(tree)), checkout), encoding="utf-8")
    (tree / OUTER / "__main__.py").write_text(COMMAND)


def _carry(said: dict[str, Any], folder: Path, nested_tree: Path) -> None:
    """Put the library of a folder in the wheel; the list beside it says what its sources are there."""
    into = nested_tree / carried.FOLDER.relative_to(SOURCES)
    into.mkdir()
    shutil.copy2(folder / carried.LIBRARY, into / carried.LIBRARY)
    sources = {name: carried.digest_of(nested_tree / name) for name in said["sources"]}
    (into / carried.LIST).write_text(json.dumps({**said, "sources": sources}, indent=1) + "\n")


def _tagged(wheel: Path, machine: str) -> str:
    """Rename a wheel to what it is with compiled code: of one kind of machine, for every Python from 3.11 on."""
    command = [sys.executable, "-m", "wheel", "tags", *TAGS, f"{SYSTEM}_{machine}", "--remove", str(wheel)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def copy_checkout(checkout: Path, tree: Path) -> None:
    """Make in `tree` what the source distribution is made of."""
    for path in (path for pattern in TOP_FILES for path in checkout.glob(pattern)):
        shutil.copy2(path, tree / path.name)
    stamp(checkout, tree)
    for folder in FOLDERS:
        shutil.copytree(checkout / folder, tree / folder, ignore=NOT_SHIPPED)
    grafts = "".join(f"graft {folder}\n" for folder in FOLDERS)
    (tree / "MANIFEST.in").write_text(f"include {' '.join(TOP_FILES)}\n{grafts}")


def stamp(checkout: Path, tree: Path) -> str:
    """Add the commit to the version of what is built, so that no two builds of different commits have the same one.

    Return that version. Without .git (an image's build has none) it has a digest of the sources.
    """
    settings = tree / "pyproject.toml"
    text = settings.read_text()
    (release,) = RELEASE.findall(text)
    version = version_of(release, checkout)
    settings.write_text(text.replace(f'version = "{release}"', f'version = "{version}"', 1))
    return version


def without_relative_links(text: str) -> str:
    """Replace a README's links to files of the repository by the files' names."""
    return RELATIVE_LINK.sub(lambda link: link[1] if link[1] == link[2] else f"{link[1]} (`{link[2]}`)", text)


def _in_checkout(path: Path) -> str:
    """The file that one of the wheel was made of, for errors."""
    if path == Path(OUTER, "__init__.py"):
        return FACE
    return str(path.relative_to(OUTER)) if path.parts[0] == OUTER else str(path)


@contextmanager
def _scratch_tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="slipstream-build-") as directory:
        yield Path(directory)


def _in(tree: Path, build: Any, target: str, settings: Settings) -> str:
    """Have setuptools build `tree`; it works in the current folder."""
    before = Path.cwd()
    os.chdir(tree)
    try:
        return str(build(target, settings))
    finally:
        os.chdir(before)
