"""What a row says and what becomes of a damaged one: the options of a read that executors need, checked.

They are the same for a batch read and a stream. Names are Kafka's where Kafka's source has the option (includeHeaders,
failOnDataLoss), those of Spark's own sources otherwise (mode).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from spark_bridge.options.value_types import avro_type, named_type
from spark_bridge.options.values import InvalidOption, choice, count, flag

SIDE_OPTION = "columnarSidecar"
ROW_OPTION_NAMES = (
    "schema",
    "decode",
    "valueSchema",
    "avroSchema",
    "mode",
    "includeProperties",
    "includeHeaders",
    "verifyCrc",
    "failOnDataLoss",
    "replicaWaitSeconds",
    SIDE_OPTION,
)
ROCKETMQ, KAFKA = "rocketmq", "kafka"
RAW, JSON, AVRO = "raw", "json", "avro"
PERMISSIVE, FAILFAST = "permissive", "failfast"
ERROR_COLUMN = "_error"
REPLICA_WAIT_SECONDS = 30


@dataclass(frozen=True)
class RowOptions:
    """What rows say. `value_type` is what bodies are decoded to, as JSON or Avro; None is bytes."""

    schema: str = ROCKETMQ
    decode: str = RAW
    value_type: pa.DataType | None = None
    avro_schema: str | None = None
    mode: str = FAILFAST
    include_properties: bool = True
    include_headers: bool = False
    verify_body_crc: bool = False
    fail_on_data_loss: bool = True
    replica_wait_s: float = REPLICA_WAIT_SECONDS
    side_files: bool = False

    @property
    def permissive(self) -> bool:
        """True when damage becomes a row that tells of it, not an error that ends the read."""
        return self.mode == PERMISSIVE


DEFAULT_ROWS = RowOptions()


def parse_row_options(given: Mapping[str, str]) -> RowOptions:
    """The options of this module among `given`, whatever case their names have. Raises InvalidOption."""
    options = {name.lower(): value for name, value in given.items()}
    schema = choice("schema", options.get("schema", ROCKETMQ), (ROCKETMQ, KAFKA))
    decode = choice("decode", options.get("decode", RAW), (RAW, JSON, AVRO))
    _refuse(options, "includeHeaders", schema == KAFKA, "schema=kafka; the column properties is there without it")
    _refuse(options, "includeProperties", schema == ROCKETMQ, "schema=rocketmq; schema=kafka has includeHeaders")
    _refuse(options, "valueSchema", decode == JSON, "decode=json")
    _refuse(options, "avroSchema", decode == AVRO, "decode=avro")
    replica_wait = count("replicaWaitSeconds", options.get("replicawaitseconds"), 0)
    return RowOptions(
        schema=schema,
        decode=decode,
        value_type=_value_type(decode, options),
        avro_schema=options.get("avroschema"),
        mode=choice("mode", options.get("mode", FAILFAST), (PERMISSIVE, FAILFAST)),
        include_properties=flag("includeProperties", options.get("includeproperties", "true")),
        include_headers=flag("includeHeaders", options.get("includeheaders", "false")),
        verify_body_crc=choice("verifyCrc", options.get("verifycrc", "none"), ("none", "body")) == "body",
        fail_on_data_loss=flag("failOnDataLoss", options.get("failondataloss", "true")),
        replica_wait_s=REPLICA_WAIT_SECONDS if replica_wait is None else replica_wait,
        side_files=flag(SIDE_OPTION, options.get(SIDE_OPTION.lower(), "false")),
    )


def _value_type(decode: str, options: Mapping[str, str]) -> pa.DataType | None:
    """What bodies are decoded to. JSON without a schema stays text, looked through."""
    if decode == AVRO:
        if "avroschema" not in options:
            raise InvalidOption("decode=avro needs avroSchema: the schema of the bodies, as Avro's JSON")
        return avro_type("avroSchema", options["avroschema"])
    if decode == JSON:
        return named_type("valueSchema", options["valueschema"]) if "valueschema" in options else pa.string()
    return None


def _refuse(options: Mapping[str, str], option: str, fits: bool, belongs_to: str) -> None:
    if option.lower() in options and not fits:
        raise InvalidOption(f"{option} belongs to {belongs_to}")
