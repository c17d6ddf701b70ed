"""Who was the master from which offset on, and what an operator said last: the file `slipstream.epochs` of a store.

An epoch is the reign of one master; a promotion begins the next one. A slave takes its master's epochs over, so the
file tells of every broker of the pair. The broker is named by its name and the brokerId of its own file, NAME:ID, which
a promotion does not change. A store without the file has had one master only, of epoch 0.

A reign belongs to one directory: the file says in which one it began, by device and inode, as `slipstream.run` does. In
a copy it makes nobody a master (`is_here`). A file of an earlier version names no directory and is believed.

One process writes it at a time: the receiver while a slave runs (`following`), the supervisor between two roles and for
a fence, a command that holds the store's lock while no broker runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from ipc.process import boot_id
from store.epochs import ENTRIES_MAX, INT64_MAX, Epoch, entries_of, entry_fields, number_of, require_fields, text_of
from store.errors import OwnFileDamaged
from store.files.place import Place
from store.names import EPOCHS
from store.notes import summed_json

ADVICE = (
    "restore it from a backup; or make sure that no other broker of this name is a master, and remove it: then"
    " brokerRole of the broker's own file counts"
)

PLACE, BOOT = "place", "boot"


class SaidRole(StrEnum):
    """The last word of an operator: `slipstream promote` or `slipstream demote`."""

    NONE = ""
    PROMOTE = "PROMOTE"  # said while no broker ran: the next start begins an epoch, unless another master lives
    FORCED = "FORCED"  # as that, also beside a living master
    MASTER = "MASTER"
    SLAVE = "SLAVE"


class Fence(NamedTuple):
    """A newer master that this store has heard of; `master` is its HA address, "" when nobody said it."""

    epoch: int
    broker: str
    master: str
    at_ms: int


class Epochs(NamedTuple):
    """Content of the file `slipstream.epochs`."""

    entries: tuple[Epoch, ...] = ()
    role: SaidRole = SaidRole.NONE
    master: str = ""  # with role SLAVE: the HA address that `demote` was given
    fenced_by: Fence | None = None
    seen_epoch: int = 0  # the highest ever seen here, also of what was cut off since
    is_here: bool = True  # whether reign and operator's word belong to this directory: not in a copy, nor in a slave

    @property
    def last_epoch(self) -> int:
        """Return the epoch of the log's last bytes; 0 before the first promotion."""
        return self.entries[-1].epoch if self.entries else 0

    @property
    def next_epoch(self) -> int:
        """Return the number of the epoch that a promotion begins."""
        return max(self.seen_epoch, self.last_epoch, self.fenced_by.epoch if self.fenced_by else 0) + 1

    @property
    def is_promised(self) -> bool:
        """Whether the next start is a promotion, as an operator said of this very store."""
        return self.is_here and self.role in (SaidRole.PROMOTE, SaidRole.FORCED)

    @property
    def is_fenced(self) -> bool:
        """Whether a newer master is known: this store must not be one."""
        return self.fenced_by is not None and self.fenced_by.epoch > self.last_epoch

    def makes_master(self, broker: str, *, is_master_by_file: bool) -> bool:
        """Whether this store's broker, so named, is a master; the last word is this file's where it has one.

        The file of a store that was copied for another broker names that one: it makes nobody else a master. Nor does
        it in a copy for the same broker, whose original may be the master still.
        """
        if self.is_promised:
            return True
        if self.is_fenced or self.role is SaidRole.SLAVE:
            return False
        return self.is_here and self.entries[-1].broker == broker if self.entries else is_master_by_file

    def is_copy_of(self, broker: str) -> bool:
        """Whether this store is a copy of the one in which that broker became the master."""
        return not self.is_here and bool(self.entries) and self.entries[-1].broker == broker

    def promoted(self, broker: str, start_offset: int, at_ms: int) -> Epochs:
        """Return the epochs after a promotion of this broker, whose log ends at `start_offset`."""
        epoch = Epoch(self.next_epoch, start_offset, broker, at_ms)
        entries = (*(one for one in self.entries if one.start_offset <= start_offset), epoch)
        return Epochs(entries[-ENTRIES_MAX:], SaidRole.MASTER, "", None, epoch.epoch)

    def promoting(self, *, is_forced: bool = False) -> Epochs:
        """Return the epochs after an operator promoted a store without a broker: its next start is the promotion."""
        return self._replace(role=SaidRole.FORCED if is_forced else SaidRole.PROMOTE, master="", is_here=True)

    def demoted(self, master: str) -> Epochs:
        """Return the epochs after an operator demoted this broker; `master` is the master's HA address, if given."""
        return self._replace(role=SaidRole.SLAVE, master=master, is_here=True)

    def fenced(self, fence: Fence) -> Epochs:
        """Return the epochs after news of a newer master; of two masters, the newer one is kept.

        Two brokers that never heard of each other may have begun one epoch both: who hears of it gives its own up.
        """
        entries = self.entries
        if entries and entries[-1].epoch == fence.epoch and fence.broker not in ("", entries[-1].broker):
            entries = entries[:-1]
        last_epoch = entries[-1].epoch if entries else 0
        if fence.epoch <= last_epoch or (self.fenced_by and fence.epoch < self.fenced_by.epoch):
            return self
        role = self.role if self.role is SaidRole.SLAVE else SaidRole.NONE
        seen = max(self.seen_epoch, fence.epoch)
        return self._replace(entries=entries, fenced_by=fence, seen_epoch=seen, role=role)

    def following(self, entries: Iterable[Epoch]) -> Epochs:
        """A slave's, whose master has these epochs and whose log is a part of that master's.

        It reigns nowhere: a broker that follows one of its own name and id is no master at its next start.
        """
        taken = tuple(entries)[-ENTRIES_MAX:]
        seen = max([self.seen_epoch, self.last_epoch, *(one.epoch for one in taken)])
        return self._replace(entries=taken, seen_epoch=seen, is_here=False)

    def cut(self, offset: int) -> Epochs:
        """Return the epochs after a cut of the log at `offset`: no epoch begins behind it."""
        kept = tuple(one for one in self.entries if one.start_offset < offset)
        return self._replace(entries=kept, seen_epoch=max(self.seen_epoch, self.last_epoch))


