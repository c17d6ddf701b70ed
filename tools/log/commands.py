"""`slipstream log`: looks into a store's commit log and queues, with or without a broker; never writes there.

Exit codes: 0 all well; 1 `verify` or `sidecar --check` found something, `diff` a difference; 2 wrong arguments, or no
store at that path; 3 `cat --follow` without a broker; 4 the log is damaged where it was to be read.
"""

from __future__ import annotations

from pathlib import Path

import click

from store.compat import LINES, NEWEST
from tools.common.completion import topics
from tools.common.given_path import GivenPath
from tools.common.lazy_group import SuggestingGroup
from tools.common.moments import SHAPES, Moment
from tools.common.output_form import form
from tools.common.progress import OPTION
from tools.log.options import EPILOG, STORE, STORE_OR_SERVERS, OptionValue, QueueName, Regex, store_command

FIND_LIMIT = 64
DELAY_LEVELS = click.option(
    "--delay-levels",
    metavar="LEVELS",
    help="messageDelayLevel of the broker that wrote the store. Default: the running broker's, else RocketMQ's.",
)

TOPICS = click.option(
    "-t",
    "--topic",
    "topics",
    shell_complete=topics,
    multiple=True,
    metavar="TOPIC",
    help="Only messages of this topic; repeatable. Default: all topics.",
)
FROM = click.option(
    "--from",
    "start",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="Begin at the first record at or after this log offset. Default: the beginning of the log.",
)
SINCE = click.option(
    "--since",
    type=Moment(),
    metavar="TIME",
    help=f"Only messages stored at or after this time: {SHAPES}. Default: no limit.",
)
LIMIT = click.option(
    "--limit", type=click.IntRange(min=0), metavar="N", help="Maximum number of messages. Default: no limit."
)


@click.group(cls=SuggestingGroup, epilog=EPILOG)
def log() -> None:
    """Read, search, export, verify and repair the log of a store.

    These commands work with or without a running broker; `repair` and `rebuild` need it to be stopped.
    """


@log.command(epilog=EPILOG)
@STORE
@TOPICS
@FROM
@SINCE
@click.option(
    "--until",
    type=Moment(),
    metavar="TIME",
    help="Only messages stored before this time; ends --follow, too. Default: no limit.",
)
@click.option(
    "--grep",
    type=Regex(),
    metavar="REGEX",
    help="Only messages whose body or a property matches this regular expression. Default: all.",
)
@LIMIT
@click.option("--scan", is_flag=True, help="With --topic: read every record, also those that no consume queue lists.")
@click.option("--follow", is_flag=True, help="Continue with new messages until the broker stops or Ctrl-C.")
@form("Print one JSON object per line.", "as_objects")
@store_command("tools.log.cat:cat", "tools.log.usage:cat", or_file=True)
def cat() -> None:
    """Print messages in log order.

    STORE is a store, or a file that `slipstream replica rewind` kept. --topic uses the consume queues; messages of a
    deleted topic need --scan. --grep sees a property as NAME=value and a body uncompressed. An expression that needs
    more than two seconds of CPU time for one message ends the command. Times are the broker's store times.
    """


@log.command(epilog=EPILOG)
@STORE
@OPTION
@form("Print one JSON object.", "as_object")
@store_command("tools.log.show:stat")
def stat() -> None:
    """Show segments, bytes, messages, topics and times of STORE."""


@log.command(epilog=EPILOG)
@click.argument("store_a", type=GivenPath(path_type=Path))
@click.argument("store_b", type=GivenPath(path_type=Path))
@OPTION
@form("Print one JSON object.")
@store_command("tools.log.show:diff")
def diff() -> None:
    """Compare the commit logs of STORE_A and STORE_B byte for byte.

    Only the range that both logs have is compared. The exit code is 0 if it is equal, and 1 at the first difference or
    if the logs have no range in common.
    """


@log.command(epilog=EPILOG)
@STORE
@click.option(
    "--as",
    "version",
    type=click.Choice(list(LINES)),
    help="RocketMQ version that loads the store. Default: the version that wrote it.",
)
@store_command("tools.log.show:manifest")
def manifest() -> None:
    """Print what RocketMQ's own classes would read from STORE.

    One JSON line for each message, blank record and queue.
    """


