// Both datacenters as a picture: processes in the order in which a message passes them, and what
// flows between them. The table below it has the same data as text.

import { h, keepFocus, s, setAttribute, setText, STATES, stateTag } from "../dom.js";
import { bytes, clock, duration, perSecond, rate, validated, whole } from "../format.js";
import { behindWord, bySet, inSyncWord, memberLine, membersByProcess, setFigures, setKind, setSaid, setTag, setWord } from "../sets.js";
import { Table } from "../table.js";

const KINDS = { frontend: "Frontends", proxy: "Load balancer", broker: "Brokers", "online-consumer": "Online consumers", site: "Site", mirror: "Mirror", loader: "Load job", audit: "Audit", warehouse: "Warehouse", link: "Link" };
const NODE_H = 50, GAP_Y = 14, CHIP_H = 24;
const OVER = 9; // between a node and a line around it
const SET_HEAD = 42, SET_FOOT = 10; // above and below the members of a replica set
// Layouts by width of the window. Columns: senders, balancers, brokers, readers.
// `letters`: of a name, so many fit into a box; the detail and the table have all of it.
const WIDE = { W: 1180, w: 210, columns: [30, 330, 630, 940], head: 58, letters: 20 };
const NARROW = { W: 380, w: 108, columns: [8, 8, 136, 264], head: 62, letters: 11 };
const CHIP_LETTERS = 30;

// The layout: live datacenters above, the offline one below, between them the processes of both. The
// datacenters are those of the processes. Processes outside the flow (ZooKeeper, registry, dashboard,
// unknown kinds) are chips in their datacenter's heading.
// `members`: what membersByProcess returns; the members of a replica set are in one frame.
// Returns {nodes: {key: {x, y, w, h}}, frames, panels, labels, width, height, isWide}.
function layoutOf(rows, width, members) {
  const isWide = width >= 760;
  const size = isWide ? WIDE : NARROW;
  const of = (dc, ...kinds) => Object.keys(rows).filter((key) => kinds.includes(rows[key].role === "link" ? "link" : rows[key].kind) && (!dc || rows[key].dc === dc)).sort(byName);
  const chips = (dc) => Object.keys(rows).filter((key) => rows[key].dc === dc && !KINDS[rows[key].kind]).sort(byName);
  const bands = [
    ...liveDatacenters(rows).map((dc) => ({ dc, title: titleOf(dc), stacks: [[0, of(dc, "frontend")], [1, of(dc, "proxy")], [2, of(dc, "broker")], [3, of(dc, "online-consumer", "site")]] })),
    { dc: "", stacks: [[1, of(null, "link")], [2, of(null, "mirror")], [3, of(null, "audit")]] },
    { dc: "offline", title: "Offline datacenter", stacks: [[1, of(null, "loader")], [0, of(null, "warehouse")], [2, of("offline", "broker")], [3, of("offline", "online-consumer")]] },
  ];
  const nodes = {}, labels = [], panels = [], frames = [];
  let y = 8;
  for (const { dc, title, stacks } of bands) {
    // On a narrow window the first two columns are one.
    const columns = new Map();
    for (const [at, keys] of stacks) if (keys.length) columns.set(size.columns[at], [...(columns.get(size.columns[at]) || []), ...keys]);
    if (isWide && title) for (const [at, keys] of stacks) if (keys.length) labels.push({ x: size.columns[at], y: y + 48, text: KINDS[rows[keys[0]].kind] });
    const placed = new Map([...columns].map(([x, keys]) => [x, stackOf(keys, members)]));
    const inner = Math.max(NODE_H, ...[...placed.values()].map((stack) => stack.height));
    let head = title ? size.head : 0;
    if (title) {
      // Chips: to the right of the title, or below it in lines.
      let x = isWide ? size.W - 20 : 14, line = y + (isWide ? 9 : 28);
      const found = chips(dc);
      for (const key of isWide ? found.reverse() : found) {
        const w = Math.min(size.W - 40, Math.min(rows[key].name.length, CHIP_LETTERS) * (isWide ? 8.7 : 7.6) + (isWide ? 44 : 34));
        if (!isWide && x + w > size.W - 12) { x = 14; line += CHIP_H + 4; head += CHIP_H + 4; }
        if (isWide) x -= w;
        nodes[key] = { x, y: line, w, h: CHIP_H };
        x += isWide ? -8 : w + 6;
      }
      panels.push({ x: isWide ? 8 : 2, y, w: size.W - (isWide ? 16 : 4), h: head + inner + 14, title });
    }
    for (const [x, stack] of placed) {
      const top = y + head + (inner - stack.height) / 2, out = isWide ? 12 : 4;
      for (const [key, at] of stack.places) nodes[key] = { x, y: top + at, w: size.w, h: NODE_H };
      for (const frame of stack.frames) frames.push({ set: frame.set, x: x - out, y: top + frame.from, w: size.w + 2 * out, h: frame.to - frame.from });
    }
    y += head + inner + (title ? 14 : 0) + (dc === "offline" ? 8 : 24);
  }
  return { nodes, labels, panels, frames, width: size.W, height: y, isWide, letters: size.letters };
}
// The places of a column's boxes from its top, and the frames of the replica sets among them.
function stackOf(keys, members) {
  const setOf = (key) => (members.has(key) ? setKey(members.get(key).set) : "");
  const places = [], frames = [];
  let at = 0;
  for (const key of [...keys].sort((a, b) => byName(setOf(a), setOf(b)))) { // stable: by name within a set
    const set = setOf(key), last = frames.at(-1);
    if (set && (!last || last.set !== set)) {
      if (places.length) at += SET_FOOT;
      frames.push({ set, from: at, to: 0 });
      at += SET_HEAD;
    }
    places.push([key, at]);
    if (set) frames.at(-1).to = at + NODE_H + SET_FOOT;
    at += NODE_H + GAP_Y;
  }
  return { places, frames, height: at - GAP_Y + (frames.length ? SET_FOOT : 0) };
}
const setKey = (set) => `${set.dc}/${set.broker_id}`;
// The first live datacenter is called live; others have names.
function liveDatacenters(rows) {
  const names = new Set(Object.values(rows).map((row) => row.dc).filter((dc) => dc !== "offline"));
  return ["live", ...[...names].filter((dc) => dc !== "live").sort(byName)];
}
const titleOf = (dc) => `${dc.slice(0, 1).toUpperCase()}${dc.slice(1)} datacenter`;
const byName = (a, b) => a.localeCompare(b, "en", { numeric: true });

