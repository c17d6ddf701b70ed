# %% [markdown]
# # A machine seen through its own log
#
# `slipstream run` replicates the activity of this machine (processes, CPUs, memory, disks, network) between two
# brokers. In this example Spark reads the slave's files in place and draws plots. Cells begin with `# %%`: an editor
# that knows notebooks runs them one by one. The file also runs as a program:
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

from slipstream import map_segments, read, session

STORE, PLOTS = sys.argv[1], Path(sys.argv[2])
PLOTS.mkdir(parents=True, exist_ok=True)
BLUE, ORANGE, GREEN, GREY = "#37699c", "#d9822b", "#4d9a62", "#c3cad1"
plt.rcParams.update({
    "figure.figsize": (8.4, 3.6), "savefig.dpi": 110, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.color": "#e3e6e9", "axes.axisbelow": True, "legend.frameon": False, "font.size": 9,
})  # fmt: skip
spark = session("a machine seen through its own log")

# %% [markdown]
# ## What there is
#
# Lengths are a column of their own, so no body is read to add them up.

# %%
topics = (
    read(spark, STORE, columns=["topic", "bodyLength"])
    .groupBy("topic")
    .agg(F.count("*").alias("messages"), F.sum("bodyLength").alias("bytes"))
    .orderBy("topic")
    .collect()
)
for row in topics:
    print(f"{row.topic:<16}{row.messages:>10,} messages{row.bytes:>14,} bytes")


# %% [markdown]
# ## Bodies as columns, and a grid of time
#
# The samplers write JSON. Only the selected topic is read, through its consume queues. Samples are milliseconds apart,
# while the kernel counts in steps of 10 ms. A rate between two neighbours would be 0 or 100 %. So rates are computed
# over slots of time: at most a hundred, each at least a quarter of a second long.


# %%
def samples(topic: str, schema: str):
    """The bodies of one topic as columns, with the moment of the sample in seconds."""
    body = F.from_json(F.col("body").cast("string"), f"timestamp_ms bigint, {schema}").alias("sample")
    frame = read(spark, STORE, columns=["body"], topics=[topic]).select(body).select("sample.*")
    return frame.withColumn("at", F.col("timestamp_ms") / 1000)


FIRST, LAST = samples("host-memory", "percent double").agg(F.min("at"), F.max("at")).first()
SLOT = max(0.25, (LAST - FIRST) / 100)


def by_slot(frame, who: str, counted: list[str]):
    """What running counts have added in each slot of time, a second: from the last sample of the slot before."""
    slots = frame.withColumn("slot", F.floor((F.col("at") - FIRST) / SLOT))
    last = slots.groupBy(who, "slot").agg(F.max_by(F.struct("at", *counted), "at").alias("last"))
    before = F.lag("last").over(Window.partitionBy(who).orderBy("slot"))
    steps = last.withColumn("before", before).filter("before IS NOT NULL AND last.at > before.at")
    rates = [f"(last.{name} - before.{name}) / (last.at - before.at) AS {name}" for name in counted]
    return steps.selectExpr(who, f"CAST(slot * {SLOT} AS DOUBLE) AS second", *rates)


def picture(name: str, title: str, what: str, unit: str) -> None:
    """Finish the current figure and write it: what it says stands above it."""
    figure, axes = plt.gcf(), plt.gcf().axes[0]
    axes.set_title(f"{title}\n", loc="left", fontsize=12, fontweight="bold")
    axes.text(0, 1.03, what, transform=axes.transAxes, color="#5b6570")
    axes.set_ylabel(unit)
    figure.tight_layout()
    figure.savefig(PLOTS / f"{name}.png")
    plt.close(figure)
    print(f"wrote {PLOTS / name}.png")


# %% [markdown]
# ## What the log took
#
# No body is read for this: lengths and store times are columns of their own.
#
# ![Bytes a second by topic](host_topics/log.png)

