"""What our modules are called here: `store.names` in a checkout, `slipstream.store.names` where the wheel is installed.

The wheel nests the five packages in one (`tools/packaging`), which rewrites their imports of each other. Whatever else
names a module, to import it later or to run it in another process, asks here.
"""

from __future__ import annotations

from pathlib import Path

DISTRIBUTION = "slipstream-log"  # what pip calls all of it, as pyproject.toml does
PACKAGES = ("engine", "ipc", "spark_bridge", "store", "tools")
PREFIX = __name__.removesuffix("ipc.module_names")
SOURCES = Path(__file__).resolve().parent.parent  # where the five lie
IMPORTED_FROM = SOURCES.parent if PREFIX else SOURCES  # what has to be on sys.path to import them


def named(module: str) -> str:
    """The name to import or to run a module by, given the one that it has in a checkout."""
    return PREFIX + module


def version_here(otherwise: str = "unknown") -> str:
    """Which release of us is installed; `otherwise` on a path of modules, which has no metadata."""
    from importlib.metadata import PackageNotFoundError, version  # takes longer than many a command

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return otherwise


def is_ours(module: str) -> bool:
    """Whether a module of that name is one of the five packages', or in one."""
    return module.startswith(PREFIX) and module.removeprefix(PREFIX).partition(".")[0] in PACKAGES
