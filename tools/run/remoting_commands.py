"""`slipstream send` and `slipstream consume`: messages over remoting, of any RocketMQ broker, as they are typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tools.common.access_keys import ACCESS_KEY, ACCESS_KEY_HELP, SECRET_FILE_HELP
from tools.common.given_path import GivenPath
from tools.common.lazy_group import done_by
from tools.common.moments import Moment
from tools.common.numbers import number
from tools.common.output_form import form
from tools.common.tls import SERVERS, SERVERS_HELP, TLS_HELP

TIMEOUT_SECONDS = 5.0
TOPIC = click.option("-t", "--topic", required=True, metavar="TOPIC", help="The topic.")


def reaching(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name the brokers to connect to."""
    for option in (
        number(
            "--timeout",
            click.FloatRange(0.1, 600),
            TIMEOUT_SECONDS,
            "SECONDS",
            "Give up on each request after this many seconds.",
        ),
        click.option("--secret-key-file", metavar="FILE", help=SECRET_FILE_HELP),
        click.option("--access-key", envvar=ACCESS_KEY, metavar="KEY", help=ACCESS_KEY_HELP),
        click.option("--tls-config", metavar="FILE", help=TLS_HELP),
        click.option(
            "-b",
            "--broker",
            "--brokerAddr",
            "broker",
            metavar="HOST:PORT",
            help="Use only this broker. Default: all brokers of the topic, from the name servers.",
        ),
        click.option(
            "-n", "--namesrvAddr", "name_servers", envvar="NAMESRV_ADDR", default="", metavar=SERVERS, help=SERVERS_HELP
        ),
    ):
        command = option(command)
    return command


class Beginning(click.ParamType[str | int]):
    """The word `first` or `last`, or a moment in milliseconds."""

    name = "first|last|time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        return value if value in ("first", "last") else Moment().convert(value, param, ctx)


def _property(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in values:
        name, is_pair, value = text.partition("=")
        if not is_pair or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        pairs[name] = value
    return pairs


@click.command()
@click.argument("file", type=GivenPath(), required=False)
@TOPIC
@reaching
@click.option("--tag", metavar="TAG", help="Tag of all messages. Default: none.")
@click.option("--key", metavar="KEY", help="Key of all messages. Default: none.")
@click.option(
    "--property",
    "extra",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_property,
    help="Property of all messages; repeatable. Default: none.",
)
@click.option("--whole", is_flag=True, help="Send the whole input as one message, instead of one message per line.")
@form("Print one JSON object for each message.")
@done_by("tools.run.send:send", "tools.run.remoting_checks:send")
def send() -> None:
    """Send lines as messages to any RocketMQ broker.

    Each line of FILE, or of standard input, is one message.
    """


@click.command()
@click.option("-g", "--group", required=True, metavar="GROUP", help="The consumer group.")
@TOPIC
@reaching
@click.option(
    "--tag",
    "tags",
    default="*",
    metavar="EXPRESSION",
    help="Only messages with one of these tags, such as `a || b`. Default: * (all).",
)
@click.option(
    "--from",
    "begin",
    type=Beginning(),
    default="last",
    metavar="first|last|TIME",
    help="Where a group without offsets begins; TIME is such as -1h or 2026-11-21T08:30:00Z. Default: last.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="Exit after this many messages. Default: no limit.")
@click.option("--follow", is_flag=True, help="At the end of the queues, wait for more until Ctrl-C.")
@form("Print one JSON object for each message, with its properties.")
@done_by("tools.run.consume:consume", "tools.run.remoting_checks:consume")
def consume() -> None:
    """Consume a topic as a member of a consumer group.

    Prints bodies and commits offsets. Other members of the group share the queues. Without --follow the command exits
    when it has read all of its queues to their ends.
    """
