"""Registries that are asked over HTTP: credentials, TLS, and answers that are too large, too slow, or none."""

from __future__ import annotations

import base64
import ssl
import time
from http.server import BaseHTTPRequestHandler

import pytest

from spark_bridge.options.rows import parse_row_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.registry import answers, http, schemas
from spark_bridge.registry.errors import RegistryRefused, RegistryUnreachable, SchemaUnknown, SchemaUnusable
from spark_bridge.registry.place import RegistryPlace
from spark_bridge.registry.schemas import Schemas
from tests.harness.certificates import Authority
from tests.spark_bridge.registries import SCHEMAS, Registry, serving

AVRO = {"decode": "avro", "avroSchema": '"int"'}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PAUSE_S", 0.0)
    monkeypatch.setattr(http, "ANSWER_S", 120.0)  # a busy machine is no slow registry


def test_what_was_asked_once_is_known(monkeypatch):
    with serving(Registry()) as registry:
        known = Schemas(RegistryPlace(registry.url), serialized=False)
        assert known.by_id(101) == known.by_id(101) == answers.Registered("AVRO", SCHEMAS["101"]["schema"])
        assert [one.name for one, _schema in known.referred(known.by_id(103))] == ["shop.Money"]
        for _ in range(2):
            with pytest.raises(SchemaUnknown, match=r"schemas/ids/999: Schema not found"):
                known.by_id(999)
        assert sorted(set(registry.asked)) == sorted(registry.asked)
        monkeypatch.setattr(schemas, "UNKNOWN_MAX", 3)
        asked = len(registry.asked)
        for number in range(2000, 2010):
            with pytest.raises(SchemaUnknown):
                known.by_id(number)
        assert len(registry.asked) == asked + 10
        assert len(known._unknown) == 3
        monkeypatch.setattr(schemas, "SCHEMAS_MAX", 1)
        known.by_id(102)
        assert len(known._known) == 1


def test_credentials_come_from_files_and_go_to_this_host_or_over_tls_only(tmp_path):
    user, token = tmp_path / "user", tmp_path / "token"
    user.write_text("reader:p\u00e4ss\n")
    token.write_text("t0ken\n")
    for name, path, sent in (
        ("schemaRegistryUserFile", user, "Basic " + base64.b64encode("reader:p\u00e4ss".encode()).decode()),
        ("schemaRegistryTokenFile", token, "Bearer t0ken"),
    ):
        with serving(Registry(authorization=sent)) as registry:
            rows = parse_row_options({**AVRO, "schemaRegistry": registry.url + "/", name: str(path)})
            assert Schemas(rows.registry, False).by_id(101).kind == "AVRO"
            assert sent not in repr(rows)
            with pytest.raises(RegistryRefused, match=r"does not let this reader in \(HTTP 401\)"):
                Schemas(RegistryPlace(registry.url), False).by_id(101)
        with pytest.raises(InvalidOption, match="https"):
            parse_row_options({**AVRO, "schemaRegistry": "http://registry.example", name: str(path)})
    user.write_text("nobody\n")
    with pytest.raises(InvalidOption, match="USER:PASSWORD"):
        parse_row_options({**AVRO, "schemaRegistry": "https://h", "schemaRegistryUserFile": str(user)})


