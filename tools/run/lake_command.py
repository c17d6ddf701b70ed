"""`slipstream lake`, as it is typed."""

from __future__ import annotations

import click

from tools.common.completion import topics
from tools.common.duration import Duration
from tools.common.given_path import GivenPath
from tools.common.lazy_group import done_by
from tools.common.numbers import number
from tools.common.output_form import form

DECODERS = ("json", "avro", "protobuf")
ROWS_MAX, BYTES_MAX = 1_000_000, 128 << 20  # of a commit


@click.command(epilog="The command only reads the store, with the permissions of its user. It does not compact tables.")
@click.argument("store", metavar="STORES", nargs=-1, required=True)
@click.option("--to", required=True, type=click.Choice(["iceberg", "delta"]), help="Format of the table.")
@click.option(
    "--table",
    required=True,
    metavar="NAME",
    help="Iceberg: NAMESPACE.NAME. Delta: directory or URL. {topic} makes one table per topic.",
)
@click.option(
    "--catalog",
    metavar="FILE|URI",
    help="Iceberg: URI of the catalog, such as sqlite:////srv/lake.db, or file with PyIceberg's properties.",
)
@click.option(
    "--warehouse",
    metavar="URL",
    help="Iceberg: where new tables are created. Default: the catalog's; next to the file of a SQLite catalog.",
)
@click.option(
    "--storage",
    type=GivenPath(dir_okay=False),
    metavar="FILE",
    help="Delta: file with options of the storage. Default: no options.",
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    shell_complete=topics,
    metavar="TOPIC",
    help="Load only this topic; repeatable. Default: all topics.",
)
@click.option(
    "--decode",
    type=click.Choice(DECODERS),
    help="Decode bodies to columns; json without --schema makes one text column. Default: bodies as bytes.",
)
@click.option(
    "--schema",
    "schema_file",
    type=GivenPath(dir_okay=False),
    metavar="FILE",
    help="Fields of bodies. json: such as `id bigint, name string`; avro: a schema; protobuf: a descriptor set.",
)
@click.option("--message", metavar="NAME", help="With --decode protobuf: message type of bodies, such as shop.Order.")
@click.option("--columns", metavar="A,B", help="Message columns of the table. Default: the standard columns.")
@click.option(
    "--permissive",
    is_flag=True,
    help="Load a message that cannot be decoded as a row with column _error, instead of stopping.",
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    help="Where to begin with topics of which the table has no rows. Default: earliest.",
)
@click.option("--confirmed", is_flag=True, help="Load only messages that enough replicas hold; needs a running master.")
@click.option(
    "--on-loss",
    type=click.Choice(["stop", "go-on"]),
    default="stop",
    help="What to do when messages were deleted before they were loaded. Default: stop.",
)
@click.option(
    "--option",
    "more",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another option of a Spark stream; repeatable. Default: none.",
)
@click.option("--once", is_flag=True, help="Load the present messages and exit, instead of following the log.")
@click.option(
    "--every",
    "every_ms",
    type=Duration(),
    default="10s",
    metavar="DURATION",
    help="Time between commits while following; a full commit is made earlier. Default: 10s.",
)
@number("--max-rows", click.IntRange(1, 1 << 31), ROWS_MAX, "N", "Maximum number of rows in a commit.")
@number("--max-bytes", click.IntRange(1, 1 << 34), BYTES_MAX, "BYTES", "Maximum size of a commit, in bytes of the log.")
@form("Print one JSON object for each commit.")
@done_by("tools.run.lake:load")
def lake() -> None:
    """Load messages into an Iceberg or Delta table, each exactly once.

    STORES are one or more stores on this host, with or without a broker, or grpc://HOST:PORT of `slipstream flight`
    servers; several stores are loaded into one table. Each commit stores its rows together with the position that was
    loaded. After any kind of end, a new start continues at that position.
    """
