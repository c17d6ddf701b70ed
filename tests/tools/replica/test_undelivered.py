"""What a promotion leaves undelivered of a 5.x master: pending timers and popped messages, counted from the log."""

from __future__ import annotations

import json
from pathlib import Path

from engine.protocol.tables.timer_state import TimerCheckpoint
from ipc.clock import wall_ms
from store.message.topics import TIMER_TOPIC
from store.names import CONFIG, CONSUMER_OFFSETS, TIMER_CHECKPOINT
from store.tables import json_files
from tests.harness.command_line import run
from tests.harness.dispatched import dispatch_all
from tests.harness.logs import SmallLog
from tools.replica.undelivered import REVIVE_GROUP, undelivered

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
HOUR_MS = 3_600_000


def timer(log: SmallLog, key: str, due_ms: int, **more: str) -> None:
    log.append(TIMER_TOPIC, b"later", properties={"UNIQ_KEY": key, "TIMER_OUT_MS": str(due_ms), **more})


def with_timers(root: Path) -> SmallLog:
    log, now_ms = SmallLog(root), wall_ms()
    for number in range(5):
        timer(log, f"key {number}", now_ms + HOUR_MS)
    timer(log, "key 0", now_ms + HOUR_MS)  # rolled: the same message once more
    timer(log, "cancels", now_ms + HOUR_MS, TIMER_DEL_UNIQKEY="key 1")
    timer(log, "was due", now_ms - HOUR_MS)
    log.append("orders", b"another topic")
    return log


def test_pending_timers_count_once_and_without_those_that_were_cancelled(tmp_path: Path) -> None:
    log = dispatch_all(with_timers(tmp_path / "store"))
    assert undelivered(log.root) == (4, 0, True)
    read_ms = wall_ms() - 2 * HOUR_MS
    (log.root / CONFIG).mkdir(exist_ok=True)
    (log.root / CONFIG / TIMER_CHECKPOINT).write_bytes(TimerCheckpoint(last_read_ms=read_ms).file())
    assert undelivered(log.root).timers == 5, "what was due, and the master's wheel had not come to"


def test_popped_messages_count_behind_where_the_master_had_revived(tmp_path: Path) -> None:
    log = SmallLog(tmp_path / "store")
    for number in range(6):
        log.append(REVIVE, json.dumps({"n": 3, "so": number}).encode(), queue_id=number % 2, properties={"TAGS": "ck"})
        log.append(REVIVE, b"{}", queue_id=number % 2, properties={"TAGS": "ack"})
    log.append(REVIVE, b"no JSON", queue_id=0, properties={"TAGS": "ck"})
    dispatch_all(log)
    assert undelivered(log.root) == (0, 19, True)
    table = {"offsetTable": {f"{REVIVE}@{REVIVE_GROUP}": {0: 4, 1: 6}, "orders@shop": {0: 1}}}
    json_files.write(log.root / CONFIG / CONSUMER_OFFSETS, table)
    assert undelivered(log.root).popped == 4


def test_promote_says_how_many_it_will_not_deliver(tmp_path: Path) -> None:
    log = dispatch_all(with_timers(tmp_path / "store"))
    ran = run("promote", log.root)
    assert ran.exit_code == 0 and "NOT DELIVERED: 4 timer messages" in ran.stdout, ran.output
    said = json.loads(run("promote", log.root, "--json").stdout)
    assert (said["pendingTimers"], said["popped"]) == (4, 0)
    plain = SmallLog(tmp_path / "plain")
    plain.append("orders")
    assert "NOT DELIVERED" not in run("promote", dispatch_all(plain).root).stdout
