// Operations on the page Site: what processes and machines use, how they answer one another, alerts.

import { card, h, setAttribute, setText } from "../dom.js";
import { bytes, clock, duration, isNumber, rate, whole } from "../format.js";
import { List } from "../list.js";
import { Table } from "../table.js";
import { bars, fact, factList } from "./site_parts.js";

const OLD_MS = 30000;
const ALERTS = {
  "does not answer": "does not answer", busy: "is overloaded", slow: "answers slowly", errors: "fails",
  processor: "is overloaded", memory: "is short of memory", disk: "is short of disk space",
};
// The time on one core, in per cent; a figure that was not measured is a dash.
const cpu = (value) => (isNumber(value) ? `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %` : whole(value));
const shortName = (name) => name.replace(/^(live|offline)\//, "");
const short = (ms) => (isNumber(ms) && ms < 9.95 ? `${ms.toFixed(1)} ms` : duration(ms));
const known = isNumber;

function alertList(label, empty) {
  return new List({
    tag: "ul", css: "findings", label, empty,
    make() {
      const kind = h("span", { class: "tag" }), who = h("strong"), when = h("time"), why = h("span", { class: "also" });
      const element = h("li", {}, h("span", { class: "line" }, who, kind, when), why);
      return {
        element,
        write(row) {
          setAttribute(element, "data-alert", `${row.alert}|${row.subject}`);
          setText(kind, ALERTS[row.alert] || row.alert);
          setAttribute(kind, "class", `tag ${row.over_ms ? "idle" : "bad"}`);
          setText(who, shortName(row.subject));
          setText(when, row.over_ms ? `${clock(row.since_ms)} to ${clock(row.over_ms)}` : `since ${clock(row.since_ms)}`);
          setText(why, row.evidence);
        },
      };
    },
  });
}

// One line for each resource of each machine, with the used part as a bar.
function resources(host) {
  const line = (item, name, value, part, sub = "") => ({ item: `${host.name} ${item}`, name, value, part: part || 0, sub });
  const rows = [];
  if (known(host.cpu)) rows.push(line("cpu", "Processor", `${host.cpu.toFixed(2)} of ${whole(host.cpu_max)} cores`, host.cpu / host.cpu_max));
  if (known(host.memory)) rows.push(line("memory", "Memory", `${bytes(host.memory)} of ${bytes(host.memory_max)}`, host.memory / host.memory_max));
  if (known(host.disk_free)) rows.push(line("disk", "Disk", `${bytes(host.disk_max - host.disk_free)} of ${bytes(host.disk_max)}`, 1 - host.disk_free / host.disk_max, known(host.disk_written) ? `reads ${rate(host.disk_read)}, writes ${rate(host.disk_written)}` : ""));
  if (known(host.network_in)) rows.push(line("network", "Network", `${rate(host.network_in)} in, ${rate(host.network_out)} out`, 0));
  return rows;
}

// The slowest call of the last minute with the calls within it.
function slowestList() {
  return new List({
    css: "stack", label: "The slowest call of the last minute", empty: "No call in the last minute.",
    make() {
      const what = h("strong"), took = h("span", { class: "value" }), how = h("span", { class: "also" });
      const element = h("li", {}, h("span", { class: "line" }, what, took), how);
      return {
        element,
        write(row) {
          setAttribute(element, "class", `depth-${Math.min(row.depth, 4)}`);
          setAttribute(element, "data-callee", row.callee);
          setText(what, `${shortName(row.caller)} → ${shortName(row.callee)}`);
          setText(took, short(row.took_ms));
          setText(how, row.error ? `${row.operation}: ${row.error}` : known(row.served_ms) ? `${row.operation}; ${short(row.served_ms)} of it in ${shortName(row.callee)}` : row.operation);
        },
      };
    },
  });
}

function processTable() {
  const number = (name, label, text, value = (row) => row[name]) => ({ name, label, num: true, text: (row) => text(value(row), row), sort: (row) => value(row) ?? null });
  return new Table({
    caption: "Processes, as measured", sortBy: "cpu", descending: true, filter: false, empty: "No process was measured yet.",
    columns: [
      { name: "name", label: "Process", text: (row) => row.name },
      { name: "answers", label: "State", text: (row) => (row.answers ? "answers" : "does not answer"), make: (row) => h("span", { class: `tag ${row.answers ? "good" : "bad"}` }, row.answers ? "answers" : "does not answer") },
      number("cpu", "Processor", cpu),
      number("memory", "Memory", bytes),
      number("disk_read", "Disk reads", (value) => (known(value) ? `${bytes(value)}/s` : "–")),
      number("disk_written", "Disk writes", (value) => (known(value) ? `${bytes(value)}/s` : "–")),
      number("network_in", "Network in", (value) => (known(value) ? `${bytes(value)}/s` : "–")),
      number("open_files", "Open files", whole),
      number("p50_ms", "Half of calls", short),
      number("p99_ms", "99 of 100", short),
      number("errors", "Failed calls", (value, row) => `${whole(value)} of ${whole(row.calls)}`),
    ],
  });
}

export function operationsBox() {
  const verdict = h("p", { class: "verdict-line", role: "status", "aria-label": "State of operations" });
  const facts = { half: fact("Half of all calls take"), most: fact("99 of 100 calls take"), failed: fact("Failed calls") };
  const alerts = alertList("Alerts", "No alert at present."), over = alertList("Alerts that are over", "No alert has ended yet.");
  const machines = bars("Machines", "No machine was measured yet.");
  const hostNames = h("h3", {}, "Machine");
  const slowest = slowestList(), processes = processTable();
  const element = card("Operations", "What every process and machine of this deployment really uses, measured every few seconds; how fast they answer one another; and an alert where one does not answer, is overloaded or fails.",
    verdict, factList(facts),
    h("div", { class: "thirds" }, h("div", {}, h("h3", {}, "Alerts"), alerts.element, h("h3", {}, "Over"), over.element), h("div", {}, hostNames, machines.element), h("div", {}, h("h3", {}, "The slowest call of the last minute"), slowest.element)),
    h("h3", {}, "Processes"), h("p", { class: "also" }, "Processor time is per cent of one core. A dash: the system does not say it of this process."), processes.element);
  return {
    element,
    // Said with every message: `now`, the server's time of it, goes on when what was found does not.
    judge(found, now) {
      const silent = found.processes.filter((row) => !row.answers).length;
      let [text, css] = [`✓ All ${whole(found.processes.length)} processes answer`, "good"];
      if (!found.measured_ms) [text, css] = ["Nothing is measured in this run", "idle"];
      else if (now - found.measured_ms > OLD_MS) [text, css] = [`Nothing was measured since ${clock(found.measured_ms)}`, "idle"];
      else if (found.alerts.length) [text, css] = [found.alerts.length === 1 ? `${shortName(found.alerts[0].subject)} ${ALERTS[found.alerts[0].alert] || found.alerts[0].alert}` : `${whole(found.alerts.length)} alerts`, "bad"];
      else if (silent) [text, css] = [`${whole(silent)} of ${whole(found.processes.length)} processes did not answer the last time`, "warn"];
      setText(verdict, text);
      setAttribute(verdict, "class", `verdict-line ${css}`);
    },
    write(found) {
      facts.half.set(short(found.calls.p50_ms), `of ${whole(found.calls.calls)} in the last minute`);
      facts.most.set(short(found.calls.p99_ms), "and less");
      facts.failed.set(whole(found.calls.errors), "in the last minute");
      alerts.set(found.alerts);
      over.set(found.over.slice(0, 3));
      setText(hostNames, found.hosts.length === 1 ? `Machine ${found.hosts[0].name}` : "Machines");
      machines.set(found.hosts.flatMap((host) => resources(host).map((row) => (found.hosts.length === 1 ? row : { ...row, name: `${host.name}: ${row.name}` }))));
      slowest.set(found.slowest);
      processes.set(found.processes);
    },
  };
}
