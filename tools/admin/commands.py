"""`slipstream admin`: mqadmin's commands under their names and flags, quick to start, as a table or as JSON.

Implements: MQAdminStartup and nine of its SubCommands
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from engine.net.printable import printable
from tools.common.lazy_group import SuggestingGroup
from tools.common.numbers import number
from tools.common.tls import SERVERS, SERVERS_HELP, TLS_CONFIG, TLS_HELP, tls_of

if TYPE_CHECKING:  # the client, where it is used: help and wrong usage load no sockets
    from engine.clients.admin import AdminClient, Member

MS_PER_HOUR = 3_600_000
Rows = list[dict[str, Any]]
UNIT, UNIT_SUB = 1, 2
QUEUES = 8


@click.group(cls=SuggestingGroup, epilog="Commands and options have mqadmin's names. -o json prints one JSON value.")
def admin() -> None:
    """Query and change brokers and name servers, as mqadmin does.

    The commands work with RocketMQ's brokers and name servers and with Slipstream's.
    """


def asking(*, repeats: bool = False, orders: bool = False) -> Callable[[Callable[..., Any]], click.Command]:
    """Makes a command of the group: with -n, -o and --timeout, called with a client, its result shown.

    `repeats`: also -i, again and again. `orders`: mqadmin's updateTopic means by -o true|false what --order is.
    """

    def decorate(command: Callable[..., Any]) -> click.Command:
        @wraps(command)
        def run(
            name_servers: str,
            outputs: tuple[str, ...],
            json_flag: bool,
            timeout: float,
            tls_config: str | None,
            **options: Any,
        ) -> None:
            interval, as_json = options.pop("interval", None), json_flag or "json" in outputs
            if orders:
                options["order"] = "true" in outputs
            from engine.clients.admin import AdminClient

            with AdminClient(name_servers, timeout, tls_of(tls_config)) as client:
                _show(command(client, **options), as_json)
                while interval is not None:
                    time.sleep(interval)
                    _show(command(client, **options), as_json)

        made = admin.command(command.__name__, help=command.__doc__)(run)
        made.params += [*_common_options(orders), *([INTERVAL] if repeats else [])]
        return made

    return decorate


TIMEOUT_SECONDS = 5.0
INTERVAL = click.Option(
    ["-i", "--interval"],
    type=click.FloatRange(0.1, 86_400),
    metavar="SECONDS",
    help="Repeat every SECONDS seconds until Ctrl-C. Default: once.",
)


def _common_options(orders: bool) -> list[click.Option]:
    names = ["-o", "--output", *(["--order"] if orders else [])]
    shapes = ["table", "json", *(["true", "false"] if orders else [])]
    order = " As in mqadmin, true makes an ordered topic; repeatable." if orders else ""
    return [
        click.Option(
            ["-n", "--namesrvAddr", "name_servers"],
            envvar="NAMESRV_ADDR",
            default="",
            metavar=SERVERS,
            help=SERVERS_HELP,
        ),
        click.Option(
            [*names, "outputs"],
            type=click.Choice(shapes),
            multiple=True,
            help=f"Output format.{order} Default: table.",
        ),
        click.Option(["--json", "json_flag"], is_flag=True, help="Print one JSON value, as -o json does."),
        click.Option(["--tls-config"], envvar=TLS_CONFIG, metavar="FILE", help=TLS_HELP),
        click.Option(
            ["--timeout"],
            type=click.FloatRange(0.1, 600),
            default=TIMEOUT_SECONDS,
            metavar="SECONDS",
            help=f"Give up on each request after this many seconds. Default: {TIMEOUT_SECONDS:g}.",
        ),
    ]


def _show(answer: Any, as_json: bool) -> None:
    click.echo(_as_json(answer) if as_json else as_text(answer))


def _as_json(answer: Any) -> str:
    text = json.dumps(answer, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(answer)  # names are strangers': no terminal obeys them


def as_text(answer: Any) -> str:
    """Rows as a table with mqadmin's headings, a mapping as `key=  value`, anything else as it is."""
    if isinstance(answer, dict):
        return "\n".join(f"{_cell(key):<50}=  {_cell(value)}" for key, value in answer.items())
    if isinstance(answer, list) and answer and isinstance(answer[0], dict):
        names = list(answer[0])
        lines = [[f"#{name}" for name in names], *([_cell(row[name]) for name in names] for row in answer)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "\n".join(map(_cell, answer if isinstance(answer, list) else str(answer).split("\n")))


def _cell(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value))


def _targets(client: AdminClient, broker: str | None, cluster: str | None) -> Iterable[Member]:
    """The brokers that -b or -c names. Raises AdminError when neither is given."""
    from engine.clients.admin import AdminError, Member

    if broker:
        return [Member("", "", 0, broker.strip())]
    if cluster:
        return client.members(cluster.strip())
    raise AdminError("no target given; give -b HOST:PORT of a broker, or -c NAME of a cluster")


