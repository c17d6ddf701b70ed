"""`slipstream run`, as it is typed."""

from __future__ import annotations

from typing import Any

import click

from ipc.extras import require_spark
from tools.common.given_path import GivenPath
from tools.common.lazy_group import attribute_of


@click.command()
@click.option("--input", "inputs", multiple=True, type=GivenPath(exists=True, dir_okay=False), help="Add its lines.")
@click.option("--dir", "directory", type=GivenPath(file_okay=False), help="An empty directory, kept afterwards.")
@click.option("--seconds", default=6.0, show_default=True, type=click.FloatRange(0.1), help="How long to sample.")
@click.option("--keep", is_flag=True, help="Leave both running, with the live status, until Ctrl-C.")
def run(**arguments: Any) -> Any:
    """Replicate real input between two brokers on this machine, and query the slave's files with Spark.

    Input: processes, CPU, memory, disk and network of this machine, and the lines of files given by --input.
    """
    require_spark("`slipstream run`")
    from spark_bridge import java_home

    java_home.ensure()
    return attribute_of("tools.demo.demo:run")(**arguments)
