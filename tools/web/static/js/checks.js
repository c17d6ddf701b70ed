// Verify, digest and doctor: started here, followed here, cancelled here.

import { badge, h, replace, table } from "./dom.js";
import { apart, bytes, clock, count, seconds } from "./format.js";
import { follow, post } from "./live.js";
import { wrong } from "./main.js";

const SAYS = {
  verify: "compares all records with queues and index; changes nothing",
  doctor: "checks the running broker from outside: ports, replication, disk, names",
  digest: "records the SHA-256 of sealed segments in the store",
};
const KINDS = { done: "good", failed: "bad", cancelled: "warn", running: "role" };

export function show(place, page) {
  const said = h("div", { "aria-live": "assertive" });
  const jobs = h("div", {});
  place.append(start(page, said), said, jobs);
  follow("checks", {}, (value) => replace(jobs, list(value, said)), (problem) => replace(jobs, wrong(problem)));
}

function start(page, said) {
  const names = apart(page.stores.map((one) => one.label));
  const store = h("select", { name: "store" }, page.stores.map((one, at) => h("option", { value: one.number, selected: one.number === page.store, title: one.label }, names[at])));
  const kinds = ["verify", "doctor", ...(page.known.mayDigest ? ["digest"] : [])];
  const form = h("form", { class: "ask", "aria-label": "Start a check" }, h("label", {}, "Store", store),
    kinds.map((kind) => h("button", { type: "submit", class: kind === "verify" ? "first" : "", value: kind, "aria-describedby": `says-${kind}` }, kind[0].toUpperCase() + kind.slice(1))));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    said.replaceChildren();
    try { await post("start", { kind: event.submitter.value, store: store.value }); } catch (problem) { said.replaceChildren(wrong(problem)); }
  });
  return h("section", { "aria-label": "Start" }, form, h("dl", { class: "facts" }, kinds.map((kind) => [h("dt", {}, kind), h("dd", { id: `says-${kind}` }, SAYS[kind])])),
    page.known.mayDigest ? null : h("p", { class: "note" }, "Digests are written into the store, but the console was started without --allow-digest."));
}

function list(value, said) {
  if (!value.jobs.length) return h("p", { class: "note" }, `No check has been started yet. ${value.runningMax} run at once.`);
  return h("section", { "aria-label": "Checks" }, value.jobs.map((job, at) => one(job, said, at === 0)));
}

function one(job, said, isNewest) {
  const isRunning = job.state === "running";
  const cancel = async () => { try { await post("cancel", { number: job.number }); } catch (problem) { said.replaceChildren(wrong(problem)); } };
  return h("article", { class: "job", "aria-label": `${job.kind} of ${job.label}` },
    h("div", { class: "row" }, h("strong", {}, job.kind), job.label, badge(job.state === "done" && !job.well ? "done, with findings" : job.state, job.state === "done" && !job.well ? "bad" : KINDS[job.state]),
      h("span", { class: "note" }, `begun ${clock(job.beganMs)}, ${isRunning ? "runs for" : "took"} ${seconds(job.seconds)}`),
      isRunning ? h("button", { type: "button", onclick: cancel, "aria-label": `Cancel ${job.kind} of ${job.label}` }, "Cancel") : h("span", {})),
    isRunning ? bar(job) : null,
    job.text ? h("p", {}, job.text) : null,
    job.findings.length ? h("details", { open: isNewest, "data-key": job.number }, h("summary", {}, `${count(job.findingsCount)} ${job.kind === "doctor" ? "rows" : "findings"}${job.findingsCount > job.findings.length ? `, the first ${job.findings.length}` : ""}`),
      table(`${job.kind} of ${job.label}`, ["", "code", "where", "what"], job.findings.map((row) => [badge(row.level, { ok: "good", wrong: "bad", open: "warn" }[row.level] ?? ""), h("code", {}, row.code), row.where, row.advice ? `${row.what}; ${row.advice}` : row.what]))) : null);
}

function bar(job) {
  const share = job.total ? job.done / job.total : null;
  const words = share === null ? `${job.part || "starting"} …` : `${job.part}: ${bytes(job.done)} of ${bytes(job.total)}, ${Math.round(share * 100)} %`;
  return h("div", {}, h("progress", { max: 1, value: share, "aria-label": words }), h("span", { class: "note" }, words));
}
