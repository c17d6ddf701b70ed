"""A SPARK_HOME whose Python processes load PySpark as it is installed: compiled once, and not from its zip each time.

Spark puts its own `python/lib/pyspark.zip` before all other modules of the Python processes that it starts. It holds
sources only: each process compiles them anew, a second of computing before it reads anything, where Spark grants ten.
Here "pyspark.zip" and the one of Py4J are directories with a link to the installed package, all else is PySpark's.
`make setup` leaves it at .venv/spark, and `slipstream.session` uses it on this machine.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

KEPT_NAME = "spark"
PARTS = ("bin", "jars", "sbin")


def installed(package: str) -> Path | None:
    """Return the folder of a package; None where it is not one folder of files."""
    spec = find_spec(package)
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return Path(places[0]) if len(places) == 1 and Path(places[0]).is_dir() else None


def make(home: Path) -> Path | None:
    """Leave it at `home`, in the place of what was there; None where PySpark did not come with Spark in its package."""
    pyspark, py4j = installed("pyspark"), installed("py4j")
    zips = [] if pyspark is None else sorted((pyspark / "python" / "lib").glob("*.zip"))
    if pyspark is None or py4j is None or not zips or not (pyspark / "jars").is_dir():
        return None
    unfinished = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
    for part in PARTS:
        (unfinished / part).symlink_to(pyspark / part)
    for path in zips:
        package = pyspark if path.name.startswith("pyspark") else py4j
        place = unfinished / "python" / "lib" / path.name
        place.mkdir(parents=True)
        (place / package.name).symlink_to(package)
    unfinished.chmod(0o755)
    shutil.rmtree(home, ignore_errors=True)
    try:
        unfinished.rename(home)
    except OSError:  # another process made it meanwhile
        shutil.rmtree(unfinished)
    return home


def keep() -> Path | None:
    """Make this environment's SPARK_HOME; None where it cannot be made."""
    return make(Path(sys.prefix) / KEPT_NAME)


def kept() -> Path | None:
    """The one of this environment, if it is that of the PySpark installed now."""
    home, pyspark = Path(sys.prefix) / KEPT_NAME, installed("pyspark")
    if pyspark is None or not (home / "jars").is_dir():
        return None
    return home if (home / "jars").samefile(pyspark / "jars") else None


def ensure(master: str) -> None:
    """Set SPARK_HOME of this process, where nobody else did and all of Spark runs on this machine."""
    if master.startswith("local") and "SPARK_HOME" not in os.environ and (home := kept()) is not None:
        os.environ["SPARK_HOME"] = str(home)


def main() -> int:
    """Make it, and say so."""
    home = keep()
    print(f"setup: Spark's Python processes load modules from {home}" if home else "setup: PySpark came without Spark")
    return 0
