// The Spark jobs: the load loop with its commits, and the pictures of the reports.

import { h } from "../dom.js";
import { bytes, clock, duration, moment, whole } from "../format.js";
import { Table } from "../table.js";

export function jobs(root, page) {
  const { store } = page;
  const facts = h("dl", { class: "legend" });
  const problems = h("ul", { class: "bad" });
  const commits = new Table({
    caption: "Commits", sortBy: "at", descending: true, empty: "No commit has been seen (or this dashboard does not see the warehouse).",
    columns: [
      { name: "at", label: "Committed", text: (row) => moment(row.at_ms), sort: (row) => row.at_ms },
      { name: "table", label: "Table", text: (row) => row.table },
      { name: "version", label: "Version", num: true, text: (row) => whole(row.version), sort: (row) => row.version },
      { name: "rows", label: "Rows", num: true, text: (row) => whole(row.rows), sort: (row) => row.rows },
      { name: "files", label: "Files", num: true, text: (row) => whole(row.files), sort: (row) => row.files },
      { name: "bytes", label: "Parquet", num: true, text: (row) => bytes(row.bytes), sort: (row) => row.bytes },
      { name: "source", label: "From the log", num: true, text: (row) => bytes(row.source_bytes), sort: (row) => row.source_bytes },
      { name: "partitions", label: "Partitions", num: true, text: (row) => whole(row.partitions), sort: (row) => row.partitions },
    ],
  });
  const pictures = h("div", { class: "charts" });
  root.append(h("section", { class: "card" }, h("h2", {}, "Load job"), facts, problems), h("section", { class: "card" }, h("h2", {}, "Commits of the warehouse"), h("p", { class: "lead" }, "One commit holds the files, the end offsets and the counts: run twice, a load adds nothing twice."), commits.element), h("section", { class: "card" }, h("h2", {}, "Reports"), pictures));
  return {
    sections: ["loader", "commits", "reports"],
    update(changed) {
      const told = store.rows("loader").status;
      if (changed.has("loader")) {
        const delay = (told && told.latency_ms) || {};
        facts.replaceChildren(...(told ? [["Rows loaded", whole(told.rows_loaded)], ["Loads", whole(told.loads)], ["Last load", told.last_load_ms ? clock(told.last_load_ms) : "–"], ["Not loaded yet", bytes(told.lag_bytes)], ["Quarantined", whole(told.quarantined)], ["Event to row p50", duration(delay.p50)], ["p99", duration(delay.p99)]] : [["State", "no load job answers"]]).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("strong", {}, value)))));
        problems.replaceChildren(...((told && told.problems) || []).map((text) => h("li", {}, text)));
      }
      if (changed.has("commits")) commits.set(Object.values(store.rows("commits")));
      if (changed.has("reports")) {
        const rows = Object.values(store.rows("reports"));
        pictures.replaceChildren(...rows.map((row) => h("figure", {}, h("figcaption", {}, h("h3", {}, row.table), h("p", { class: "lead" }, `Made ${moment(row.made_ms)}${row.totals.page_views !== undefined ? `: ${whole(row.totals.page_views)} page views, ${whole(row.totals.visitors)} visitors` : ""}`)), h("img", { class: "report", src: `/api/report/${encodeURIComponent(row.table)}?made=${row.made_ms}`, alt: `Traffic per hour of ${row.table}` }))));
        if (!rows.length) pictures.append(h("p", { class: "idle" }, "No report has been made yet. “make demo” makes one at its end; “kafka2011 report” at any time."));
      }
    },
  };
}
