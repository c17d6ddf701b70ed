"""The tls.properties that Spark is named: what cannot be used is refused at once, and no secret is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_bridge.flight.questions import told_options
from spark_bridge.options.read import parse_options
from spark_bridge.options.values import InvalidOption
from spark_bridge.plan.stores import resolve_stores
from spark_bridge.records.spark_schema import schema_of
from spark_bridge.replica.tls import tls_of
from spark_bridge.stream.options import parse_stream_options
from spark_bridge.stream.reader import RocketMQStreamReader
from tests.harness.certificates import Authority, tls_file

PASSWORD = "not for anybody"


def stream_options(store: Path, file: Path) -> dict[str, str]:
    return {"path": str(store), "commitGroup": "g", "tlsConfigFile": str(file)}


def test_a_file_that_cannot_be_used_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"#" * ((1 << 20) + 1))
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n")
    authority = Authority(tmp_path / "ca")
    issued = authority.issue("node")
    shows = {"client_certPath": issued.certificate, "client_keyPath": issued.key}
    wrong = {
        tmp_path / "none": "No such file or directory; a tls.properties that the driver can read",
        tmp_path / "pipe": "of up to 1048576 bytes",
        tmp_path: "of up to 1048576 bytes",
        tmp_path / "large": "of up to 1048576 bytes",
        tmp_path / "key.pem": "key.pem:1: this line: unknown key",
        tls_file(tmp_path / "a", client_trustCertPath="nowhere.pem"): "nowhere.pem: cannot be read",
        tls_file(tmp_path / "b", client_keyPasword=PASSWORD): "did you mean tls.client.keyPassword",
        tls_file(tmp_path / "c", client_keyPassword=f"{PASSWORD}\\u12"): "four hexadecimal digits",
        tls_file(tmp_path / "d", client_trustCertPath=issued.key, client_keyPassword=PASSWORD): "no usable trusted",
        tls_file(tmp_path / "e", enable="true"): "Spark's tlsConfigFile",
        tls_file(
            tmp_path / "f",
            client_certPath=issued.certificate,
            client_keyPath=authority.certificate,
            client_keyPassword=PASSWORD,
        ): "certificate and key cannot be used",
    }
    for file, says in wrong.items():
        with pytest.raises(InvalidOption, match=says) as error:
            tls_of(str(file))
        text = str(error.value)
        assert text.startswith(f"tlsConfigFile={str(file)!r}: ") and "\n" not in text
        assert PASSWORD not in text and "BEGIN" not in text
        with pytest.raises(InvalidOption, match=says):
            resolve_stores(parse_options({"nameServer": "127.0.0.1:1", "tlsConfigFile": str(file)}))
        reader = RocketMQStreamReader(schema_of(), stream_options(tmp_path, file))
        with pytest.raises(InvalidOption, match=says):
            reader.initialOffset()
    fine = tls_of(str(tls_file(tmp_path / "g", **shows, client_keyPassword=PASSWORD)))
    assert fine is not None
    assert PASSWORD not in repr(fine.file)


def test_the_option_belongs_to_who_is_asked_over_remoting(tmp_path: Path) -> None:
    for options in ({"path": str(tmp_path)}, {"path": "grpc://127.0.0.1:1"}):
        with pytest.raises(InvalidOption, match="tlsConfigFile belongs to nameServer, or to a stream's commitGroup"):
            parse_options({**options, "tlsConfigFile": "x"})
        with pytest.raises(InvalidOption, match="tlsConfigFile belongs to nameServer"):
            parse_stream_options({**options, "tlsConfigFile": "x"})
    with pytest.raises(InvalidOption, match=r"give a tls\.properties of the driver's host"):
        parse_options({"nameServer": "a:1", "tlsConfigFile": " "})
    with pytest.raises(InvalidOption, match="hdfs cannot be mapped"):
        parse_options({"nameServer": "a:1", "tlsConfigFile": "hdfs://a/b"})
    both = parse_stream_options({"nameServer": "a:1", "commitGroup": "g", "TLSCONFIGFILE": "x"})
    assert both.read.tls_config_file == "x" and both.commits is not None and both.commits.tls_config_file == "x"
    elsewhere = {"path": "grpc://127.0.0.1:1", "commitGroup": "g", "commitBroker": "a:1", "tlsConfigFile": "x"}
    through_flight = parse_stream_options(elsewhere)
    assert through_flight.commits is not None and through_flight.commits.tls_config_file == "x"
    assert through_flight.read.flights is not None and through_flight.read.flights.asked == {}
    assert told_options(elsewhere) == {}, "no server is told where a file of the driver's lies"
    alone = parse_stream_options({"path": str(tmp_path), "commitGroup": "g", "tlsConfigFile": "x"})
    assert alone.read.tls_config_file is None and alone.commits is not None and alone.commits.tls_config_file == "x"
