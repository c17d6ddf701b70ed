// One message: what its record says, its body in several forms, and where its neighbours are.

import { badge, h, replace, table } from "./dom.js";
import { bytes, count, howMany, time } from "./format.js";
import { ask, post } from "./live.js";
import { wrong } from "./main.js";

export async function show(place, page) {
  const parameters = { store: page.store, offset: page.query.get("offset"), inner: page.query.get("inner") };
  try {
    const value = await ask("message", parameters);
    replace(place, neighbours(value, page), facts(value), properties(value.message.properties), value.batch ? batch(value, page) : null, body(value.body, parameters));
  } catch (problem) {
    replace(place, wrong(problem));
  }
}

const to = (page, offset, text) => (offset === null ? h("span", { class: "note" }, `no ${text}`) : h("a", { href: `/message?store=${page.store}&offset=${offset}` }, text));

function neighbours(value, page) {
  const near = value.neighbours;
  return h("nav", { class: "neighbours", "aria-label": "Neighbours" }, to(page, near.queueBefore, "previous in its queue"), to(page, near.queueAfter, "next in its queue"),
    to(page, near.logBefore, "previous in the log"), to(page, near.logAfter, "next in the log"));
}

function facts(value) {
  const one = value.message;
  const rows = [
    ["topic, queue", `${one.topic} / ${one.queueId} # ${one.queueOffset}`], ["log offset", `${count(one.offset)}, ${bytes(value.size)}`], ["message id", one.msgId],
    ["tags", one.tags], ["keys", one.keys], ["stored", `${time(one.storedMs)} by ${one.storeHost}`], ["born", `${time(one.bornMs)} at ${one.bornHost}`],
    ["kind", one.kind], ["destination", one.destination], ["flags", `user ${one.flag}, system 0x${(one.sysFlag >>> 0).toString(16)}`],
    ["consumed again", one.reconsumeTimes || null], ["half message at", one.preparedTransactionOffset || null],
  ].filter(([, text]) => text !== null && text !== undefined && text !== "");
  return h("section", { "aria-label": "Record" }, h("h2", {}, one.topic, value.inner === null ? null : badge(`message ${value.inner} of a batch`)),
    h("dl", { class: "facts" }, rows.map(([name, text]) => [h("dt", {}, name), h("dd", { class: name === "message id" ? "mono" : "" }, String(text))])));
}

function properties(values) {
  const rows = Object.entries(values);
  return h("section", { "aria-label": "Properties" }, table(`${rows.length} properties (headers)`, ["name", "value"], rows.map(([name, text]) => [name, h("span", { class: "mono" }, text)]), "none"));
}

function batch(value, page) {
  return h("section", { "aria-label": "Batch" }, table(`A batch of ${howMany(value.batchCount, "message")}`, ["message", "tags", "keys", ["body", "number"], "begins"],
    value.batch.map((one, at) => [h("a", { href: `/message?store=${page.store}&offset=${page.query.get("offset")}&inner=${at}` }, String(at)), one.tags ?? "", one.keys ?? "", bytes(one.bodyBytes), h("span", { class: "preview" }, one.preview)])));
}

function body(value, parameters) {
  const forms = [["JSON", value.json], ["Text", value.text], ["Hex", value.hex]].filter(([, text]) => text !== null);
  const panel = h("div", { role: "tabpanel", id: "body", tabindex: 0, "aria-label": "Body" });
  const tabs = [...forms.map(([name]) => name), "Avro"].map((name) => h("button", { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "body", "aria-selected": "false", tabindex: -1, onclick: () => choose(name) }, name));
  function choose(name) {
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", String(tab.textContent === name));
      tab.tabIndex = tab.textContent === name ? 0 : -1;
    }
    panel.setAttribute("aria-labelledby", `tab-${name}`);
    const text = Object.fromEntries(forms)[name];
    panel.replaceChildren(name === "Avro" ? avro(parameters) : h("pre", { class: `body ${name === "Hex" ? "hex" : ""}`, tabindex: 0 }, text || "(empty)"),
      cut(name, value) ?? "");
  }
  const bar = h("div", { class: "tabs", role: "tablist", "aria-label": "Form of the body" }, tabs);
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
    const next = tabs[(at + step + tabs.length) % tabs.length];
    choose(next.textContent);
    next.focus();
  });
  choose(forms[0][0]);
  return h("section", { "aria-label": "Body" }, h("h2", {}, "Body", badge(bytes(value.bytes)), value.storedBytes === value.bytes ? null : badge(`${bytes(value.storedBytes)} as stored`)),
    value.problem ? h("p", { class: "wrong" }, value.problem) : null, bar, panel);
}

function cut(name, value) {
  if (name === "Hex" && value.hexCut) return h("p", { class: "note" }, "The first 4 KiB.");
  return name === "Text" && value.textCut ? h("p", { class: "note" }, "The first 64 KiB.") : null;
}

function avro(parameters) {
  const KEPT = "slipstream.avro";
  const schema = h("textarea", { name: "schema", spellcheck: "false", maxlength: 60000 });
  schema.value = sessionStorage.getItem(KEPT) ?? "";
  const result = h("div", { "aria-live": "polite" });
  const form = h("form", {}, h("label", {}, "Schema of the body, as Avro's JSON", schema), h("button", { class: "first", type: "submit" }, "Decode"), result);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEPT, schema.value);
    try {
      const value = await post("avro", { ...parameters, schema: schema.value });
      result.replaceChildren(h("pre", { class: "body", tabindex: 0 }, value.value));
    } catch (problem) {
      result.replaceChildren(wrong(problem));
    }
  });
  return form;
}
