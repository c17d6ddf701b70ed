// Lag over a quarter of an hour: replicas in bytes, groups in messages, and the reasons where they change.

import { badge, h, replace, table } from "./dom.js";
import { curves } from "./chart.js";
import { bytes, clock, compact, seconds } from "./format.js";
import { follow } from "./live.js";
import { wrong } from "./main.js";

export function show(place) {
  follow("lag", {}, (value) => replace(place, draw(value, place.clientWidth)), (problem) => replace(place, wrong(problem)));
}

function draw(value, width) {
  const wide = Math.max(width - 30, 300);
  const first = Math.min(...value.stores.flatMap((store) => store.curves.map((one) => one.points[0][0])), value.now - 180000);
  const from = Math.max(first, value.now - value.minutes * 60000);
  return [
    h("p", { class: "legend" }, `A sample every ${value.everySeconds} s since this console was started, ${value.minutes} minutes of them. A dashed line is where a reason changed.`),
    value.stores.map((store) => ofStore(store, from, value.now, wide)),
  ];
}

function ofStore(store, from, to, wide) {
  const replicas = store.curves.filter((one) => one.kind === "replica");
  const groups = store.curves.filter((one) => one.kind === "group");
  const each = wide > 1300 && replicas.length && groups.length ? Math.floor(wide / 2) - 10 : wide;
  return h("section", { "aria-label": store.label }, h("h2", {}, store.label),
    store.error ? h("p", { class: "wrong" }, store.error) : null,
    !store.curves.length && !store.error ? h("p", {}, "No replica follows this broker, and no group has consumed anything.") : null,
    h("div", { class: "columns" }, part("Replicas", replicas, from, to, bytes, each), part("Consumer groups", groups, from, to, compact, each)));
}

function part(title, list, from, to, unit, wide) {
  if (!list.length) return null;
  const series = list.map((one) => ({ name: one.name, marks: one.marks, points: one.points.map(([time, lag]) => [time, lag]), badge: badge(one.reason, one.reason === "OK" ? "good" : "warn") }));
  const now = (one) => one.points.at(-1);
  return h("div", {}, curves(`${title}: lag in ${title === "Replicas" ? "bytes" : "messages"}`, series, from, to, unit, wide),
    table(title, ["who", "reason", ["lag", "number"], ["in time", "number"], ["most", "number"], "reasons since"],
      list.map((one) => [one.name, badge(one.reason, one.reason === "OK" ? "good" : "bad"), now(one)[1] === null ? "–" : unit(now(one)[1]), seconds(now(one)[2]),
        unit(Math.max(0, ...one.points.map((point) => point[1] ?? 0))), one.marks.slice(-4).map(([time, reason]) => `${clock(time)} ${reason}`).join(", ") || "–"])));
}
