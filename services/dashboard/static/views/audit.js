// The audit: topics by windows; a square has the cells of one topic and window, one of each server, and a stripe per tier.

import { h, keepFocus, setAttribute, setText, tag, WAITING } from "../dom.js";
import { bytes, clock, duration, moment, validated, whole } from "../format.js";

const TIERS = ["live", "offline", "warehouse"];
const KIND = { complete: "good", pending: "idle", behind: "info", missing: "bad", unknown: "doubt", extra: "warn", redelivered: "warn", "not audited": "idle" };
const few = (count) => (count < 10_000 ? whole(count) : `${whole(Math.round(count / 1000))}k`); // a stripe is narrow; its title has the number
const SIGNS = { complete: () => "✓", behind: (data) => `…${few(data.behind)}`, missing: (data) => `−${few(data.missing)}`, unknown: () => "?", extra: (data) => `+${few(data.extra)}`, redelivered: (data) => `↻${few(data.again)}` };
const OTHERS = "(other topics)"; // the audit's sum of topics that only reports name
const CELL_REM = 3.8, NAME_REM = 0.62; // the widths of a square, and of a letter of a topic's name

const difference = (data) => data[data.state === "redelivered" ? "again" : data.state] || 0;
const short = (data) => (data && SIGNS[data.state] ? SIGNS[data.state](data) : "");
const isComplete = (row) => Object.values(row.tiers).every((data) => ["complete", "not audited"].includes(data.state));
const timeOf = (window) => (window < 0 ? "no header" : clock(window));
const words = (data) => `${data.state}${difference(data) ? ` ${whole(difference(data))}` : ""}`;

