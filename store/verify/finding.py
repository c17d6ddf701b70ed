"""A finding: something in a store that is not as it should be, where it is, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple

COMPARE = (
    "restore these bytes from a replica: `slipstream log repair --from OTHER_STORE STORE`,"
    " after a look with `slipstream log diff`"
)
REBUILD = "stop the broker, then `slipstream log rebuild queue STORE`: queues are built again from the log"
CUT = "the next start of a broker cuts it off; it was never acknowledged as written to disk"


class Finding(NamedTuple):
    """Something that is not as it should be. `code` is stable and may be matched by programs."""

    code: str
    where: str
    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.code}: {self.where}: {self.what}; {self.advice}"