function path(a, b, nodes, isWide) {
  const middle = (node) => [node.x + node.w / 2, node.y + NODE_H / 2];
  const [ax, ay] = middle(a), [bx, by] = middle(b);
  if (Math.abs(ax - bx) > 60) {
    const right = bx > ax;
    const between = nodes.filter((node) => right && node.h === NODE_H && node.x > a.x + a.w && node.x + node.w < b.x && node.y - OVER < Math.max(ay, by) && node.y + NODE_H + OVER > Math.min(ay, by));
    if (between.length) return over(a.x + a.w, ay, b.x, by, between);
    const x1 = right ? a.x + a.w : a.x, x2 = right ? b.x : b.x + b.w;
    const bend = (x2 - x1) / 2;
    return `M${x1} ${ay}C${x1 + bend} ${ay} ${x2 - bend} ${by} ${x2} ${by}`;
  }
  const y1 = by > ay ? a.y + NODE_H : a.y, y2 = by > ay ? b.y : b.y + NODE_H;
  if (nodes.some((node) => node.h === NODE_H && node.x === a.x && node.y > Math.min(a.y, b.y) && node.y < Math.max(a.y, b.y))) {
    // Around the nodes between, at the left side.
    const x = Math.min(a.x, b.x), out = isWide ? 60 : 22;
    return `M${x} ${ay}C${x - out} ${ay} ${x - out} ${by} ${x} ${by}`;
  }
  const bend = (y2 - y1) / 2;
  return `M${ax} ${y1}C${ax} ${y1 + bend} ${bx} ${y2 - bend} ${bx} ${y2}`;
}

// Above or below the nodes that stand between, whichever is nearer to the end.
function over(x1, y1, x2, y2, between) {
  const y = y2 < y1 ? Math.min(...between.map((node) => node.y)) - OVER : Math.max(...between.map((node) => node.y)) + NODE_H + OVER;
  const left = Math.min(...between.map((node) => node.x)), right = Math.max(...between.map((node) => node.x + node.w));
  const m1 = (x1 + left) / 2, m2 = (right + x2) / 2;
  return `M${x1} ${y1}C${m1} ${y1} ${m1} ${y} ${left} ${y}L${right} ${y}C${m2} ${y} ${m2} ${y2} ${x2} ${y2}`;
}

