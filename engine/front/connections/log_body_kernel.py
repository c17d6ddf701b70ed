"""A frame's head and a range of a file into a socket, compiled: two system calls, one call from Python."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np

from ipc.compiled.atomics import address_of
from ipc.compiled.kernels import kernel
from ipc.compiled.memory import address_of_bytes
from ipc.compiled.system_calls import send, sendfile

SENDFILE_BYTES = 16 * 1024  # a range of at least so many leaves by sendfile
MSG_MORE, MSG_DONTWAIT, MSG_NOSIGNAL = 0x8000, 0x40, 0x4000


@kernel
def send_range(fd: int, head: bytes, file_fd: int, position: int, length: int) -> int:
    """Send head and range; return the bytes that the socket took, or -errno."""
    count = len(head)
    sent = 0
    if count:
        sent = send(fd, address_of_bytes(head), count, MSG_MORE | MSG_DONTWAIT | MSG_NOSIGNAL)
        if sent < count:
            return sent
    place = np.empty(1, np.int64)
    place[0] = position
    while place[0] < position + length:
        taken = sendfile(fd, file_fd, address_of(place, 0), position + length - place[0])
        if taken <= 0:
            return sent if sent or taken == 0 else taken
        sent += taken
    return sent
