// The picture of Topology: draws its shapes where a process or link came or went, and paints
// states and figures into them at each message.

import { keepFocus, s, setAttribute, setText, STATES } from "../dom.js";
import { bytes, duration, perSecond, rate, whole } from "../format.js";
import { memberLine, membersByProcess, setFigures, setKind, setSaid, setWord } from "../sets.js";
import { CHIP_H, CHIP_LETTERS, layoutOf, path, setKey } from "./topology_layout.js";

// What a process does, in the few words that fit into its box.
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

// The same for a member of a replica set.
function lineInSet(row, member) {
  if (row.state === "down") return member.role === "away" ? `away · ${line(row)}` : line(row);
  if (row.state !== "up" && row.state !== "slow") return line(row);
  return member.role === "leader" ? `leader · ${line(row)}` : memberLine(member);
}

function drawnEdge(edge, d) {
  const flow = s("path", { class: `flow ${edge.to === "warehouse" ? "warehouse" : edge.from.startsWith("offline") || edge.from.includes("mirror") ? "offline" : ""}`, d });
  const title = s("title");
  return { base: s("path", { class: `edge ${edge.reads ? "reads" : ""}`, d, "marker-end": edge.reads ? null : "url(#arrow)" }, title), flow, title };
}

function drawnNode(key, at, isWide, open) {
  const left = isWide ? 16 : 10, isChip = at.h === CHIP_H;
  const first = at.y + (isChip ? 16.5 : 20);
  const parts = { name: s("text", { class: "name", x: at.x + left + (isWide ? 16 : 14), y: first }), sub: s("text", { class: "sub", x: at.x + left, y: at.y + 38 }), mark: s("text", { class: "mark", x: at.x + left - 1, y: first, "aria-hidden": "true" }), title: s("title"), isChip };
  parts.element = s("g", { class: "node", "data-focus": key, tabindex: 0, role: "button", onclick: () => open(key), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(key); } } },
    parts.title, s("rect", { class: "box", x: at.x, y: at.y, width: at.w, height: at.h, rx: isChip ? 12 : 9 }), isChip ? null : s("rect", { class: "bar", x: at.x, y: at.y + 9, width: 4, height: at.h - 18, rx: 2 }), parts.mark, parts.name, isChip ? null : parts.sub);
  return parts;
}

function drawnFrame(at, isWide) {
  const parts = { set: at.set, title: s("title"), word: s("text", { class: "set-word", x: at.x + (isWide ? 12 : 5), y: at.y + 17 }), figures: s("text", { class: "set-figures", x: at.x + (isWide ? 12 : 5), y: at.y + 33 }) };
  parts.element = s("g", { class: "set" }, parts.title, s("rect", { class: "frame", x: at.x, y: at.y, width: at.w, height: at.h, rx: 12 }), parts.word, parts.figures);
  return parts;
}

function paintFrame(frame, set, isWide) {
  setAttribute(frame.element, "class", `set ${setKind(set)}`);
  setText(frame.word, isWide ? `Broker ${set.broker_id}: ${setWord(set)}` : `Broker ${set.broker_id}`);
  setText(frame.figures, isWide ? setFigures(set) : setWord(set));
  setText(frame.title, `${setSaid(set)}. ${setFigures(set)}`);
}

// `inSet`: the process's set and its place in it, where it is in one.
function paintNode(parts, row, inSet, layout) {
  setAttribute(parts.element, "class", `node ${(row.faults || []).length && row.state === "up" ? "lagging" : row.state}${inSet && !inSet.member.is_in_sync ? " unsynced" : ""}`);
  setText(parts.mark, (STATES[row.state] || ["?"])[0]);
  setText(parts.name, fit(row.name, parts.isChip ? CHIP_LETTERS : layout.letters));
  const text = row.kind === "warehouse" ? `${whole(row.rows)} rows` : inSet ? lineInSet(row, inSet.member) : line(row);
  setText(parts.sub, layout.isWide ? fit(text, inSet ? 38 : 32) : fit(text.split(" · ")[0].replace("counts every message", "counts all").replace("no answer for", "silent for").replace(" to the mirror", ""), 17));
  setText(parts.title, `${row.name} (${row.kind}): ${text}`);
  setAttribute(parts.element, "aria-label", `${row.name}, ${row.kind}, ${STATES[row.state] ? STATES[row.state][2] : row.state}: ${text}`);
}

