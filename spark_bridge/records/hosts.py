"""Hosts and message ids as text, for many records at once.

A host is 4 or 16 bytes of address and 4 of port, as the sysFlag of its record says. Hosts repeat, so each distinct one
is put into words once ("10.0.0.7:10911", "[0:0:0:0:0:0:0:1]:10911"); message ids never do: they are looked up by byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_bridge.records.scan import LogWindow, Positions
from store.message.host import V4_BYTES, V6_BYTES, unpack_host

PORT_BYTES, OFFSET_BYTES = 4, 8
IPV4_HOST_BYTES, IPV6_HOST_BYTES = V4_BYTES + PORT_BYTES, V6_BYTES + PORT_BYTES
IPV4_IN_IPV6 = np.frombuffer(bytes(10) + b"\xff\xff", np.uint8)
Mask = npt.NDArray[np.bool_]

HEX_DIGITS = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), "<u2")


def host_texts(window: LogWindow, at: Positions, is_v6: Mask) -> pa.StringArray:
    """The host at each position as "ip:port"."""
    return _by_family(is_v6, lambda rows, host_bytes: _distinct(window, at[rows], host_bytes))


def message_ids(window: LogWindow, host_at: Positions, offset_at: Positions, is_v6: Mask) -> pa.StringArray:
    """offsetMsgId of each record: upper-case hex of store host and physical offset, 32 or 56 characters."""

    def of_family(rows: Positions, host_bytes: int) -> pa.StringArray:
        host = _gather(window, host_at[rows], host_bytes)
        raw = np.concatenate([host, _gather(window, offset_at[rows], OFFSET_BYTES)], axis=1)
        if host_bytes == IPV6_HOST_BYTES:
            raw = _as_java_ids(raw)
        text = HEX_DIGITS[raw].view(np.uint8)
        ends = np.arange(len(raw) + 1, dtype=np.int32) * np.int32(2 * raw.shape[1])
        return pa.Array.from_buffers(pa.string(), len(raw), [None, pa.py_buffer(ends), pa.py_buffer(text)])

    return _by_family(is_v6, of_family)


def _by_family(is_v6: Mask, build: Callable[[Positions, int], Any]) -> Any:
    """Build IPv4 and IPv6 rows apart, and put them back in order."""
    v6, v4 = np.flatnonzero(is_v6), np.flatnonzero(~is_v6)
    if not len(v6):
        return build(v4, IPV4_HOST_BYTES)
    if not len(v4):
        return build(v6, IPV6_HOST_BYTES)
    place = np.empty(len(is_v6), np.int64)
    place[np.concatenate([v4, v6])] = np.arange(len(is_v6))
    return pa.concat_arrays([build(v4, IPV4_HOST_BYTES), build(v6, IPV6_HOST_BYTES)]).take(pa.array(place))


def _gather(window: LogWindow, at: Positions, count: int) -> npt.NDArray[np.uint8]:
    """`count` bytes at each position, a row each."""
    return window.view(f"V{count}")[at].view(np.uint8).reshape(len(at), count)


def _distinct(window: LogWindow, at: Positions, host_bytes: int) -> pa.StringArray:
    raw = _gather(window, at, host_bytes)
    _, first, index = np.unique(raw.view(f"S{host_bytes}"), return_index=True, return_inverse=True)
    texts = pa.array([_text(raw[row].tobytes()) for row in first.tolist()], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(index.ravel().astype(np.int32)), texts).cast(pa.string())


def _as_java_ids(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Java writes an IPv4 address that an IPv6 one holds as four bytes, and leaves the room that it spared zeroed."""
    prefix = len(IPV4_IN_IPV6)
    holds_ipv4 = (raw[:, :prefix] == IPV4_IN_IPV6).all(axis=1)
    raw[holds_ipv4] = np.roll(raw[holds_ipv4], -prefix, axis=1)
    raw[holds_ipv4, -prefix:] = 0
    return raw


def _text(raw: bytes) -> str:
    host = unpack_host(raw)
    return f"[{host.ip}]:{host.port}" if ":" in host.ip else f"{host.ip}:{host.port}"
