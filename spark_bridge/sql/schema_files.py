"""A folder of schemas, a file a topic: `orders.avsc` is Avro's, `orders.ddl` and `orders.json` are of JSON bodies."""

from __future__ import annotations

from pathlib import Path

from spark_bridge.options.rows import AVRO, JSON
from spark_bridge.options.values import InvalidOption

# Endings to what bodies are decoded as, and the option that takes the file's text.
KINDS = {".avsc": (AVRO, "avroSchema"), ".ddl": (JSON, "valueSchema"), ".json": (JSON, "valueSchema")}
SCHEMA_BYTES_MAX = 1 << 20


def decoding_of(folder: str | Path, topic: str) -> dict[str, str]:
    """Return the options that a topic's schema file means; {} without a file.

    Raises InvalidOption where the folder is none, a topic has two files, or a file is no text of at most 1 MiB.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InvalidOption(f"schemas={str(folder)!r}: not a directory with a file per topic, such as orders.avsc")
    paths = [root / f"{topic}{ending}" for ending in KINDS] if Path(topic).name == topic else []
    files = [path for path in paths if path.is_file()]
    if len(files) > 1:
        names = " and ".join(path.name for path in files)
        raise InvalidOption(f"schemas={str(folder)!r}: {names} are of one topic; keep one of them")
    if not files:
        return {}
    decode, option = KINDS[files[0].suffix]
    return {"decode": decode, option: _text(files[0])}


def _text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(SCHEMA_BYTES_MAX + 1)
    if len(data) > SCHEMA_BYTES_MAX:
        raise InvalidOption(f"{path}: more than {SCHEMA_BYTES_MAX} bytes, too long for a schema")
    try:
        return data.decode().strip()
    except UnicodeDecodeError as error:
        raise InvalidOption(f"{path}: not UTF-8 ({error})") from error
