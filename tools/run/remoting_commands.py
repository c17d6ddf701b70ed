"""`slipstream send` and `slipstream consume`: messages over remoting, of any RocketMQ broker, as they are typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tools.common.given_path import GivenPath
from tools.common.lazy_group import done_by
from tools.common.moments import Moment
from tools.common.output_form import form

NAMES_HELP = "Name servers, host:port;..."
TOPIC = click.option("-t", "--topic", required=True, help="Which topic.")


def reaching(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which brokers to reach, with TLS and timeout."""
    for option in (
        click.option("--timeout", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Seconds."),
        click.option("--tls-config", help="TLS, with this tls.properties file of RocketMQ."),
        click.option("-b", "--broker", "--brokerAddr", "broker", metavar="HOST:PORT", help="Of one broker alone."),
        click.option("-n", "--namesrvAddr", "name_servers", envvar="NAMESRV_ADDR", default="", help=NAMES_HELP),
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
@click.option("--tag", help="Of every message.")
@click.option("--key", help="Of every message.")
@click.option("--property", "extra", multiple=True, metavar="NAME=VALUE", callback=_property, help="May be repeated.")
@click.option("--whole", is_flag=True, help="The file is one message; else each of its lines is.")
@form("One JSON object for each message.")
@done_by("tools.run.send:send", "tools.client.usage:send")
def send() -> None:
    """Send the lines of FILE, or of standard input, as messages to a topic's brokers."""


@click.command()
@click.option("-g", "--group", required=True, help="Which consumer group.")
@TOPIC
@reaching
@click.option("--tag", "tags", default="*", show_default=True, help="a || b: only messages with one of these tags.")
@click.option(
    "--from", "begin", type=Beginning(), default="last", show_default=True, metavar="first|last|TIME",
    help="Where a group begins that has no offsets yet; a time as -1h, or 2026-11-21T08:30:00Z.",
)  # fmt: skip
@click.option("--count", type=click.IntRange(1), help="End after so many messages.")
@click.option("--follow", is_flag=True, help="Wait for more at the queues' ends, until Ctrl-C.")
@form("One JSON object for each message, with its properties.")
@done_by("tools.run.consume:consume", "tools.client.usage:consume")
def consume() -> None:
    """Consume a topic as a member of a group: print bodies, commit offsets. Other members have their share of queues.

    Without --follow it ends when all of its queues were read to their ends.
    """
