// The pipeline: a track for each cursor, its distance to the log's end on a logarithmic scale.

import { badge, h, replace, svg, table } from "./dom.js";
import { bytes, count, micros, rate, seconds } from "./format.js";
import { follow } from "./live.js";
import { wrong } from "./main.js";

const NAMES = {
  allocated_offset: "allocated", max_physical_offset: "log end", flushed_offset: "flushed", reput_from_offset: "dispatched",
  confirm_offset: "confirmed", min_physical_offset: "log begins", next_transfer_offset: "sent", slave_ack_offset: "acknowledged",
  held_offset: "held",
};
const ORIGIN = new Set(["min_physical_offset"]); // where it lies is no fault
const OF_REPLICA = { flushed_offset: "on its disk" };
const WIDTH = 400;
const END = 340; // where the log's end is drawn; what is ahead of it lies to the right
const LARGEST = 40; // 2^40 bytes is as far as the scale goes

export function show(place) {
  follow("pipeline", {}, (value) => replace(place, draw(value)), (problem) => replace(place, wrong(problem)));
}

function draw(value) {
  return [
    h("div", { class: "brokers" }, value.stores.map(broker)),
    value.members ? members(value.members) : null,
    legend(value.stores),
  ];
}

const at = (behind) => (behind <= 0 ? END : END - Math.min(1, Math.log2(1 + behind) / LARGEST) * (END - 8));

