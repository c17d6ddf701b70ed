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
DELAY_LEVELS = "messageDelayLevel of the broker that wrote the store, if it is not running and that is not the default."

TOPICS = click.option(
    "-t", "--topic", "topics", shell_complete=topics, multiple=True,
    help="Only this topic's; may be given several times.",
)  # fmt: skip


@click.group(cls=SuggestingGroup, epilog=EPILOG)
def log() -> None:
    """Look into a store's commit log and queues, with or without a broker."""


@log.command(epilog=EPILOG)
@STORE
@TOPICS
@click.option("--from", "start", type=click.IntRange(min=0), help="Begin at the first record at or behind this offset.")
@click.option("--since", type=Moment(), help=f"Only what was stored from this time on: {SHAPES}.")
@click.option("--until", type=Moment(), help="Only what was stored before this time; with --follow the end, too.")
@click.option("--grep", type=Regex(), help="Only where this regular expression matches in the body or a property.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many messages.")
@click.option("--scan", is_flag=True, help="With --topic: read every record, also what no consume queue lists.")
@click.option("--follow", is_flag=True, help="Go on with what the running broker appends, until it stops or Ctrl-C.")
@form("One JSON object a line.", "as_objects")
@store_command("tools.log.cat:cat", "tools.log.usage:cat", or_file=True)
def cat() -> None:
    """Print the messages of STORE in log order; or of a file that `slipstream replica rewind` left.

    --topic goes by the consume queues, as far as they list the log: a deleted topic's messages are seen by --scan. A
    property is looked at as NAME=value, a body as it was before compression. An expression that takes more than two
    seconds of CPU time at one message ends the command. Times are the broker's, as stored.
    """


@log.command(epilog=EPILOG)
@STORE
@OPTION
@form("One JSON object.", "as_object")
@store_command("tools.log.show:stat")
def stat() -> None:
    """Show what STORE holds: segments, bytes, messages, topics, times."""


@log.command(epilog=EPILOG)
@click.argument("store_a", type=GivenPath(path_type=Path))
@click.argument("store_b", type=GivenPath(path_type=Path))
@OPTION
@form("One JSON object.")
@store_command("tools.log.show:diff")
def diff() -> None:
    """Compare the commit logs of STORE_A and STORE_B byte for byte, where both have bytes.

    Ends with 0 when they are equal there; with 1 at the first difference, or when they have no bytes in common.
    """


@log.command(epilog=EPILOG)
@STORE
@click.option(
    "--as", "version", type=click.Choice(list(LINES)), help="Which RocketMQ loads the store; by default what wrote it."
)
@store_command("tools.log.show:manifest")
def manifest() -> None:
    """Print what RocketMQ's own classes read from STORE: a JSON line for each message, blank record and queue."""


@log.command(epilog=EPILOG)
@STORE
@click.option("--coverage", is_flag=True, help="Also say how many bytes would tell if they changed, and how.")
@click.option("--unprotected", is_flag=True, help="Instead, list every byte range that no check can vouch for.")
@click.option("--delay-levels", help=DELAY_LEVELS)
@click.option("--digests/--no-digests", default=True, help="Compare sealed segments with `log digest`'s file.")
@OPTION
@form("One JSON object for each finding, and one for the sums.", "as_objects")
@store_command("tools.log.verify:verify", "tools.log.usage:verify")
def verify() -> None:
    """Check every record of STORE, its queues and index against the records, and every record against them.

    Reads only. Ends with 1 when something was found; each finding says what, where, and what to do.
    """


@log.command(epilog=EPILOG)
@STORE
@OPTION
@form("One JSON object.")
@store_command("tools.log.digest:digest")
def digest() -> None:
    """Note the SHA-256 of every sealed segment of STORE that has none yet.

    A sealed segment never changes again, so a digest also covers what no CRC does. Segments that do not verify get
    none. The file is STORE/slipstream.digests.json; RocketMQ takes no notice of it.
    """


@log.command(epilog=EPILOG)
@STORE
@click.option("--segment", "segments", type=click.IntRange(min=0), multiple=True,
              help="Only the segment that begins at this offset; may be given several times.")  # fmt: skip
@click.option("--check", "is_check", is_flag=True, help="Build nothing: compare all bytes and rows with the log.")
@click.option("--drop", "is_drop", is_flag=True, help="Remove the side files.")
@OPTION
@form("One JSON object.")
@store_command("tools.log.sidecar:sidecar", "tools.log.usage:sidecar")
def sidecar() -> None:
    """Build the columnar side files of STORE's sealed segments that are missing or stale (needs the package pyarrow).

    A side file is Parquet in STORE/slipstream.columns: of each record all but body and properties. Who reads it checks
    that it is of its segment, and reads the log else. RocketMQ takes no notice of it. --check ends with 1 when one is
    stale or damaged.
    """


@log.command(epilog=EPILOG)
@STORE_OR_SERVERS
@TOPICS
@click.option("--where", help='Conditions, as the option `where` has them: {"queueOffset":{">=":100,"<":200}}.')
@click.option("--option", "options", type=OptionValue(), multiple=True, metavar="NAME=VALUE",
              help="Any other option of a batch read; may be given several times.")  # fmt: skip
@form("One JSON object.")
@store_command("tools.log.plan:plan")
def plan() -> None:
    """Show what a read of STORE would touch: splits, bytes, queues, parts of the log (needs the package pyarrow).

    It is planned as Spark's reads and scans are, with the same options, and nothing is read but what planning reads.
    What conditions leave out of the plan is not looked at; what is planned is asked for the conditions, too. STORE may
    be grpc://HOST:PORT, a server that `slipstream flight` started, which plans it (--option flightTokenFile=FILE).
    """


