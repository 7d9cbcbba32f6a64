// A table that sorts and filters, and renders only the visible rows when there are many.
// column: {name, label, num, text(row), make(row), sort(row), wide, wrap}; text or make gives the content.

import { h, keepFocus, setAttribute, setText, WAITING } from "./dom.js";

const ROW_PX = 34;
const SHOWN_WHOLE = 200; // up to so many rows all are rendered, for find-in-page and screen readers
const MARGIN = 20;
const order = new Intl.Collator("en", { numeric: true }); // made once: it costs more than the sort

// Texts repeat (topics, brokers): each distinct one is compared once, rows by number.
function ranks(texts) {
  return new Map([...new Set(texts)].sort(order.compare).map((text, rank) => [text, rank]));
}

export class Table {
  constructor({ caption, columns, sortBy, descending = false, filter = true, empty = "No rows." }) {
    this.columns = columns;
    this.sortBy = sortBy || columns[0].name;
    this.descending = descending;
    this.rows = [];
    this.isSet = false; // whether any rows, or that there are none, are known
    this.unset = WAITING; // what is said until then
    this.shown = [];
    this.filterText = "";
    this.cache = [];
    this.count = h("span", { class: "count", "aria-live": "off" });
    this.headers = columns.map((column) => h("th", { scope: "col", class: column.num && "num" },
      h("button", { type: "button", onclick: () => this.sortOn(column) }, column.label)));
    this.body = h("tbody");
    this.table = h("table", {}, h("caption", { class: "skip" }, caption), h("thead", {}, h("tr", {}, this.headers)), this.body);
    this.scroll = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, this.table);
    this.scroll.addEventListener("scroll", () => this.paint(), { passive: true });
    this.emptyText = empty;
    const tools = filter && h("div", { class: "tools" },
      h("label", {}, "Filter", h("input", { type: "search", oninput: (event) => { this.filterText = event.target.value.toLowerCase(); this.arrange(); } })), this.count);
    this.element = h("div", {}, tools || null, this.scroll);
    this.mark();
    this.arrange();
  }

  sortOn(column) {
    this.descending = this.sortBy === column.name ? !this.descending : Boolean(column.num);
    this.sortBy = column.name;
    this.mark();
    this.arrange();
  }

  mark() {
    this.columns.forEach((column, index) => setAttribute(this.headers[index], "aria-sort",
      column.name === this.sortBy ? (this.descending ? "descending" : "ascending") : null));
    this.columns.forEach((column, index) => setText(this.headers[index].firstChild,
      column.label + (column.name === this.sortBy ? (this.descending ? " ↓" : " ↑") : "")));
  }

  // Says why no rows are known, where none were before.
  lack(why) { this.unset = why; this.arrange(); }

  set(rows) { this.rows = rows; this.isSet = true; this.arrange(); }

  arrange() {
    const column = this.columns.find((found) => found.name === this.sortBy);
    const value = column.sort || ((row) => column.text(row));
    const filter = this.filterText;
    const kept = filter ? this.rows.filter((row) => this.columns.some((found) => String(found.text ? found.text(row) : "").toLowerCase().includes(filter))) : [...this.rows];
    const keyed = kept.map((row) => [value(row), row]);
    const sign = this.descending ? -1 : 1;
    const texts = keyed.map(([key]) => key).filter((key) => typeof key === "string");
    if (texts.length) {
      const rank = ranks(texts);
      for (const pair of keyed) if (typeof pair[0] === "string") pair[0] = rank.get(pair[0]);
    }
    keyed.sort(([a], [b]) => {
      if (a === b) return 0;
      if (a === null || a === undefined) return 1;
      if (b === null || b === undefined) return -1;
      return sign * (a - b);
    });
    this.shown = keyed.map(([, row]) => row);
    setText(this.count, !this.isSet ? "" : filter ? `${this.shown.length.toLocaleString("en-US")} of ${this.rows.length.toLocaleString("en-US")}` : `${this.rows.length.toLocaleString("en-US")} rows`);
    setAttribute(this.table, "aria-rowcount", this.shown.length + 1);
    this.paint();
  }

  paint() {
    const total = this.shown.length;
    let first = 0;
    let last = total;
    if (total > SHOWN_WHOLE) {
      first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW_PX) - MARGIN);
      last = Math.min(total, first + Math.ceil((this.scroll.clientHeight || 700) / ROW_PX) + 2 * MARGIN);
    }
    keepFocus(this.scroll, () => this.write(first, last));
  }

  write(first, last) {
    const total = this.shown.length;
    const wanted = last - first;
    while (this.cache.length < wanted) this.cache.push(this.makeRow());
    const elements = this.cache.slice(0, wanted);
    elements.forEach((line, index) => this.writeRow(line, this.shown[first + index], first + index));
    const parts = elements.map((line) => line.element);
    if (first > 0) parts.unshift(this.spacer(first));
    if (last < total) parts.push(this.spacer(total - last));
    if (!total) parts.push(h("tr", {}, h("td", { class: "empty", colspan: this.columns.length }, !this.isSet ? this.unset : this.filterText ? "No rows match the filter." : this.emptyText)));
    if (parts.length !== this.body.children.length || parts.some((part, index) => part !== this.body.children[index])) this.body.replaceChildren(...parts);
  }

  spacer(count) {
    const cell = h("td", { colspan: this.columns.length });
    cell.style.height = `${count * ROW_PX}px`;
    return h("tr", { class: "spacer", "aria-hidden": "true" }, cell);
  }

  makeRow() {
    const cells = this.columns.map((column) => h("td", { class: [column.num && "num", column.wide && "wide", column.wrap && "wrap"].filter(Boolean).join(" ") }));
    return { cells, keys: [], element: h("tr", {}, cells) };
  }

  writeRow(line, row, index) {
    setAttribute(line.element, "aria-rowindex", index + 2);
    this.columns.forEach((column, at) => {
      const text = column.text ? column.text(row) : "";
      const key = column.make ? `${text}|${column.key ? column.key(row) : ""}` : text;
      if (line.keys[at] === key) return;
      line.keys[at] = key;
      if (column.make) line.cells[at].replaceChildren(column.make(row));
      else line.cells[at].textContent = text;
    });
  }
}
