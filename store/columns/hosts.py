"""Hosts and message ids as text, for many records at once.

A host is 4 or 16 bytes of address and 4 of port, as the sysFlag of its record says. Hosts repeat, so each distinct one
is put into words once ("10.0.0.7:10911", "[0:0:0:0:0:0:0:1]:10911"); message ids never do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from store.columns.spans import STRING, dictionary_of, distinct, texts, varied, writable
from store.columns.window import LogWindow, Mask, Positions
from store.message.host import V4_BYTES, V6_BYTES, unpack_host
from store.message.span_kernel import write_hexadecimals

PORT_BYTES, OFFSET_BYTES = 4, 8
IPV4_HOST_BYTES, IPV6_HOST_BYTES = V4_BYTES + PORT_BYTES, V6_BYTES + PORT_BYTES
IPV4_IN_IPV6 = np.frombuffer(b"0" * 20 + b"FFFF", np.uint8)  # as digits


def host_texts(window: LogWindow, at: Positions, is_v6: Mask) -> pa.DictionaryArray:
    """The host at each position as "ip:port", each distinct one once."""
    lengths = np.where(is_v6, np.int64(IPV6_HOST_BYTES), np.int64(IPV4_HOST_BYTES))
    numbers, firsts = distinct(window, writable(at), lengths)
    if numbers is None:
        return _texts(window, at, lengths).dictionary_encode()
    return dictionary_of(numbers, _texts(window, at[firsts], lengths[firsts]))


def message_ids(window: LogWindow, host_at: Positions, offset_at: Positions, is_v6: Mask) -> pa.StringArray:
    """offsetMsgId of each record: upper-case hex of store host and physical offset, 32 or 56 characters."""
    if not is_v6.any():
        return _ids(window, host_at, offset_at, IPV4_HOST_BYTES)
    v6, v4 = np.flatnonzero(is_v6), np.flatnonzero(~is_v6)
    families = ((v4, IPV4_HOST_BYTES), (v6, IPV6_HOST_BYTES))
    ids = pa.concat_arrays([_ids(window, host_at[rows], offset_at[rows], count) for rows, count in families])
    place = np.empty(len(is_v6), np.int64)
    place[np.concatenate([v4, v6])] = np.arange(len(is_v6))
    return ids.take(pa.array(place))


def _ids(window: LogWindow, host_at: Positions, offset_at: Positions, host_bytes: int) -> pa.StringArray:
    """The ids where all hosts are of one family."""
    digits, count = 2 * (host_bytes + OFFSET_BYTES), len(host_at)
    ids = np.empty(count * digits, np.uint8)
    write_hexadecimals(window.bytes, writable(host_at), host_bytes, ids, 0, digits)
    write_hexadecimals(window.bytes, writable(offset_at), OFFSET_BYTES, ids, 2 * host_bytes, digits)
    if host_bytes == IPV6_HOST_BYTES:
        _put_as_java_does(ids.reshape(count, digits))
    return varied(STRING, np.arange(count + 1, dtype=np.int32) * np.int32(digits), ids)


def _put_as_java_does(ids: npt.NDArray[np.uint8]) -> None:
    """Java writes an IPv4 address that an IPv6 one holds as four bytes, and leaves the room that it spared zeroed."""
    prefix = len(IPV4_IN_IPV6)
    holds_ipv4 = (ids[:, :prefix] == IPV4_IN_IPV6).all(axis=1)
    ids[holds_ipv4] = np.roll(ids[holds_ipv4], -prefix, axis=1)
    ids[holds_ipv4, -prefix:] = ord("0")


def _texts(window: LogWindow, at: Positions, lengths: Positions) -> pa.StringArray:
    view, spans = window.bytes.data, zip(at.tolist(), lengths.tolist(), strict=True)
    hosts = (unpack_host(bytes(view[one : one + count])) for one, count in spans)
    return texts([f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}" for ip, port in hosts])
