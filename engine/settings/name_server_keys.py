"""The keys of a name server's properties file: RocketMQ's, in its spelling; those without effect are warned about.

Implements: NamesrvStartup, its reading of the configuration (NamesrvConfig, NettyServerConfig)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from engine.settings.config import EXPLAINED, ConfigError, converted, entries_of
from engine.settings.key import Key
from engine.settings.key_names import hint
from engine.settings.keys import KEYS as BROKER_KEYS
from engine.settings.log_settings import LOG_KEYS, LogSettings
from engine.settings.unused_keys import UNUSED, Unused

SHARED = frozenset("remotingAllowList adminAllowList remotingConnectionsMax tls.server.mode tls.config.file".split())
KEYS = (
    Key("listenPort", "port", "int", 9876, 0, 65535, says="port for brokers and clients; 0 lets the kernel choose"),
    Key("bindAddress", "host", "address", None, says="address to listen on. Default: all addresses"),
    Key(
        "kvConfigPath",
        "kv_path",
        "path",
        None,
        says="file of the key-value table and of removed write permissions. Default: `kvConfig.json` in `~/namesrv`",
    ),
    Key(
        "orderMessageEnable",
        "order_message_enable",
        "bool",
        False,
        says="include in routes the order of queues that the key-value table has for a topic",
    ),
    Key(
        "supportActingMaster",
        "support_acting_master",
        "bool",
        False,
        says="the slave with the lowest brokerId stands in for a missing master; its topics cannot be written "
        "meanwhile",
    ),
    # our own: who may connect and what for, from where; this host always may, all of it
    Key(
        "registerAllowList",
        "register_allow_list",
        "allow_list",
        None,
        says="name server only: addresses and networks from which brokers may register. Default: all",
    ),
    *(key for key in BROKER_KEYS if key.name in SHARED),  # as a broker has them
    *LOG_KEYS,
)
BY_NAME = {key.name: key for key in KEYS}
_WITHOUT = "a Slipstream name server does not use this key; accepted"
_CONTROLLER = "without effect: this name server has no controller"
_IN_THREADS = "without effect: this name server has no thread pools"
_LISTS = "this name server lists topics for every client that remotingAllowList allows; leave the line out"
_STOPPING = {
    "enableControllerInNamesrv": Unused("this name server has no controller; leave the line out", "false"),
    "enableTopicList": Unused(_LISTS, "true"),
    "enableAllTopicList": Unused(_LISTS, "true"),
    "configBlackList": Unused(
        "this name server never changes paths; list in adminAllowList who may change other settings",
        "configBlackList;configStorePath;kvConfigPath",
    ),
    "deleteTopicWithBrokerRegistration": Unused(
        "this name server never deletes topics at a registration; leave the line out", "false"
    ),
    "clusterTest": Unused("this name server does not ask others for routes; leave the line out", "false"),
}
_WARNED = {
    _CONTROLLER: "controllerDLegerGroup controllerDLegerPeers controllerDLegerSelfId "
    "controllerRequestThreadPoolQueueCapacity controllerStorePath controllerThreadPoolNums controllerType "
    "electMasterMaxRetryCount enableElectUncleanMaster isProcessReadEvent jraftConfig mappedFileSize "
    "notifyBrokerRoleChanged processReadEvent scanInactiveMasterInterval",
    _IN_THREADS: "clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity defaultThreadPoolNums "
    "defaultThreadPoolQueueCapacity unRegisterBrokerQueueCapacity",
    _WITHOUT: "configStorePath needWaitForService notifyMinBrokerIdChanged productEnvName "
    "returnOrderTopicConfigToBroker scanNotActiveBrokerInterval waitSecondsForService",
}
NAMESRV_ONLY = _STOPPING | {name: Unused(why) for why, names in _WARNED.items() for name in names.split()}


def load(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[str]]:
    """The settings in a file by their fields, those that are written, and the warnings. Raises ConfigError."""
    file, values, warnings = os.fspath(path), dict[str, Any](), list[str]()
    for entry in entries_of(file):
        text, key = entry.value.strip(), BY_NAME.get(entry.key)
        if key is not None:
            try:
                values[key.field] = converted(key, text)
            except ValueError as malformed:
                because = f" ({malformed})" if key.kind in EXPLAINED else ""
                what = f"{entry.key}={text}: not allowed{because}; allowed: {key.allowed}"
                raise ConfigError(file, entry.line, what) from None
        elif (unused := NAMESRV_ONLY.get(entry.key)) is not None:
            if unused.stops(text):
                raise ConfigError(file, entry.line, f"{entry.key}={text}: not allowed; {unused.why}")
            warnings.append(f"{file}:{entry.line}: {entry.key}: {_WITHOUT if unused.harmless else unused.why}")
        elif entry.key in UNUSED:  # a broker's
            warnings.append(f"{file}:{entry.line}: {entry.key}: {_WITHOUT}")
        else:
            what = f"{entry.key}={text}: unknown key; {hint(entry.key, (*BY_NAME, *NAMESRV_ONLY))}"
            raise ConfigError(file, entry.line, what)
    return values, warnings


def log_settings_of(written: Mapping[str, Any]) -> LogSettings:
    """Return what the file says of the log, the rest by default."""
    return LogSettings(**{key.field: written[key.field] for key in LOG_KEYS if key.field in written})
