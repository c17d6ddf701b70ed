"""What a row says and what becomes of a damaged one: the options of a read that executors need, checked.

They are the same for a batch read and a stream. Names are Kafka's where Kafka's source has the option (includeHeaders,
failOnDataLoss), those of Spark's own sources otherwise (mode).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_bridge.options.decoding import AVRO, DECODE_OPTION_NAMES, JSON, RAW, parse_decoding
from spark_bridge.options.values import InvalidOption, choice, count, flag
from spark_bridge.registry.place import RegistryPlace

if TYPE_CHECKING:  # options are checked without loading Arrow
    import pyarrow as pa

    from spark_bridge.options.protobuf_types import MessageType

SIDE_OPTION = "columnarSidecar"
ROW_OPTION_NAMES = (
    "schema",
    *DECODE_OPTION_NAMES,
    "mode",
    "includeProperties",
    "includeHeaders",
    "verifyCrc",
    "failOnDataLoss",
    "replicaWaitSeconds",
    SIDE_OPTION,
)
ROCKETMQ, KAFKA = "rocketmq", "kafka"
PERMISSIVE, FAILFAST = "permissive", "failfast"
ERROR_COLUMN = "_error"
REPLICA_WAIT_SECONDS = 30


@dataclass(frozen=True)
class RowOptions:
    """The options of rows. `value_type` is what bodies are decoded to, None is bytes.

    With `registry` their first bytes name the schema that they were written by. A time of JSON without a zone is in
    `time_zone`, else in that of the Spark session, else in `local_zone`.
    """

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
    protobuf: MessageType | None = None
    registry: RegistryPlace | None = None
    time_zone: str | None = None
    local_zone: str | None = field(default=None, compare=False)

    @property
    def permissive(self) -> bool:
        """Return whether damage becomes a row that describes it, not an error that ends the read."""
        return self.mode == PERMISSIVE


DEFAULT_ROWS = RowOptions()


def parse_row_options(given: Mapping[str, str]) -> RowOptions:
    """The options of this module among `given`, whatever case their names have. Raises InvalidOption."""
    options = {name.lower(): value for name, value in given.items()}
    schema = choice("schema", options.get("schema", ROCKETMQ), (ROCKETMQ, KAFKA))
    _refuse(options, "includeHeaders", schema == KAFKA, "schema=kafka; the column properties is there without it")
    _refuse(options, "includeProperties", schema == ROCKETMQ, "schema=rocketmq; schema=kafka has includeHeaders")
    decoding = parse_decoding(options)
    replica_wait = count("replicaWaitSeconds", options.get("replicawaitseconds"), 0)
    return RowOptions(
        schema=schema,
        decode=decoding.decode,
        value_type=decoding.value_type,
        avro_schema=decoding.avro_schema,
        protobuf=decoding.protobuf,
        registry=decoding.registry,
        time_zone=decoding.time_zone,
        local_zone=decoding.local_zone,
        mode=choice("mode", options.get("mode", FAILFAST), (PERMISSIVE, FAILFAST)),
        include_properties=flag("includeProperties", options.get("includeproperties", "true")),
        include_headers=flag("includeHeaders", options.get("includeheaders", "false")),
        verify_body_crc=choice("verifyCrc", options.get("verifycrc", "none"), ("none", "body")) == "body",
        fail_on_data_loss=flag("failOnDataLoss", options.get("failondataloss", "true")),
        replica_wait_s=REPLICA_WAIT_SECONDS if replica_wait is None else replica_wait,
        side_files=flag(SIDE_OPTION, options.get(SIDE_OPTION.lower(), "false")),
    )


def _refuse(options: Mapping[str, str], option: str, fits: bool, belongs_to: str) -> None:
    if option.lower() in options and not fits:
        raise InvalidOption(f"{option} belongs to {belongs_to}")


__all__ = ["AVRO", "JSON", "RAW", "RowOptions", "parse_row_options"]
