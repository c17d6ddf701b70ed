"""`slipstream lake`, as it is typed."""

from __future__ import annotations

import click

from tools.common.completion import topics
from tools.common.duration import Duration
from tools.common.given_path import GivenPath
from tools.common.lazy_group import done_by
from tools.common.output_form import form

DECODERS = ("json", "avro", "protobuf")


@click.command(epilog="It only reads the store, with the rights of its user. Compaction is the table's engine's to do.")
@click.argument("store", nargs=-1, required=True)
@click.option("--to", required=True, type=click.Choice(["iceberg", "delta"]), help="The format of the table.")
@click.option("--table", required=True, metavar="NAME",
              help="Iceberg: NAMESPACE.NAME. Delta: a directory, a URL. With {topic}: a table a topic.")  # fmt: skip
@click.option("--catalog", metavar="FILE|URI",
              help="Iceberg's: a URI, as sqlite:////srv/lake.db, or a file with PyIceberg's properties.")  # fmt: skip
@click.option("--warehouse", metavar="URL", help="Where Iceberg's new tables go. Of a SQLite catalog: else beside it.")
@click.option("--storage", type=GivenPath(dir_okay=False), help="Delta: a file with options of its storage.")
@click.option("-t", "--topic", "topics", multiple=True, shell_complete=topics, help="Repeatable. Else all topics.")
@click.option("--decode", type=click.Choice(DECODERS), help="Bodies to columns; with JSON and no schema, to a text.")
@click.option("--schema", "schema_file", type=GivenPath(dir_okay=False),
              help="Their fields: `id bigint, name string` for json, an Avro schema, a descriptor set.")  # fmt: skip
@click.option("--message", metavar="NAME", help="Of the descriptor set: the message that bodies are, as shop.Order.")
@click.option("--columns", metavar="A,B", help="The message's columns that the table has. Else the usual ones.")
@click.option("--permissive", is_flag=True, help="A message that cannot be read is a row with column _error.")
@click.option("--from", "start", type=click.Choice(["earliest", "latest"]), default="earliest", show_default=True,
              help="Where topics begin that the table has nothing of.")  # fmt: skip
@click.option("--confirmed", is_flag=True, help="Load only what enough replicas hold; of a running master.")
@click.option("--on-loss", type=click.Choice(["stop", "go-on"]), default="stop", show_default=True,
              help="What to do when messages are gone that the table does not have yet.")  # fmt: skip
@click.option("--option", "more", multiple=True, metavar="NAME=VALUE", help="Of a stream of Spark's; repeatable.")
@click.option("--once", is_flag=True, help="Load what there is now, then end. Else follow the log until stopped.")
@click.option("--every", "every_ms", type=Duration(), default="10s", show_default=True,
              help="Commit so often while it follows; sooner only when a commit is full.")  # fmt: skip
@click.option("--max-rows", type=click.IntRange(1, 1 << 31), default=1_000_000, show_default=True,
              help="Of a commit.")  # fmt: skip
@click.option("--max-bytes", type=click.IntRange(1, 1 << 34), default=128 << 20, show_default=True,
              help="Of a commit, as in the log.")  # fmt: skip
@form("A JSON object for each commit.")
@done_by("tools.run.lake:load")
def lake() -> None:
    """Load a store's messages into a table of Iceberg or Delta, each exactly once.

    STORE is any store of this machine, with a broker or without, or grpc://HOST:PORT of a `slipstream flight`; several
    make one table. How far a table is stands in the table itself, in the same commit as its rows: started again, after
    whatever end, it goes on there.
    """
