// Lines over time as SVG, a few hundred points each, with a cursor that reads the values.

import { h, s, setAttribute, setText, widestText } from "./dom.js";
import { clock, isNumber } from "./format.js";

// 1, 2 or 5 times a power of ten, at least 1, since labels are whole: at most five lines below `top`.
function steps(top) {
  const power = 10 ** Math.max(0, Math.floor(Math.log10(top / 4)));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => top / size <= 5);
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, index) => index * step);
}

// The largest of the values, or `least`: a call takes fewer arguments than a long history has values.
export const largest = (values, least) => values.reduce((found, value) => Math.max(found, value), least);

// Longer between two points, nothing was measured: what is drawn between them is dotted.
const GAP_MS = 30000;
const H = 220, LEFT_LEAST = 62, RIGHT = 10, TOP = 12, BOTTOM = 24;

export class Chart {
  // lines: [{name, label, css}]; format(value) -> text; log: logarithmic axis
  constructor({ title, lines, format, log = false }) {
    Object.assign(this, { title, lines, format, log, points: [], isSet: false });
    this.paths = lines.map((line) => s("path", { class: `s-${line.css}` }));
    this.gaps = lines.map((line) => s("path", { class: `gap s-${line.css}` }, s("title", {}, "not measured: no page was open, or its source was away")));
    this.gridLayer = s("g");
    this.cursor = s("line", { class: "cursor", y1: TOP, y2: H - BOTTOM, visibility: "hidden" });
    this.svg = s("svg", { class: "chart", role: "img" }, this.gridLayer, this.gaps, this.paths, this.cursor);
    this.values = lines.map(() => h("span"));
    this.when = h("span");
    this.legend = h("p", { class: "legend" }, lines.map((line, index) => h("span", {}, h("span", { class: `swatch b-${line.css}` }), `${line.label} `, this.values[index])), this.when);
    this.element = h("figure", { class: "card" }, h("h3", {}, title), this.svg, this.legend);
    this.element.style.margin = "0";
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => { this.at = null; this.read(); });
  }

  // points: [[ms, {name: value}]] by time
  set(points) {
    this.points = points;
    this.isSet = true;
    this.draw();
  }

  draw() {
    if (!this.isSet) return;
    const W = (this.width = this.svg.clientWidth || 640);
    setAttribute(this.svg, "viewBox", `0 0 ${W} ${H}`);
    const values = this.points.flatMap(([, row]) => this.lines.map((line) => row[line.name])).filter(isNumber);
    const from = this.points.length ? this.points[0][0] : 0;
    const to = Math.max(from + 30000, this.points.length ? this.points[this.points.length - 1][0] : 0);
    let top = largest(values, 1) * 1.1;
    let low = 0;
    if (this.log) { low = Math.floor(Math.log10(Math.max(1, values.reduce((found, value) => (value > 0 ? Math.min(found, value) : found), top)))); top = Math.ceil(Math.log10(top)); if (top <= low) top = low + 1; }
    const marks = !values.length ? [] : this.log ? Array.from({ length: top - low + 1 }, (_, index) => 10 ** (low + index)) : steps(top);
    const left = Math.max(LEFT_LEAST, widestText(this.svg, "axis", marks.map((value) => this.format(value))) + 10); // a label that is cut is another number
    this.x = (ms) => left + ((ms - from) / (to - from)) * (W - left - RIGHT);
    const y = (value) => { const at = this.log ? Math.log10(Math.max(value, 10 ** low)) : value; return H - BOTTOM - ((at - low) / (top - low)) * (H - TOP - BOTTOM); };
    this.lines.forEach((line, index) => {
      let path = "", gap = "", last = null;
      for (const [ms, row] of this.points) {
        const value = row[line.name];
        if (!isNumber(value)) continue;
        const at = `${this.x(ms).toFixed(1)} ${y(value).toFixed(1)}`;
        const isGap = last && ms - last.ms > GAP_MS;
        if (isGap) gap += `M${last.at}L${at}`;
        path += `${last && !isGap ? "L" : "M"}${at}`;
        last = { ms, at };
      }
      setAttribute(this.paths[index], "d", path || null);
      setAttribute(this.gaps[index], "d", gap || null);
    });
    const grid = marks.flatMap((value) => [s("line", { class: "grid", x1: left, x2: W - RIGHT, y1: y(value), y2: y(value) }), s("text", { class: "axis", x: left - 6, y: y(value) + 4, "text-anchor": "end" }, this.format(value))]);
    const parts = W < 420 ? 2 : 3;
    for (let part = 0; part <= parts && this.points.length > 1; part += 1) {
      const ms = from + ((to - from) * part) / parts;
      grid.push(s("text", { class: "axis", x: this.x(ms), y: H - 6, "text-anchor": part === 0 ? "start" : part === parts ? "end" : "middle" }, clock(ms)));
    }
    this.gridLayer.replaceChildren(...grid);
    this.read();
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.width;
    this.at = this.points.reduce((best, point) => (!best || Math.abs(this.x(point[0]) - x) < Math.abs(this.x(best[0]) - x) ? point : best), null);
    this.read();
  }

  read() {
    const point = this.at || this.points[this.points.length - 1];
    setAttribute(this.cursor, "visibility", this.at ? "visible" : "hidden");
    if (this.at) { setAttribute(this.cursor, "x1", this.x(point[0])); setAttribute(this.cursor, "x2", this.x(point[0])); }
    this.lines.forEach((line, index) => setText(this.values[index], point && isNumber(point[1][line.name]) ? this.format(point[1][line.name]) : "–"));
    setText(this.when, this.at ? `at ${clock(point[0])}` : point ? `at ${clock(point[0])}, newest` : "no data");
    setAttribute(this.svg, "aria-label", `${this.title}: ${this.lines.map((line, index) => `${line.label} ${this.values[index].textContent}`).join(", ")}`);
  }
}

export const series = (rows) => Object.entries(rows).map(([at, row]) => [Number(at), row]).sort((a, b) => a[0] - b[0]);