def path_of(root: Path | str) -> Path:
    """The file of that store."""
    return Path(root) / EPOCHS


def read(root: Path | str) -> Epochs:
    """Return what it says; nothing without the file. Raises OwnFileDamaged, AccessDenied, OSError."""
    path = path_of(root)
    try:
        fields = summed_json.read(path)
        return Epochs() if fields is None else _epochs(fields, root)
    except ValueError as damaged:
        raise OwnFileDamaged(str(path), f"not a file of epochs: {damaged}", ADVICE) from None


def write(root: Path | str, epochs: Epochs) -> None:
    """Replace the file, durably. Raises OSError."""
    fence, place = epochs.fenced_by, {**Place.of(root).fields(), BOOT: boot_id()} if epochs.is_here else None
    fields = {
        "epochs": [entry_fields(one) for one in epochs.entries],
        "role": epochs.role.value,
        "master": epochs.master,
        "fenced_by": None
        if fence is None
        else {"epoch": fence.epoch, "broker": fence.broker, "master": fence.master, "at_ms": fence.at_ms},
        "seen_epoch": epochs.seen_epoch,
        PLACE: place,
    }
    summed_json.write(path_of(root), fields)


def _is_here(said: Any, root: Path | str) -> bool:
    """Whether that is this directory; its device may have another number since a boot. Raises ValueError."""
    if said is None:
        return False
    there = Place.from_fields(said)
    if there is None or not isinstance(said, Mapping) or not isinstance(said.get(BOOT), str):
        raise ValueError("its place is not a directory")
    here = Place.of(root)
    return here.is_same(there) or ((here.path, here.inode) == (there.path, there.inode) and said[BOOT] != boot_id())


def _epochs(fields: dict[str, Any], root: Path | str) -> Epochs:
    """Make Epochs of the file's fields. Raises ValueError."""
    is_here = _is_here(fields.pop(PLACE), root) if PLACE in fields else True
    require_fields(fields, "epochs", "role", "master", "fenced_by", "seen_epoch")
    fence, role = fields["fenced_by"], fields["role"]
    if role not in tuple(SaidRole):
        raise ValueError("its role is invalid")
    if fence is not None:
        require_fields(fence, "epoch", "broker", "master", "at_ms")
        number, at_ms = number_of(fence, "epoch", 1), number_of(fence, "at_ms")
        fence = Fence(number, text_of(fence, "broker"), text_of(fence, "master"), at_ms)
    seen = number_of(fields, "seen_epoch")
    entries = entries_of(fields["epochs"], INT64_MAX)
    return Epochs(entries, SaidRole(role), text_of(fields, "master"), fence, seen, is_here)
