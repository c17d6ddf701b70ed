"""Hosts and message ids as text, for many records at once.

A host is 4 or 16 bytes of address and 4 of port, as the sysFlag of its record says. Hosts repeat, so each distinct one
is put into words once ("10.0.0.7:10911", "[0:0:0:0:0:0:0:1]:10911"); message ids never do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_bridge.records.window import LogWindow, Mask, Positions
from store.message.host import V4_BYTES, V6_BYTES, unpack_host
from store.message.span_kernel import write_hexadecimals

PORT_BYTES, OFFSET_BYTES = 4, 8
IPV4_HOST_BYTES, IPV6_HOST_BYTES = V4_BYTES + PORT_BYTES, V6_BYTES + PORT_BYTES
IPV4_IN_IPV6 = np.frombuffer(b"0" * 20 + b"FFFF", np.uint8)  # as digits


def host_texts(window: LogWindow, at: Positions, is_v6: Mask) -> pa.StringArray:
    """The host at each position as "ip:port"."""
    return _by_family(is_v6, lambda rows, host_bytes: _distinct(window, at[rows], host_bytes))


def message_ids(window: LogWindow, host_at: Positions, offset_at: Positions, is_v6: Mask) -> pa.StringArray:
    """offsetMsgId of each record: upper-case hex of store host and physical offset, 32 or 56 characters."""

    def of_family(rows: Positions, host_bytes: int) -> pa.StringArray:
        digits = 2 * (host_bytes + OFFSET_BYTES)
        ids = np.empty(len(rows) * digits, np.uint8)
        write_hexadecimals(window.bytes, host_at[rows], host_bytes, ids, 0, digits)
        write_hexadecimals(window.bytes, offset_at[rows], OFFSET_BYTES, ids, 2 * host_bytes, digits)
        if host_bytes == IPV6_HOST_BYTES:
            _put_as_java_does(ids.reshape(len(rows), digits))
        ends = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(digits)
        return pa.Array.from_buffers(pa.string(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(ids)])

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
    raw = pa.py_buffer(_gather(window, at, host_bytes))
    encoded = pa.Array.from_buffers(pa.binary(host_bytes), len(at), [None, raw]).dictionary_encode()
    texts = pa.array([_text(host) for host in encoded.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(encoded.indices, texts).cast(pa.string())


def _put_as_java_does(ids: npt.NDArray[np.uint8]) -> None:
    """Java writes an IPv4 address that an IPv6 one holds as four bytes, and leaves the room that it spared zeroed."""
    prefix = len(IPV4_IN_IPV6)
    holds_ipv4 = (ids[:, :prefix] == IPV4_IN_IPV6).all(axis=1)
    ids[holds_ipv4] = np.roll(ids[holds_ipv4], -prefix, axis=1)
    ids[holds_ipv4, -prefix:] = ord("0")


def _text(raw: bytes) -> str:
    host = unpack_host(raw)
    return f"[{host.ip}]:{host.port}" if ":" in host.ip else f"{host.ip}:{host.port}"