@log.command(epilog=EPILOG)
@STORE
@click.option("--coverage", is_flag=True, help="Also count the bytes that each kind of check protects.")
@click.option("--unprotected", is_flag=True, help="Instead, list the byte ranges that no check protects.")
@DELAY_LEVELS
@click.option(
    "--digests/--no-digests",
    default=True,
    help="Compare sealed segments with the digests of `log digest`. Default: --digests.",
)
@OPTION
@form("Print one JSON object for each finding, and one for the totals.", "as_objects")
@store_command("tools.log.verify:verify", "tools.log.usage:verify")
def verify() -> None:
    """Check records, queues and index of STORE, without changing anything.

    Each record is checked by itself and against queues and index, and these against the records. The exit code is 1 if
    something was found. Each finding says what is wrong, where, and what to do.
    """


@log.command(epilog=EPILOG)
@STORE
@OPTION
@form("Print one JSON object.")
@store_command("tools.log.digest:digest")
def digest() -> None:
    """Record the SHA-256 of each sealed segment that has none yet.

    A sealed segment never changes again, so its digest also protects the bytes that no CRC covers. A segment that fails
    verification gets no digest. The file is STORE/slipstream.digests.json; RocketMQ ignores it.
    """


@log.command(epilog=EPILOG)
@STORE
@click.option(
    "--segment",
    "segments",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="OFFSET",
    help="Only the segment that begins at this offset; repeatable. Default: all.",
)
@click.option("--check", "is_check", is_flag=True, help="Build nothing; compare all bytes and rows with the log.")
@click.option("--drop", "is_drop", is_flag=True, help="Remove the side files.")
@OPTION
@form("Print one JSON object.")
@store_command("tools.log.sidecar:sidecar", "tools.log.usage:sidecar")
def sidecar() -> None:
    """Build missing or stale Parquet side files of STORE.

    A side file in STORE/slipstream.columns holds all fields of a sealed segment's records except bodies and properties.
    A reader checks that the file belongs to its segment, and otherwise reads the log. RocketMQ ignores side files. With
    --check the exit code is 1 if one is stale or damaged. Needs the package pyarrow.
    """


@log.command(epilog=EPILOG)
@STORE_OR_SERVERS
@TOPICS
@click.option("--where", metavar="JSON", help='Conditions, such as {"queueOffset":{">=":100,"<":200}}. Default: none.')
@click.option(
    "--option",
    "options",
    type=OptionValue(),
    multiple=True,
    metavar="NAME=VALUE",
    help="Another option of a batch read; repeatable. Default: none.",
)
@form("Print one JSON object.")
@store_command("tools.log.plan:plan")
def plan() -> None:
    """Show what a read of STORE would touch: splits, bytes, queues.

    The plan is the one that Spark's reads and scans use, with the same options; no messages are read. The read skips
    what the plan leaves out, and checks the conditions on the rest. STORE may also be grpc://HOST:PORT of a server that
    `slipstream flight` started (with --option flightTokenFile=FILE). Needs the package pyarrow.
    """


@log.command(epilog=EPILOG)
@STORE
@click.option(
    "--parquet",
    type=GivenPath(path_type=Path),
    metavar="FILE",
    help="Write this Parquet file; needs the package pyarrow.",
)
@click.option(
    "--json", "json_file", type=GivenPath(path_type=Path), metavar="FILE", help="Write this file of JSON lines."
)
@TOPICS
@FROM
@click.option(
    "--to",
    "end",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="Stop before the record at this log offset. Default: the end of the log.",
)
@SINCE
@click.option(
    "--until", type=Moment(), metavar="TIME", help="Only messages stored before this time. Default: no limit."
)
@click.option("--columns", metavar="A,B", help="Columns to write, in this order. Default: all columns.")
@LIMIT
@click.option("--raw-bodies", is_flag=True, help="Write bodies as stored, without uncompressing them.")
@OPTION
@form("", flag=False)
@store_command("tools.log.export:export", "tools.log.usage:export")
def export() -> None:
    """Write messages of STORE to a Parquet or JSON file.

    The file appears under its name when it is complete.
    """