broker_option = click.option(
    "-b", "--brokerAddr", "broker", metavar="HOST:PORT", help="The broker; give either -b or -c."
)
cluster_option = click.option("-c", "--clusterName", "cluster", metavar="NAME", help="The cluster.")
topic_option = click.option("-t", "--topic", required=True, metavar="TOPIC", help="The topic.")


@asking(repeats=True)
@cluster_option
@click.option("-m", "--moreStats", "more", is_flag=True, help="Show message counts of today and yesterday instead.")
def clusterList(client: AdminClient, cluster: str | None, more: bool) -> Rows:  # noqa: N802 - mqadmin's name
    """List brokers with their versions and rates.

    Without -c all clusters are listed.
    """
    rows: Rows = []
    for member in client.members(cluster):
        place = {"Cluster Name": member.cluster, "Broker Name": member.broker_name}
        table = _runtime_or_nothing(client, member.address)
        if more:
            rows.append({**place, **_totals(table)})
        else:
            rows.append({**place, "BID": member.broker_id, "Addr": member.address, **_figures(table)})
    return rows


def _runtime_or_nothing(client: AdminClient, address: str) -> dict[str, str]:
    """A broker that does not answer is listed without figures, as mqadmin does it."""
    try:
        return client.runtime(address)
    except Exception as unreachable:
        if not hasattr(unreachable, "code"):
            raise
        click.echo(f"slipstream: warning: {unreachable}", err=True)
        return {}


def _figures(table: dict[str, str]) -> dict[str, Any]:
    earliest = int(table.get("earliestMessageTimeStamp") or -1)
    hours = (time.time() * 1000 - earliest) / MS_PER_HOUR if earliest > 0 else 0.0
    out = table.get("getTransferredTps") or table.get("getTransferedTps") or "0"
    return {
        "Version": table.get("brokerVersionDesc", ""),
        "InTPS(LOAD)": _rate(table, table.get("putTps") or "0", "send"),
        "OutTPS(LOAD)": _rate(table, out, "pull"),
        "PCWait(ms)": table.get("pageCacheLockTimeMills", ""),
        "Hour": f"{hours:.2f}",
        "SPACE": f"{float(table.get('commitLogDiskRatio') or 0):.4f}",
        "ACTIVATED": table.get("brokerActive", "-"),
    }


def _rate(table: dict[str, str], rates: str, pool: str) -> str:
    size, wait = table.get(f"{pool}ThreadPoolQueueSize", "-"), table.get(f"{pool}ThreadPoolQueueHeadWaitTimeMills", "-")
    rate = float((rates.split() or ["0"])[0])  # a young broker's are blanks
    return f"{rate:.2f}({size},{wait}ms)"


def _totals(table: dict[str, str]) -> dict[str, int]:
    def grown(kind: str, since: str, until: str) -> int:
        return int(table.get(f"msg{kind}Total{until}") or 0) - int(table.get(f"msg{kind}Total{since}") or 0)

    days = {"Yest": ("YesterdayMorning", "TodayMorning"), "Today": ("TodayMorning", "TodayNow")}
    return {
        f"{name}Total{day}": grown(kind, *span)
        for day, span in days.items()
        for name, kind in (("In", "Put"), ("Out", "Get"))
    }


@asking()
@click.option("-c", "--clusterModel", "by_cluster", is_flag=True, help="Also show clusters and consumer groups.")
def topicList(client: AdminClient, by_cluster: bool) -> Rows | list[str]:  # noqa: N802 - mqadmin's name
    """List all topics."""
    if not by_cluster:
        return client.topics()
    return [
        {"Cluster Name": cluster, "Topic": topic, "Consumer Group": ", ".join(groups)}
        for cluster, topic, groups in client.topics_by_cluster()
    ]


@asking()
@topic_option
@click.option("-l", "--list", "as_rows", is_flag=True, help="Show one row for each broker name.")
def topicRoute(client: AdminClient, topic: str, as_rows: bool) -> Any:  # noqa: N802 - mqadmin's name
    """Show which brokers have a topic."""
    route = client.route(topic)
    if not as_rows:
        return route
    brokers = {broker["brokerName"]: broker for broker in route["brokerDatas"]}
    return [
        {
            "ClusterName": brokers[queue["brokerName"]]["cluster"], "BrokerName": queue["brokerName"],
            "BrokerAddrs": brokers[queue["brokerName"]]["brokerAddrs"], "ReadQueue": queue["readQueueNums"],
            "WriteQueue": queue["writeQueueNums"], "Perm": queue["perm"],
        }
        for queue in sorted(route["queueDatas"], key=lambda queue: str(queue["brokerName"]))
        if queue["brokerName"] in brokers
    ]  # fmt: skip


