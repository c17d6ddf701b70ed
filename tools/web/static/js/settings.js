// The broker's settings; what differs from its default stands first.

import { badge, h, replace, table } from "./dom.js";
import { count, howMany } from "./format.js";
import { ask } from "./live.js";
import { wrong } from "./main.js";

export async function show(place, page) {
  try {
    const value = await ask("settings", { store: page.store });
    const filter = h("input", { type: "search", name: "filter", autocomplete: "off", placeholder: "part of a name" });
    const tables = h("div", { "aria-live": "polite" });
    const draw = () => replace(tables, parts(value.settings.filter((one) => one.name.toLowerCase().includes(filter.value.toLowerCase()))));
    filter.addEventListener("input", draw);
    replace(place, h("section", { "aria-label": "Configuration" },
      h("p", { class: "where" }, `As the broker at ${value.address} says now: ${howMany(value.settings.length, "key")}, ${count(value.changed)} not at their default.`),
      h("form", { class: "ask", onsubmit: (event) => event.preventDefault() }, h("label", { class: "grow" }, "Only keys with", filter)), tables));
    draw();
  } catch (problem) {
    replace(place, wrong(problem));
  }
}

function parts(settings) {
  return [
    keys("Set, or worked out from other keys", settings.filter((one) => !one.isDefault)),
    keys("At their defaults", settings.filter((one) => one.isDefault)),
  ];
}

const keys = (title, settings) => table(`${title}: ${settings.length}`, ["key", "value", "default", "allowed"],
  settings.map((one) => [[one.name, " ", one.isOurs ? badge("ours", "role") : null], [h("span", { class: "mono" }, one.value || "–"), one.unit && one.value ? h("span", { class: "note" }, ` ${one.unit}`) : ""],
    one.isDefault ? badge("default", "good") : one.isDerived ? "worked out" : h("span", { class: "mono" }, one.default || "–"), h("span", { class: "note" }, one.allowed)]), "none");
