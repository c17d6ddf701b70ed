"""Archives of RocketMQ's classes, with which its processes start for half of the CPU time.

    python -m tests.interop.archives    makes them, where RocketMQ is and they are missing

Java reads and checks 3,000 classes at each start. It keeps those of a list as it has them in memory (class-data
sharing). The list is what a name server, a broker, a client and mqadmin load, once. A JVM that cannot use an archive
starts without.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.interop import jars, rocketmq

DUMP_SECONDS = 300.0
TOPIC = "TBW102"  # every broker has it


def loaded(scratch: Path, version: str) -> list[str]:
    """Return what Java says of the classes that a small cluster loads."""
    names = rocketmq.NameServer(scratch / "names", version)
    broker = rocketmq.RocketMQBroker(scratch / "broker", version, namesrvAddr=names.address)
    client, admin = rocketmq.RealClient(scratch / "client", names), rocketmq.MqAdmin(scratch / "admin", names)
    lists = [scratch / f"list-{number}" for number in range(4)]
    for process, path in zip((names, broker, client, admin), lists, strict=True):
        process.properties = [f"-XX:DumpLoadedClassList={path}"]
    with names, broker, client, admin:
        client.ask("produce", topic=TOPIC, first=0, count=8)
        client.ask("consume", topic=TOPIC)
        client.ask("query", topic=TOPIC, keys="key1")
        admin.said("clusterList")
        admin.said("topicStatus", "-t", TOPIC)
        broker.stop()
    return list(dict.fromkeys(line for path in lists for line in path.read_text().splitlines()))


def make(version: str) -> None:
    """Make the archive of a version, if it is missing."""
    kept = jars.of_broker(version)
    if kept.missing() or kept.archive.exists() or not os.access(kept.archive.parent, os.W_OK):
        return
    with tempfile.TemporaryDirectory(prefix="slipstream-classes-") as directory:
        scratch, unfinished = Path(directory), kept.archive.with_suffix(f".{os.getpid()}")
        (scratch / "list").write_text("\n".join(loaded(scratch, version)))
        command = ["java", "-Xshare:dump", "-XX:+UseG1GC", f"-XX:SharedClassListFile={scratch / 'list'}"]
        command += [f"-XX:SharedArchiveFile={unfinished}", "-cp", ":".join(map(str, kept.files))]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DUMP_SECONDS)
        if done.returncode == 0 and unfinished.exists():
            unfinished.replace(kept.archive)
            return
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()
        print(f"no archive of RocketMQ {version}'s classes: {done.stderr[-2000:]}", file=sys.stderr)


if __name__ == "__main__":
    for each in rocketmq.VERSIONS:
        make(each)
