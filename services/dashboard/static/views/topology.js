// Both datacenters as a picture: processes in the order in which a message passes them, and what
// flows between them. The same is in the table below it, for those who read rather than look.

import { h, s, setAttribute, setText, STATES, stateTag } from "../dom.js";
import { bytes, clock, duration, perSecond, rate, whole } from "../format.js";
import { Table } from "../table.js";

const KINDS = { frontend: "Frontends", proxy: "Load balancer", broker: "Brokers", "online-consumer": "Online consumers", mirror: "Mirror", loader: "Load job", audit: "Audit", warehouse: "Warehouse" };
const NODE_H = 50, GAP_Y = 14;
const BASIC = new Set(["zookeeper", "dashboard"]);

// Where everything stands. Wide: a column per stage, the datacenters above each other; narrow: a row
// per stage, from top to bottom. Returns {nodes: {key: {x, y, w}}, panels, stages, width, height}.
function place(rows, width) {
  const of = (dc, kind) => Object.keys(rows).filter((key) => rows[key].kind === kind && (!dc || rows[key].dc === dc)).sort();
  const other = (dc) => Object.keys(rows).filter((key) => rows[key].dc === dc && !KINDS[rows[key].kind] && !BASIC.has(rows[key].kind)).sort();
  const stages = {
    live: [["frontend", of("live", "frontend")], ["proxy", of("live", "proxy")], ["broker", of("live", "broker")], ["online-consumer", [...of("live", "online-consumer"), ...other("live")]]],
    link: [["mirror", of(null, "mirror")], ["audit", of(null, "audit")]],
    offline: [["broker", of("offline", "broker")], ["loader", [...of("offline", "loader"), ...of("live", "loader")]], ["warehouse", of(null, "loader").length ? ["warehouse"] : []], ["online-consumer", [...of("offline", "online-consumer"), ...other("offline")]]],
  };
  const nodes = {}, labels = [], panels = [];
  let y = 8;
  if (width >= 760) {
    const W = 1180, w = 200, columns = [30, 330, 630, 950];
    for (const [dc, title] of [["live", "Live datacenter"], ["link", ""], ["offline", "Offline datacenter"]]) {
      const tall = Math.max(1, ...stages[dc].map(([, keys]) => keys.length));
      const height = dc === "link" ? tall * (NODE_H + GAP_Y) - GAP_Y : tall * (NODE_H + GAP_Y) + 56;
      if (title) panels.push({ x: 8, y, w: W - 16, h: height, title, dc });
      const top = title ? y + 54 : y;
      stages[dc].forEach(([kind, keys], index) => {
        if (!keys.length) return;
        const at = dc === "link" ? { mirror: 2, audit: 3 }[kind] : dc === "offline" ? { broker: 2, loader: 1, warehouse: 0, "online-consumer": 3 }[kind] : index;
        if (title) labels.push({ x: columns[at], y: y + 44, text: KINDS[kind] });
        const space = (tall - keys.length) * (NODE_H + GAP_Y) / 2;
        keys.forEach((key, row) => { nodes[key] = { x: columns[at], y: top + space + row * (NODE_H + GAP_Y), w }; });
      });
      y += height + (dc === "offline" ? 8 : 26);
    }
    return { nodes, labels, panels, width: W, height: y, isWide: true };
  }
  const W = 380, w = 112;
  for (const [dc, title] of [["live", "Live datacenter"], ["link", ""], ["offline", "Offline datacenter"]]) {
    const start = y;
    if (title) y += 30;
    // Mirror and audit stand side by side, so that no line crosses a box.
    for (const [kind, keys] of dc === "link" ? [["mirror", stages.link.flatMap(([, found]) => found)]] : stages[dc]) {
      for (let from = 0; from < keys.length; from += 3) {
        const line = keys.slice(from, from + 3);
        const left = (W - line.length * w - (line.length - 1) * 10) / 2;
        line.forEach((key, index) => { nodes[key] = { x: left + index * (w + 10), y, w, kind }; });
        y += NODE_H + 30;
      }
    }
    if (title) panels.push({ x: 2, y: start, w: W - 4, h: y - start - 14, title, dc });
  }
  return { nodes, labels, panels, width: W, height: y, isWide: false };
}

