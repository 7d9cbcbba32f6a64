// What the boxes of the page Site are made of: figures, rows with a bar, and items in words.

import { h, setAttribute, setText } from "../dom.js";
import { isNumber, whole } from "../format.js";
import { List } from "../list.js";

const KINDS = [[/^\/in\/(\d+)$/, "Profile"], [/^\/jobs\/view\/(\d+)$/, "Job"], [/^\/company\/(\d+)$/, "Company"], [/^job-(\d+)$/, "Job"]];

// A path in words; any other path as it is.
export function itemName(item) {
  for (const [pattern, kind] of KINDS) { const found = pattern.exec(item); if (found) return `${kind} ${whole(Number(found[1]))}`; }
  return item;
}
export const percent = (part, of) => (of && isNumber(part / of) ? `${((100 * part) / of).toFixed(part / of < 0.0995 ? 1 : 0)} %` : "–");

// A figure with its name; `set` writes the figure and a line below it.
export function fact(name) {
  const big = h("strong"), sub = h("span", { class: "sub" });
  return { element: h("div", {}, h("dt", {}, name), h("dd", {}, big, sub)), set(value, more = "") { setText(big, value); setText(sub, more); } };
}

// Named facts as one list.
export const factList = (facts) => h("dl", { class: "facts" }, Object.values(facts).map((each) => each.element));

// A row with a bar behind it: {name, value, part (0 to 1), sub, item}.
export function bars(label, empty) {
  return new List({
    css: "bars", label, empty,
    make() {
      const bar = h("span", { class: "bar", "aria-hidden": "true" });
      const name = h("span", { class: "what" }), value = h("span", { class: "value" }), sub = h("span", { class: "also" });
      const element = h("li", {}, bar, name, value, sub);
      return {
        element,
        write(row) {
          setAttribute(element, "data-item", row.item);
          setAttribute(element, "data-count", row.count);
          setText(name, row.name);
          setAttribute(name, "title", row.item);
          setText(value, row.value);
          setText(sub, row.sub || "");
          sub.hidden = !row.sub;
          bar.style.width = `${Math.max(0.5, 100 * row.part)}%`;
        },
      };
    },
  });
}

// Counted items as rows with bars, the first the longest.
export const ranked = (rows) => rows.map((row) => ({ item: row.item, count: row.count, name: itemName(row.item), value: whole(row.count), part: row.count / rows[0].count, sub: (row.also || []).length ? `viewed with ${row.also.map((other) => itemName(other.item)).join(", ")}` : "" }));
