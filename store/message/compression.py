"""Bodies as their senders made them: what a record's system flag says about compression, undone.

Implements: ZlibCompressor, Lz4Compressor, ZstdCompressor (spec: store-formats, section 2)
The broker never looks into a body; only tools that show one need this. Output is bounded: a few bytes can ask for
gigabytes. Several frames behind each other are one body, as for Java's streams.
"""

from __future__ import annotations

import zlib

import lz4.frame
import zstandard

from store.errors import MalformedData
from store.message.record import COMPRESSION_MASK, SysFlag

MAX_BODY_BYTES = 128 * 1024 * 1024
LZ4, ZSTD, ZLIB_OF_OLD_CLIENTS, ZLIB = 0x100, 0x200, 0x000, 0x300
DICTIONARY_HEADER_BYTES, ZLIB_METHOD = 6, 8
ZLIB_LEVEL = 5  # of RocketMQ's producers
ZSTD_STEP_BYTES = 512  # a block of four bytes can stand for 128 KiB, so one step makes at most 16 MiB


def compressed(body: bytes) -> bytes:
    """Compress a body as RocketMQ's producers do, for the flag COMPRESSED alone, which clients of both lines read."""
    return zlib.compress(body, ZLIB_LEVEL)


def body_of(body: bytes | memoryview, sys_flag: int, max_bytes: int = MAX_BODY_BYTES) -> bytes | memoryview:
    """The body as it was before its sender compressed it; itself if nobody did. Raises MalformedData."""
    if not sys_flag & SysFlag.COMPRESSED or not len(body):
        return body
    kind = sys_flag & COMPRESSION_MASK
    try:
        if kind in (ZLIB, ZLIB_OF_OLD_CLIENTS):
            return _inflate(bytes(body), max_bytes)
        if kind == LZ4:
            return _unlz4(bytes(body), max_bytes)
        if kind == ZSTD:
            return _unzstd(bytes(body), max_bytes)
    except (zlib.error, RuntimeError, zstandard.ZstdError) as error:
        raise MalformedData("compressed body", str(error)) from error
    raise MalformedData("compressed body", f"unknown compression {kind >> 8}")


def _inflate(data: bytes, max_bytes: int) -> bytes:
    """Inflate one zlib stream; what follows it is ignored, as Java's InflaterInputStream does.

    That also ends, with nothing, where the stream asks for a dictionary.
    """
    wants_dictionary = data[0] & 0x8F == ZLIB_METHOD and bool(data[1:2]) and bool(data[1] & 0x20)
    if wants_dictionary and len(data) >= DICTIONARY_HEADER_BYTES and not (data[0] << 8 | data[1]) % 31:
        return b""
    stream = zlib.decompressobj()
    body = stream.decompress(data, max_bytes + 1)
    _check_size(len(body), max_bytes)
    if not stream.eof:
        raise MalformedData("compressed body", "it ends in the middle")
    return body


def _unlz4(data: bytes, max_bytes: int) -> bytes:
    parts, total = [], 0
    while data:
        frame = lz4.frame.LZ4FrameDecompressor()
        part = frame.decompress(data, max_bytes + 1 - total)
        total += len(part)
        _check_size(total, max_bytes)
        if not frame.eof:
            raise MalformedData("compressed body", "it ends in the middle")
        parts.append(part)
        data = frame.unused_data or b""
    return b"".join(parts)


def _unzstd(data: bytes, max_bytes: int) -> bytes:
    """Frame by frame, fed in small pieces: zstandard has no bound of its own for what one call may return."""
    parts, total = [], 0
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        position = 0
        while not frame.eof and position < len(data):
            part = frame.decompress(data[position : position + ZSTD_STEP_BYTES])
            position += ZSTD_STEP_BYTES
            total += len(part)
            _check_size(total, max_bytes)
            parts.append(part)
        if not frame.eof:
            raise MalformedData("compressed body", "it ends in the middle")
        data = frame.unused_data + data[position:]
    return b"".join(parts)


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise MalformedData("compressed body", f"it grows beyond {max_bytes} bytes")
