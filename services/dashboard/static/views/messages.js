// Messages of a partition: newest, from an offset or a time, searched, or live as they come.

import { h, setAttribute, setOptions, setText } from "../dom.js";
import { bytes, moment, whole } from "../format.js";

const TAIL_MS = 1000, TAIL_KEPT = 200;
const ENDS = { end: "the end of the log", count: "enough messages", bytes: "8 MB were scanned, or 16 MB found", time: "2 s had passed" };

const TIER_NAMES = { produced: "Frontend", live: "Live log", offline: "Offline log", warehouse: "Warehouse" };

// The steps of a traced message as a table: a line for each place, or for why there is none.
function way(found) {
  const rows = found.steps.flatMap((step) => (step.places.length ? step.places : [null]).map((place, number) =>
    h("tr", {}, h("th", { scope: "row" }, number ? "" : TIER_NAMES[step.tier]), h("td", {}, number ? "" : step.state), h("td", {}, place ? placeText(place) : ""), h("td", {}, number ? "" : step.text))));
  return h("div", { class: "scroll" }, h("p", {}, found.verdict), h("table", {}, h("tbody", {}, rows)));
}

function placeText(place) {
  if (place.server) return `${place.server}, ${place.service}, ${moment(place.time_ms)}`;
  if (place.file) return `${place.table}${place.version === null ? "" : `, written by version ${place.version}`}, ${place.file}, row ${whole(place.row)}`;
  return `${place.partition} at ${whole(place.offset)}${place.copied_from ? `, copy of ${place.copied_from}` : ""}`;
}

const address = (at) => `#/messages?${new URLSearchParams(at)}`;

// A message as a line that opens to its record; `of`: the datacenter, topic and partition it is from.
function messageItem(message, of) {
  const text = message.record ? JSON.stringify(Object.fromEntries(Object.entries(message.record).filter(([name]) => name !== "header"))) : message.text;
  const body = h("pre");
  const item = h("details", { class: "message" }, h("summary", {}, h("strong", {}, whole(message.offset)), h("span", {}, message.time_ms ? moment(message.time_ms) : "no header"), h("span", {}, message.server || ""), h("span", { class: "short" }, text)), body);
  item.addEventListener("toggle", () => {
    if (!item.open || body.textContent) return;
    body.textContent = message.record ? JSON.stringify(message.record, null, 2) : `${message.error}\n\n${message.text}\n\n${message.hex}`;
    item.append(h("p", { class: "legend" }, h("a", { href: address({ ...of, offset: message.offset }) }, "Link to this offset"), `${message.schema || "not decoded"} · ${bytes(message.size)} · next offset ${whole(message.next)} `, whereButton(item, { ...of, offset: message.offset, number: message.number })));
  });
  return item;
}

// Asks where the message is: at each place of its way.
function whereButton(item, place) {
  return h("button", { type: "button", onclick: async () => {
    const answer = h("div", { role: "status", "aria-label": "Where this message is" }, "Searching …");
    item.querySelector("div[role=status]")?.remove();
    item.append(answer);
    try {
      const response = await fetch(`/api/trace?${new URLSearchParams(place)}`);
      const found = await response.json();
      if (!response.ok) throw new Error(found.error);
      answer.replaceChildren(way(found));
    } catch (error) {
      setText(answer, `Not traced: ${error.message}`);
    }
  } }, "Where is it?");
}