def _is_true(_context: click.Context, _option: click.Parameter, value: str) -> bool:
    return value.strip().lower() == "true"  # as Java's parseBoolean


@asking(orders=True)
@broker_option
@cluster_option
@topic_option
@number("-r --readQueueNums read", click.IntRange(min=1), QUEUES, "N", "Number of read queues.")
@number("-w --writeQueueNums write", click.IntRange(min=1), QUEUES, "N", "Number of write queues.")
@click.option(
    "-p",
    "--perm",
    type=click.Choice(["2", "4", "6"]),
    default="6",
    help="Permission: 2 write, 4 read, 6 both. Default: 6.",
)
@click.option(
    "-u",
    "--unit",
    default="false",
    callback=_is_true,
    metavar="true|false",
    help="Whether the topic is a unit topic of RocketMQ. Default: false.",
)
@click.option(
    "-s",
    "--hasUnitSub",
    "unit_sub",
    default="false",
    callback=_is_true,
    metavar="true|false",
    help="Whether the topic has unit subscriptions. Default: false.",
)
@click.option(
    "-a",
    "--attributes",
    metavar="+KEY=VALUE,-KEY",
    help="Attributes to set (+) and to remove (-); 5.x only. Default: no change.",
)
def updateTopic(  # noqa: N802 - mqadmin's name
    client: AdminClient,
    broker: str | None,
    cluster: str | None,
    topic: str,
    read: int,
    write: int,
    perm: str,
    order: bool,
    unit: bool,
    unit_sub: bool,
    attributes: str | None,
) -> Rows:
    """Create or change a topic.

    On one broker (-b) or on all masters of a cluster (-c).
    """
    flag = UNIT * unit + UNIT_SUB * unit_sub
    from engine.clients.admin import TopicSettings

    settings = TopicSettings(topic.strip(), read, write, int(perm), flag, order, attributes)
    members = client.masters(cluster.strip()) if cluster and not broker else list(_targets(client, broker, cluster))
    for member in members:
        client.create_topic(member.address, settings)
    if order:
        client.set_order(topic, [client.broker_name_of(member.address) for member in members], write)
    return _done(members, "created", topic)


@asking()
@topic_option
@click.option("-c", "--clusterName", "cluster", required=True, metavar="NAME", help="The cluster.")
def deleteTopic(client: AdminClient, topic: str, cluster: str) -> Rows:  # noqa: N802 - mqadmin's name
    """Delete a topic from a cluster and its name servers."""
    return [{"Addr": address, "Result": f"deleted {topic}"} for address in client.delete_topic(topic, cluster)]


@asking()
@broker_option
@cluster_option
def getBrokerConfig(client: AdminClient, broker: str | None, cluster: str | None) -> Any:  # noqa: N802
    """Show the settings of a broker or of a whole cluster."""
    return _each(_targets(client, broker, cluster), client.config)


@asking()
@broker_option
@cluster_option
@click.option("-k", "--key", required=True, metavar="KEY", help="The key, as in broker.properties.")
@click.option("-v", "--value", required=True, metavar="VALUE", help="The new value.")
@click.option("-a", "--updateAllBroker", "with_slaves", is_flag=True, help="With -c: also change the slaves.")
def updateBrokerConfig(  # noqa: N802 - mqadmin's name
    client: AdminClient, broker: str | None, cluster: str | None, key: str, value: str, with_slaves: bool
) -> Rows:
    """Change a setting of a broker while it runs.

    Of one broker (-b) or of all masters of a cluster (-c).
    """
    members = [member for member in _targets(client, broker, cluster) if with_slaves or member.broker_id == 0]
    for member in members:
        client.update_config(member.address, key.strip(), value.strip())
    return _done(members, "set", f"{key}={value}")


@asking()
@broker_option
@cluster_option
def brokerStatus(client: AdminClient, broker: str | None, cluster: str | None) -> Any:  # noqa: N802
    """Show the figures of a broker or of a whole cluster."""
    return _each(_targets(client, broker, cluster), lambda address: dict(sorted(client.runtime(address).items())))


@asking(repeats=True)
@broker_option
@cluster_option
def haStatus(client: AdminClient, broker: str | None, cluster: str | None) -> Any:  # noqa: N802
    """Show the replication of a master or of a whole cluster.

    Works with RocketMQ 5.x brokers, and with Slipstream brokers that have compat=5.
    """
    members = [member for member in _targets(client, broker, cluster) if member.broker_id == 0]
    return _each(members, client.ha_status)


def _each(members: Iterable[Member], ask: Callable[[str], dict[str, Any]]) -> Any:
    """Return one broker's mapping alone, or those of several by address."""
    answers = {member.address: ask(member.address) for member in members}
    return next(iter(answers.values())) if len(answers) == 1 else answers


def _done(members: Sequence[Member], verb: str, what: str) -> Rows:
    return [{"Addr": member.address, "Result": f"{verb} {what}"} for member in members]