# %%
log = read(spark, STORE, columns=["topic", "bodyLength", "storeTimestamp"])
taken = (
    log.withColumn("slot", F.floor((F.col("storeTimestamp").cast("double") - FIRST) / SLOT))
    .filter(f"slot BETWEEN 0 AND {(LAST - FIRST) / SLOT}")
    .groupBy("topic", "slot")
    .agg((F.sum("bodyLength") / SLOT / 1e6).alias("rate"))
    .collect()
)
largest = sorted({row.topic for row in taken}, key=lambda topic: -sum(row.rate for row in taken if row.topic == topic))
slots = range(max((row.slot for row in taken), default=0) + 1)
rates = {(row.topic, row.slot): row.rate for row in taken}
lines = [[rates.get((topic, slot), 0.0) for slot in slots] for topic in largest]
colours = [BLUE, ORANGE, GREEN, "#8a6bb1", "#b5524c", "#6b7680"]
plt.stackplot([slot * SLOT for slot in slots], lines, labels=largest, colors=colours, step="post", alpha=0.9)
plt.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=8)
plt.xlim(0, LAST - FIRST)
picture("log", "What the log took", f"bodies by topic, {sum(row.bytes for row in topics) / 1e6:,.0f} MB in all", "MB/s")

# %% [markdown]
# ## How busy the CPUs were
#
# The kernel counts seconds since its start, for each CPU and each kind. Above: all CPUs together; below: each one.
#
# ![Shares of CPU time by kind, and a row for each CPU](host_topics/cpu.png)

# %%
cpus = samples("host-cpu", "cpu int, user double, system double, iowait double, idle double")
busy = by_slot(cpus.na.fill(0.0), "cpu", ["user", "system", "iowait"]).orderBy("cpu", "second").collect()
numbers, seconds = sorted({row.cpu for row in busy}), sorted({row.second for row in busy})
share = {(row.cpu, row.second): row for row in busy}
kinds = {"user": BLUE, "system": ORANGE, "iowait": GREY}
means = {
    kind: [
        100 * sum(getattr(share[key], kind) for n in numbers if (key := (n, s)) in share) / len(numbers)
        for s in seconds
    ]
    for kind in kinds
}
figure, (above, below) = plt.subplots(
    2, 1, sharex=True, figsize=(8.4, 4.6), gridspec_kw={"height_ratios": [3, max(1, len(numbers) / 4)]}
)
names = ["programs", "the kernel", "waiting for a disk"]
above.stackplot(seconds, list(means.values()), labels=names, colors=list(kinds.values()), step="post")
above.set_ylim(0, 100)
above.legend(loc="lower right", bbox_to_anchor=(1, 1.08), ncols=3, fontsize=8)
grid = [[share[n, s].user + share[n, s].system if (n, s) in share else 0.0 for s in seconds] for n in numbers]
edges = [*seconds, seconds[-1] + SLOT]
below.pcolormesh(edges, range(len(numbers) + 1), grid, cmap="Blues", vmin=0, vmax=1)
below.set_yticks([n + 0.5 for n in range(len(numbers))], [f"CPU {n}" for n in numbers])
below.set_xlabel("seconds")
below.grid(visible=False)
programs, kernel, waiting = (sum(values) / max(1, len(values)) for values in means.values())
said = f"programs {programs:.0f} %, the kernel {kernel:.0f} %, waiting for a disk {waiting:.0f} % on average"
picture("cpu", "How busy the CPUs were", said, "percent of all CPUs")

# %% [markdown]
# ## Memory
#
# ![Memory in use, in the page cache, and free](host_topics/memory.png)