function line(row) {
  const facts = row.facts || {};
  if (row.state === "down" || row.state === "silent") return row.reason || "does not answer";
  if (row.state === "stopped") return "stopped";
  if (row.state === "starting") return "starting";
  if (row.state === "lagging") return `${duration(row.behind_ms)} behind`;
  if ((row.faults || []).length) return row.faults.join(", ");
  switch (row.kind) {
    case "broker": return `${perSecond(facts.messages_s)} in · ${rate(row.in_s)}`;
    case "frontend": return `${perSecond(facts.messages_s)} sent`;
    case "online-consumer":
      if (["missing", "unknown", "extra"].includes(facts.validated?.state)) return `${facts.validated.state} ${whole(facts.validated.number)} · lag ${bytes(row.lag_bytes)}`;
      return `${perSecond(facts.messages_s)} · lag ${bytes(row.lag_bytes)}`;
    case "site": return `${perSecond(facts.messages_s)} · lag ${bytes(row.lag_bytes)}`;
    case "mirror": return `${rate(row.in_s)} · lag ${bytes(row.lag_bytes)}`;
    case "loader":
      if (facts.problems) return `${facts.problems === 1 ? "1 problem" : `${whole(facts.problems)} problems`}, see Jobs · lag ${bytes(row.lag_bytes)}`;
      return `${perSecond(facts.rows_s)} rows · lag ${bytes(row.lag_bytes)}`;
    case "proxy":
      if (row.role === "link") return `${rate(row.in_s)} to the mirror`;
      return `${facts.connections === 1 ? "1 connection" : `${whole(facts.connections)} connections`} · ${rate(row.in_s)}`;
    case "audit": return "counts every message";
    default: return STATES[row.state] ? STATES[row.state][2] : row.state;
  }
}

const fit = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function lineInSet(row, member) {
  if (row.state === "down") return member.role === "away" ? `away · ${line(row)}` : line(row);
  if (row.state !== "up" && row.state !== "slow") return line(row);
  return member.role === "leader" ? `leader · ${line(row)}` : memberLine(member);
}

