// Partitions owned by each member over time: a lane per member, a line at each rebalance.
//
// A bar goes from the first look that saw it to the last; between two looks that differ nothing is
// known, and a long time between them (no page was open) is a dotted line.

import { h, s, setAttribute, widestText } from "./dom.js";
import { clock, whole } from "./format.js";

const LANE = 26, TOP = 6, BOTTOM = 24, RIGHT = 10;
const HUES = 5;

// A consumer id is group_host-time-uuid: the host and the end of the uuid distinguish members.
export function memberName(id, group) {
  const rest = id.startsWith(`${group}_`) ? id.slice(group.length + 1) : id;
  const found = /^(.*)-\d+-([0-9a-f]+)$/.exec(rest);
  return found ? `${found[1]} ·${found[2].slice(-4)}` : rest;
}

export class Timeline {
  constructor(title) {
    this.title = title;
    this.svg = s("svg", { class: "timeline", role: "img" });
    this.element = h("figure", { class: "plain" }, this.svg);
    this.key = "";
  }

  // groups: [{name, moves: [{at_ms, before_ms, members: {id: owned}, moved}] by time}]; now in ms
  set(groups, now) {
    this.groups = groups;
    this.now = now;
    this.draw();
  }

  draw() {
    if (!this.groups || !this.now) return;
    const W = this.svg.clientWidth || 640;
    const first = Math.min(this.now - 10000, ...this.groups.flatMap(({ moves }) => moves.map((move) => move.at_ms)));
    const from = Math.max(first, this.now - 900000);
    const names = this.groups.flatMap(({ name, moves }) => moves.flatMap((move) => Object.keys(move.members).map((member) => memberName(member, name))));
    const left = Math.min(0.4 * W, Math.max(W < 500 ? 92 : 150, widestText(this.svg, "axis", [...new Set(names)]) + 12));
    const x = (ms) => left + ((Math.max(from, ms) - from) / (this.now - from)) * (W - left - RIGHT);
    const layers = [], summary = [];
    let y = TOP;
    for (const { name, moves } of this.groups) {
      const until = (index) => (index + 1 < moves.length ? moves[index + 1].at_ms : this.now);
      const seenUntil = (index) => (index + 1 < moves.length ? moves[index + 1].before_ms : this.now);
      const seen = moves.filter((move, index) => until(index) > from);
      const members = [...new Set(seen.flatMap((move) => Object.keys(move.members)))].sort();
      const top = y;
      if (this.groups.length > 1) { layers.push(s("text", { class: "group", x: 0, y: y + 15 }, name)); y += 20; }
      members.forEach((member, lane) => {
        layers.push(s("text", { class: "axis", x: 4, y: y + 16 }, memberName(member, name), s("title", {}, member)), s("line", { class: "grid", x1: left, x2: W - RIGHT, y1: y + LANE, y2: y + LANE }));
        // Rebalances that did not change this member draw one bar.
        let start = 0;
        for (let index = 0; index < moves.length; index += 1) {
          const owned = moves[index].members[member];
          const next = index + 1 < moves.length ? moves[index + 1].members[member] : undefined;
          if (index + 1 < moves.length && next === owned) continue;
          const x1 = x(moves[start].at_ms), x2 = x(seenUntil(index)), x3 = x(until(index));
          start = index + 1;
          if (x3 - x2 > 2) layers.push(s("line", { class: "unseen", x1: x2, x2: x3, y1: y + LANE / 2, y2: y + LANE / 2 }, s("title", {}, "not looked at: no page was open")));
          if (owned === undefined || x2 - x1 < 0.5) continue;
          layers.push(s("rect", { class: `lane ${owned ? `hue-${lane % HUES}` : "none"}`, x: x1, y: y + 4, width: x2 - x1, height: LANE - 8, rx: 4 }, s("title", {}, `${member}: ${whole(owned)} partitions`)));
          if (x2 - x1 > 28) layers.push(s("text", { class: "owned", x: (x1 + x2) / 2, y: y + 17 }, whole(owned)));
        }
        y += LANE;
      });
      if (!members.length) { layers.push(s("text", { class: "axis", x: left, y: y + 16 }, "no members")); y += LANE; }
      for (const move of seen) {
        if (move.at_ms <= from || !move.moved) continue;
        layers.push(s("line", { class: "move", x1: x(move.at_ms), x2: x(move.at_ms), y1: top, y2: y }, s("title", {}, `${clock(move.before_ms)} to ${clock(move.at_ms)}: ${whole(move.moved)} partitions changed hands`)));
      }
      const last = moves[moves.length - 1];
      if (last) summary.push(`${name}: ${Object.entries(last.members).map(([member, owned]) => `${memberName(member, name)} owns ${owned}`).join(", ") || "no members"}`);
      y += 8;
    }
    const parts = W < 500 ? 1 : 3;
    for (let part = 0; part <= parts; part += 1) {
      const ms = from + ((this.now - from) * part) / parts;
      layers.push(s("text", { class: "axis", x: x(ms), y: y + 14, "text-anchor": part === 0 ? "start" : part === parts ? "end" : "middle" }, clock(ms)));
    }
    const H = y + BOTTOM;
    setAttribute(this.svg, "viewBox", `0 0 ${W} ${H}`);
    this.svg.style.height = `${H}px`;
    setAttribute(this.svg, "aria-label", `${this.title}. ${summary.join("; ")}`);
    this.svg.replaceChildren(...layers);
  }
}
