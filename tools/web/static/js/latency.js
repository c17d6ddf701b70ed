// How long acknowledgements take, and how fast messages come.

import { badge, h, replace, table } from "./dom.js";
import { bars, curves } from "./chart.js";
import { bytes, count, howMany, micros, rate, time } from "./format.js";
import { follow } from "./live.js";
import { wrong } from "./main.js";

const SHOWN = ["50", "99", "99.9"];

export function show(place, page) {
  follow("latency", { store: page.store }, (value) => replace(place, draw(value, place.clientWidth)), (problem) => replace(place, wrong(problem)));
}

function draw(value, width) {
  const wide = width > 1330 ? Math.floor(width / 2) - 40 : Math.max(width - 30, 300);
  return [
    h("section", { "aria-label": "Now" }, h("dl", { class: "figures" }, [
      ...Object.entries(value.windows).map(([window, one]) => [`put, over ${window}`, `${rate(one.messages, " msg/s")}, ${bytes(one.bytes)}/s`]),
      ["put since the start", count(value.putMessages)], ["refused", count(value.putRefused)], ["started", time(value.bootMs).slice(0, 19)],
    ].map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text))))),
    h("div", { class: "columns" },
      histogram("Acknowledgements since the broker's start", value.since, wide, value.role),
      histogram("Acknowledgements of the last whole minute", value.minute, wide, value.role),
      h("section", {}, curves("Messages put per second in the last ten minutes", [{ name: "messages/s", points: value.rates.map((one) => [one[0], one[1]]) }], ...span(value), (number) => rate(number, ""), wide)),
      h("section", {}, curves("Bytes put per second in the last ten minutes", [{ name: "bytes/s", points: value.rates.map((one) => [one[0], one[2]]) }], ...span(value), bytes, wide))),
  ];
}

function span(value) {
  const last = value.rates.at(-1)?.[0] ?? Date.now();
  const first = value.rates[0]?.[0] ?? last;
  return [Math.max(Math.min(first, last - 120000), last - 600000), last];
}

function histogram(title, one, width, role) {
  if (!one.puts) {
    return h("section", {}, h("h2", {}, title), h("p", {}, role === "SLAVE" ? "A slave acknowledges to its master; puts are answered there." : "No put waited for an answer."));
  }
  const first = one.bins[0];
  const position = (us) => one.bins.findIndex((bin) => us < bin[1]) < 0 ? one.bins.length : within(one.bins, us);
  return h("section", {},
    h("h2", {}, title, badge(howMany(one.puts, "put"))),
    bars(`Puts by how long they took, from ${micros(first[0])} on; ${SHOWN.map((name) => `p${name} ${micros(one.percentiles[name])}`).join(", ")}`,
      one.bins.map((bin) => [micros(bin[0]), bin[2], `${micros(bin[0])} to ${micros(bin[1])}: ${howMany(bin[2], "put")}`]),
      SHOWN.map((name) => [position(one.percentiles[name]), `p${name} ${micros(one.percentiles[name])}`]), width),
    h("details", { "data-key": title }, h("summary", {}, "Figures"), table(title, ["percentile", ["took at most", "number"]],
      [...Object.entries(one.percentiles).map(([name, us]) => [`p${name}`, micros(us)]), ["mean", micros(one.meanUs)], ["longest", micros(one.maxUs)]])));
}

function within(bins, us) {
  const at = bins.findIndex((bin) => us < bin[1]);
  const [low, high] = bins[at];
  return at + Math.max(0, (us - low) / (high - low));
}
