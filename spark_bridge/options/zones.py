"""Time zones as Spark names them, and the one that a time without a zone is read in."""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, timedelta, timezone, tzinfo
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo

UTC_NAME = "UTC"
SESSION_ZONE = "spark.sql.session.timeZone"
LOCALTIME, ZONES = Path("/etc/localtime"), "zoneinfo/"
_OFFSET = re.compile(r"([+-])(\d\d?)(?::?([0-5]\d)(?::?([0-5]\d))?)?")
_ONE_DIGIT_HOUR, _ONE_DIGIT_MINUTE = re.compile(r"([+-])(\d):"), re.compile(r"([+-])(\d\d):(\d)$")
_UNIVERSAL = ("UTC", "GMT", "UT")
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+")
_NO_REGIONS = ("posix/", "right/", "localtime", "posixrules", "Factory")  # of tzdata's folder, and not of Java
_SHORT = {  # java.time.ZoneId.SHORT_IDS
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh", "EST": "-05:00",
    "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip


@lru_cache(256)
def zone_of(text: str) -> tzinfo:
    """The zone of a name or an offset, as Spark understands it. Raises ValueError."""
    name = _ONE_DIGIT_MINUTE.sub(r"\1\2:0\3", _ONE_DIGIT_HOUR.sub(r"\g<1>0\2:", text))
    name = _SHORT.get(name, name)
    if name == "Z" or name in _UNIVERSAL:
        return UTC
    if name[:1] in ("+", "-"):
        return _offset(name, text)
    for prefix in _UNIVERSAL:
        if name.startswith(prefix) and name[len(prefix) : len(prefix) + 1] in ("+", "-"):
            return _offset(name[len(prefix) :], text)
    if _REGION.fullmatch(name) is None or name.startswith(_NO_REGIONS):
        raise ValueError(f"{text[:80]!r} is not a time zone")
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        raise ValueError(f"{text[:80]!r} is not a time zone that this host knows") from None


def _offset(text: str, given: str) -> timezone:
    match = _OFFSET.fullmatch(text)
    if match is None or (len(match[2]) == 1 and match[3] is not None):
        raise ValueError(f"{given[:80]!r} is not a time zone")
    seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)
    if seconds > 18 * 3600:
        raise ValueError(f"{given[:80]!r} is not a time zone: offsets end at 18:00")
    return timezone(timedelta(seconds=-seconds if match[1] == "-" else seconds))


def local_zone() -> str:
    """The zone of this process, as Java finds it: TZ, else that of the host; UTC where neither has a name."""
    name = os.environ.get("TZ", "").lstrip(":")
    if not name:
        try:
            name = os.readlink(LOCALTIME).rpartition(ZONES)[2]
        except OSError:
            name = UTC_NAME
    try:
        zone_of(name)
    except ValueError:
        return UTC_NAME
    return name


def task_zone() -> str | None:
    """The zone of the Spark session whose task this is; None where the session names none, or there is no task."""
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.TaskContext.get()
    zone = None if context is None else context.getLocalProperty(SESSION_ZONE)
    return None if zone is None else str(zone)
