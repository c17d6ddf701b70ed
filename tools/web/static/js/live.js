// What a page hears: a stream of the newest values, and whether it still comes.

const state = () => document.getElementById("live");

function say(text, kind) {
  const place = state();
  if (place.textContent !== text) place.textContent = text;
  place.className = `live ${kind}`;
}

/** Call `show` with each new value of a view; what is wrong goes to `fail`, in words. */
export function follow(view, parameters, show, fail) {
  const query = new URLSearchParams(parameters).toString();
  const source = new EventSource(`/events/${view}${query ? `?${query}` : ""}`);
  let last = null; // what is the same as before is not drawn again
  say("connecting", "");
  source.onmessage = (event) => {
    say("live", "on");
    if (event.data !== last) show(JSON.parse(event.data));
    last = event.data;
  };
  source.addEventListener("problem", (event) => { last = null; say("live", "on"); fail(JSON.parse(event.data)); });
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) ask(view, parameters).then(() => say("not live", "off"), (error) => { say("not live", "off"); fail(error); });
    else say("connection lost, trying again", "off");
  };
  addEventListener("pagehide", () => source.close());
  return source;
}

/** One answer. Rejects with {code, error}. */
export async function ask(view, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined)).toString();
  return answer(await fetch(`/api/${view}${query ? `?${query}` : ""}`, { headers: { accept: "application/json" } }));
}

export async function post(path, value) {
  return answer(await fetch(`/api/${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(value) }));
}

async function answer(response) {
  let value;
  try { value = await response.json(); } catch { value = { code: "HTTP", error: `the console answered ${response.status}` }; }
  if (!response.ok) throw value;
  return value;
}
