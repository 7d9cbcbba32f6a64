// A list whose entries are written again in place: an entry keeps its element while its row changes.

import { h, keepFocus, setText, WAITING } from "./dom.js";

export class List {
  // make() returns {element, write(row, index)}; `empty` is said where there are no rows; before the first ones, that they are awaited.
  constructor({ tag = "ol", css = "", label = "", make, empty = "Nothing yet." }) {
    this.make = make;
    this.entries = [];
    this.empty = empty;
    this.none = h("li", { class: "idle" }, WAITING);
    this.element = h(tag, { class: css, "aria-label": label || null }, this.none);
  }

  set(rows) {
    setText(this.none, this.empty);
    while (this.entries.length < rows.length) this.entries.push(this.make());
    const wanted = rows.length ? this.entries.slice(0, rows.length).map((entry) => entry.element) : [this.none];
    rows.forEach((row, index) => this.entries[index].write(row, index));
    const now = this.element.children;
    if (wanted.length !== now.length || wanted.some((element, index) => element !== now[index])) keepFocus(this.element, () => this.element.replaceChildren(...wanted));
  }
}
