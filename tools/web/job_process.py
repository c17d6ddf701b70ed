"""One check of a store in a process of its own: what it does and finds as lines of JSON, so that it can be ended.

`python -m tools.web.job_process verify|digest|doctor STORE [NAME_SERVERS]`
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ipc.module_names import is_ours
from tools.common.how_many import how_many
from tools.common.progress import Update

TELL_SECONDS = 0.2


def tell(kind: str, **values: Any) -> None:
    """Print one line of JSON."""
    sys.stdout.write(json.dumps({"kind": kind, **values}) + "\n")
    sys.stdout.flush()


@contextmanager
def progress(part: str) -> Iterator[Update]:
    """Yield a function to call with the progress, which prints it a few times a second."""
    said_at = 0.0

    def update(done: int, total: int) -> None:
        nonlocal said_at
        now = time.monotonic()
        if now - said_at >= TELL_SECONDS or done >= total:
            said_at = now
            tell("progress", part=part, done=done, total=total)

    tell("progress", part=part, done=0, total=0)
    yield update


def verify(store: Path, _name_servers: str) -> None:
    """Run `slipstream log verify` and print its findings."""
    from tools.log.delays import delays_of
    from tools.log.verify import sums_of, verdict_of, verification_on

    verification, count = verification_on(store), 0
    verification.delays_ms = delays_of(None, store)
    with progress("verify") as update:
        verification.on_progress = lambda: update(verification.bytes_checked, verification.bytes_total)
        for finding in verification.findings():
            count += 1
            tell("finding", level="wrong", **finding._asdict())
    tell("end", well=not count, text=verdict_of(verification, count), sums=sums_of(verification, count))


def digest(store: Path, _name_servers: str) -> None:
    """Run `slipstream log digest` and print its findings."""
    from tools.log.digest import digest_sealed, line_of

    outcome = digest_sealed(store, progress)
    for finding in outcome.damaged:
        tell("finding", level="wrong", **finding._asdict())
    tell("end", well=not outcome.refused, text=line_of(outcome))


def doctor(store: Path, name_servers: str) -> None:
    """Run `slipstream doctor` and print its rows."""
    from tools.common.tls import tls_of
    from tools.doctor.doctor import rows_of
    from tools.doctor.node import Asking
    from tools.doctor.rows import Level, is_well

    tell("progress", part="doctor", done=0, total=0)
    rows = rows_of(str(store), name_servers, Asking(3.0, tls_of()))
    for row in rows:
        advice = f"{row.what}. Next: {row.next}" if row.next else row.what
        tell("finding", level=row.level.value, code=row.reason, where=row.check, what=advice, advice="")
    wrong, left_open = (sum(row.level is level for row in rows) for level in (Level.WRONG, Level.OPEN))
    text = f"{how_many(len(rows), 'check')}: {wrong} wrong, {left_open} left open"
    tell("end", well=is_well(rows, strict=False), text=text)


KINDS: dict[str, Callable[[Path, str], None]] = {"verify": verify, "digest": digest, "doctor": doctor}


def main() -> int:
    """Run the check in the arguments; print Slipstream's own errors as a line, too."""
    kind, store, name_servers = sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
    try:
        KINDS[kind](store, name_servers)
    except Exception as error:
        code = getattr(error, "code", None)
        if not isinstance(error, OSError) and not (isinstance(code, str) and is_ours(type(error).__module__)):
            raise
        tell("end", well=False, text=" ".join(f"{code or 'IO'}: {error}".split()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