export function audit(root, page) {
  const { store } = page;
  const head = h("tr"), body = h("tbody");
  const grid = h("div", { class: "audit-cells", role: "region", tabindex: 0, "aria-label": "Audit cells" }, h("table", {}, h("thead", {}, head), body));
  const beyond = h("p", { class: "also", hidden: true }); // what the grid has no room for
  const asOf = h("span"); // read less often than the figures below
  const tiers = h("tbody");
  const notes = h("ul");
  const silent = h("ul", { class: "silent" });
  const silentCard = h("section", { class: "card bad-card", role: "status", hidden: true }, h("h2", {}, "Silent servers"), h("p", { class: "lead" }, "Three heartbeats missed without a goodbye. What a producer has sent since then is not known here; what a mirror has not copied is behind."), silent);
  const notesCard = h("section", { class: "card" }, h("h2", {}, "Notes"), notes);
  root.append(
    h("section", { class: "card" }, h("h2", {}, "Audit cells"), h("p", { class: "lead" }, "A cell is one topic, one window of time and one server. Each square has the cells of all servers, in three stripes, from the top: live brokers, offline brokers, warehouse. The number that producers reported is compared with the number read at the tier. Select a square for its cells.", asOf), grid, beyond,
      h("ul", { class: "legend" }, [["complete", "✓ complete"], ["pending", "hatched: pending, not judged yet"], ["behind", "…n behind: late, and may still come"], ["missing", "−n missing"], ["unknown", "? unknown: a report was lost or cannot be read"], ["extra", "+n extra"], ["redelivered", "↻n redelivered: more than was reported, where a process was started again, or a send was not confirmed: came twice, or was never reported; also in a cell that was complete"], ["not audited", "blank: nothing was produced, none reports it, or retention had deleted a part"]].map(([state, text]) => h("li", {}, tag(text, KIND[state]))))),
    h("section", { class: "card" }, h("h2", {}, "Tiers"), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["Tier", "Counted", "Missing", "Behind", "Behind for", "Extra", "Redelivered", "Pending cells", "Delay p50", "p99", "p99.9", "Not read yet"].map((text, index) => h("th", { scope: "col", class: index && "num" }, text)))), tiers))),
    notesCard,
  );
  root.prepend(silentCard);
  const cells = new Map();
  let opened = null;
  let names = []; // of the topics that the audit has, those without a cell in its newest windows too

  function stripes(row) {
    const key = JSON.stringify(row.tiers);
    let cell = cells.get(`${row.topic}|${row.window}`);
    if (!cell) {
      const spans = TIERS.map(() => h("span", { "aria-hidden": "true" }));
      const button = h("button", { class: "cell", type: "button", "aria-expanded": "false", onclick: () => open(row.topic, row.window, button) }, spans);
      cell = { element: h("td", {}, button), button, spans, key: "" };
      cells.set(`${row.topic}|${row.window}`, cell);
    }
    if (cell.key !== key) {
      cell.key = key;
      TIERS.forEach((tier, index) => {
        const data = row.tiers[tier];
        setAttribute(cell.spans[index], "class", data ? data.state.replace(" ", "-") : "none");
        setText(cell.spans[index], short(data));
      });
      const text = `${row.topic}, ${row.window < 0 ? "" : "window "}${timeOf(row.window)}: ${TIERS.filter((tier) => row.tiers[tier]).map((tier) => `${tier} ${words(row.tiers[tier])}`).join(", ")}`;
      setAttribute(cell.button, "aria-label", text);
      setAttribute(cell.button, "title", text);
    }
    return cell.element;
  }

  // How many windows fit beside the names of these topics.
  function columnsFor(topics) {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const longest = Math.max(0, ...topics.map((topic) => topic.length));
    const names = Math.min(Math.max(4, 2.2 + longest * NAME_REM) * rem, 20 * rem, 0.4 * innerWidth); // as page.css
    return Math.max(3, Math.floor((grid.clientWidth - names) / (CELL_REM * rem)));
  }

  // The topic's cells in the windows shown; of one that has none there, what is known of older ones. Of the newest windows
  // every cell is here that is not folded, of older ones only those that are not complete: behind such a one there may have been others.
  function inRow(topic, shown, byKey, rows) {
    const found = shown.map((window) => byKey.get(`${topic}|${window}`));
    if (found.some(Boolean)) return found.map((row) => (row ? stripes(row) : h("td", {})));
    const listed = `kafka2011 audit --topic ${topic} --all lists`;
    const last = rows.filter((row) => row.topic === topic).sort((a, b) => b.window - a.window)[0];
    const at = last && moment(last.window).slice(0, 19); // it may be days ago
    let older = `${listed} those before that are not folded into the totals`;
    if (last) older = isComplete(last) ? `its last began at ${at}` : `its last incomplete one began at ${at}; ${listed} all that are not folded into the totals`;
    return h("td", { class: "empty", colSpan: shown.length }, `nothing in these windows; ${older}`);
  }

  function draw() {
    const rows = Object.values(store.rows("cells"));
    const windows = [...new Set(rows.map((row) => row.window))].filter((window) => window >= 0).sort((a, b) => a - b);
    const wrong = new Set(rows.filter((row) => Object.values(row.tiers).some((data) => ["missing", "unknown", "extra"].includes(data.state))).map((row) => row.window));
    const byKey = new Map(rows.map((row) => [`${row.topic}|${row.window}`, row]));
    const topics = [...new Set([...rows.map((row) => row.topic), ...names])].sort();
    // What fits, so that the newest are in sight: among it up to four older ones in which something is wrong.
    const fit = columnsFor(topics) - (rows.some((row) => row.window < 0) ? 1 : 0);
    const older = windows.slice(0, -fit).filter((window) => wrong.has(window)).slice(-Math.min(4, fit - 1));
    const shown = [...older, ...windows.slice(older.length - fit)];
    if (rows.some((row) => row.window < 0)) shown.unshift(-1);
    const left = rows.filter((row) => !shown.includes(row.window) && Object.values(row.tiers).some((data) => ["missing", "unknown", "extra", "behind"].includes(data.state))).length;
    beyond.hidden = !left;
    setText(beyond, `${whole(left)} older square${left === 1 ? "" : "s"} with something missing, unknown, extra or behind ${left === 1 ? "is" : "are"} not shown: kafka2011 audit lists the cells.`);
    const headings = JSON.stringify(shown);
    if (head.dataset.windows !== headings) {
      const wasAtEnd = grid.scrollLeft + grid.clientWidth >= grid.scrollWidth - 4;
      head.dataset.windows = headings;
      head.replaceChildren(h("th", { scope: "col" }, "Topic"), ...shown.map((window) => h("th", { scope: "col" }, timeOf(window))));
      if (wasAtEnd) grid.scrollLeft = grid.scrollWidth; // a font wider than reckoned with: the newest stay in sight
    }
    keepFocus(grid, () => body.replaceChildren(...topics.map((topic) => h("tr", {}, h("th", { scope: "row", title: topic }, topic), inRow(topic, shown, byKey, rows)))));
    if (!topics.length) body.replaceChildren(h("tr", {}, h("td", { class: "empty" }, store.id < 0 ? WAITING : "No cells yet.")));
    for (const key of cells.keys()) if (!byKey.has(key)) cells.delete(key);
  }

  async function open(topic, window, button) {
    if (opened) setAttribute(opened, "aria-expanded", "false");
    opened = button;
    setAttribute(button, "aria-expanded", "true");
    const body = h("div", { "aria-live": "polite" }, "Loading …");
    page.show(`${topic}, ${timeOf(window)}`, h("p", { class: "lead" }, window < 0 ? "Messages without a header, which belong to no window" : `Window that began at ${moment(window)}`), body);
    page.onhide = () => { if (opened) setAttribute(opened, "aria-expanded", "false"); opened = null; };
    try {
      const answer = await fetch(`/api/cells?${new URLSearchParams({ topic, window })}`);
      const data = await answer.json();
      if (!answer.ok) throw new Error(data.error);
      body.replaceChildren(...data.cells.map((cell) => h("section", {}, h("h3", {}, `Server ${cell.server}`), h("p", {}, `${whole(cell.produced)} produced`),
        h("table", {}, h("thead", {}, h("tr", {}, ["Tier", "Verdict", "Expected", "Counted"].map((text, index) => h("th", { scope: "col", class: index > 1 && "num" }, text)))),
          h("tbody", {}, Object.entries(cell.tiers).map(([tier, found]) => h("tr", {}, h("th", { scope: "row" }, tier), h("td", {}, tag(found.verdict, KIND[found.state])), h("td", { class: "num" }, whole(found.expected)), h("td", { class: "num" }, whole(found.counted)))))),
        ...Object.entries(cell.tiers).filter(([, found]) => found.reason).map(([tier, found]) => h("p", {}, `${tier}: ${found.reason}`)))));
      if (data.left_out) body.append(h("p", {}, `and ${whole(data.left_out)} more servers: kafka2011 audit --all lists them`));
      if (!data.cells.length) setText(body, "The audit has folded this window into its totals.");
    } catch (error) {
      setText(body, `The audit did not answer: ${error.message}`);
    }
  }

  return {
    sections: ["cells", "validated"],
    update(changed) {
      const data = store.audit;
      const known = Object.keys((data && data.topics) || {}).filter((name) => name !== OTHERS);
      const isOther = known.join() !== names.join();
      names = known;
      if (isOther || changed.has("cells")) draw();
      const read = store.rows("audit").cells;
      const cellsLeft = read && read.left_out ? ` ${whole(read.left_out)} cells, of the oldest windows, are not shown: kafka2011 audit --all lists them.` : "";
      const topicsLeft = data && data.topics_left_out ? ` ${whole(data.topics_left_out)} more topics have a row only while they have cells here.` : "";
      if (read) setText(asOf, ` As of ${clock(read.at_ms)}.${cellsLeft}${topicsLeft}`);
      if (!data || !(changed.has("audit") || changed.has("validated"))) return;
      const groups = Object.entries(store.rows("validated")).sort().map(([name, found]) => h("tr", {}, h("th", { scope: "row" }, `group ${name}`), h("td", { colspan: 11 }, `what it read: ${validated(found)}`)));
      tiers.replaceChildren(...Object.entries(data.tiers).map(([tier, found]) => h("tr", {}, h("th", { scope: "row" }, tier), [found.count, found.missing, found.behind, duration(found.behind_by && found.behind_by.messages ? found.behind_by.ms : null), found.extra, found.redelivered, found.pending_cells].map((value, index) => h("td", { class: `num ${value && index === 1 ? "bad" : ""}` }, typeof value === "string" ? value : whole(value))), ["p50_ms", "p99_ms", "p999_ms"].map((name) => h("td", { class: "num" }, duration((found.recent || {})[name]))), h("td", { class: "num" }, bytes(found.lag_bytes)))), ...groups);
      const quiet = data.silent || [];
      silentCard.hidden = !quiet.length;
      silent.replaceChildren(...quiet.map((sender) => h("li", {}, h("strong", {}, sender.server), ` in ${sender.tier}, last heartbeat at ${clock(sender.since_ms)}`)));
      const texts = [...(data.unknown || []).map((each) => `Unknown: ${each.what}`), ...(data.awaited || []).map((each) => `Not judged yet: ${each.what}`), ...[...(data.unread || []), ...(data.deleted || [])].map((range) => range.what).filter(Boolean), ...(data.notes || [])];
      notesCard.hidden = !texts.length;
      notes.replaceChildren(...texts.map((text) => h("li", {}, typeof text === "string" ? text : JSON.stringify(text))));
    },
    resize() { draw(); },
  };
}
