"""What our modules are called here: `store.names` in a checkout, `slipstream.store.names` where the wheel is installed.

The wheel nests the five packages in one, and rewrites their imports of each other (`tools/dev/packaging`). Whatever
else names a module, to import it later or to run it in another process, asks here.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

DISTRIBUTION = "slipstream-log"  # what pip calls all of it, as pyproject.toml does
PACKAGES = ("engine", "ipc", "spark_bridge", "store", "tools")
PREFIX = __name__.removesuffix("ipc.module_names")
SOURCES = Path(__file__).resolve().parent.parent  # where the five lie
SETTINGS, RELEASE = "pyproject.toml", re.compile(r'^version = "([^"]+)"$', re.MULTILINE)
COMMIT, COMMIT_DIGITS = re.compile("[0-9a-f]{40,64}"), 12
IMPORTED_FROM = SOURCES.parent if PREFIX else SOURCES  # what has to be on sys.path to import them


def named(module: str) -> str:
    """The name to import or to run a module by, given the one that it has in a checkout."""
    return PREFIX + module


@cache
def version_here(otherwise: str = "unknown") -> str:
    """Return the release with the commit of this build, `0.3.0+g0123456789ab`, or with a digest of the sources.

    `otherwise` for sources without their pyproject.toml. Metadata of installed packages is not asked: that takes 15 ms.
    """
    if PREFIX:
        return str(import_module(named("release")).VERSION)  # `tools/dev/packaging` writes this module
    try:
        release = RELEASE.search((SOURCES / SETTINGS).read_text())
    except OSError:
        return otherwise
    return version_of(release[1], SOURCES) if release else otherwise


def version_of(release: str, checkout: Path) -> str:
    """Return a version that differs between any two commits, also without .git; one with a commit stays as it is."""
    if "+" in release:
        return release
    commit = commit_of(checkout)
    return f"{release}+g{commit}" if commit else f"{release}+src{digest_of(checkout)}"


def digest_of(checkout: Path) -> str:
    """Return the first digits of a sum of all modules there, with their places."""
    from hashlib import sha256  # where .git is there nobody needs it

    summed = sha256()
    for path in sorted(path for name in PACKAGES for path in (checkout / name).rglob("*.py")):
        content = path.read_bytes()
        summed.update(f"{path.relative_to(checkout).as_posix()} {len(content)}\n".encode() + content)
    return summed.hexdigest()[:COMMIT_DIGITS]


def commit_of(checkout: Path) -> str:
    """Return the first digits of a checkout's commit; empty where it is not a git checkout."""
    try:
        git = checkout / ".git"
        if git.is_file():
            git = checkout / git.read_text().removeprefix("gitdir:").strip()
        commit = (git / "HEAD").read_text().strip()
        if commit.startswith("ref: "):
            shared = git / (git / "commondir").read_text().strip() if (git / "commondir").exists() else git
            commit = _commit_of_ref(shared, commit.removeprefix("ref: "))
    except (OSError, ValueError):
        return ""
    return commit[:COMMIT_DIGITS] if COMMIT.fullmatch(commit) else ""


def _commit_of_ref(git: Path, ref: str) -> str:
    if (git / ref).is_file():
        return (git / ref).read_text().strip()
    lines = (git / "packed-refs").read_text().splitlines()
    return next((line.split()[0] for line in lines if line.endswith(f" {ref}")), "")


def is_ours(module: str) -> bool:
    """Whether a module of that name is one of the five packages', or in one."""
    return module.startswith(PREFIX) and module.removeprefix(PREFIX).partition(".")[0] in PACKAGES