@log.command(epilog=EPILOG)
@STORE
@click.option("--parquet", type=GivenPath(path_type=Path), help="Write this Parquet file (needs the package pyarrow).")
@click.option("--json", "json_file", type=GivenPath(path_type=Path), help="Write this file of JSON lines.")
@TOPICS
@click.option("--from", "start", type=click.IntRange(min=0), help="Begin at the first record at or behind this offset.")
@click.option("--to", "end", type=click.IntRange(min=0), help="End before the record at this offset.")
@click.option("--since", type=Moment(), help="Only what was stored from this time on, as with `log cat`.")
@click.option("--until", type=Moment(), help="Only what was stored before this time.")
@click.option("--columns", help="Names separated by commas, in this order; all by default.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many messages.")
@click.option("--raw-bodies", is_flag=True, help="Bodies as they are stored, compressed or not.")
@OPTION
@form("", flag=False)
@store_command("tools.log.export:export", "tools.log.usage:export")
def export() -> None:
    """Write the messages of STORE to a file, which appears under its name when it is whole."""


@log.command(epilog=EPILOG)
@STORE
@click.option("--key", help="Messages with this key, or this unique id.")
@click.option("-t", "--topic", shell_complete=topics, help="Only of this topic (quicker: the index is asked once).")
@click.option("--id", "message_id", help="The message of this offsetMsgId or unique id.")
@click.option("--offset", type=click.IntRange(min=0), help="The message whose record begins at this log offset.")
@click.option("--queue", type=QueueName(), metavar="TOPIC:ID", help="A queue, with --time.")
@click.option("--time", "moment", type=Moment(), help="The queue's message at this time, as RocketMQ's reset.")
@click.option(
    "--as", "version", type=click.Choice(list(LINES)), default=NEWEST, show_default=True,
    help="Whose rule for --time: the first message from it on (5), or 4.9's, which goes by the queue files' own times.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1), default=FIND_LIMIT, show_default=True, help="Of the newest.")
@form("One JSON object a line.", "as_objects")
@store_command("tools.log.find:find", "tools.log.usage:find")
def find() -> None:
    """Find messages of STORE by --key, --id, --offset, or by --queue and --time.

    Keys are looked up in the index and compared in the records; what the index does not cover is looked through.
    """


@log.command("map", epilog=EPILOG)
@STORE
@form("One JSON object.", "as_object")
@store_command("tools.log.map:show_map")
def show_map() -> None:
    """Show the segments of STORE: sealed, flushed, in the page cache, leased; and where a running broker's cursors are.

    A sealed segment is one that the log goes on behind. Without a broker, flushed is what the checkpoint says.
    """


@log.command(epilog=EPILOG)
@STORE
@click.option("--from", "other", type=GivenPath(path_type=Path), help="A replica's store.")
@click.option("--cut", "cut_at", type=click.IntRange(min=0), metavar="OFFSET",
              help="Take away all of the log from there on.")  # fmt: skip
@click.option("--forget-missing", is_flag=True, help="Go on without files of the log that are lost.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@OPTION
@form("One JSON object for each damaged range, and one for the sums; or one for what --cut took away.")
@store_command("tools.log.repair:repair", "tools.log.usage:repair")
def repair() -> None:
    """Repair the damaged ranges of STORE's log from a replica's store, which may be in use; or cut the log.

    A range is taken over only where the other store's records are sound and a neighbouring record is equal in both. No
    broker may run on STORE. Ends with 1 when something damaged is left.

    --cut OFFSET is for what no replica has: everything from there on goes, sound records, too, with its queue and index
    entries; it says what goes, and --dry-run only says it. The offset is one that BIT_ROT or `log verify` named.

    --forget-missing is for LOG_MISSING: the commit log is lost, and no disk is left to be mounted. Checkpoint,
    mark and index are deleted, and without any file of the log the queues, too. The next start goes on with what is
    there, or begins a new log at offset 0. Consumers' offsets stay.
    """


@log.group(cls=SuggestingGroup)
def rebuild() -> None:
    """Build queues or the index of a store again from its log; a broker must not run on it.

    They are built beside the old ones and then take their places: interrupted at any moment, each queue is either the
    old or the new one.
    """


@rebuild.command(epilog=EPILOG)
@STORE
@click.option("-t", "--topic", shell_complete=topics, help="Only this topic's queues.")
@click.option("--queue", "queue_id", type=click.IntRange(min=0), help="Only this queue; --topic must be given.")
@click.option("--file-bytes", type=click.IntRange(min=20), help="mappedFileSizeConsumeQueue; by default as they are.")
@click.option("--delay-levels", help=DELAY_LEVELS)
@OPTION
@form("One JSON object.")
@store_command("tools.log.rebuild:queue", "tools.log.usage:rebuild_queue")
def queue() -> None:
    """Build the consume queues of STORE again."""


@rebuild.command(epilog=EPILOG)
@STORE
@click.option("--slots", type=click.IntRange(min=1), help="maxHashSlotNum; by default as the files are.")
@click.option("--entries", type=click.IntRange(min=2), help="maxIndexNum; goes with --slots.")
@OPTION
@form("One JSON object.")
@store_command("tools.log.rebuild:index", "tools.log.usage:rebuild_index")
def index() -> None:
    """Build the index of STORE again."""
