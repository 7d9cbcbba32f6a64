// The grid of the page Audit: topics by windows; a square has the cells of one topic and window,
// one of each server, and a stripe per tier.

import { h, keepFocus, setAttribute, setText, WAITING } from "../dom.js";
import { clock, moment, plural, whole } from "../format.js";

const TIERS = ["live", "offline", "warehouse"];
const few = (count) => (count < 10_000 ? whole(count) : `${whole(Math.round(count / 1000))}k`); // a stripe is narrow; its title has the number
const SIGNS = { complete: () => "✓", behind: (data) => `…${few(data.behind)}`, missing: (data) => `−${few(data.missing)}`, unknown: () => "?", extra: (data) => `+${few(data.extra)}`, redelivered: (data) => `↻${few(data.again)}` };
const WRONG = ["missing", "unknown", "extra"];
const CELL_REM = 3.8, NAME_REM = 0.62; // the widths of a square, and of a letter of a topic's name

const difference = (data) => data[data.state === "redelivered" ? "again" : data.state] || 0;
const short = (data) => (data && SIGNS[data.state] ? SIGNS[data.state](data) : "");
const hasState = (row, states) => Object.values(row.tiers).some((data) => states.includes(data.state));
const isComplete = (row) => Object.values(row.tiers).every((data) => ["complete", "not audited"].includes(data.state));
const words = (data) => `${data.state}${difference(data) ? ` ${whole(difference(data))}` : ""}`;
export const timeOf = (window) => (window < 0 ? "no header" : clock(window));

// A square: its `element`, and `write`, which shows a row of the topic and window in it.
function square(topic, window, open) {
  const spans = TIERS.map(() => h("span", { "aria-hidden": "true" }));
  const button = h("button", { class: "cell", type: "button", "aria-expanded": "false", onclick: () => open(topic, window, button) }, spans);
  let key = "";
  return {
    element: h("td", {}, button),
    write(row) {
      if (key === JSON.stringify(row.tiers)) return;
      key = JSON.stringify(row.tiers);
      TIERS.forEach((tier, index) => {
        const data = row.tiers[tier];
        setAttribute(spans[index], "class", data ? data.state.replace(" ", "-") : "none");
        setText(spans[index], short(data));
      });
      const text = `${topic}, ${window < 0 ? "" : "window "}${timeOf(window)}: ${TIERS.filter((tier) => row.tiers[tier]).map((tier) => `${tier} ${words(row.tiers[tier])}`).join(", ")}`;
      setAttribute(button, "aria-label", text);
      setAttribute(button, "title", text);
    },
  };
}

// How many windows fit beside the names of these topics.
function columnsFor(topics, width) {
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const longest = Math.max(0, ...topics.map((topic) => topic.length));
  const names = Math.min(Math.max(4, 2.2 + longest * NAME_REM) * rem, 20 * rem, 0.4 * innerWidth); // as page.css
  return Math.max(3, Math.floor((width - names) / (CELL_REM * rem)));
}

// Which of these windows fit, so that the newest are in sight: among them up to four older ones in
// which something is wrong. -1, of the messages without a header, always.
function windowsShown(rows, fitting) {
  const windows = [...new Set(rows.map((row) => row.window))].sort((a, b) => a - b);
  const isWithoutHeader = windows[0] < 0;
  const timed = isWithoutHeader ? windows.slice(1) : windows;
  const wrong = new Set(rows.filter((row) => hasState(row, WRONG)).map((row) => row.window));
  const fit = fitting - (isWithoutHeader ? 1 : 0);
  const older = timed.slice(0, -fit).filter((window) => wrong.has(window)).slice(-Math.min(4, fit - 1));
  return [...(isWithoutHeader ? [-1] : []), ...older, ...timed.slice(older.length - fit)];
}

// What is known of the cells of a topic that has none in the windows shown. Of the newest windows every
// cell is here that is not folded, of older ones only those that are not complete: behind such a one
// there may have been others.
function olderCells(topic, rows) {
  const listed = `kafka2011 audit --topic ${topic} --all lists`;
  const last = rows.filter((row) => row.topic === topic).sort((a, b) => b.window - a.window)[0];
  if (!last) return `${listed} those before that are not folded into the totals`;
  const at = moment(last.window).slice(0, 19); // it may be days ago
  return isComplete(last) ? `its last began at ${at}` : `its last incomplete one began at ${at}; ${listed} all that are not folded into the totals`;
}

// `open`: called with topic, window and button of a square that was selected.
// Returns `elements`, the grid and the line of what it has no room for; and `draw`, to be called with
// the names of the topics that the audit has, those without a cell in its newest windows too.
export function auditGrid(store, open) {
  const head = h("tr"), body = h("tbody");
  const grid = h("div", { class: "audit-cells", role: "region", tabindex: 0, "aria-label": "Audit cells" }, h("table", {}, h("thead", {}, head), body));
  const beyond = h("p", { class: "also", hidden: true });
  const squares = new Map(); // by topic and window

  function squareOf(row) {
    const key = `${row.topic}|${row.window}`;
    if (!squares.has(key)) squares.set(key, square(row.topic, row.window, open));
    squares.get(key).write(row);
    return squares.get(key).element;
  }

  function writeHead(shown) {
    const headings = JSON.stringify(shown);
    if (head.dataset.windows === headings) return;
    const wasAtEnd = grid.scrollLeft + grid.clientWidth >= grid.scrollWidth - 4;
    head.dataset.windows = headings;
    head.replaceChildren(h("th", { scope: "col" }, "Topic"), ...shown.map((window) => h("th", { scope: "col" }, timeOf(window))));
    if (wasAtEnd) grid.scrollLeft = grid.scrollWidth; // a font wider than reckoned with: the newest stay in sight
  }

  function draw(names) {
    const rows = Object.values(store.rows("cells"));
    const byKey = new Map(rows.map((row) => [`${row.topic}|${row.window}`, row]));
    const topics = [...new Set([...rows.map((row) => row.topic), ...names])].sort();
    const shown = windowsShown(rows, columnsFor(topics, grid.clientWidth));
    const beside = rows.filter((row) => !shown.includes(row.window));
    const windows = new Set(beside.map((row) => row.window)).size, left = beside.filter((row) => hasState(row, [...WRONG, "behind", "redelivered"])).length;
    beyond.hidden = !windows;
    setText(beyond, `${plural(windows, "older window")} of those read here ${windows === 1 ? "has" : "have"} no room; ${left ? `in ${plural(left, "square")} of them something is missing, unknown, extra, behind or redelivered: kafka2011 audit lists the cells.` : "nothing in them is missing, unknown, extra, behind or redelivered."}`);
    writeHead(shown);
    const cellsOf = (topic) => {
      const found = shown.map((window) => byKey.get(`${topic}|${window}`));
      if (found.some(Boolean)) return found.map((row) => (row ? squareOf(row) : h("td", {})));
      return h("td", { class: "empty", colSpan: shown.length }, `nothing in these windows; ${olderCells(topic, rows)}`);
    };
    keepFocus(grid, () => body.replaceChildren(...topics.map((topic) => h("tr", {}, h("th", { scope: "row", title: topic }, topic), cellsOf(topic)))));
    if (!topics.length) body.replaceChildren(h("tr", {}, h("td", { class: "empty" }, store.id < 0 ? WAITING : "No cells yet.")));
    for (const key of squares.keys()) if (!byKey.has(key)) squares.delete(key);
  }

  return { elements: [grid, beyond], draw };
}
