// The Spark jobs: the load loop with its commits, and the pictures of the reports.

import { card, h } from "../dom.js";
import { bytes, clock, duration, moment, whole } from "../format.js";
import { Table } from "../table.js";

export function jobs(root, page) {
  const { store } = page;
  const facts = h("dl", { class: "legend" });
  const problems = h("ul", { class: "bad" });
  const commits = new Table({
    caption: "Commits", sortBy: "at", descending: true, empty: "No commits, or warehouse.dir is not set.",
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
  const loads = new Table({
    caption: "Loads", sortBy: "at", descending: true, filter: false, empty: "No load since the load job started.",
    columns: [
      { name: "at", label: "Ended", text: (row) => moment(row.ended_ms), sort: (row) => row.ended_ms },
      { name: "took", label: "Duration", num: true, text: (row) => duration(row.took_ms), sort: (row) => row.took_ms },
      { name: "rows", label: "Rows", num: true, text: (row) => whole(row.rows), sort: (row) => row.rows },
      { name: "rate", label: "Rows a second", num: true, text: (row) => whole(row.took_ms ? (row.rows * 1000) / row.took_ms : null), sort: (row) => row.rows / row.took_ms },
      { name: "tables", label: "Tables", num: true, text: (row) => whole(row.tables), sort: (row) => row.tables },
    ],
  });
  const runs = new Table({
    caption: "Report runs", sortBy: "at", descending: true, filter: false, empty: "No reports yet. “make demo” makes one at its end; “kafka2011 report” and “kafka2011 reports” at any time.",
    columns: [
      { name: "at", label: "Created", text: (row) => moment(row.made_ms), sort: (row) => row.made_ms },
      { name: "name", label: "Report", text: (row) => row.name },
      { name: "tables", label: "Tables (version)", text: (row) => Object.entries(row.tables).map(([name, version]) => `${name} (${version ?? "?"})`).join(", ") },
      { name: "rows", label: "Rows read", num: true, text: (row) => whole(row.rows), sort: (row) => row.rows },
      { name: "answers", label: "Result rows", num: true, text: (row) => whole(row.answers), sort: (row) => row.answers },
      { name: "took", label: "Duration", num: true, text: (row) => duration(row.took_ms), sort: (row) => row.took_ms },
    ],
  });
  const pictures = h("div", { class: "charts" });
  root.append(card("Load job", "A Spark job that runs as long as the deployment: every load.interval.ms, or when the load before has ended, it loads new messages from the offline brokers into the warehouse.", facts, problems), h("div", { class: "halves" }, card("Loads", "The newest thirty.", loads.element), card("Commits of the warehouse", "One commit holds files, end offsets and counts, so that a repeated load adds nothing twice.", commits.element)), card("Reports", null, runs.element, pictures));
  function stateOf() {
    const job = Object.values(store.rows("processes")).find((row) => row.kind === "loader");
    if (!job) return "no load job is registered";
    return ["down", "silent", "stopped"].includes(job.state) ? "the load job does not answer" : "waiting for its first answer";
  }
  return {
    sections: ["loader", "commits", "reports"],
    update(changed) {
      const status = store.rows("loader").status;
      if (changed.has("loader") || (changed.has("processes") && !status)) {
        const delay = (status && status.latency_ms) || {};
        facts.replaceChildren(...(status ? [["Rows loaded since its start", whole(status.rows_loaded)], ["Loads", whole(status.loads)], ["Last load", status.last_load_ms ? clock(status.last_load_ms) : "–"], ["Not loaded yet", status.lag_looked_ms && status.lag_bytes !== null ? `${bytes(status.lag_bytes)} at ${clock(status.lag_looked_ms)}` : bytes(status.lag_bytes)], ["Quarantined", whole(status.quarantined)], ["Event to row p50 since its start", duration(delay.p50)], ["p99", duration(delay.p99)]] : [["State", stateOf()]]).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("strong", {}, value)))));
        problems.replaceChildren(...((status && status.problems) || []).map((text) => h("li", {}, text)));
        problems.hidden = !problems.children.length;
        if (status) loads.set(status.recent || []);
        else loads.lack(stateOf().replace(/^./, (letter) => letter.toUpperCase()));
      }
      if (changed.has("commits")) commits.set(Object.values(store.rows("commits")));
      if (changed.has("reports")) {
        const rows = Object.values(store.rows("reports"));
        runs.set(rows);
        const key = JSON.stringify(rows.map((row) => [row.name, row.made_ms]));
        if (pictures.dataset.key === key) return;
        pictures.dataset.key = key;
        pictures.replaceChildren(...rows.map((row) => h("figure", { class: "plain" }, h("figcaption", {}, h("h3", {}, row.name), row.totals.page_views !== undefined && h("p", { class: "lead" }, `${whole(row.totals.page_views)} page views, ${whole(row.totals.visitors)} visitors`)), h("img", { class: "report", loading: "lazy", src: `/api/report/${encodeURIComponent(row.name)}?made=${row.made_ms}`, alt: `Picture of the report ${row.name}` }))));
      }
    },
  };
}
