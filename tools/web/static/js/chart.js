// Curves over time and bars, as SVG, with the same figures as a table for who does not see them.

import { h, svg } from "./dom.js";
import { bytes, clock } from "./format.js";

const HEIGHT = 220;
const LEFT = 62;
const BOTTOM = 22;
const TOP = 8;

function steps(top, unit, count = 4) {
  const raw = top / count || 1;
  if (unit === bytes) {
    const step = 2 ** Math.max(0, Math.ceil(Math.log2(raw)));
    return Array.from({ length: Math.floor(top / step) + 1 }, (_, at) => at * step);
  }
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= raw);
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, at) => at * step);
}

/** series: {name, points: [[time, value or null]], marks: [[time, text]]}; unit: value -> text. */
export function curves(title, series, from, to, unit, width = 900) {
  const values = series.flatMap((one) => one.points.map((point) => point[1])).filter((value) => value !== null);
  const top = Math.max(...values, 0) * 1.08 || 4;
  const x = (time) => LEFT + ((time - from) / (to - from)) * (width - LEFT - 8);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const minutes = (to - from) / 60000;
  const every = minutes > 8 ? 3 : minutes > 3 ? 2 : 1;
  const step = every * 60000;
  const ticks = Array.from({ length: Math.floor(minutes / every) + 1 }, (_, at) => (Math.ceil(from / step) + at) * step).filter((time) => time <= to);
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${said(series, unit)}` },
    steps(top, unit).map((value) => [svg("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, unit(value))]),
    svg("line", { class: "axis", x1: LEFT, x2: width - 8, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }),
    ticks.map((time) => svg("text", { x: Math.min(x(time), width - 18), y: HEIGHT - 6, "text-anchor": "middle" }, clock(time).slice(0, 5))),
    series.map((one, at) => [marks(one, at, x, from, width), path(one, at, x, y, series.length === 1)]));
  return h("figure", {}, h("figcaption", {}, title), picture, keys(series, unit));
}

const kind = (at) => `k${(at % 6) + 1}`;

function path(one, at, x, y, isAlone) {
  const parts = [];
  let part = [];
  for (const [time, value] of [...one.points, [0, null]]) {
    if (value === null) { if (part.length) parts.push(part); part = []; } else part.push([x(time), y(value)]);
  }
  const line = (points) => points.map(([px, py], n) => `${n ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`).join("");
  return parts.map((points) => [
    isAlone && points.length > 1 ? svg("path", { class: `area ${kind(at)}`, d: `${line(points)}L${points.at(-1)[0].toFixed(1)} ${HEIGHT - BOTTOM}L${points[0][0].toFixed(1)} ${HEIGHT - BOTTOM}Z` }) : null,
    points.length > 1 ? svg("path", { class: `curve ${kind(at)}`, d: line(points) }) : svg("circle", { class: kind(at), cx: points[0][0], cy: points[0][1], r: 1.5 })]);
}

const WIDEST_LETTER = 6.5;

/** A text beside a vertical line: to its left where there is no room to its right. */
function beside(at, y, text, width) {
  const isRoom = at + 3 + text.length * WIDEST_LETTER < width;
  return svg("text", { x: isRoom ? at + 3 : at - 3, y, "text-anchor": isRoom ? "start" : "end" }, text);
}

function marks(one, at, x, from, width) {
  return (one.marks ?? []).filter(([time]) => time >= from).map(([time, text], n) => [
    svg("line", { class: `mark ${kind(at)}`, x1: x(time), x2: x(time), y1: TOP, y2: HEIGHT - BOTTOM }),
    beside(x(time), TOP + 10 + (n % 3) * 12, text, width)]);
}

function keys(series, unit) {
  return h("ul", { class: "keys" }, series.map((one, at) => h("li", {},
    svg("svg", { viewBox: "0 0 16 7", "aria-hidden": "true" }, svg("line", { class: kind(at), x1: 0, x2: 16, y1: 3.5, y2: 3.5, "stroke-width": 2.5 })),
    one.name, last(one) === null ? "" : `: ${unit(last(one))}`, one.badge ? [" ", one.badge] : null)));
}

const last = (one) => one.points.at(-1)?.[1] ?? null;
const said = (series, unit) => series.map((one) => `${one.name} ${last(one) === null ? "no value" : unit(last(one))} now, at most ${unit(Math.max(0, ...one.points.map((point) => point[1] ?? 0)))}`).join("; ");

/** Bars: [label, value, words]; lines: [[position from 0 to bars.length, text]]. */
export function bars(title, values, lines, width = 900) {
  const top = Math.max(...values.map((one) => one[1]), 1);
  const each = (width - LEFT - 8) / Math.max(values.length, 1);
  const y = (value) => TOP + 16 + (1 - value / top) * (HEIGHT - TOP - BOTTOM - 16);
  const every = Math.ceil(58 / each);
  return h("figure", {}, h("figcaption", {}, title),
    svg("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${lines.map((one) => one[1]).join(", ")}` },
      steps(top).map((value) => [svg("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(value), y2: y(value) }),
        svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, value.toLocaleString("en-US"))]),
      values.map(([label, value, words], at) => [
        svg("rect", { class: "bar", x: LEFT + at * each + 1, y: y(value), width: Math.max(each - 2, 1), height: Math.max(HEIGHT - BOTTOM - y(value), value ? 1 : 0) }, svg("title", {}, words)),
        at % every === 0 && LEFT + at * each < width - 50 ? svg("text", { x: LEFT + at * each, y: HEIGHT - 6 }, label) : null]),
      svg("line", { class: "axis", x1: LEFT, x2: width - 8, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }),
      lines.map(([position, text], n) => [
        svg("line", { class: "mark k2", x1: LEFT + position * each, x2: LEFT + position * each, y1: TOP + 2, y2: HEIGHT - BOTTOM }),
        beside(LEFT + position * each, TOP + 9 + n * 12, text, width)])));
}
