"""A registry's answers in files, for who has no registry at hand.

A folder holds `7.json` (the answer of `GET /schemas/ids/7`, for Protobuf with `?format=serialized`) or `7.avsc` (an
Avro schema), and for references and `latest` a file `subjects.json`: `{"orders-value": {"1": 7, "2": 9}}`. One JSON
file has both: `{"schemas": {"7": {"schema": "..."}}, "subjects": {...}}`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark_bridge.registry.answers import ANSWER_BYTES_MAX, Registered, parsed_json, registered
from spark_bridge.registry.errors import RegistryRefused, RegistryUnreachable, SchemaUnknown
from spark_bridge.registry.place import RegistryPlace

SUBJECTS, LATEST = "subjects", "latest"


class FileRegistry:
    """Reads what is asked for. Raises RegistryUnreachable, RegistryRefused, SchemaUnknown, SchemaUnusable."""

    def __init__(self, place: RegistryPlace) -> None:
        self._path = Path(place.at)

    def by_id(self, schema_id: int, serialized: bool) -> Registered:
        """The schema of that number."""
        name = f"{self._path}: schema {schema_id}"
        if not self._path.is_dir():
            schemas = self._part("schemas")
            if str(schema_id) not in schemas:
                raise SchemaUnknown(f"{name} is not in this file")
            return registered(name, schemas[str(schema_id)])
        answer, avro = self._path / f"{schema_id}.json", self._path / f"{schema_id}.avsc"
        if answer.is_file():
            return registered(name, parsed_json(str(answer), _bytes(answer, ANSWER_BYTES_MAX)))
        if avro.is_file():
            return registered(name, {"schema": _bytes(avro, ANSWER_BYTES_MAX).decode("utf-8", "replace")})
        raise SchemaUnknown(f"{name}: neither {answer.name} nor {avro.name} is in this folder")

    def version(self, subject: str, version: int | str, serialized: bool) -> Registered:
        """A version of a subject; "latest" is its highest one."""
        versions = self._part(SUBJECTS).get(subject)
        versions = versions if isinstance(versions, dict) else {}
        numbers = {name: one for name, one in versions.items() if name.isdecimal()}
        if version == LATEST and numbers:
            version = max(numbers, key=int)
        schema_id = numbers.get(str(version))
        if type(schema_id) is not int:
            raise SchemaUnknown(f"{self._path}: no version {version} of subject {subject!r}")
        return self.by_id(schema_id, serialized)

    def _part(self, name: str) -> dict[str, Any]:
        path = self._path / f"{name}.json" if self._path.is_dir() else self._path
        whole = parsed_json(str(path), _bytes(path, ANSWER_BYTES_MAX)) if path.exists() or path == self._path else {}
        part = whole if self._path.is_dir() else whole.get(name, {}) if isinstance(whole, dict) else None
        if not isinstance(part, dict):
            raise RegistryRefused(f"{path}: not an object of {name} by name")
        return part


def _bytes(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        what = f"{path}: {error.strerror or error}"
        raise RegistryUnreachable(f"{what}; a registry of files has to be on the host of each task") from error
    if len(data) > most:
        raise RegistryRefused(f"{path}: more than {most} bytes; is it the right file?")
    return data
