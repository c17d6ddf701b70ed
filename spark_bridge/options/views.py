"""Options by which reads agree with others: named snapshots, and the consumer group to which a stream commits.

snapshot=NAME             a batch read ends where the store did then
startingSnapshot=NAME     a read, of either kind, begins there
commitGroup=GROUP         a stream commits its offsets to that group of the stores' brokers
commitBroker=HOST:PORT    ... at that broker; NAME=HOST:PORT,NAME=HOST:PORT for several
commitRewind=true         ... also where the group is further on than the stream
tlsConfigFile=FILE        ... over TLS, as this tls.properties of the driver's host says
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ipc.host_port import host_port
from spark_bridge.options.values import InvalidOption, flag, local_path
from store.message.topics import TOPIC_PATTERN
from store.upkeep.snapshots import NAME_RULE, is_name

SNAPSHOT, STARTING_SNAPSHOT = "snapshot", "startingSnapshot"
COMMIT_OPTION_NAMES = ("commitGroup", "commitBroker", "commitRewind")
TLS_CONFIG_FILE = "tlsConfigFile"
GROUP_LENGTH_MAX = 120  # of 5.x; with the name of its retry topic it is 127, as long as a topic may be
SYSTEM_GROUPS = (  # as MixAll names them, and TopicValidator's for the broker's own
    "DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SCHEDULE_CONSUMER",
    "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL",
)  # fmt: skip
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
ANY_BROKER = ""


@dataclass(frozen=True)
class CommitOptions:
    """A group, and where it is kept: addresses by broker's name, `ANY_BROKER` for the store's whatever its name."""

    group: str
    brokers: Mapping[str, str] = field(default_factory=dict)
    may_rewind: bool = False
    tls_config_file: str | None = None


def parse_snapshot(given: Mapping[str, str], option: str) -> str | None:
    """The snapshot that an option names; `given` has lower-case names. Raises InvalidOption."""
    text = given.get(option.lower())
    if text is None:
        return None
    if not is_name(text.strip()):
        raise InvalidOption(f"{option}={text[:80]!r}: not a name for a snapshot; give {NAME_RULE}")
    if option == SNAPSHOT and given.get("onlyconfirmed", "false").lower() == "true":
        raise InvalidOption(f"{option} and onlyConfirmed both say where a read ends: give one of them")
    return text.strip()


def parse_commits(given: Mapping[str, str]) -> CommitOptions | None:
    """Return where a stream commits its offsets; `given` has lower-case names. Raises InvalidOption."""
    group = given.get("commitgroup")
    if group is None:
        for name in COMMIT_OPTION_NAMES[1:]:
            if name.lower() in given:
                raise InvalidOption(f"{name} belongs to commitGroup, which is not given")
        return None
    if not TOPIC_PATTERN.fullmatch(group) or len(group) > GROUP_LENGTH_MAX:
        allowed = f"1 to {GROUP_LENGTH_MAX} of a-z, A-Z, 0-9, '%', '|', '_' and '-'"
        raise InvalidOption(f"commitGroup={group[:GROUP_LENGTH_MAX]!r}: not a consumer group's name; give {allowed}")
    if group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX):
        raise InvalidOption(f"commitGroup={group!r}: RocketMQ reserves that name; give the query another one")
    brokers = _brokers(given.get("commitbroker", ""))
    may_rewind = flag("commitRewind", given.get("commitrewind", "false"))
    return CommitOptions(group, brokers, may_rewind, parse_tls_config_file(given))


def parse_tls_config_file(given: Mapping[str, str]) -> str | None:
    """Return the file by which name servers and brokers are asked over TLS, unread. Raises InvalidOption."""
    text = given.get(TLS_CONFIG_FILE.lower())
    if text is not None and not text.strip():
        raise InvalidOption(f"{TLS_CONFIG_FILE}={text!r}: give a tls.properties of the driver's host")
    return None if text is None else local_path(TLS_CONFIG_FILE, text)


def _brokers(text: str) -> dict[str, str]:
    addresses: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, address = part.rpartition("=")
        if ADDRESS.fullmatch(address) is None or host_port(address) is None or name in addresses:
            shapes = "HOST:PORT of the master, or NAME=HOST:PORT,NAME=HOST:PORT, each broker once"
            raise InvalidOption(f"commitBroker={text[:400]!r}: give {shapes}")
        addresses[name] = address
    return addresses
