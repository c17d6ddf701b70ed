// Elements, made of text and nothing else: what a message holds never becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const LONG = /\S{40}/;

/** The classes of a cell: its column's, and whether it holds a word that has to be broken. */
const classes = (cell, kind) => (LONG.test(cell.textContent) && kind !== "number" ? `${kind} long`.trim() : kind);

function cellOf(tag, content, kind) {
  const cell = h(tag, tag === "th" ? { scope: "row" } : {}, content ?? "");
  cell.className = classes(cell, kind);
  return cell;
}

/** A table: headings are texts, or [text, "number"]; rows are arrays of texts and elements. */
export function table(caption, headings, rows, empty = "nothing yet") {
  const kinds = headings.map((heading) => (Array.isArray(heading) ? heading[1] : ""));
  const names = headings.map((heading) => (Array.isArray(heading) ? heading[0] : heading));
  const body = rows.map((row) => h("tr", {}, row.map((cell, at) => cellOf(at === 0 ? "th" : "td", cell, kinds[at]))));
  return h("div", { class: "table", role: "region", "aria-label": caption, tabindex: 0 }, h("table", {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, names.map((name, at) => h("th", { scope: "col", class: kinds[at] }, name)))),
    h("tbody", {}, rows.length ? body : h("tr", {}, h("td", { colspan: names.length, class: "empty" }, empty)))));
}

/** Put new content in the place of the old one; what had the focus keeps it, what was scrolled or opened stays so. */
export function replace(place, ...children) {
  const focused = place.contains(document.activeElement) ? keyOf(document.activeElement) : null;
  const opened = new Map([...place.querySelectorAll("details[data-key]")].map((one) => [one.dataset.key, one.open]));
  const scrolled = [...place.querySelectorAll(".table")].map((one) => one.scrollLeft);
  place.replaceChildren(...children.flat(Infinity).filter(Boolean));
  [...place.querySelectorAll(".table")].forEach((one, at) => { one.scrollLeft = scrolled[at] ?? 0; });
  for (const one of place.querySelectorAll("details[data-key]")) one.open = opened.get(one.dataset.key) ?? one.open;
  if (focused) [...place.querySelectorAll("a, button, summary, [tabindex]")].find((one) => keyOf(one) === focused)?.focus({ preventScroll: true });
}

const keyOf = (element) => `${element.tagName} ${element.getAttribute("href") ?? ""} ${element.getAttribute("aria-label") ?? element.textContent}`;

export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);