function path(a, b, isWide) {
  const middle = (node) => [node.x + node.w / 2, node.y + NODE_H / 2];
  const [ax, ay] = middle(a), [bx, by] = middle(b);
  if (isWide && Math.abs(ax - bx) > 60) {
    const right = bx > ax;
    const x1 = right ? a.x + a.w : a.x, x2 = right ? b.x : b.x + b.w;
    const bend = (x2 - x1) / 2;
    return `M${x1} ${ay}C${x1 + bend} ${ay} ${x2 - bend} ${by} ${x2} ${by}`;
  }
  const y1 = by > ay ? a.y + NODE_H : a.y, y2 = by > ay ? b.y : b.y + NODE_H;
  if (isWide && Math.abs(y2 - y1) > 2 * NODE_H) {
    // Around what stands between, at the left side.
    const x = Math.min(a.x, b.x);
    return `M${x} ${ay}C${x - 60} ${ay} ${x - 60} ${by} ${x} ${by}`;
  }
  const bend = (y2 - y1) / 2;
  return `M${ax} ${y1}C${ax} ${y1 + bend} ${bx} ${y2 - bend} ${bx} ${y2}`;
}

function line(row) {
  const facts = row.facts || {};
  if (row.state === "down") return row.reason || "does not answer";
  if (row.state === "stopped") return "stopped";
  if (row.state === "starting") return "starting";
  if (row.state === "lagging") return `${duration(row.behind_ms)} behind`;
  switch (row.kind) {
    case "broker": return `${perSecond(facts.messages_s)} in · ${rate(row.in_s)}`;
    case "frontend": return `${perSecond(facts.messages_s)} sent`;
    case "online-consumer": return `${perSecond(facts.messages_s)} · lag ${bytes(row.lag_bytes)}`;
    case "mirror": return `${rate(row.in_s)} · lag ${bytes(row.lag_bytes)}`;
    case "loader": return `${perSecond(facts.rows_s)} rows · lag ${bytes(row.lag_bytes)}`;
    case "proxy": return `${whole(facts.connections)} connections · ${rate(row.in_s)}`;
    case "audit": return "counts every message";
    default: return STATES[row.state] ? STATES[row.state][2] : row.state;
  }
}