# %%
memory = samples("host-memory", "memory struct<total:bigint,available:bigint,free:bigint>, swap struct<used:bigint>")
rows = memory.selectExpr("at", "memory.*", "swap.used AS swap").orderBy("at").collect()
rows = rows[:: max(1, len(rows) // 400)]
gib = 1 << 30
layers = [
    [(row.total - row.available) / gib for row in rows],
    [(row.available - row.free) / gib for row in rows],
    [row.free / gib for row in rows],
]
labels = ["in use", "page cache and what can be freed", "free"]
plt.stackplot([row.at - FIRST for row in rows], layers, labels=labels, colors=[BLUE, "#a9c4dc", "#eef1f4"])
if max(row.swap for row in rows):
    plt.plot([row.at - FIRST for row in rows], [row.swap / gib for row in rows], color=ORANGE, label="swapped out")
plt.ylim(0, rows[0].total / gib)
plt.xlabel("seconds")
plt.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, fontsize=8)
cached = sum(layers[1]) / len(rows)
picture("memory", "Memory", f"segments are mapped files: {cached:,.1f} GiB of it is the page cache, not taken", "GiB")

# %% [markdown]
# ## Processes
#
# Memory is that of the newest sample of each process; its CPU share is the growth of its CPU seconds.

# %%
processes = samples("host-process", "pid bigint, name string, cpu_seconds double, rss_bytes bigint")
table = (
    processes.groupBy("pid")
    .agg(
        F.max_by(F.struct("name", "rss_bytes"), "at").alias("last"),
        (F.max("cpu_seconds") - F.min("cpu_seconds")).alias("cpu"),
    )
    .selectExpr("concat(substring(last.name, 1, 18), ' ', pid) AS process", "last.rss_bytes / 1e6 AS rss", "cpu")
    .collect()
)
figure, sides = plt.subplots(1, 2, figsize=(8.4, 4.2))
for axes, column, colour, unit in zip(
    sides, ("cpu", "rss"), (ORANGE, BLUE), ("seconds of CPU", "MB resident"), strict=True
):
    most = sorted(table, key=lambda row: -row[column])[:12][::-1]
    axes.barh([row.process for row in most], [row[column] for row in most], color=colour)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", labelsize=7)
    axes.set_xlabel(unit)
picture("processes", "Who used what", f"of {len(table):,} processes, the first twelve by CPU and by memory", "")

# %% [markdown]
# ## Across the network
#
# Sizes by queue, counted inside the executors by a function: no row per message crosses to the JVM.
#
# ![Bytes received and sent by interface](host_topics/network.png)

# %%
import numpy as np  # noqa: E402 - a notebook imports where it needs

QUEUE_ID_AT = 12  # where a record has its queue: store/FORMAT.md


def bytes_by_queue(records):
    """Partial sums: one row for each queue among these records."""
    queues, at = np.unique(records.int32_at(QUEUE_ID_AT), return_inverse=True)
    return [queues, np.bincount(at, records.body_length).astype(np.int64)]


sizes = map_segments(spark, STORE, bytes_by_queue, "queue int, bytes bigint", topics=["host-network"])
by_queue = sizes.groupBy("queue").sum("bytes").orderBy("queue").collect()
print("bytes of network samples by queue:", {row[0]: row[1] for row in by_queue})

traffic = samples("host-network", "interface string, bytes_sent double, bytes_recv double")
moved = by_slot(traffic, "interface", ["bytes_sent", "bytes_recv"]).orderBy("second").collect()
sums = dict.fromkeys([row.interface for row in moved], 0.0)
for row in moved:
    sums[row.interface] += row.bytes_recv + row.bytes_sent
busiest = [name for name in sorted(sums, key=lambda name: -sums[name])[:4] if sums[name] >= 0.01 * max(sums.values())]
for name, colour in zip(busiest, colours, strict=False):
    points = [(row.second, row.bytes_recv / 1e6, -row.bytes_sent / 1e6) for row in moved if row.interface == name]
    seconds, received, sent = zip(*points, strict=True)
    plt.fill_between(seconds, received, step="post", color=colour, alpha=0.75, label=name)
    plt.fill_between(seconds, sent, step="post", color=colour, alpha=0.4)
plt.axhline(0, color="#5b6570", linewidth=0.8)
plt.xlabel("seconds")
plt.legend(loc="upper right", ncols=4, fontsize=8)
picture(
    "network",
    "Across each interface",
    "received above the line, sent below it; a pair on one host talks over lo",
    "MB/s",
)

spark.stop()