def test_tls_is_checked_against_the_roots_given(tmp_path):
    authority = Authority(tmp_path / "ca")
    issued = authority.issue("registry")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    with serving(Registry(), context) as registry:
        given = {**AVRO, "schemaRegistry": registry.url, "schemaRegistryRoots": str(authority.certificate)}
        assert Schemas(parse_row_options(given).registry, False).by_id(101).kind == "AVRO"
        with pytest.raises(RegistryUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
            Schemas(RegistryPlace(registry.url), False).by_id(101)


def answering(data: bytes, *, close: bool = True):
    def answer(request: BaseHTTPRequestHandler) -> bool:
        request.wfile.write(data)
        request.close_connection = close
        return True

    return answer


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "error", "told"),
    [
        (b"", RegistryUnreachable, "3 attempts"),
        (b"nonsense\r\n\r\n", RegistryUnreachable, "3 attempts"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", RegistryUnreachable, "it answers 503"),
        (HEAD % 100 + b"{", RegistryUnreachable, "99 are missing"),
        (HEAD % 6 + b"<html>", RegistryRefused, "not JSON; is that a schema registry"),
        (HEAD % 2 + b"[]", RegistryRefused, "without a schema"),
        (HEAD % 12 + b'{"schema":1}', RegistryRefused, "without a schema"),
        (HEAD % 36 + b'{"schema":"","schemaType":"THRIFT!"}', SchemaUnusable, "kind 'THRIFT!'"),
        (HEAD % 32 + b'{"schema":"","references":[null]}'[:32], RegistryRefused, "not JSON"),
        (HEAD % 33 + b'{"schema":"","references":[null]}', SchemaUnusable, "a reference without"),
        (HEAD % (5 << 20) + b" " * (5 << 20), SchemaUnusable, "more than 4194304 bytes"),
        (HEAD % 200_000 + b"[" * 200_000, RegistryRefused, "not JSON"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", RegistryRefused, "302"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\n{}", RegistryRefused, "404"),
    ],
)
def test_invalid_answers_end_the_read_with_a_line(data, error, told):
    with serving(Registry(before=answering(data))) as registry, pytest.raises(error, match=told) as raised:
        Schemas(RegistryPlace(registry.url), False).by_id(101)
    assert "\n" not in str(raised.value)


def test_an_answer_that_drips_ends_by_its_deadline_however_little_it_lacks(monkeypatch):
    monkeypatch.setattr(http, "ANSWER_S", 0.3)
    monkeypatch.setattr(http, "ATTEMPTS", 1)

    def drip(request: BaseHTTPRequestHandler) -> bool:
        end = time.monotonic() + 30
        try:
            while time.monotonic() < end:
                request.wfile.write(b"H")
        except OSError:
            return True
        raise AssertionError("the reader never hung up")

    with serving(Registry(before=drip)) as registry, pytest.raises(RegistryUnreachable):
        Schemas(RegistryPlace(registry.url), False).by_id(101)


def test_a_meaningless_answer_is_reported_by_what_went_wrong(monkeypatch):
    monkeypatch.setattr(http, "ATTEMPTS", 1)

    def bytes_alone(request: BaseHTTPRequestHandler) -> bool:
        request.wfile.write(b"\0\1\2\r\n\r\n")
        return True

    with serving(Registry(before=bytes_alone)) as registry, pytest.raises(RegistryUnreachable) as told:
        Schemas(RegistryPlace(registry.url), False).by_id(101)
    assert "/schemas/ids/101: BadStatusLine (1 attempts)" in str(told.value)


def test_a_registry_that_answers_at_last_has_been_asked_again():
    left = [2]

    def busy(request: BaseHTTPRequestHandler) -> bool:
        left[0] -= 1
        return left[0] >= 0 and answering(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")(request)

    with serving(Registry(before=busy)) as registry:
        assert Schemas(RegistryPlace(registry.url), False).by_id(101).kind == "AVRO"


def test_references_that_go_round_or_lead_nowhere_are_refused(monkeypatch):
    referring = {"schema": '"int"', "references": [{"name": "a", "subject": "a", "version": 1}]}
    with serving(Registry(schemas={"1": referring}, subjects={"a": {"1": 1}})) as registry:
        known = Schemas(RegistryPlace(registry.url), False)
        with pytest.raises(SchemaUnusable, match="refer to each other"):
            known.referred(known.by_id(1))
        registry.subjects = {}
        known = Schemas(RegistryPlace(registry.url), False)
        with pytest.raises(SchemaUnusable, match="a reference that is not there"):
            known.referred(known.by_id(1))


def test_a_folder_of_schemas_reports_missing_and_invalid_files(tmp_path):
    (tmp_path / "7.avsc").write_text('"int"')
    (tmp_path / "8.json").write_text("[]")
    folder = Schemas(RegistryPlace(str(tmp_path)), False)
    assert folder.by_id(7).text == '"int"'
    for number, error in ((8, RegistryRefused), (9, SchemaUnknown)):
        with pytest.raises(error):
            folder.by_id(number)
    with pytest.raises(SchemaUnknown, match="no version latest of subject 'x'"):
        folder.latest("x")
    with pytest.raises(RegistryUnreachable, match="No such file"):
        Schemas(RegistryPlace(str(tmp_path / "none")), False).by_id(7)
