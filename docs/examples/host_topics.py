# %% [markdown]
# # A machine seen through its own log
#
# `slipstream run` replicates what this machine is doing (processes, CPUs, memory, disks, network) between two brokers.
# Here Spark reads the slave's files where they lie and draws what they say. Cells begin with `# %%`: an editor that
# knows notebooks runs them one by one, and the file runs as a program, too:
#
#     pip install 'slipstream-log[spark,plots]'
#     slipstream run --dir /tmp/demo --seconds 20
#     python docs/examples/host_topics.py /tmp/demo/slave/store /tmp/demo/plots

# %%
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # pictures as files, no window
import matplotlib.pyplot as plt
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documents use

import spark_bridge
from spark_bridge import java_home

STORE, PLOTS = sys.argv[1], Path(sys.argv[2])
PLOTS.mkdir(parents=True, exist_ok=True)
java_home.ensure()
spark = spark_bridge.session("a machine seen through its own log")

# %% [markdown]
# ## What there is
#
# Lengths are a column of their own, so no body is read to add them up.

# %%
topics = (
    spark_bridge.read(spark, STORE, columns=["topic", "bodyLength"])
    .groupBy("topic")
    .agg(F.count("*").alias("messages"), F.sum("bodyLength").alias("bytes"))
    .orderBy("topic")
    .collect()
)
for row in topics:
    print(f"{row.topic:<16}{row.messages:>10,} messages{row.bytes:>14,} bytes")


# %% [markdown]
# ## Bodies as columns
#
# The samplers write JSON. Only the topic asked for is read, through its consume queues.

# %%
def samples(topic: str, schema: str):
    """The bodies of one topic as columns, with the moment of the sample."""
    body = F.from_json(F.col("body").cast("string"), f"timestamp_ms bigint, {schema}").alias("sample")
    frame = spark_bridge.read(spark, STORE, columns=["body"], topics=[topic]).select(body).select("sample.*")
    return frame.withColumn("second", F.col("timestamp_ms") / 1000)


def picture(name: str, title: str, unit: str, legend: str = "upper left") -> None:
    """Finish the current figure and write it."""
    plt.title(title)
    plt.ylabel(unit)
    plt.legend(loc=legend, fontsize="small")
    plt.tight_layout()
    plt.savefig(PLOTS / f"{name}.png", dpi=100)
    plt.close()
    print(f"wrote {PLOTS / name}.png")


# %% [markdown]
# ## How busy each CPU was
#
# The kernel counts seconds since the start; a share is what was added between two samples.

# %%
before = Window.partitionBy("cpu").orderBy("timestamp_ms")
cpus = samples("host-cpu", "cpu int, user double, system double, idle double, iowait double")
busy = (
    cpus.withColumn("work", F.col("user") + F.col("system"))
    .withColumn("all", F.col("work") + F.col("idle") + F.coalesce("iowait", F.lit(0.0)))
    .withColumn("worked", F.col("work") - F.lag("work").over(before))
    .withColumn("passed", F.col("all") - F.lag("all").over(before))
    .filter("passed > 0")
    .selectExpr("cpu", "second", "100 * worked / passed AS percent")
    .orderBy("cpu", "second")
    .collect()
)
start = min(row.second for row in busy)
plt.figure(figsize=(8, 3.5))
for number in sorted({row.cpu for row in busy}):
    points = [(row.second - start, row.percent) for row in busy if row.cpu == number]
    plt.plot(*zip(*points, strict=True), label=f"CPU {number}")
plt.ylim(0, 105)
plt.xlabel("seconds")
picture("cpu", "How busy each CPU was", "percent")

# %% [markdown]
# ## Memory

# %%
memory = samples("host-memory", "memory struct<total:bigint,available:bigint>, swap struct<used:bigint>")
used = memory.selectExpr(
    "second",
    "(memory.total - memory.available) / 1e9 AS used",
    "memory.total / 1e9 AS total",
    "swap.used / 1e9 AS swap",
)
rows = used.orderBy("second").collect()
plt.figure(figsize=(8, 3.5))
plt.fill_between([row.second - rows[0].second for row in rows], [row.used for row in rows], alpha=0.4, label="in use")
plt.plot([row.second - rows[0].second for row in rows], [row.swap for row in rows], label="swap")
plt.ylim(0, rows[0].total)
plt.xlabel("seconds")
picture("memory", "Memory", "GB")

# %% [markdown]
# ## Who has the memory
#
# The newest sample of each process.

# %%
processes = samples("host-process", "pid bigint, name string, cpu_seconds double, rss_bytes bigint")
newest = (
    processes.groupBy("pid")
    .agg(F.max_by(F.struct("name", "rss_bytes", "cpu_seconds"), "timestamp_ms").alias("last"))
    .selectExpr("concat(last.name, ' ', pid) AS process", "last.rss_bytes / 1e6 AS rss", "last.cpu_seconds AS cpu")
    .orderBy(F.desc("rss"))
    .limit(12)
    .collect()
)
plt.figure(figsize=(8, 4))
plt.barh([row.process for row in newest][::-1], [row.rss for row in newest][::-1], label="resident memory, MB")
picture("processes", "The largest processes", "", "lower right")

# %% [markdown]
# ## Across the network
#
# Sizes by queue with a kernel: counted inside the executors, no row crosses for each message.

# %%
import numpy as np  # noqa: E402 - a notebook imports where it needs

from store.message.record import QUEUE_ID_AT  # noqa: E402


def bytes_by_queue(records):
    """Partial sums: one row for each queue among these records."""
    queues, at = np.unique(records.int32_at(QUEUE_ID_AT), return_inverse=True)
    return [queues, np.bincount(at, records.body_length).astype(np.int64)]


sizes = spark_bridge.map_segments(spark, STORE, bytes_by_queue, "queue int, bytes bigint", topics=["host-network"])
by_queue = sizes.groupBy("queue").sum("bytes").orderBy("queue").collect()
print("bytes of network samples by queue:", {row[0]: row[1] for row in by_queue})

traffic = samples("host-network", "interface string, bytes_sent bigint, bytes_recv bigint")
before = Window.partitionBy("interface").orderBy("timestamp_ms")
rates = (
    traffic.withColumn("moved", F.col("bytes_sent") + F.col("bytes_recv"))
    .withColumn("bytes", F.col("moved") - F.lag("moved").over(before))
    .withColumn("passed", F.col("second") - F.lag("second").over(before))
    .filter("passed > 0")
    .selectExpr("interface", "second", "bytes / passed / 1e6 AS rate")
    .orderBy("interface", "second")
    .collect()
)
plt.figure(figsize=(8, 3.5))
for interface in sorted({row.interface for row in rates}):
    points = [(row.second - start, row.rate) for row in rates if row.interface == interface]
    plt.plot(*zip(*points, strict=True), label=interface)
plt.xlabel("seconds")
picture("network", "Across each interface, both ways", "MB/s")

spark.stop()
