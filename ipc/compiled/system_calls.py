"""System calls out of compiled code: sockets and files by address. What fails is a negative errno, never an exception.

The arguments are what the kernel takes (descriptors, addresses, lengths): who calls sees that the memory stays mapped.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from enum import IntEnum
from typing import Any

from ipc.arrays import Words
from ipc.compiled.atomics import address_of
from ipc.compiled.kernels import external, instruction, ir, kernel, types

# libc's functions, resolved by name when loaded, so that compiled code can be kept on disk.
_recv: Any = external("recv", "int64", "int32", "int64", "int64", "int32")
_send: Any = external("send", "int64", "int32", "int64", "int64", "int32")
_writev: Any = external("writev", "int64", "int32", "int64", "int32")
_pwritev: Any = external("pwritev", "int64", "int32", "int64", "int32", "int64")
_pwrite: Any = external("pwrite", "int64", "int32", "int64", "int64", "int64")
_statx: Any = external("statx", "int32", "int32", "int64", "int32", "uint32", "int64")
_sendfile: Any = external("sendfile", "int64", "int32", "int32", "int64", "int64")
_errno_address: Any = external("__errno_location", "int64")


class Piece(IntEnum):
    """A row of `pieces`: the system's struct iovec."""

    ADDRESS = 0
    LENGTH = 1


PIECE_WORDS = len(Piece)


class StatxWord(IntEnum):
    """The system's struct statx, which has one layout everywhere; NAMES: how many, in the lower half. Then our own."""

    NAMES = 2
    EMPTY_PATH = 32


EIO = 5
STATX_WORDS = int(StatxWord.EMPTY_PATH) + 1
AT_EMPTY_PATH, STATX_NLINK = 0x1000, 4
LOW_HALF = 0xFFFFFFFF


@instruction
def _int_at(_typing: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        value = builder.load(builder.inttoptr(arguments[0], ir.IntType(32).as_pointer()))
        return builder.sext(value, ir.IntType(64))

    return types.int64(types.int64), generate


@kernel
def _or_errno(result: int) -> int:
    return -_int_at(_errno_address()) if result < 0 else result


@kernel
def recv(fd: int, address: int, length: int, flags: int) -> int:
    """Receive from a socket: the bytes received, 0 at the stream's end, or -errno."""
    return _or_errno(_recv(fd, address, length, flags))


@kernel
def send(fd: int, address: int, length: int, flags: int) -> int:
    """Send to a socket: the bytes taken by it, or -errno."""
    return _or_errno(_send(fd, address, length, flags))


@kernel
def writev(fd: int, pieces: int, count: int) -> int:
    """Write `count` pieces (the address of their rows): the bytes written, or -errno."""
    return _or_errno(_writev(fd, pieces, count))


@kernel
def sendfile(fd: int, file_fd: int, position: int, length: int) -> int:
    """Send bytes of a file; `position` is the address of a word that moves with them. The bytes sent, or -errno."""
    return _or_errno(_sendfile(fd, file_fd, position, length))


@kernel
def write_pieces(fd: int, pieces: Words, address: int, count: int, position: int) -> int:
    """The first `count` rows of `pieces` (which lie at `address`) into the file from `position` on: 0, or -errno."""
    first = 0
    while first < count:
        written = _or_errno(_pwritev(fd, address + first * PIECE_WORDS * 8, count - first, position))
        if written <= 0:
            return written if written < 0 else -EIO  # a file that takes nothing
        position += written
        while first < count and written >= pieces[first * PIECE_WORDS + Piece.LENGTH]:
            written -= pieces[first * PIECE_WORDS + Piece.LENGTH]
            first += 1
        if written:
            pieces[first * PIECE_WORDS + Piece.ADDRESS] += written
            pieces[first * PIECE_WORDS + Piece.LENGTH] -= written
    return 0


@kernel
def write_bytes(fd: int, address: int, length: int, position: int) -> int:
    """Write all of these bytes into the file from `position` on: 0, or -errno."""
    while length > 0:
        written = _or_errno(_pwrite(fd, address, length, position))
        if written <= 0:
            return written if written < 0 else -EIO
        address, length, position = address + written, length - written, position + written
    return 0


@kernel
def names_of_file(fd: int, scratch: Words) -> int:
    """Return how many names an open file still has, 0 once it is removed; or -errno. `scratch`: STATX_WORDS words."""
    scratch[StatxWord.EMPTY_PATH] = 0
    path, answer = address_of(scratch, StatxWord.EMPTY_PATH), address_of(scratch, 0)
    result = _or_errno(_statx(fd, path, AT_EMPTY_PATH, STATX_NLINK, answer))
    return scratch[StatxWord.NAMES] & LOW_HALF if result == 0 else result


_eventfd_write: Any = external("eventfd_write", "int32", "int32", "int64")


@kernel
def ring_eventfd(fd: int) -> int:
    """Make an eventfd readable: 0, or -errno."""
    return _or_errno(_eventfd_write(fd, 1))
