// Numbers and times as texts, the same on all pages.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// A number too large to be exact here comes as a text.
export function count(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "string") return Math.round(value).toLocaleString("en-US");
  return /^-?\d{1,19}$/.test(value) ? BigInt(value).toLocaleString("en-US") : value;
}

export const howMany = (value, one) => `${count(value)} ${one}${value === 1 ? "" : "s"}`;

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) { size /= 1024; unit += 1; }
  const text = unit === 0 ? String(Math.round(size)) : size >= 100 ? size.toFixed(0) : size >= 10 ? size.toFixed(1) : size.toFixed(2);
  return `${value < 0 ? "−" : ""}${text} ${UNITS[unit]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.001) return value === 0 ? "0 s" : `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${trim(value * 1000)} ms`;
  if (value < 120) return `${trim(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${trim(value / 3600)} h` : `${Math.round(value / 86400)} d`;
}

export const micros = (value) => (value === null || value === undefined ? "–" : seconds(value / 1e6));
const trim = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)).replace(/\.0+$/, "");

export const compact = (value) => (value >= 1e4 ? rate(value, "") : count(value));
export const rate = (value, unit = "/s") => {
  if (value === null || value === undefined) return "–";
  return value >= 1e6 ? `${(value / 1e6).toFixed(2)} M${unit}` : value >= 1e4 ? `${(value / 1e3).toFixed(1)} k${unit}` : `${value >= 10 || value === 0 ? Math.round(value) : value.toFixed(1)}${unit}`;
};

/** UTC, as the command line shows it. */
export const time = (ms) => {
  if (ms === null || ms === undefined) return "–";
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? `${ms} ms` : date.toISOString().replace("T", " ");
};
export const clock = (ms) => new Date(ms).toISOString().slice(11, 19);

/** Paths without the folders that all of them begin with: what tells them apart stays in sight. */
export function apart(paths) {
  const parts = paths.map((path) => path.split("/"));
  let same = 0;
  while (parts.every((one) => one.length > same + 2 && one[same] === parts[0][same])) same += 1;
  return paths.length > 1 && same > 2 ? parts.map((one) => `…/${one.slice(same).join("/")}`) : paths;
}
