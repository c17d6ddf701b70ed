// Which page this is, what leads to the others, and which store it is about.

import { h, replace } from "./dom.js";
import { apart } from "./format.js";
import { ask } from "./live.js";

const PAGES = {
  "/": ["Pipeline", "pipeline"],
  "/segments": ["Segments", "segments"],
  "/latency": ["Latency", "latency"],
  "/lag": ["Lag", "lag"],
  "/topics": ["Topics", "topics"],
  "/search": ["Messages", "search"],
  "/checks": ["Checks", "checks"],
  "/settings": ["Configuration", "settings"],
};
const HIDDEN = { "/message": ["Message", "message"] };
const WITHOUT_STORE = new Set(["/", "/checks", "/lag"]);

const main = document.getElementById("main");

export function wrong(problem) {
  return h("p", { class: "wrong", role: "alert" }, h("strong", {}, problem.code ?? "ERROR"), " ", problem.error ?? String(problem));
}

function lead(store) {
  const at = location.pathname === "/message" ? "/search" : location.pathname;
  const links = Object.entries(PAGES).map(([path, [name]]) =>
    h("a", { href: store ? `${path}?store=${store}` : path, "aria-current": path === at ? "page" : null }, name));
  document.getElementById("pages").replaceChildren(...links);
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

function choose(stores, store) {
  const select = document.getElementById("store");
  const names = apart(stores.map((one) => one.label));
  select.replaceChildren(...stores.map((one, at) =>
    h("option", { value: one.number, selected: one.number === store, title: one.label }, `${names[at]}${one.live ? "" : " (no broker)"}`)));
  select.addEventListener("change", () => { location.search = `?store=${select.value}`; });
  document.getElementById("store-choice").hidden = stores.length < 2 || WITHOUT_STORE.has(location.pathname);
}

async function begin() {
  const [name, module] = PAGES[location.pathname] ?? HIDDEN[location.pathname] ?? PAGES["/"];
  const query = new URLSearchParams(location.search);
  const number = query.get("store") ?? "";
  lead(number);
  document.title = `${name} · Slipstream`;
  const place = h("div", { class: `page ${module}` });
  main.replaceChildren(h("h1", {}, name), place);
  try {
    const known = await ask("stores");
    const store = known.stores.find((one) => String(one.number) === number) ?? known.stores[0];
    choose(known.stores, store.number);
    const page = await import(`./${module}.js`);
    await page.show(place, { store: store.number, stores: known.stores, known, query });
  } catch (problem) {
    replace(place, wrong(problem));
  }
}

begin();