function paintEdge(found, edge, rows) {
  const name = (at) => (rows[at] ? rows[at].name : at);
  setText(found.title, edge.reads ? `${name(edge.to)} reads ${name(edge.from)} to count` : `${name(edge.from)} → ${name(edge.to)}: ${rate(edge.bytes_s)}`);
  if (edge.reads) return;
  // Logarithmic: 100 B/s is a thread, 10 MB/s is 9 px.
  const width = edge.bytes_s > 0 ? Math.min(9, Math.max(1.6, 1.6 * Math.log10(edge.bytes_s / 30))) : 0;
  found.base.style.strokeWidth = `${Math.max(1.5, width + 1)}px`;
  found.flow.style.strokeWidth = `${width}px`;
  found.flow.style.visibility = width ? "visible" : "hidden";
  const speed = edge.bytes_s > 0 ? `${(4 / Math.max(1.5, Math.log10(edge.bytes_s))).toFixed(1)}s` : "0s";
  if (found.speed !== speed) { found.speed = speed; found.flow.style.animationDuration = speed; }
}

// `open`: called with the key of the box that was selected.
// Returns the picture's `element`; `show`, to be called with the rows at each message; and
// `redraw`, which also draws all shapes anew, for a window of another size.
export function picture(store, open) {
  const svg = s("svg", { class: "picture", role: "group", "aria-label": "Topology: every process of both datacenters. The table below has the same data." });
  let shape = "", layout = null, nodes = {}, edges = {}, frames = [];
  const members = () => membersByProcess(Object.values(store.rows("sets")));

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
      edges[key] = drawnEdge(edge, path(a, b, Object.values(layout.nodes), layout.isWide));
      lower.append(edges[key].base);
      if (!edge.reads) lower.append(edges[key].flow);
    }
    for (const [key, at] of Object.entries(layout.nodes)) {
      nodes[key] = drawnNode(key, at, layout.isWide, open);
      upper.append(nodes[key].element);
    }
    frames = layout.frames.map((at) => drawnFrame(at, layout.isWide));
    keepFocus(svg, () => svg.replaceChildren(
      s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 10 10", refX: 9, refY: 5, markerUnits: "userSpaceOnUse", markerWidth: 11, markerHeight: 11, orient: "auto" }, s("path", { class: "arrow", d: "M0 0L10 5L0 10z" }))),
      ...layout.panels.map((panel) => s("rect", { class: "panel", x: panel.x, y: panel.y, width: panel.w, height: panel.h, rx: 14 })), ...frames.map((frame) => frame.element), lower,
      ...layout.panels.map((panel) => s("text", { class: "panel-name", x: panel.x + 14, y: panel.y + (layout.isWide ? 25 : 19) }, panel.title)),
      ...layout.labels.map((label) => s("text", { class: "stage", x: label.x, y: label.y }, label.text)), upper));
  }

  function show(rows) {
    draw(rows);
    const inSets = members();
    for (const frame of frames) {
      const set = store.rows("sets")[frame.set];
      if (set) paintFrame(frame, set, layout.isWide);
    }
    for (const [key, parts] of Object.entries(nodes)) if (rows[key]) paintNode(parts, rows[key], inSets.get(key), layout);
    for (const [key, edge] of store.list("edges")) if (edges[key]) paintEdge(edges[key], edge, rows);
  }

  return { element: svg, show, redraw(rows) { shape = ""; show(rows); } };
}
