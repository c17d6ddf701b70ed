"""`slipstream run`, as it is typed."""

from __future__ import annotations

from typing import Any

import click

from ipc.extras import require_spark
from tools.common.given_path import GivenPath
from tools.common.lazy_group import attribute_of
from tools.common.numbers import number

SECONDS = 6.0


@click.command()
@click.option(
    "--input",
    "inputs",
    multiple=True,
    type=GivenPath(exists=True, dir_okay=False),
    metavar="FILE",
    help="Also use the lines of this file; repeatable. Default: none.",
)
@click.option(
    "--dir",
    "directory",
    type=GivenPath(file_okay=False),
    metavar="DIRECTORY",
    help="Empty directory for the stores, kept afterwards. Default: a temporary one.",
)
@number("--seconds", click.FloatRange(0.1), SECONDS, "SECONDS", "Sample this machine for this many seconds.")
@click.option("--keep", is_flag=True, help="Keep both brokers running, with a live status, until Ctrl-C.")
def run(**arguments: Any) -> Any:
    """Demonstrate replication and a Spark query on this machine.

    Two brokers replicate real input, and Spark queries the files of the slave. The input is processes, CPU, memory,
    disk and network of this machine, and the lines of files given with --input.
    """
    require_spark("`slipstream run`")
    from spark_bridge import java_home

    java_home.ensure()
    return attribute_of("tools.demo.demo:run")(**arguments)