// The choice of where to read: a datacenter's topic and partition, and its newest messages, an offset or a time.
function placeChoice(store, query, onPartition) {
  const dc = h("select"), topic = h("select"), partition = h("select");
  const from = h("select", {}, [["newest", "the newest"], ["offset", "offset"], ["time", "time"]].map(([value, text]) => h("option", { value }, text)));
  const offset = h("input", { type: "text", inputmode: "numeric", pattern: "[0-9]*", size: 14 });
  const time = h("input", { type: "datetime-local", step: 1 });
  const offsetLabel = h("label", {}, "Offset", offset), timeLabel = h("label", {}, "Time (UTC)", time);
  if (query.get("offset")) { from.value = "offset"; offset.value = query.get("offset"); }
  function show() { offsetLabel.hidden = from.value !== "offset"; timeLabel.hidden = from.value !== "time"; }
  from.addEventListener("change", show);
  show();

  const ofDatacenter = () => Object.values(store.rows("partitions")).filter((row) => row.dc === dc.value);
  function write(wanted = {}) {
    setOptions(dc, [...new Set(Object.values(store.rows("partitions")).map((row) => row.dc))].sort(), wanted.dc, "live");
    setOptions(topic, [...new Set(ofDatacenter().map((row) => row.topic))].sort(), wanted.topic, "page-view");
    setOptions(partition, ofDatacenter().filter((row) => row.topic === topic.value).map((row) => row.partition).sort((a, b) => a.localeCompare(b, "en", { numeric: true })), wanted.partition);
  }
  for (const select of [dc, topic, partition]) select.addEventListener("change", () => { write(); onPartition(); });

  function start() {
    if (from.value === "offset" && /^[0-9]+$/.test(offset.value)) return { offset: offset.value };
    if (from.value === "time" && time.value) return { time: String(new Date(`${time.value}Z`).getTime()) };
    return {};
  }
  return {
    labels: [h("label", {}, "Datacenter", dc), h("label", {}, "Topic", topic), h("label", {}, "Partition", partition), h("label", {}, "From", from), offsetLabel, timeLabel],
    write, start,
    partition: () => ({ dc: dc.value, topic: topic.value, partition: partition.value }),
  };
}

export function messages(root, page, query) {
  const { store } = page;
  const choice = placeChoice(store, query, () => { if (timer) follow(true); });
  const search = h("input", { type: "search", placeholder: "text in the event" });
  const tail = h("button", { type: "button", "aria-pressed": "false", onclick: () => follow(!timer) }, "Live tail");
  const said = h("p", { class: "lead", role: "status" });
  const list = h("div");
  const more = h("button", { type: "button", hidden: true, onclick: () => load(next, shown) }, "Later messages");
  const form = h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); follow(false); link(); load(choice.start()); } },
    ...choice.labels, h("label", {}, "Search", search), h("button", { class: "main", type: "submit" }, "Show"), tail);
  root.append(h("section", { class: "card" }, h("h2", {}, "Messages"), form, said, list, more));
  let timer = 0, next = null, shown = null, requests = 0, follows = 0, first = true; // `shown`: where the messages are from, whatever is chosen since
  const wanted = { dc: query.get("dc"), topic: query.get("topic"), partition: query.get("partition") };

  function link() { history.replaceState(null, "", address({ ...choice.partition(), ...choice.start() })); }

  async function load(where, of = choice.partition(), isTail = false) {
    const mine = ++requests;
    const [broker, number] = of.partition.split("-");
    if (!broker) return;
    if (!isTail) setText(said, "Loading …");
    try {
      const answer = await fetch(`/api/messages?${new URLSearchParams({ dc: of.dc, topic: of.topic, broker, number, search: search.value, count: isTail ? 200 : 50, ...where })}`);
      const answered = await answer.json();
      if (mine !== requests) return;
      if (!answer.ok) throw new Error(answered.error);
      next = { offset: answered.next, skip: answered.next_skip }; // of a compressed set only a part may have been shown
      shown = of;
      const items = answered.messages.map((message) => messageItem(message, of));
      if (isTail) {
        list.prepend(...items.reverse());
        while (list.children.length > TAIL_KEPT) list.lastChild.remove();
        setText(said, `Live: up to offset ${whole(answered.next)}, newest first.`);
      } else {
        list.replaceChildren(...items);
        setText(said, `${answered.messages.length} messages; ${whole(answered.scanned)} scanned from offset ${whole(answered.start)} to ${whole(answered.next)}, until ${ENDS[answered.ended] || answered.ended}. The log runs from ${whole(answered.earliest)} to ${whole(answered.latest)}.`);
      }
      more.hidden = isTail || answered.next >= answered.latest;
    } catch (error) {
      if (mine === requests) setText(said, `Not read: ${error.message}`);
    }
  }

  async function follow(on) {
    clearTimeout(timer);
    timer = 0;
    const mine = ++follows;
    setAttribute(tail, "aria-pressed", on);
    if (!on) return;
    timer = 1;
    list.replaceChildren();
    next = null;
    const of = choice.partition();
    const step = async () => {
      if (!document.hidden) await load(next || {}, of, true);
      if (mine === follows) timer = setTimeout(step, TAIL_MS);
    };
    await step();
  }

  return {
    sections: ["partitions"],
    update(changed) {
      if (!changed.has("partitions")) return;
      choice.write(first ? wanted : {});
      if (first && choice.partition().topic) { first = false; load(choice.start()); }
    },
    close() { clearTimeout(timer); timer = 0; requests += 1; follows += 1; },
  };
}