export function topology(root, page) {
  const { store } = page;
  const svg = s("svg", { class: "picture", role: "group", "aria-label": "Topology: every process of both datacenters. The table below says the same." });
  const basics = h("ul", { class: "legend", "aria-label": "Beside the flow" });
  const table = new Table({
    caption: "All processes", sortBy: "state", filter: false,
    columns: [
      { name: "state", label: "State", text: (row) => row.state, sort: (row) => ["down", "lagging", "starting", "stopped", "slow", "up"].indexOf(row.state === "slow" ? "up" : row.state), make: (row) => stateTag(row.state) },
      { name: "name", label: "Process", text: (row) => row.name, make: (row) => h("button", { type: "button", onclick: () => open(row.key) }, row.name), key: (row) => row.key },
      { name: "dc", label: "Datacenter", text: (row) => row.dc },
      { name: "kind", label: "Kind", text: (row) => row.kind },
      { name: "in", label: "In", num: true, text: (row) => rate(row.in_s), sort: (row) => row.in_s },
      { name: "out", label: "Out", num: true, text: (row) => rate(row.out_s), sort: (row) => row.out_s },
      { name: "lag", label: "Lag", num: true, text: (row) => bytes(row.lag_bytes), sort: (row) => row.lag_bytes },
      { name: "since", label: "Since", text: (row) => clock(row.since_ms), sort: (row) => row.since_ms },
      { name: "why", label: "Why", text: (row) => row.reason, wide: true },
    ],
  });
  const events = h("ol", { class: "events", "aria-live": "polite", "aria-label": "Events, newest first" });
  root.append(
    h("section", { class: "card" }, h("h2", {}, "Topology"), svg, basics,
      h("ul", { class: "legend" }, ["up", "lagging", "down", "stopped"].map((state) => h("li", {}, stateTag(state))), h("li", {}, "width and speed of a line: bytes a second · dotted: the audit reads everything"))),
    h("div", { class: "two" }, h("section", { class: "card" }, h("h2", {}, "Processes"), table.element), h("section", { class: "card" }, h("h2", {}, "What happened"), events)),
  );
  let shape = "", layout = null, nodes = {}, edges = {}, opened = null;

  function allRows() {
    const rows = { ...store.rows("processes") };
    const audit = store.audit;
    if (Object.values(rows).some((row) => row.kind === "loader")) rows.warehouse = { name: "warehouse", dc: "offline", kind: "warehouse", state: "up", facts: {}, rows: audit && audit.tiers.warehouse ? audit.tiers.warehouse.count : 0 };
    return rows;
  }

  function draw(rows) {
    const picture = Object.fromEntries(Object.entries(rows).filter(([, row]) => !BASIC.has(row.kind)));
    const wanted = JSON.stringify([Object.entries(picture).map(([key, row]) => [key, row.kind, row.dc]), Object.keys(store.rows("edges")), svg.clientWidth >= 760]);
    if (wanted === shape) return;
    shape = wanted;
    layout = place(picture, svg.clientWidth || 1000);
    setAttribute(svg, "viewBox", `0 0 ${layout.width} ${layout.height}`);
    nodes = {};
    edges = {};
    const lower = s("g"), rates = s("g"), upper = s("g");
    for (const [key, edge] of store.list("edges")) {
      const a = layout.nodes[edge.from], b = layout.nodes[edge.to];
      if (!a || !b) continue;
      const d = path(a, b, layout.isWide);
      const flow = s("path", { class: `flow ${edge.to === "warehouse" ? "warehouse" : edge.from.startsWith("offline") || edge.from.includes("mirror") ? "offline" : ""}`, d });
      edges[key] = { base: s("path", { class: `edge ${edge.reads ? "reads" : ""}`, d }), flow };
      lower.append(edges[key].base);
      if (!edge.reads) lower.append(flow);
    }
    for (const [key, at] of Object.entries(layout.nodes)) {
      const parts = { name: s("text", { class: "name", x: at.x + (layout.isWide ? 32 : 26), y: at.y + 20 }), sub: s("text", { class: "sub", x: at.x + (layout.isWide ? 16 : 10), y: at.y + 38 }), mark: s("text", { class: "mark", x: at.x + (layout.isWide ? 15 : 10), y: at.y + 20, "aria-hidden": "true" }) };
      parts.element = s("g", { class: "node", tabindex: 0, role: "button", onclick: () => open(key), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(key); } } },
        s("rect", { class: "box", x: at.x, y: at.y, width: at.w, height: NODE_H, rx: 9 }), s("rect", { class: "bar", x: at.x, y: at.y + 9, width: 4, height: NODE_H - 18, rx: 2 }), parts.mark, parts.name, parts.sub);
      nodes[key] = parts;
      upper.append(parts.element);
    }
    svg.replaceChildren(
      ...layout.panels.flatMap((panel) => [s("rect", { class: "panel", x: panel.x, y: panel.y, width: panel.w, height: panel.h, rx: 14 }), s("text", { class: "panel-name", x: panel.x + 16, y: panel.y + 22 }, panel.title)]),
      ...layout.labels.map((label) => s("text", { class: "stage", x: label.x, y: label.y }, label.text)), lower, rates, upper);
  }

  function paint(rows) {
    for (const [key, parts] of Object.entries(nodes)) {
      const row = rows[key];
      if (!row) continue;
      setAttribute(parts.element, "class", `node ${row.state}`);
      setText(parts.mark, (STATES[row.state] || ["?"])[0]);
      setText(parts.name, layout.isWide || row.name.length < 13 ? row.name : `${row.name.slice(0, 11)}…`);
      const text = row.kind === "warehouse" ? `${whole(row.rows)} rows` : line(row);
      setText(parts.sub, layout.isWide ? text : text.split(" · ")[0].slice(0, 17));
      setAttribute(parts.element, "aria-label", `${row.name}, ${row.kind}, ${STATES[row.state] ? STATES[row.state][2] : row.state}: ${text}`);
    }
    for (const [key, edge] of store.list("edges")) {
      const found = edges[key];
      if (!found || edge.reads) continue;
      // Logarithmic: 100 B/s is a thread, 10 MB/s is 9 px.
      const width = edge.bytes_s > 0 ? Math.min(9, Math.max(1.6, 1.6 * Math.log10(edge.bytes_s / 30))) : 0;
      found.base.style.strokeWidth = `${Math.max(1.5, width + 1)}px`;
      found.flow.style.strokeWidth = `${width}px`;
      found.flow.style.visibility = width ? "visible" : "hidden";
      const speed = edge.bytes_s > 0 ? `${(4 / Math.max(1.5, Math.log10(edge.bytes_s))).toFixed(1)}s` : "0s";
      if (found.speed !== speed) { found.speed = speed; found.flow.style.animationDuration = speed; }
    }
  }

  function open(key) {
    opened = key;
    show();
    page.onhide = () => { opened = null; };
  }

  function show() {
    const row = allRows()[opened];
    if (!row) return;
    const facts = [["State", stateTag(row.state)], ["Since", row.since_ms ? clock(row.since_ms) : "–"], ["Why", row.reason || "–"], ["Datacenter", row.dc], ["Kind", row.kind], ["Address", row.address || "–"], ["Metrics", row.metrics || "–"], ["Process id", row.pid || "–"], ["In", rate(row.in_s)], ["Out", rate(row.out_s)], ["Lag", bytes(row.lag_bytes)], ["Behind", duration(row.behind_ms)], ...Object.entries(row.facts || {}).map(([name, value]) => [name.replaceAll("_", " "), whole(value)])];
    const links = row.kind === "broker" ? h("p", {}, h("a", { href: `#/topics?broker=${encodeURIComponent(row.name)}` }, "Its partitions")) : null;
    page.show(row.name, h("dl", {}, facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])), links);
  }

  return {
    sections: ["edges"],
    update(changed) {
      const rows = allRows();
      draw(rows);
      paint(rows);
      if (changed.has("processes")) table.set(store.list("processes").map(([key, row]) => ({ key, ...row })));
      const basic = Object.values(rows).filter((row) => BASIC.has(row.kind));
      const text = JSON.stringify(basic.map((row) => [row.name, row.state]));
      if (basics.dataset.text !== text) { basics.dataset.text = text; basics.replaceChildren(...basic.map((row) => h("li", {}, stateTag(row.state), ` ${row.name}`))); }
      if (changed.has("events")) {
        const newest = store.list("events").sort(([a], [b]) => b.localeCompare(a)).slice(0, 60);
        const have = new Map([...events.children].map((item) => [item.dataset.key, item]));
        events.replaceChildren(...newest.map(([key, event]) => have.get(key) || Object.assign(h("li", { "data-key": key }, h("time", {}, clock(event.at_ms)), h("span", { class: event.kind }, event.text)))));
        if (!newest.length) events.append(h("li", { class: "idle" }, "Nothing yet: all is as it was when this page's server started."));
      }
    },
    resize() { shape = ""; const rows = allRows(); draw(rows); paint(rows); },
  };
}