export function topology(root, page) {
  const { store } = page;
  const svg = s("svg", { class: "picture", role: "group", "aria-label": "Topology: every process of both datacenters. The table below has the same data." });
  const table = new Table({
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
  const setLines = h("ul", { class: "legend sets", "aria-label": "Replica sets", hidden: true });
  const events = h("ol", { class: "events", "aria-live": "polite", "aria-label": "Events, newest first" });
  root.append(
    h("div", { class: "stage-and-events" },
      h("section", { class: "card" }, h("h2", {}, "Topology"), h("p", { class: "lead" }, "Frontends send to the live brokers through the balancer, events with a key directly; consumers read there, the mirror copies to the offline brokers, and the load job loads everything into the warehouse. The audit counts every message."), svg,
        h("ul", { class: "legend" }, ["up", "starting", "lagging", "silent", "down", "stopped"].map((state) => h("li", {}, stateTag(state))), h("li", {}, "Width and speed of a line: bytes a second. Dotted: read by the audit. Select a box for its detail.")), setLines),
      h("section", { class: "card" }, h("h2", {}, "Events"), events)),
    h("section", { class: "card" }, h("h2", {}, "Processes"), table.element),
  );
  let shape = "", layout = null, nodes = {}, edges = {}, frames = [], opened = null;
  const members = () => membersByProcess(Object.values(store.rows("sets")));

  function allRows() {
    const rows = { ...store.rows("processes") };
    const audit = store.audit;
    if (Object.values(rows).some((row) => row.kind === "loader")) rows.warehouse = { name: "warehouse", dc: "offline", kind: "warehouse", state: "up", facts: {}, rows: audit && audit.tiers.warehouse ? audit.tiers.warehouse.count : 0 };
    return rows;
  }

  function draw(rows) {
    const wanted = JSON.stringify([Object.entries(rows).map(([key, row]) => [key, row.kind, row.dc, row.role]), Object.keys(store.rows("edges")), [...members()].map(([key, found]) => [key, setKey(found.set)]), svg.clientWidth >= 760]);
    if (wanted === shape) return;
    shape = wanted;
    layout = layoutOf(rows, svg.clientWidth || 1000, members());
    setAttribute(svg, "class", `picture ${layout.isWide ? "" : "narrow"}`);
    setAttribute(svg, "viewBox", `0 0 ${layout.width} ${layout.height}`);
    nodes = {};
    edges = {};
    const lower = s("g"), upper = s("g");
    for (const [key, edge] of store.list("edges")) {
      const a = layout.nodes[edge.from], b = layout.nodes[edge.to];
      if (!a || !b) continue;
      const d = path(a, b, Object.values(layout.nodes), layout.isWide);
      const flow = s("path", { class: `flow ${edge.to === "warehouse" ? "warehouse" : edge.from.startsWith("offline") || edge.from.includes("mirror") ? "offline" : ""}`, d });
      const title = s("title");
      edges[key] = { base: s("path", { class: `edge ${edge.reads ? "reads" : ""}`, d, "marker-end": edge.reads ? null : "url(#arrow)" }, title), flow, title };
      lower.append(edges[key].base);
      if (!edge.reads) lower.append(flow);
    }
    for (const [key, at] of Object.entries(layout.nodes)) {
      const left = layout.isWide ? 16 : 10, isChip = at.h === CHIP_H;
      const first = at.y + (isChip ? 16.5 : 20);
      const parts = { name: s("text", { class: "name", x: at.x + left + (layout.isWide ? 16 : 14), y: first }), sub: s("text", { class: "sub", x: at.x + left, y: at.y + 38 }), mark: s("text", { class: "mark", x: at.x + left - 1, y: first, "aria-hidden": "true" }), title: s("title"), isChip };
      parts.element = s("g", { class: "node", "data-focus": key, tabindex: 0, role: "button", onclick: () => open(key), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(key); } } },
        parts.title, s("rect", { class: "box", x: at.x, y: at.y, width: at.w, height: at.h, rx: isChip ? 12 : 9 }), isChip ? null : s("rect", { class: "bar", x: at.x, y: at.y + 9, width: 4, height: at.h - 18, rx: 2 }), parts.mark, parts.name, isChip ? null : parts.sub);
      nodes[key] = parts;
      upper.append(parts.element);
    }
    frames = layout.frames.map((at) => {
      const parts = { set: at.set, title: s("title"), word: s("text", { class: "set-word", x: at.x + (layout.isWide ? 12 : 5), y: at.y + 17 }), figures: s("text", { class: "set-figures", x: at.x + (layout.isWide ? 12 : 5), y: at.y + 33 }) };
      parts.element = s("g", { class: "set" }, parts.title, s("rect", { class: "frame", x: at.x, y: at.y, width: at.w, height: at.h, rx: 12 }), parts.word, parts.figures);
      return parts;
    });
    keepFocus(svg, () => svg.replaceChildren(
      s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 10 10", refX: 9, refY: 5, markerUnits: "userSpaceOnUse", markerWidth: 11, markerHeight: 11, orient: "auto" }, s("path", { class: "arrow", d: "M0 0L10 5L0 10z" }))),
      ...layout.panels.map((panel) => s("rect", { class: "panel", x: panel.x, y: panel.y, width: panel.w, height: panel.h, rx: 14 })), ...frames.map((frame) => frame.element), lower,
      ...layout.panels.map((panel) => s("text", { class: "panel-name", x: panel.x + 14, y: panel.y + (layout.isWide ? 25 : 19) }, panel.title)),
      ...layout.labels.map((label) => s("text", { class: "stage", x: label.x, y: label.y }, label.text)), upper));
  }

  function paint(rows) {
    const inSets = members();
    for (const frame of frames) {
      const set = store.rows("sets")[frame.set];
      if (!set) continue;
      setAttribute(frame.element, "class", `set ${setKind(set)}`);
      setText(frame.word, layout.isWide ? `Broker ${set.broker_id}: ${setWord(set)}` : `Broker ${set.broker_id}`);
      setText(frame.figures, layout.isWide ? setFigures(set) : setWord(set));
      setText(frame.title, `${setSaid(set)}. ${setFigures(set)}`);
    }
    for (const [key, parts] of Object.entries(nodes)) {
      const row = rows[key], inSet = inSets.get(key);
      if (!row) continue;
      setAttribute(parts.element, "class", `node ${(row.faults || []).length && row.state === "up" ? "lagging" : row.state}${inSet && !inSet.member.is_in_sync ? " unsynced" : ""}`);
      setText(parts.mark, (STATES[row.state] || ["?"])[0]);
      setText(parts.name, fit(row.name, parts.isChip ? CHIP_LETTERS : layout.letters));
      const text = row.kind === "warehouse" ? `${whole(row.rows)} rows` : inSet ? lineInSet(row, inSet.member) : line(row);
      setText(parts.sub, layout.isWide ? fit(text, inSet ? 38 : 32) : fit(text.split(" · ")[0].replace("counts every message", "counts all").replace("no answer for", "silent for").replace(" to the mirror", ""), 17));
      setText(parts.title, `${row.name} (${row.kind}): ${text}`);
      setAttribute(parts.element, "aria-label", `${row.name}, ${row.kind}, ${STATES[row.state] ? STATES[row.state][2] : row.state}: ${text}`);
    }
    for (const [key, edge] of store.list("edges")) {
      const found = edges[key];
      if (!found) continue;
      const name = (at) => (rows[at] ? rows[at].name : at);
      setText(found.title, edge.reads ? `${name(edge.to)} reads ${name(edge.from)} to count` : `${name(edge.from)} → ${name(edge.to)}: ${rate(edge.bytes_s)}`);
      if (edge.reads) continue;
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

  function setFacts(key) {
    const found = members().get(key);
    if (!found) return [];
    const { set, member } = found;
    return [["Replica set", h("span", {}, `broker ${set.broker_id} `, setTag(set))], ["", setSaid(set)], ["Epoch", whole(set.epoch)], ["min_insync", set.min_insync], ["Role", member.role], ["In sync", inSyncWord(member)], ["Behind the leader", behindWord(member)]];
  }

  function show() {
    const row = allRows()[opened];
    if (!row) return;
    const facts = [["State", stateTag(row.state)], ["Since", row.since_ms ? clock(row.since_ms) : "–"], ["Reason", row.reason || "–"], ["Datacenter", row.dc], ["Kind", row.kind], ["Address", row.address || "–"], ["Metrics", row.metrics || "–"], ["Process id", row.pid || "–"], ["In", rate(row.in_s)], ["Out", rate(row.out_s)], ["Lag", bytes(row.lag_bytes)], ["Behind", duration(row.behind_ms)], ...setFacts(opened), ...Object.entries(row.facts || {}).map(([name, value]) => [name.replaceAll("_", " "), name === "validated" ? validated(value) : whole(value)])];
    const links = row.kind === "broker" ? h("p", {}, h("a", { href: `#/topics?broker=${encodeURIComponent(row.name)}` }, "Its partitions")) : null;
    page.show(row.name, h("dl", {}, facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])), links);
  }

  return {
    sections: ["edges", "sets"],
    update(changed) {
      const rows = allRows();
      draw(rows);
      paint(rows);
      if (changed.has("sets")) {
        const sets = Object.values(store.rows("sets")).sort(bySet);
        setAttribute(setLines, "hidden", sets.length ? null : "");
        setLines.replaceChildren(...sets.map((set) => h("li", {}, setTag(set), ` ${setSaid(set)}`)));
      }
      if (changed.has("processes")) table.set(store.list("processes").map(([key, row]) => ({ key, ...row })));
      if (changed.has("events")) {
        // By time: what was seen by a slower look is added later. A key begins with how often the clock had gone back.
        const newest = store.list("events").sort(([a, one], [b, other]) => b.slice(0, 3).localeCompare(a.slice(0, 3)) || other.at_ms - one.at_ms || b.localeCompare(a)).slice(0, 60);
        const have = new Map([...events.children].map((item) => [item.dataset.key, item]));
        events.replaceChildren(...newest.map(([key, event]) => have.get(key) || Object.assign(h("li", { "data-key": key }, h("time", {}, clock(event.at_ms)), h("span", { class: event.kind }, event.text)))));
        if (!newest.length && store.id >= 0) events.append(h("li", { class: "idle" }, "No events since the dashboard started."));
      }
    },
    resize() { shape = ""; const rows = allRows(); draw(rows); paint(rows); },
  };
}