@log.command(epilog=EPILOG)
@STORE
@click.option("--key", metavar="KEY", help="Find messages with this key or unique id.")
@click.option(
    "-t",
    "--topic",
    shell_complete=topics,
    metavar="TOPIC",
    help="With --key: only messages of this topic; faster. Default: all topics.",
)
@click.option("--id", "message_id", metavar="ID", help="Find the message with this offsetMsgId or unique id.")
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    metavar="OFFSET",
    help="Find the message whose record begins at this log offset.",
)
@click.option("--queue", type=QueueName(), metavar="TOPIC:ID", help="Find a message of this queue, by --time.")
@click.option(
    "--time",
    "moment",
    type=Moment(),
    metavar="TIME",
    help="With --queue: the message at which RocketMQ would reset the queue for this time.",
)
@click.option(
    "--as",
    "version",
    type=click.Choice(list(LINES)),
    default=NEWEST,
    help="Rule for --time: 5 takes the first message stored at or after it, 4.9 first picks a queue file by the file's "
    f"own time. Default: {NEWEST}.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=FIND_LIMIT,
    metavar="N",
    help=f"Maximum number of messages; the newest are shown. Default: {FIND_LIMIT}.",
)
@form("Print one JSON object per line.", "as_objects")
@store_command("tools.log.find:find", "tools.log.usage:find")
def find() -> None:
    """Find messages of STORE by key, id, offset, or queue and time.

    Keys are looked up in the index and compared with the records. The part of the log that the index does not cover is
    read record by record.
    """


@log.command("map", epilog=EPILOG)
@STORE
@form("Print one JSON object.", "as_object")
@store_command("tools.log.map:show_map")
def show_map() -> None:
    """Show each segment of STORE and the cursors of its broker.

    For each segment: sealed (another segment follows), flushed, in the page cache, leased. Without a broker, the
    flushed position is the one in the checkpoint.
    """


@log.command(epilog=EPILOG)
@STORE
@click.option(
    "--from",
    "other",
    type=GivenPath(path_type=Path),
    metavar="STORE",
    help="Replica's store to copy sound records from.",
)
@click.option(
    "--cut", "cut_at", type=click.IntRange(min=0), metavar="OFFSET", help="Remove the log from this offset on."
)
@click.option("--forget-missing", is_flag=True, help="Give up files of the log that are lost.")
@click.option("--dry-run", is_flag=True, help="Change nothing; print what would be done.")
@OPTION
@form("Print one JSON object for each damaged range and one for the totals, or one for --cut.")
@store_command("tools.log.repair:repair", "tools.log.usage:repair")
def repair() -> None:
    """Repair damage in STORE's log from a replica, or cut the log.

    --from copies a damaged range only if the replica's records there are sound and a neighbouring record is equal in
    both stores. The replica may be in use; no broker may run on STORE. The exit code is 1 if damage is left.

    --cut OFFSET is for damage that no replica can repair. It removes the whole log from OFFSET on, including sound
    records, with their queue and index entries. It prints what it removes; --dry-run only prints it. Take the offset
    from the error BIT_ROT or from `log verify`.

    --forget-missing is for the error LOG_MISSING: files of the commit log are lost, and no disk is left to mount. It
    deletes checkpoint, mark and index; if no file of the log is left, also the queues. The next start continues with
    the remaining files, or begins a new log at offset 0. Consumers' offsets are kept.
    """


@log.group(cls=SuggestingGroup)
def rebuild() -> None:
    """Rebuild the queues or the index of a store from its log.

    No broker may run on the store. New files are built next to the old ones and then replace them. If the command is
    interrupted, each queue is either the old or the new one.
    """


@rebuild.command(epilog=EPILOG)
@STORE
@click.option(
    "-t", "--topic", shell_complete=topics, metavar="TOPIC", help="Only the queues of this topic. Default: all topics."
)
@click.option(
    "--queue",
    "queue_id",
    type=click.IntRange(min=0),
    metavar="ID",
    help="Only this queue; needs --topic. Default: all queues.",
)
@click.option(
    "--file-bytes",
    type=click.IntRange(min=20),
    metavar="BYTES",
    help="mappedFileSizeConsumeQueue. Default: the size of the existing files.",
)
@DELAY_LEVELS
@OPTION
@form("Print one JSON object.")
@store_command("tools.log.rebuild:queue", "tools.log.usage:rebuild_queue")
def queue() -> None:
    """Rebuild the consume queues of STORE."""


@rebuild.command(epilog=EPILOG)
@STORE
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    metavar="N",
    help="maxHashSlotNum; needs --entries. Default: as in the existing files.",
)
@click.option(
    "--entries",
    type=click.IntRange(min=2),
    metavar="N",
    help="maxIndexNum; needs --slots. Default: as in the existing files.",
)
@OPTION
@form("Print one JSON object.")
@store_command("tools.log.rebuild:index", "tools.log.usage:rebuild_index")
def index() -> None:
    """Rebuild the index of STORE."""
