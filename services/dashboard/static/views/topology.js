// Both datacenters as a picture: processes in the order in which a message passes them, and what
// flows between them. The table below it has the same data as text.

import { h, setAttribute, stateTag } from "../dom.js";
import { bytes, clock, duration, rate, validated, whole } from "../format.js";
import { behindWord, bySet, inSyncWord, membersByProcess, setSaid, setTag } from "../sets.js";
import { Table } from "../table.js";
import { picture } from "./topology_picture.js";

// Every process as a row; the names open its detail.
function processTable(open) {
  return new Table({
    caption: "All processes", sortBy: "state", filter: false,
    columns: [
      { name: "state", label: "State", text: (row) => row.state, sort: (row) => ["down", "silent", "lagging", "starting", "stopped", "slow", "up"].indexOf(row.state === "slow" ? "up" : row.state), make: (row) => stateTag(row.state) },
      { name: "name", label: "Process", text: (row) => row.name, make: (row) => h("button", { type: "button", "data-focus": `row ${row.key}`, onclick: () => open(row.key) }, row.name), key: (row) => row.key },
      { name: "dc", label: "Datacenter", text: (row) => row.dc },
      { name: "kind", label: "Kind", text: (row) => row.kind },
      { name: "in", label: "In", num: true, text: (row) => rate(row.in_s), sort: (row) => row.in_s },
      { name: "out", label: "Out", num: true, text: (row) => rate(row.out_s), sort: (row) => row.out_s },
      { name: "lag", label: "Lag", num: true, text: (row) => bytes(row.lag_bytes), sort: (row) => row.lag_bytes },
      { name: "since", label: "Since", text: (row) => clock(row.since_ms), sort: (row) => row.since_ms },
      { name: "why", label: "Reason", text: (row) => row.reason, wide: true },
    ],
  });
}

// The rows of the processes, and the warehouse, which is none, as the last box.
function allRows(store) {
  const rows = { ...store.rows("processes") };
  const audit = store.audit;
  if (Object.values(rows).some((row) => row.kind === "loader")) rows.warehouse = { name: "warehouse", dc: "offline", kind: "warehouse", state: "up", facts: {}, rows: audit && audit.tiers.warehouse ? audit.tiers.warehouse.count : 0 };
  return rows;
}

// Facts of the replica set that a process is in, for its detail.
function setFacts(store, key) {
  const found = membersByProcess(Object.values(store.rows("sets"))).get(key);
  if (!found) return [];
  const { set, member } = found;
  return [["Replica set", h("span", {}, `broker ${set.broker_id} `, setTag(set))], ["", setSaid(set)], ["Epoch", whole(set.epoch)], ["min_insync", set.min_insync], ["Role", member.role], ["In sync", inSyncWord(member)], ["Behind the leader", behindWord(member)]];
}

// Shows the detail of one process.
function showDetail(page, key) {
  const { store } = page;
  const row = allRows(store)[key];
  if (!row) return;
  const facts = [["State", stateTag(row.state)], ["Since", row.since_ms ? clock(row.since_ms) : "–"], ["Reason", row.reason || "–"], ["Datacenter", row.dc], ["Kind", row.kind], ["Address", row.address || "–"], ["Metrics", row.metrics || "–"], ["Process id", row.pid || "–"], ["In", rate(row.in_s)], ["Out", rate(row.out_s)], ["Lag", bytes(row.lag_bytes)], ["Behind", duration(row.behind_ms)], ...setFacts(store, key), ...Object.entries(row.facts || {}).map(([name, value]) => [name.replaceAll("_", " "), name === "validated" ? validated(value) : whole(value)])];
  const links = row.kind === "broker" ? h("p", {}, h("a", { href: `#/topics?broker=${encodeURIComponent(row.name)}` }, "Its partitions")) : null;
  page.show(row.name, h("dl", {}, facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])), links);
}

// By time: what was seen by a slower look is added later. A key begins with how often the clock had gone back.
const newestEvents = (store) => store.list("events").sort(([a, one], [b, other]) => b.slice(0, 3).localeCompare(a.slice(0, 3)) || other.at_ms - one.at_ms || b.localeCompare(a)).slice(0, 60);

export function topology(root, page) {
  const { store } = page;
  const open = (key) => showDetail(page, key);
  const drawn = picture(store, open), table = processTable(open);
  const setLines = h("ul", { class: "legend sets", "aria-label": "Replica sets", hidden: true });
  const events = h("ol", { class: "events", "aria-live": "polite", "aria-label": "Events, newest first" });
  root.append(
    h("div", { class: "stage-and-events" },
      h("section", { class: "card" }, h("h2", {}, "Topology"), h("p", { class: "lead" }, "Frontends send to the live brokers through the balancer, events with a key directly; consumers read there, the mirror copies to the offline brokers, and the load job loads everything into the warehouse. The audit counts every message."), drawn.element,
        h("ul", { class: "legend" }, ["up", "starting", "lagging", "silent", "down", "stopped"].map((state) => h("li", {}, stateTag(state))), h("li", {}, "Width and speed of a line: bytes a second. Dotted: read by the audit. Select a box for its detail.")), setLines),
      h("section", { class: "card" }, h("h2", {}, "Events"), events)),
    h("section", { class: "card" }, h("h2", {}, "Processes"), table.element),
  );
  return {
    sections: ["edges", "sets"],
    update(changed) {
      drawn.show(allRows(store));
      if (changed.has("sets")) {
        const sets = Object.values(store.rows("sets")).sort(bySet);
        setAttribute(setLines, "hidden", sets.length ? null : "");
        setLines.replaceChildren(...sets.map((set) => h("li", {}, setTag(set), ` ${setSaid(set)}`)));
      }
      if (changed.has("processes")) table.set(store.list("processes").map(([key, row]) => ({ key, ...row })));
      if (changed.has("events")) {
        const newest = newestEvents(store);
        const have = new Map([...events.children].map((item) => [item.dataset.key, item]));
        events.replaceChildren(...newest.map(([key, event]) => have.get(key) || Object.assign(h("li", { "data-key": key }, h("time", {}, clock(event.at_ms)), h("span", { class: event.kind }, event.text)))));
        if (!newest.length && store.id >= 0) events.append(h("li", { class: "idle" }, "No events since the dashboard started."));
      }
    },
    resize() { drawn.redraw(allRows(store)); },
  };
}
