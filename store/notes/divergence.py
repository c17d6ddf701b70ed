"""The note that this log and its master's are two histories: the file `slipstream.diverged` in the store's root.

The receiver writes it when the bytes that a master sends are others than those it has at the same offset, and asks no
master for more as long as it is there. It is removed by `slipstream replica rewind`, which cuts the log back to what
both have, or by `slipstream replica forget`. One process writes it at a time: the receiver, or a command that holds the
store's lock.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from store.errors import OwnFileDamaged
from store.names import DIVERGED
from store.notes import summed_json
from store.notes.summed_json import Damaged

ADVICE = (
    "compare the log with its master's with `slipstream replica check STORE --with HOST:PORT`; stop the broker, then"
    " cut the log back by `slipstream replica rewind STORE --with HOST:PORT`, or remove the note by"
    " `slipstream replica forget STORE`"
)
TEXT_MAX = 1000
INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Divergence:
    """Offset from which two logs differ, as far as one connection showed it."""

    offset: int
    end: int  # of this log when that was seen
    master: str  # its address
    master_text: str  # who it said to be, "" when it did not
    own_bytes_hex: str  # a few bytes from `offset` on
    master_bytes_hex: str
    at_ms: int  # since the epoch

    def text(self) -> str:
        """Return the divergence as one line for people."""
        who = f"{self.master} ({self.master_text})" if self.master_text else self.master
        return (
            f"this log and that of {who} differ from offset {self.offset} on (here {self.own_bytes_hex or 'nothing'},"
            f" there {self.master_bytes_hex or 'nothing'}); this log ended at {self.end}"
        )


def path_of(root: Path | str) -> Path:
    """The file of that store."""
    return Path(root) / DIVERGED


def read(root: Path | str) -> Divergence | None:
    """Return what was noted; None when nothing was. Raises OwnFileDamaged, AccessDenied, OSError."""
    path = path_of(root)
    try:
        fields = summed_json.read(path)
        return None if fields is None else _checked(fields)
    except Damaged as damaged:
        raise OwnFileDamaged(str(path), f"not a note of a divergence: {damaged}", ADVICE) from None


def write(root: Path | str, divergence: Divergence) -> None:
    """Note it, durably. Raises OSError."""
    fields = {name: value[:TEXT_MAX] if isinstance(value, str) else value for name, value in asdict(divergence).items()}
    summed_json.write(path_of(root), fields)


def remove(root: Path | str) -> bool:
    """Forget it, durably; whether there was something, also something damaged. Raises OSError."""
    return summed_json.remove(path_of(root))


def _checked(fields: dict[str, Any]) -> Divergence:
    """Make a Divergence of its fields. Raises Damaged."""
    names = Divergence.__dataclass_fields__
    if set(fields) != set(names):
        raise Damaged("it does not have the expected fields")
    for name, field in names.items():
        value = fields[name]
        if field.type == "int" and (type(value) is not int or not 0 <= value <= INT64_MAX):
            raise Damaged(f"{name} is not an allowed whole number")
        if field.type == "str" and not (isinstance(value, str) and len(value) <= TEXT_MAX):
            raise Damaged(f"{name} is not an allowed text")
    return Divergence(**fields)
