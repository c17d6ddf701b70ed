// The segment map: a bar for each file, and below it how far it is on disk.

import { badge, h, replace, svg } from "./dom.js";
import { bytes, count, howMany, seconds, time } from "./format.js";
import { follow } from "./live.js";
import { wrong } from "./main.js";

export function show(place, page) {
  const parameters = { store: page.store, page: page.query.get("page") ?? 0 };
  follow("segments", parameters, (value) => replace(place, draw(value, page)), (problem) => replace(place, wrong(problem)));
}

function draw(value, page) {
  return [victim(value), h("section", { "aria-label": "Segment files" },
    h("h2", {}, howMany(value.count, "segment"), value.live ? null : badge("no broker", "warn")),
    h("p", { class: "legend" }, sums(value),
      [["data", "on disk only"], ["cached", "in the page cache"], ["flushed", "flushed"], ["unflushed", "not flushed yet"]].map(([kind, text]) => [h("span", { class: `swatch ${kind}` }), text])),
    h("ol", { class: "segments" }, value.segments.map((segment) => row(segment, value))),
    pages(value, page))];
}

const sums = (value) => `Log from ${count(value.cursors.min_physical_offset)} to ${count(value.cursors.max_physical_offset)}${value.leasedFrom === null ? "" : `, leased from ${count(value.leasedFrom)}`}.`;

function row(segment, value) {
  const used = segment.usedBytes / segment.bytes;
  const cached = Math.min(1, segment.residentBytes / segment.bytes);
  const words = `${segment.file}: ${bytes(segment.usedBytes)} of ${bytes(segment.bytes)} used, ${bytes(segment.flushedBytes)} flushed, ${Math.round(cached * 100)} % in the page cache`;
  return h("li", { class: "segment" },
    h("span", { class: "name" }, segment.file),
    picture(segment, words),
    h("span", { class: "shares" }, `${Math.round(used * 100)} % used, ${Math.round(cached * 100)} % cached `,
      value.victim?.baseOffset === segment.baseOffset ? badge("next victim", "warn") : null, " ",
      segment.sealed ? badge("sealed") : used > 0 ? badge("written", "role") : badge("reserved"), " ",
      segment.leased ? badge("leased", "warn") : null, " ", segment.digest ? badge("digest", "good") : null));
}

function picture(segment, words) {
  const wide = 1000;
  const each = wide / segment.cells.length;
  const used = (segment.usedBytes / segment.bytes) * wide;
  const flushed = (segment.flushedBytes / segment.bytes) * wide;
  return svg("svg", { class: "cells", viewBox: `0 0 ${wide} 26`, preserveAspectRatio: "none", role: "img", "aria-label": words },
    svg("rect", { class: "bed", x: 0, y: 0, width: wide, height: 26 }),
    svg("rect", { class: "data", x: 0, y: 0, width: used, height: 18 }),
    segment.cells.map((share, at) => share > 0 ? svg("rect", { class: "cached", x: at * each, y: 18 * (1 - share), width: Math.max(0, Math.min(each, Math.max(used, at ? 0 : 4) - at * each)), height: 18 * share }) : null),
    svg("rect", { class: "flushed", x: 0, y: 21, width: flushed, height: 5 }),
    svg("rect", { class: "unflushed", x: flushed, y: 21, width: Math.max(0, used - flushed), height: 5 }));
}

function victim(value) {
  const one = value.victim;
  if (!one) return null;
  const old = one.oldEnoughMs === undefined ? null : one.oldEnoughMs - value.now;
  return h("section", { "aria-label": "Retention" }, h("h2", {}, "Retention's next victim"),
    h("dl", { class: "facts" },
      fact("segment", `${String(one.baseOffset).padStart(20, "0")}, ${bytes(one.bytes)}, last written ${time(one.modifiedMs)}`),
      one.reservedHours === undefined ? null : fact("old enough", old <= 0 ? `yes, since ${seconds(-old / 1000)} (fileReservedTime ${one.reservedHours} h)` : `in ${seconds(old / 1000)}, ${time(one.oldEnoughMs)} (fileReservedTime ${one.reservedHours} h)`),
      one.deleteWhenHours === undefined ? null : fact("goes", `at deleteWhen, hour ${one.deleteWhenHours.map((hour) => String(hour).padStart(2, "0")).join(", ")}; sooner where the disk is used above ${one.diskMaxUsedPercent} % (now ${one.diskUsedPercent} %)`),
      fact("kept by", one.keptBy.length ? one.keptBy.join("; ") : "only its age"),
      one.deletedSegments === undefined ? null : fact("deleted so far", `${count(one.deletedSegments)} since the broker's start`)));
}

const fact = (name, text) => [h("dt", {}, name), h("dd", {}, text)];

function pages(value, page) {
  const last = Math.ceil(value.count / value.perPage) - 1;
  if (last < 1) return null;
  const link = (to, text) => (to >= 0 && to <= last ? h("a", { href: `/segments?store=${page.store}&page=${to}` }, text) : null);
  return h("nav", { "aria-label": "Pages of segments", class: "neighbours" }, link(value.page - 1, "newer"), `page ${value.page + 1} of ${last + 1}`, link(value.page + 1, "older"));
}
