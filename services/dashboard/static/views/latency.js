// Delays from the producer to each tier: p50, p99, p99.9 over time, and messages a second.

import { h } from "../dom.js";
import { duration, perSecond } from "../format.js";
import { Chart, series } from "../chart.js";

const TITLES = { live: "Producer to live brokers", offline: "Producer to offline brokers", warehouse: "Producer to warehouse row" };

export function latency(root, page) {
  const { store } = page;
  const charts = Object.entries(TITLES).map(([tier, title]) => new Chart({ title, log: true, format: duration, lines: [["p50", "p50"], ["p99", "p99"], ["p999", "p99.9"]].map(([name, label]) => ({ name: `${tier}_${name}`, label, css: name })) }));
  const flow = new Chart({ title: "Messages a second", format: perSecond, lines: ["produced", "live", "offline", "warehouse"].map((name) => ({ name, label: name, css: name })) });
  root.append(h("section", {}, h("h2", {}, "Latency"), h("p", { class: "lead" }, "From header.time of an event until the audit read it at the tier, or until the load committed its row. Each point covers the last one to two minutes (HdrHistogram); the axis is logarithmic.")), h("div", { class: "charts" }, ...charts.map((chart) => chart.element), flow.element));
  return {
    sections: ["latency", "flow"],
    update(changed) {
      if (changed.has("latency")) { const points = series(store.rows("latency")); for (const chart of charts) chart.set(points); }
      if (changed.has("flow")) flow.set(series(store.rows("flow")));
    },
    resize() { for (const chart of [...charts, flow]) chart.draw(); },
  };
}
