"""A schema registry on loopback that speaks the two questions of the published API, and what Confluent's own made."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

CONFLUENT: dict[str, Any] = json.loads((Path(__file__).parent / "registry" / "confluent.json").read_text())
SCHEMAS, SUBJECTS = CONFLUENT["schemas"], CONFLUENT["subjects"]
AVRO_BODIES = [base64.b64decode(text) for text in CONFLUENT["avro"]]
PROTOBUF_BODIES = [base64.b64decode(text) for text in CONFLUENT["protobuf"]]
DESCRIPTORS = base64.b64decode(CONFLUENT["descriptors"])
MONEY = {"type": "record", "name": "Money", "namespace": "shop",
         "fields": [{"name": "currency", "type": "string"}, {"name": "units", "type": "long"}]}  # fmt: skip


def order(*fields: tuple[str, Any] | tuple[str, Any, Any]) -> str:
    """An Avro reader's schema of orders, as JSON; a third part is a default."""
    named = [{"name": one[0], "type": one[1], **({"default": one[2]} if len(one) > 2 else {})} for one in fields]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": named})


@dataclass
class Registry:
    """What a server answers, and what it was asked."""

    schemas: dict[str, Any] = field(default_factory=lambda: dict(SCHEMAS))
    subjects: dict[str, dict[str, int]] = field(default_factory=lambda: dict(SUBJECTS))
    authorization: str | None = None
    before: Callable[[BaseHTTPRequestHandler], bool] = lambda _request: False  # True: it has answered already
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, Any]:
        """Status and JSON."""
        self.asked.append(request.path)
        if self.authorization is not None and request.headers["Authorization"] != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match [unquote(part) for part in urlsplit(request.path).path.strip("/").split("/")]:
            case ["schemas", "ids", number]:
                known = self.schemas.get(number)
                return (200, known) if known else (404, {"error_code": 40403, "message": "Schema not found"})
            case ["subjects", subject, "versions", version]:
                versions = self.subjects.get(subject)
                if not versions:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                number = versions[max(versions, key=int) if version == "latest" else version]
                return 200, {"subject": subject, "id": number, **self.schemas[str(number)]}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def serving(registry: Registry, context: Any = None) -> Iterator[Registry]:
    """The registry on a port of its own, over TLS with an SSL context."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if registry.before(self):
                return
            status, said = registry.answer(self)
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_parts: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    registry.url = f"{'https' if context else 'http'}://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def as_file(path: Path) -> Path:
    """The same answers in one file."""
    path.write_text(json.dumps({"schemas": SCHEMAS, "subjects": SUBJECTS}))
    return path
