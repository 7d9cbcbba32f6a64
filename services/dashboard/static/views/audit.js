// The audit: its grid of cells, the tiers' figures, silent servers and notes; the cells of one topic and window.

import { h, setAttribute, setText, tag } from "../dom.js";
import { bytes, clock, duration, moment, validated, whole } from "../format.js";
import { auditGrid, timeOf } from "./audit_grid.js";

const KIND = { complete: "good", pending: "idle", behind: "info", missing: "bad", unknown: "doubt", extra: "warn", redelivered: "warn", "not audited": "idle" };
const OTHERS = "(other topics)"; // the audit's sum of topics that only reports name

export function audit(root, page) {
  const { store } = page;
  const grid = auditGrid(store, open);
  const asOf = h("span"); // read less often than the figures below
  const tiers = h("tbody");
  const notes = h("ul");
  const silent = h("ul", { class: "silent" });
  const silentCard = h("section", { class: "card bad-card", role: "status", hidden: true }, h("h2", {}, "Silent servers"), h("p", { class: "lead" }, "Three heartbeats missed without a goodbye. What a producer has sent since then is not known here; what a mirror has not copied is behind."), silent);
  const notesCard = h("section", { class: "card" }, h("h2", {}, "Notes"), notes);
  root.append(
    h("section", { class: "card" }, h("h2", {}, "Audit cells"), h("p", { class: "lead" }, "A cell is one topic, one window of time and one server. Each square has the cells of all servers, in three stripes, from the top: live brokers, offline brokers, warehouse. The number that producers reported is compared with the number read at the tier. Select a square for its cells.", asOf), ...grid.elements,
      h("ul", { class: "legend" }, [["complete", "✓ complete"], ["pending", "hatched: pending, not judged yet"], ["behind", "…n behind: late, and may still come"], ["missing", "−n missing"], ["unknown", "? unknown: a report was lost or cannot be read"], ["extra", "+n extra"], ["redelivered", "↻n redelivered: more than was reported, where a process was started again, or a send was not confirmed: came twice, or was never reported; also in a cell that was complete"], ["not audited", "blank: nothing was produced, none reports it, or retention had deleted a part"]].map(([state, text]) => h("li", {}, tag(text, KIND[state]))))),
    h("section", { class: "card" }, h("h2", {}, "Tiers"), h("p", { class: "lead" }, "The delay is from a message's time to the tier, of what came there in the last one to two minutes. The terminal's table has that of all since the audit's books began."), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["Tier", "Counted", "Missing", "Behind", "Behind for", "Extra", "Redelivered", "Pending cells", "Delay p50", "p99", "p99.9", "Not read by the audit"].map((text, index) => h("th", { scope: "col", class: index && "num" }, text)))), tiers))),
    notesCard,
  );
  root.prepend(silentCard);
  let opened = null;
  let names = [];

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
      if (isOther || changed.has("cells")) grid.draw(names);
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
    resize() { grid.draw(names); },
  };
}