function track(behind, name) {
  const ahead = behind < 0;
  const x = ahead ? END + Math.min(1, Math.log2(1 - behind) / LARGEST) * (WIDTH - END - 6) : at(behind);
  const kind = name === "max_physical_offset" ? "end" : ORIGIN.has(name) ? "origin" : behind === 0 ? "even" : ahead ? "ahead" : "late";
  return svg("svg", { class: `track ${kind}`, viewBox: `0 0 ${WIDTH} 14`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("line", { class: "rail", x1: 2, x2: WIDTH - 2, y1: 7, y2: 7 }),
    [10, 20, 30].map((power) => svg("line", { class: "tick", x1: at(2 ** power), x2: at(2 ** power), y1: 4, y2: 10 })),
    svg("line", { class: "gap", x1: x, x2: END, y1: 7, y2: 7 }),
    svg("line", { class: "stop", x1: END, x2: END, y1: 1, y2: 13 }),
    svg("rect", { class: "here", x: x - 3, y: 2, width: 6, height: 10, rx: 1.5 }));
}

function distance(cursor) {
  if (cursor.name === "max_physical_offset") return "end";
  if (cursor.behind < 0) return `${bytes(-cursor.behind)} ahead`;
  return cursor.behind === 0 ? "at the end" : cursor.name === "min_physical_offset" ? `${bytes(cursor.behind)} held` : `${bytes(cursor.behind)} behind`;
}

function stages(title, cursors, names) {
  const rows = cursors.map((cursor) => h("tr", { title: cursor.meaning },
    h("th", { scope: "row" }, names[cursor.name] ?? NAMES[cursor.name] ?? cursor.name),
    h("td", { class: "owner" }, cursor.owner.replace("|", ", ")),
    h("td", { class: "way" }, track(cursor.behind, cursor.name)),
    h("td", { class: "number" }, count(cursor.offset)),
    h("td", { class: "number distance" }, distance(cursor))));
  return h("table", { class: "stages" }, h("caption", {}, title),
    h("thead", {}, h("tr", {}, ["cursor", "moved by", "distance to the log's end", "offset", "is"].map((name, n) =>
      h("th", { scope: "col", class: n > 2 ? "number" : n === 1 ? "owner" : "" }, name)))),
    h("tbody", {}, rows));
}

function broker(one) {
  const head = h("h2", {}, one.broker ? `${one.broker}:${one.brokerId}` : one.label,
    one.role ? badge(one.role.replace("_", " ").toLowerCase(), "role") : null,
    one.live ? badge(one.state.toLowerCase(), one.state === "RUNNING" ? "good" : "warn") : badge(one.error ? "cannot be read" : "no broker", "warn"));
  if (!one.live) {
    return h("section", { class: "broker rest", "aria-label": one.label }, head,
      h("p", { class: "where" }, one.label),
      one.error ? h("p", { class: "wrong" }, one.error) : h("p", {}, `The log holds offsets ${count(one.minOffset)} to ${count(one.maxOffset)} (${bytes(one.maxOffset - one.minOffset)}). `,
        h("a", { href: `/segments?store=${one.number}` }, "Segments"), ", ", h("a", { href: `/search?store=${one.number}` }, "messages"), " and ",
        h("a", { href: `/checks?store=${one.number}` }, "checks"), " need no broker."));
  }
  return h("section", { class: "broker", "aria-label": `${one.broker}:${one.brokerId}` }, head,
    h("p", { class: "where" }, `${one.label} · ${one.address} · process ${one.pid}${one.epoch ? ` · epoch ${one.epoch}` : ""}`),
    one.problems.map((line) => h("p", { class: "wrong" }, line)),
    h("dl", { class: "figures" }, figures(one)),
    stages("Cursors of this broker", one.cursors, {}),
    one.client ? master(one.client) : null,
    one.replicas.map((replica) => replicaOf(replica)),
    one.gone.length ? table("Connections that ended", ["replica", "reason", "since", "next"],
      one.gone.map((gone) => [gone.peer, badge(gone.reason, "warn"), seconds(gone.ended_seconds), gone.advice])) : null,
    processes(one));
}

function figures(one) {
  const pairs = [
    ["put", rate(one.rates["1s"].messages, " msg/s")], ["in", `${bytes(one.rates["1s"].bytes)}/s`],
    ["ack p50", one.p50Us ? micros(one.p50Us) : "–"], ["ack p99", one.p99Us ? micros(one.p99Us) : "–"],
    one.role === "SLAVE" ? ["dispatched", count(one.putMessages)] : ["in sync", `${one.inSyncSlaves} of ${Math.max(one.replicasNeeded - 1, one.replicas.length)}`],
  ];
  return pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
}

function master(client) {
  const good = client.reason_code === "OK";
  return h("p", { class: "link" }, "follows ", h("strong", {}, client.master || "no master"), " ", badge(client.reason_code, good ? "good" : "bad"),
    ` ${client.state.toLowerCase()}, ${bytes(client.received_bytes_per_second)}/s, heard ${seconds(client.silent_seconds)} ago`,
    client.advice ? h("span", { class: "advice" }, client.advice) : null);
}

function replicaOf(replica) {
  const title = h("span", {}, "Replica ", h("strong", {}, replica.replica || replica.peer), " ", badge(replica.reason, replica.in_sync ? "good" : "bad"),
    ` lag ${bytes(replica.lag_bytes)}${replica.lag_seconds ? `, ${seconds(replica.lag_seconds)}` : ""} · ${bytes(replica.acked_bytes_per_second)}/s`,
    replica.acks_rejected ? ` · ${count(replica.acks_rejected)} reports rejected` : "");
  return stages(title, replica.cursors, OF_REPLICA);
}

function processes(one) {
  const late = one.processes.filter((process) => process.givenUp || process.restarts || process.silentMs > 5000);
  const rows = one.processes.map((process) => [process.role, process.pid || "–",
    process.givenUp ? badge("given up", "bad") : process.restarts ? badge(`${process.restarts} restarts`, "warn") : badge("0 restarts"),
    process.silentMs === null ? "–" : `${seconds(process.silentMs / 1000)} ago`]);
  return h("details", { "data-key": one.number },
    h("summary", {}, `${one.processes.length} processes`, late.length ? badge(`${late.length} restarted, given up or silent`, "warn") : badge("all running", "good")),
    table("Processes", ["role", ["pid", "number"], "restarts", ["turned", "number"]], rows));
}

function members(known) {
  if (known.error) return h("section", { "aria-label": "Name servers" }, h("h2", {}, "Name servers"), h("p", { class: "wrong" }, known.error));
  return h("section", { "aria-label": "Name servers" }, h("h2", {}, "Known to name servers"), h("p", { class: "where" }, known.nameServers),
    table("Brokers", ["broker", "cluster", "address", "speaks", ["log end", "number"], ["puts/s (10, 60, 600 s)", "number"]],
      known.brokers.map((one) => [`${one.broker}:${one.brokerId}`, one.cluster, one.address, one.error ? badge("unreachable", "bad") : one.version,
        one.maxOffset ? count(one.maxOffset) : "–", one.putTps ? one.putTps.split(" ").map((value) => Number(value).toFixed(0)).join(" ") : one.error ?? "–"])),
    known.more ? h("p", {}, `${known.more} more are not shown`) : null);
}

function legend(stores) {
  const live = stores.find((one) => one.live);
  const meanings = live ? [...live.cursors, ...(live.replicas[0]?.cursors ?? []).filter((one) => one.name !== "flushed_offset")] : [];
  const details = h("details", { "data-key": "legend" }, h("summary", {}, "What the cursors mean"),
    h("dl", { class: "facts" }, meanings.map((one) => [h("dt", {}, NAMES[one.name] ?? one.name), h("dd", {}, `${one.meaning} (`, h("code", {}, one.name), `; ${one.followedBy} ${one.followedBy.includes(",") || one.followedBy === "all" ? "follow" : "follows"})`)])));
  return h("section", { "aria-label": "Legend" }, h("p", { class: "legend" }, "Distances are logarithmic; the ticks are 1 KiB, 1 MiB and 1 GiB behind the log's end."), details);
}
