// Topics with their rates, and one topic's queues.

import { badge, h, replace, table } from "./dom.js";
import { bytes, count, howMany, rate, time } from "./format.js";
import { ask, follow } from "./live.js";
import { wrong } from "./main.js";

const PERMISSIONS = { 2: "write", 4: "read", 6: "read, write", 7: "read, write, inherit" };

export function show(place, page) {
  const chosen = page.query.get("topic");
  if (chosen !== null) return one(place, page, chosen);
  follow("topics", { store: page.store }, (value) => replace(place, all(value, page)), (problem) => replace(place, wrong(problem)));
}

// Where the last messages of a queue begin; its offsets may be texts, larger than a number can say.
function lastOf(queue) {
  const first = BigInt(queue.minOffset);
  const last = BigInt(queue.maxOffset) - 25n;
  return last > first ? last : first;
}

const link = (page, topic) => h("a", { href: `/topics?${new URLSearchParams({ store: page.store, topic })}` }, topic);
const messages = (page, topic, text) => h("a", { href: `/search?${new URLSearchParams({ store: page.store, by: "newest", topic })}` }, text);

function all(value, page) {
  const rows = value.topics.map((one) => [[link(page, one.topic), " ", one.system ? badge("system") : null], rate(one.messagesPerSecond), one.bytesPerSecond === null ? "–" : `${bytes(one.bytesPerSecond)}/s`,
    count(one.messages), bytes(one.bytes), count(one.queues), one.perm === undefined ? "–" : PERMISSIONS[one.perm] ?? String(one.perm), messages(page, one.topic, "newest")]);
  return h("section", { "aria-label": "Topics" },
    h("h2", {}, howMany(value.topics.length + value.more, "topic"), value.live ? null : badge("no broker", "warn")),
    table(value.live ? "Counts since the broker's start" : "Counts and rates need a running broker; queues are read from the files",
      ["topic", ["messages/s", "number"], ["bytes/s", "number"], ["messages", "number"], ["bytes", "number"], ["queues", "number"], "permission", "messages"], rows, "no topic yet"),
    value.more ? h("p", { class: "note" }, `${count(value.more)} more topics are not shown`) : null,
    value.queuesCut ? h("p", { class: "note" }, "Not all queues were read, so these counts are too low.") : null);
}

async function one(place, page, topic) {
  try {
    const value = await ask("topic", { store: page.store, topic });
    const sum = (name) => value.queues.reduce((total, queue) => (total === null || queue[name] === null ? null : total + queue[name]), 0);
    replace(place, h("section", { "aria-label": `Topic ${topic}` },
      h("h2", {}, topic, value.perm === undefined ? null : badge(PERMISSIONS[value.perm] ?? String(value.perm))),
      h("p", { class: "where" }, `${howMany(sum("messages"), "message")} in ${howMany(value.queues.length + value.more, "queue")}, ${bytes(sum("bytes"))} of log`,
        value.readQueueNums === undefined ? "" : ` · ${value.readQueueNums} queues to read, ${value.writeQueueNums} to write`),
      h("p", {}, messages(page, topic, "newest messages"), " · ", h("a", { href: `/topics?store=${page.store}` }, "all topics")),
      table("Queues", ["queue", ["begins", "number"], ["ends", "number"], ["messages", "number"], ["bytes", "number"], "first stored", "last stored", "messages"],
        value.queues.map((queue) => [String(queue.queueId), count(queue.minOffset), count(queue.maxOffset), count(queue.messages), bytes(queue.bytes), time(queue.firstMs), time(queue.lastMs),
          h("a", { href: `/search?${new URLSearchParams({ store: page.store, by: "queue", topic, queue: queue.queueId, value: lastOf(queue) })}`, "aria-label": `last messages of queue ${queue.queueId}` }, "last")])),
      value.more ? h("p", { class: "note" }, `${count(value.more)} more queues are not shown`) : null));
  } catch (problem) {
    replace(place, wrong(problem));
  }
}
