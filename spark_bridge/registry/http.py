"""A schema registry over HTTP: one question, one answer, in a time and a size that are bounded whatever it sends.

Redirects are not followed and proxies of the environment not used: credentials go where the user sent them.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from typing import Any
from urllib.parse import quote, urlsplit

from ipc.timed_socket import TimedSocket
from spark_bridge.registry.answers import ANSWER_BYTES_MAX, Registered, parsed_json, registered
from spark_bridge.registry.errors import RegistryRefused, RegistryUnreachable, SchemaUnknown
from spark_bridge.registry.place import RegistryPlace

ATTEMPTS = 3
PAUSE_S = 0.2  # before the second attempt; twice as long before the third
ANSWER_S = 10.0  # of one attempt, all of it
UNKNOWN_CODES = (40401, 40402, 40403)  # a subject, a version, a schema that is not there
HTTP_OK, HTTP_NOT_FOUND, HTTP_TOO_MANY, HTTP_ERROR = 200, 404, 429, 500
ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"


class _Passing(Exception):
    """Raised where another attempt may do better."""


class HttpRegistry:
    """Asks; keeps nothing. Raises RegistryUnreachable, RegistryRefused, SchemaUnknown, SchemaUnusable."""

    def __init__(self, place: RegistryPlace) -> None:
        self._place = place
        self._url = urlsplit(place.at)

    def by_id(self, schema_id: int, serialized: bool) -> Registered:
        """The schema of that number."""
        return self._schema(f"/schemas/ids/{schema_id}", serialized)

    def version(self, subject: str, version: int | str, serialized: bool) -> Registered:
        """A version of a subject; "latest" is its last one."""
        return self._schema(f"/subjects/{quote(subject, safe='')}/versions/{version}", serialized)

    def _schema(self, path: str, serialized: bool) -> Registered:
        asked = f"{self._place.at}{path}"
        return registered(asked, self._get(asked, path + ("?format=serialized" if serialized else "")))

    def _get(self, asked: str, path: str) -> Any:
        for attempt in range(ATTEMPTS):
            try:
                return self._answer(asked, path)
            except _Passing as error:
                reason = str(error)
            except (OSError, http.client.HTTPException) as error:
                reason = one_line(str(error)) or type(error).__name__
            if attempt + 1 < ATTEMPTS:
                time.sleep(PAUSE_S * 2**attempt)
        what = f"{asked}: {one_line(reason)} ({ATTEMPTS} attempts)"
        raise RegistryUnreachable(f"{what}; no row is guessed, run the read again when the registry answers")

    def _answer(self, asked: str, path: str) -> Any:
        deadline = time.monotonic() + ANSWER_S
        connection = http.client.HTTPConnection(self._url.hostname or "", self._url.port)
        plain = self._connected()
        connection.sock = TimedSocket(plain, deadline)
        try:
            base = self._url.path.rstrip("/")
            connection.putrequest("GET", base + path)
            connection.putheader("Accept", ACCEPTED)
            if self._place.authorization is not None:
                connection.putheader("Authorization", self._place.authorization)
            connection.endheaders()
            response = connection.getresponse()
            data = response.read(ANSWER_BYTES_MAX + 1)
            if response.length and len(data) <= ANSWER_BYTES_MAX:
                raise _Passing(f"its answer ends after {len(data)} bytes, {response.length} are missing")
        finally:
            connection.close()
            plain.close()
        return _checked(asked, response.status, data)

    def _connected(self) -> socket.socket:
        is_tls = self._url.scheme == "https"
        port = self._url.port or (443 if is_tls else 80)
        plain = socket.create_connection((self._url.hostname, port), timeout=ANSWER_S)
        if not is_tls:
            return plain
        try:
            roots = None if self._place.roots is None else self._place.roots.decode("ascii", "replace")
            context = ssl.create_default_context(cadata=roots)
            return context.wrap_socket(plain, server_hostname=self._url.hostname)
        except BaseException:
            plain.close()
            raise


def _checked(asked: str, status: int, data: bytes) -> Any:
    if status in (HTTP_TOO_MANY,) or status >= HTTP_ERROR:
        raise _Passing(f"it answers {status}")
    if status == HTTP_OK:
        return parsed_json(asked, data)
    said = parsed_json(asked, data) if status == HTTP_NOT_FOUND else None
    if isinstance(said, dict) and said.get("error_code") in UNKNOWN_CODES:
        raise SchemaUnknown(f"{asked}: {one_line(str(said.get('message', 'not there')))}")
    what = "does not let this reader in" if status in (401, 403) else "does not answer as a schema registry"
    raise RegistryRefused(f"{asked}: it {what} (HTTP {status}); check schemaRegistry and the credentials' file")


def one_line(text: str) -> str:
    """A stranger's words as an error may show them."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:200].strip()
