// Message search. What was asked stands in the address, so that it can be sent to a colleague.

import { h, replace, table } from "./dom.js";
import { bytes, count, howMany, time } from "./format.js";
import { ask } from "./live.js";
import { wrong } from "./main.js";

const WAYS = {
  newest: ["newest messages", ""], key: ["key", "order-1"], id: ["message id", "7F0000012A9F… or a unique id"],
  offset: ["log offset", "4096"], queue: ["queue offset", "17"], time: ["time", "2026-11-23T08:30:00Z or -1h"],
};

export async function show(place, page) {
  const results = h("div", { id: "results", "aria-live": "polite" });
  place.append(form(page), results);
  await look(results, page);
}

function form(page) {
  const get = (name) => page.query.get(name) ?? "";
  const by = h("select", { name: "by" }, Object.entries(WAYS).map(([way, [name]]) => h("option", { value: way, selected: get("by") === way }, name)));
  const value = h("input", { name: "value", value: get("value"), autocomplete: "off", spellcheck: "false", maxlength: 512 });
  const queue = h("input", { name: "queue", value: get("queue"), inputmode: "numeric", pattern: "[0-9]*", size: 4 });
  const adapt = () => {
    value.disabled = by.value === "newest";
    value.required = by.value !== "newest";
    value.placeholder = WAYS[by.value][1];
    queue.disabled = !["queue", "time"].includes(by.value);
  };
  by.addEventListener("change", adapt);
  adapt();
  const ask = h("form", { class: "ask", role: "search", "aria-label": "Messages of this store" },
    h("label", {}, "Look by", by), h("label", { class: "grow" }, "Value", value),
    h("label", { class: "grow" }, "Topic", h("input", { name: "topic", value: get("topic"), autocomplete: "off", spellcheck: "false", maxlength: 512, placeholder: "any" })),
    h("label", {}, "Queue", queue),
    h("button", { class: "first", type: "submit" }, "Search"));
  ask.addEventListener("submit", (event) => {
    event.preventDefault();
    const query = new URLSearchParams([["store", page.store], ...[...new FormData(ask)].filter(([, text]) => text !== "")]);
    location.search = query.toString();
  });
  return h("section", { "aria-label": "Search" }, ask);
}

async function look(place, page) {
  const asked = Object.fromEntries(["by", "value", "topic", "queue", "limit"].map((name) => [name, page.query.get(name)]));
  replace(place, h("p", { class: "note" }, "looking …"));
  try {
    const value = await ask("search", { store: page.store, ...asked });
    replace(place, h("section", { "aria-label": "Results" },
      h("h2", {}, value.messages.length ? howMany(value.messages.length, "message") : "No message"),
      value.notes.map((note) => h("p", { class: "note" }, note)),
      value.messages.length ? list(value.messages, page) : null,
      value.messages.length === value.limit ? h("p", { class: "note" }, `At most ${value.limit} are shown at once.`) : null));
  } catch (problem) {
    replace(place, wrong(problem));
  }
}

const list = (messages, page) => table("Messages found", [["log offset", "number"], "stored", "topic", "queue", "tags", "keys", ["body", "number"], "begins"],
  messages.map((one) => [h("a", { href: `/message?store=${page.store}&offset=${one.offset}` }, count(one.offset)), time(one.storedMs), one.topic, `${one.queueId} #${one.queueOffset}`,
    one.tags ?? "", one.keys ?? "", bytes(one.bodyBytes), h("span", { class: "preview" }, one.preview)]));
