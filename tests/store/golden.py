"""The golden stores: what unmodified RocketMQ brokers left, with what RocketMQ's own classes read from them."""

from __future__ import annotations

import lzma
import tarfile
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "golden"
VERSIONS = ("rocketmq-4.9.7", "rocketmq-5.3.3")
COMPAT = dict(zip(VERSIONS, ("4.9", "5"), strict=True))
STORES = [(version, name) for version in VERSIONS for name in ("master", "features")]


def unpack(version: str, name: str, directory: Path) -> Path:
    """The store, unpacked below `directory`; its root."""
    with tarfile.open(GOLDEN / version / f"{name}-store.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "store"


def manifest_lines(version: str, name: str) -> list[str]:
    """RocketMQ's own manifest but for its first line, `store`."""
    text = lzma.decompress((GOLDEN / version / f"{name}-manifest.jsonl.xz").read_bytes()).decode()
    kinds = tuple(f'{{"kind": "{kind}"' for kind in ("message", "blank", "queue", "index"))
    return [line for line in text.splitlines() if line.startswith(kinds)]
