"""A broker's settings: RocketMQ's keys that we honour, read from its file.

Implements: BrokerStartup, its reading of the configuration (spec: configuration, section 1)
Unlike RocketMQ's, an unknown key or a value that does not parse stops the start: a broker that comes up with another
role than its file says costs more than one that does not come up.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.protocol.access import allow_list
from engine.settings import log_settings
from engine.settings.key import Key
from engine.settings.key_names import BY_NAME, Unacceptable, setting_of
from engine.settings.keys import KEYS, OLD_SPELLINGS, OWN_KEYS, BrokerConfig, BrokerRole, FlushDiskType
from engine.settings.properties_file import Entry, MalformedEscape, parse
from engine.settings.tls_mode import TlsMode
from ipc.host_port import host_port
from store.compat import LINES, line_of
from store.message.delay import levels_ms
from store.names import COMMIT_LOG, CONSUME_QUEUES


# Addresses of hosts as settings name them, and the one of this host that others reach.
def resolved(text: str) -> str:
    """An address, or that of a host's name. Raises ValueError."""
    if not text:
        raise ValueError(text)
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        try:
            return str(socket.getaddrinfo(text, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as failed:
            raise ValueError(f"{text}: {failed.strerror}") from failed


def of_this_host() -> str:
    """The address of this host that others reach; connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


# Files of other brokers and versions: paths that name other keys, and sizes in an old spelling beside existing files.
#
# RocketMQ ignores the old spellings of the two file sizes. So where files are there already, their size is the right
# one.
REFERENCE = re.compile(r"\$\{([^{}]*)\}")
DEPTH_MAX = 8  # references in a value that a reference stands for
ROOT, HOME = "storePathRootDir", "user.home"


def expanded(text: str, given: Mapping[str, Entry]) -> str:
    """A path with `${key}` replaced by that key's value in the file. Raises ValueError for what is not in it."""
    known = {HOME: os.path.expanduser("~"), ROOT: "~/store"}
    known |= {name: entry.value.strip() for name, entry in given.items()}

    def value_of(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise ValueError(f"{match[0]} refers to a key that is not in this file")
        return known[match[1]]

    for _ in range(DEPTH_MAX):
        if not REFERENCE.search(text):
            return text
        text = REFERENCE.sub(value_of, text)
    raise ValueError(f"its references are circular: {text[:200]}")


def keep_sizes(values: dict[str, Any], seen: Mapping[str, Entry]) -> list[str]:
    """Take the sizes of the files that are there for those in an old spelling; the warnings, each with its line."""
    warnings = []
    for old, name in OLD_SPELLINGS.items():
        if name not in seen or seen[name].key != old:
            continue
        field, there = _SIZES[name](values)
        if there and there != values[field]:
            says = f"using {there}, the size of the existing files, instead of {values[field]}"
            warnings.append(f"{seen[name].line}: {old}: {says}; RocketMQ ignores this key")
            values[field] = there
    return warnings


def _segment_bytes(values: Mapping[str, Any]) -> tuple[str, int]:
    from store.errors import StoreError  # seldom: reads the store's directories
    from store.files.segment_files import segment_bytes_of

    try:
        return "mapped_file_size_commit_log_bytes", segment_bytes_of(values["store_path_commit_log"])
    except (StoreError, OSError):  # the start looks at these files, and says what is wrong with them
        return "mapped_file_size_commit_log_bytes", 0


def _queue_bytes(values: Mapping[str, Any]) -> tuple[str, int]:
    from store.errors import StoreError  # seldom: reads the store's directories
    from store.queues.sync import queue_file_bytes

    try:
        return "mapped_file_size_consume_queue_bytes", queue_file_bytes(values["store_path_root_dir"] / CONSUME_QUEUES)
    except (StoreError, OSError):
        return "mapped_file_size_consume_queue_bytes", 0


_SIZES = {"mappedFileSizeCommitLog": _segment_bytes, "mappedFileSizeConsumeQueue": _queue_bytes}


CONSUME_QUEUE_UNIT_BYTES = 20
EXPLAINED = ("address", "allow_list")  # what is wrong with them cannot be seen from what is allowed
EXPORTERS, EXPORTER_NUMBERS = ("DISABLE", "OTLP_GRPC", "PROM", "LOG"), ("0", "1", "2", "3")


class ConfigError(Exception):
    """Raised for invalid settings. `line` is 0 if the error belongs to no single line.

    Next: correct the line that the error names; `slipstream init DIRECTORY` writes a commented file to compare with.
    """

    code = "CONFIG"

    def __init__(self, file: str, line: int, what: str) -> None:
        super().__init__(f"{file}:{line}: {what}" if line else f"{file}: {what}")
        self.file, self.line = file, line


def load(path: str | os.PathLike[str]) -> tuple[BrokerConfig, list[str]]:
    """The settings in a broker.properties file, and the warnings, a line each. Raises ConfigError."""
    file = os.fspath(path)
    return _read(file, entries_of(file))


def entries_of(file: str) -> list[Entry]:
    """The lines of a properties file. Raises ConfigError."""
    try:
        return list(parse(Path(file).read_bytes()))
    except MalformedEscape as malformed:
        raise ConfigError(file, malformed.line, str(malformed)) from malformed
    except OSError as failed:
        raise ConfigError(file, 0, f"cannot be read: {failed.strerror}; check the path and its permissions") from failed


def from_mapping(settings: Mapping[str, Any]) -> BrokerConfig:
    """The settings given under their keys' names, for programs and tests. Raises ConfigError."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    return _read("settings", [Entry(0, name, text) for name, text in texts.items()])[0]


def _read(file: str, entries: Iterable[Entry]) -> tuple[BrokerConfig, list[str]]:
    warnings: list[str] = []
    seen: dict[str, Entry] = {}
    for entry in entries:
        try:
            key, warning = setting_of(entry.key, entry.value)
        except Unacceptable as unacceptable:
            raise ConfigError(file, entry.line, str(unacceptable)) from None
        if warning is not None:
            warnings.append(f"{file}:{entry.line}: {entry.key}: {warning}")
        if key is None:
            continue
        if key.name in seen:
            warnings.append(f"{file}:{entry.line}: {entry.key}: given twice; line {seen[key.name].line} has no effect")
        seen[key.name] = entry
    values = {key.field: _default(key) for key in KEYS}
    for name, entry in seen.items():
        values[BY_NAME[name].field] = _value(file, BY_NAME[name], entry, seen, warnings)
    _apply_launcher_rules(file, values, seen, warnings)
    return BrokerConfig(**values), warnings


def _default(key: Key) -> Any:
    if key.default is None or key.kind in ("int", "bool"):
        return key.default
    return converted(key, str(key.default))


def _value(file: str, key: Key, entry: Entry, seen: Mapping[str, Entry], warnings: list[str]) -> Any:
    text, where = entry.value.strip(), f"{file}:{entry.line}: {entry.key}"
    if text != entry.value:
        warnings.append(f"{where}: white space around the value is dropped; RocketMQ keeps it")
    try:
        if key.kind == "path" and (path := expanded(text, seen)) != text:
            warnings.append(f"{where}: {text} is taken as {path}; RocketMQ takes it as it is written")
            text = path
        return converted(key, text)
    except ValueError as malformed:
        because = f" ({malformed})" if key.kind in EXPLAINED or (key.kind == "path" and text) else ""
        what = f"{entry.key}={text}: not allowed{because}; allowed: {key.allowed}"
        raise ConfigError(file, entry.line, what) from malformed


def converted(key: Key, text: str) -> Any:
    """The value of a setting's text, without what depends on other keys. Raises ValueError."""
    match key.kind:
        case "int":
            return _whole_number(text, key.low, key.high)
        case "bool":
            return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _refuse(text)
        case "text":
            return text if text and text.isprintable() else _refuse(text)
        case "path":
            return Path(_one_path(text)).expanduser()
        case "address":
            return resolved(text)
        case "host_port":
            return host_port(text) or _refuse(text)
        case "role":
            return BrokerRole(text)
        case "flush_type":
            return FlushDiskType(text)
        case "exporter":
            return EXPORTERS[int(text)] if text in EXPORTER_NUMBERS else EXPORTERS[EXPORTERS.index(text)]
        case "tls_mode":
            return TlsMode(text)
        case "ha_tls_mode":
            return TlsMode(text) if text != TlsMode.PERMISSIVE else _refuse(text)
        case "compat":
            return text if text in LINES else _refuse(text)
        case "addresses":
            return tuple(part if host_port(part) else _refuse(part) for part in map(str.strip, text.split(";")) if part)
        case "allow_list":
            return allow_list.parsed(text)
        case "delays":
            return text if levels_ms(text) else _refuse(text)
        case "log_level" | "log_form":
            return log_settings.value_of(key.kind, text)
        case "hours":  # Java's split drops empty parts at the end
            return frozenset(_whole_number(hour, 0, 23) for hour in (text.rstrip(";") or _refuse(text)).split(";"))
        case "affinity":
            return text if re.fullmatch(r"|sync|\d+(-\d+)?(,\d+(-\d+)?)*", text) else _refuse(text)


def _one_path(text: str) -> str:
    """RocketMQ separates several directories by commas, and writes segments into them in turn."""
    if "," in text:
        raise ValueError("a comma separates directories, but this broker writes to one: join disks to one file system")
    return text if text and text.isprintable() else _refuse(text)


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _whole_number(text: str, low: int, high: int) -> int:
    number = int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else _refuse(text)
    return number if low <= number <= high else _refuse(text)


def _apply_launcher_rules(file: str, values: dict[str, Any], seen: Mapping[str, Entry], warnings: list[str]) -> None:
    """The defaults that depend on other keys, and the rules of BrokerStartup. Raises ConfigError."""
    role = values["broker_role"]
    id_line = seen["brokerId"].line if "brokerId" in seen else 0
    if role is BrokerRole.SLAVE and values["broker_id"] == 0:
        what = "brokerId=0: not allowed with brokerRole=SLAVE; allowed: a whole number above 0"
        raise ConfigError(file, id_line, what)
    if role is not BrokerRole.SLAVE and values["broker_id"] != 0:
        warnings.append(f"{file}:{id_line}: brokerId: a master's is always 0, so {values['broker_id']} has no effect")
        values["broker_id"] = 0
    if values["promoted_role"] is BrokerRole.SLAVE:
        what = "promotedRole=SLAVE: not allowed; allowed: ASYNC_MASTER or SYNC_MASTER"
        raise ConfigError(file, seen["promotedRole"].line, what)
    has_names = values["name_servers"] or values["fetch_name_servers_by_address_server"]
    if role is BrokerRole.SLAVE and values["ha_master_address"] is None and not has_names:
        warnings.append(f"{file}: neither haMasterAddress nor namesrvAddr is given: this slave copies nothing")
    values["broker_name"] = values["broker_name"] or socket.gethostname()
    values["broker_ip1"] = values["broker_ip1"] or of_this_host()
    values["broker_ip2"] = values["broker_ip2"] or values["broker_ip1"]
    if values["ha_listen_port"] is None:
        values["ha_listen_port"] = values["listen_port"] + 1
    values["store_path_root_dir"] = root = Path(os.path.abspath(values["store_path_root_dir"]))
    values["store_path_commit_log"] = Path(os.path.abspath(values["store_path_commit_log"] or root / COMMIT_LOG))
    warnings += [f"{file}:{warning}" for warning in keep_sizes(values, seen)]
    units = -(-values["mapped_file_size_consume_queue_bytes"] // CONSUME_QUEUE_UNIT_BYTES)
    values["mapped_file_size_consume_queue_bytes"] = units * CONSUME_QUEUE_UNIT_BYTES
    if values["transaction_check_interval_ms"] is None:
        values["transaction_check_interval_ms"] = line_of(values["compat"]).broker.transaction_check_interval_ms
    resets_by_itself = line_of(values["compat"]).groups.resets_by_itself
    values["use_server_side_reset_offset"] = resets_by_itself and values["use_server_side_reset_offset"] is not False
    if values["use_tls"] is None:
        values["use_tls"] = values["tls_server_mode"] is TlsMode.ENFORCING
    _apply_replica_rules(file, values, seen, warnings)
    if values["affinity"] is None:  # measured: DECISIONS.md 7
        values["affinity"] = "" if role is BrokerRole.ASYNC_MASTER else "sync"


def _needs_of_lookups(file: str, values: Mapping[str, Any], seen: Mapping[str, Entry]) -> dict[str, tuple[str, bool]]:
    names, by_dns = values["name_servers"], values["fetch_name_servers_by_dns"]
    if by_dns and len(names) != 1:
        what = f"fetchNameSrvAddrByDnsLookup=true: needs one HOST:PORT in namesrvAddr, which has {len(names)}"
        raise ConfigError(file, seen["fetchNameSrvAddrByDnsLookup"].line, what)
    asks = values["fetch_name_servers_by_address_server"] and not names
    asked = ("fetchNamesrvAddrByAddressServer=true and an empty namesrvAddr", asks)
    of_server = dict.fromkeys(
        ("fetchNamesrvAddrInterval", "rocketmq.namesrv.domain", "rocketmq.namesrv.domain.subgroup"), asked
    )
    return of_server | {
        "updateNameServerAddrPeriod": ("fetchNameSrvAddrByDnsLookup=true", by_dns),
        "fetchNamesrvAddrByAddressServer": ("an empty namesrvAddr", not names),
    }


def _apply_replica_rules(file: str, values: dict[str, Any], seen: Mapping[str, Entry], warnings: list[str]) -> None:
    """The safer defaults (DECISIONS.md 1), and a word about settings that have no effect as they are."""
    if values["ha_secret_required"] and values["ha_secret_file"] is None:
        raise ConfigError(file, seen["haSecretRequired"].line, "haSecretRequired=true: needs haSecretFile, too")
    is_sync = values["broker_role"] is BrokerRole.SYNC_MASTER
    if values["in_sync_replicas"] is None:
        values["in_sync_replicas"] = 2 if is_sync else 1
    if values["min_in_sync_replicas"] is None:
        values["min_in_sync_replicas"] = min(2, values["in_sync_replicas"]) if is_sync else 1
    can_check = line_of(values["compat"]).ha.checks_before_append
    checks = can_check and values["enable_slave_acting_master"] and is_sync
    _check_acting(
        file,
        values,
        seen,
        may_check=can_check
        and BrokerRole.SYNC_MASTER
        in (values["broker_role"], values["promoted_role"] if values["broker_role"] is BrokerRole.SLAVE else None),
    )
    needs = {
        **_needs_of_lookups(file, values, seen),
        "useServerSideResetOffset": ("compat=5", line_of(values["compat"]).groups.resets_by_itself),
        "waitTimeMillsInAdminBrokerQueue": ("compat=5", line_of(values["compat"]).admin.expires_reports),
        "lockInStrictMode": ("compat=5", line_of(values["compat"]).groups.locks_by_quorum),
        "enableAutoInSyncReplicas": ("compat=5, brokerRole=SYNC_MASTER and enableSlaveActingMaster=true", checks),
        "minInSyncReplicas": (
            "enableAutoInSyncReplicas=true, and what that needs",
            checks and values["enable_auto_in_sync_replicas"],
        ),
    }
    for name, (what, is_met) in needs.items():
        if name in seen and not is_met and seen[name].value.strip().lower() != "false":
            warnings.append(f"{file}:{seen[name].line}: {name}: has no effect without {what}, as in RocketMQ")
    if values["enable_slave_acting_master"]:
        where = f"{file}:{seen['enableSlaveActingMaster'].line}: enableSlaveActingMaster"
        warnings.append(f"{where}: controls puts and heartbeats only; no Slipstream slave acts as master")
    if "timerWheelEnable" in seen and values["timer_wheel_enable"]:
        where = f"{file}:{seen['timerWheelEnable'].line}: timerWheelEnable"
        warnings.append(f"{where}: this broker has no timer wheel, and refuses timer messages")
    if values["metrics_exporter_type"] in ("OTLP_GRPC", "LOG"):
        where = f"{file}:{seen['metricsExporterType'].line}: metricsExporterType"
        what = f"{values['metrics_exporter_type']} is taken as PROM; this broker serves metrics but does not send them"
        warnings.append(f"{where}: {what}")
        values["metrics_exporter_type"] = "PROM"


def _check_acting(file: str, values: Mapping[str, Any], seen: Mapping[str, Entry], *, may_check: bool) -> None:
    """Refuse enableSlaveActingMaster where it does nothing of what it is for. Raises ConfigError."""
    if values["enable_slave_acting_master"] and not may_check:
        what = (
            "enableSlaveActingMaster=true: not allowed; no Slipstream slave acts as master; leave the key out "
            "(with compat=5 and SYNC_MASTER it is allowed: the broker refuses puts with too few replicas in sync)"
        )
        raise ConfigError(file, seen["enableSlaveActingMaster"].line, what)


__all__ = [
    "OWN_KEYS", "BrokerConfig", "BrokerRole", "ConfigError", "FlushDiskType", "converted", "entries_of", "from_mapping",
    "load",
]  # fmt: skip
