"""Every name below a store's root, once: RocketMQ's directories and files, and our own files.

Implements: StorePathConfigHelper, BrokerPathConfigHelper (spec: store-formats, section 15)
Where they lie is said by `files.directory`.
"""

from __future__ import annotations

COMMIT_LOG, INDEX, CONFIG = "commitlog", "index", "config"
CONSUME_QUEUES, QUEUE_EXTENSIONS, BATCH_QUEUES = "consumequeue", "consumequeue_ext", "batchconsumequeue"
LOCK, ABORT, CHECKPOINT = "lock", "abort", "checkpoint"
ABORT_BACKUP, COMPACTION, TIMER_WHEEL, TIMER_LOG = "abort.bak", "compaction", "timerwheel", "timerlog"  # 5.x

# below config
TOPICS, GROUPS = "topics.json", "subscriptionGroup.json"
CONSUMER_OFFSETS, DELAY_OFFSETS = "consumerOffset.json", "delayOffset.json"
LIGHT_OFFSETS = "lmqConsumerOffset.json"  # with enableLmq RocketMQ keeps all consumer offsets there
TIMER_METRICS, REQUEST_MODES = "timermetrics", "messageRequestMode.json"  # 5.x
TIMER_CHECKPOINT = "timercheck"  # 5.x, no JSON

# ours
STARTING = "slipstream.starting"
POINTER, MARK, DIGESTS = "slipstream.run", "slipstream.mark", "slipstream.digests.json"
BEGIN = "slipstream.begin"
LEASES, AUDIT, CONFIG_LOCK = "slipstream.leases", "slipstream.audit.jsonl", "slipstream.lock"
SNAPSHOTS = "slipstream.snapshots"  # a folder: NAME.json
COLUMNS = "slipstream.columns"  # a folder: side files of sealed segments, OFFSET.parquet and OFFSET.json
CUT_JOURNAL, REPAIR_JOURNAL = "slipstream.cut", "slipstream.repair"
EPOCHS, DIVERGED = "slipstream.epochs", "slipstream.diverged"
PEERS, RESERVE = "slipstream.peers", "slipstream.reserve"
REWIND_JOURNAL, KEPT_CUT = "slipstream.rewind", "slipstream.kept"  # ... with an offset behind its name
GIVEN_OFFSETS = "givenOffsets.json"  # below config, as consumerOffset.json: a slave's, for its master
DELETED_TOPICS = "deletedTopics.json"  # below config: {"deletedTopics": [...]}, topics that an administrator deleted
