// What the site does with its own events, as they come: for visitors, so words before numbers.

import { card, h, setAttribute, setText, STATES, WAITING } from "../dom.js";
import { clock, duration, isNumber, plural, whole } from "../format.js";
import { Chart, series } from "../chart.js";
import { operationsBox } from "./operations.js";
import { abuseBox, adsBox, searchBox, trendingBox } from "./site_boxes.js";
import { newsfeedBox } from "./site_newsfeed.js";
import { fact, factList } from "./site_parts.js";

const GOAL_MS = 3000;
// What a box says whose figures lack more than the last seconds.
const lateText = (found) => (!found.is_late ? "" : found.behind_ms === null ? "How far behind the logs these figures are is not known yet." : `Behind: of the last ${duration(found.behind_ms)}, these figures lack some or all that came.`);
const usesOf = (rows) => Object.entries(rows).filter(([name]) => name !== "latency");

// How fresh the figures are, in one line: its text and colour. What is old and which processes are
// away changes while the rows of the site do not.
function freshness(rows, store) {
  const latency = rows.latency || {};
  const uses = usesOf(rows);
  const missed = uses.filter(([, row]) => row.missed_bytes).map(([name]) => name);
  const anew = uses.filter(([, row]) => row.begun_anew).map(([name]) => name);
  const newest = Math.max(...uses.map(([, row]) => row.at_ms));
  // What has not come is not in the latency of what came.
  const late = uses.filter(([, row]) => row.is_late && row.behind_ms !== null);
  const broken = Object.values(store.rows("processes")).filter((row) => ["down", "silent", "lagging"].includes(row.state) && ((row.kind === "site" && !(late.length && row.state === "lagging")) || (row.kind === "broker" && row.dc !== "offline" && row.broker_id !== null))).map((row) => `${row.name} (${STATES[row.state][2]})`);
  if (uses.length && store.sampledMs - newest > 10000) return [`The process “site” does not answer; these figures are of ${clock(newest)}`, "bad"];
  if (missed.length) return [`Not complete: the logs no longer had some events of ${missed.join(", ")}`, "warn"];
  if (anew.length) return [`Not exact: a log of ${anew.join(", ")} was lost or cut and is read from its start; events may count twice`, "warn"];
  if (broken.length) return [`Not known how fresh: ${broken.join(", ")}`, "warn"];
  if (late.length) return [`Late: up to ${duration(Math.max(...late.map(([, row]) => row.behind_ms)))} behind (${late.map(([name]) => name).join(", ")}); what came since is not in these figures, or not all of it`, "warn"];
  if (latency.is_after_pause && !isNumber(latency.p99_ms)) return ["Not known yet how fresh: these figures are the first after a pause", "idle"];
  if (!isNumber(latency.p99_ms)) return [uses.length ? "No new events at present" : store.id < 0 ? WAITING : "Waiting for the process “site”", "idle"];
  if (latency.p99_ms <= GOAL_MS) return [`✓ Fresh: a click is here within ${duration(latency.p99_ms)}`, "good"];
  return [`Late: clicks take up to ${duration(latency.p99_ms)} to be here`, "warn"];
}

function freshBox() {
  const facts = { now: fact("From a click to this page"), most: fact("99 of 100 within"), events: fact("Events read for these figures") };
  const verdict = h("p", { class: "verdict-line", role: "status" });
  return {
    element: card("What the site knows right now", "Members click; seconds later the site itself uses it. Everything on this page is computed from the live brokers, by one consumer group for each box below, and written back as topics (site-…) that others can read.",
      verdict, factList(facts)),
    judge([text, css]) {
      setText(verdict, text);
      setAttribute(verdict, "class", `verdict-line ${css}`);
    },
    write(rows) {
      const latency = rows.latency || {}, uses = usesOf(rows);
      facts.now.set(duration(latency.p50_ms), "half of what came in the last minute");
      facts.most.set(duration(latency.p99_ms), `goal: ${duration(GOAL_MS)}`);
      if (uses.length) facts.events.set(whole(uses.reduce((sum, [, row]) => sum + row.events, 0)), `by ${plural(uses.length, "consumer group")}, each of which reads all that it needs`);
    },
  };
}

export function site(root, page) {
  const { store } = page;
  const fresh = freshBox();
  const boxes = { trending: trendingBox(), search: searchBox(), ads: adsBox(), abuse: abuseBox(), newsfeed: newsfeedBox(() => store.rows("site").newsfeed), operations: operationsBox() };
  const lateLines = Object.fromEntries(Object.keys(boxes).map((name) => [name, h("p", { class: "late", hidden: true })]));
  for (const [name, box] of Object.entries(boxes)) box.element.querySelector(".lead").after(lateLines[name]);
  const line = new Chart({ title: "From the event to this page, over the last minutes", format: duration, lines: [{ name: "p50_ms", label: "half of all events within", css: "p50" }, { name: "p99_ms", label: "99 of 100 within", css: "p99" }] });
  root.append(fresh.element, boxes.trending.element, h("div", { class: "pair" }, boxes.ads.element, boxes.abuse.element), boxes.search.element, h("div", { class: "pair" }, boxes.newsfeed.element, line.element), boxes.operations.element);
  return {
    sections: ["site", "site_latency"],
    update(changed) {
      const rows = store.rows("site");
      if (changed.has("site")) {
        fresh.write(rows);
        for (const [name, box] of Object.entries(boxes)) {
          if (!rows[name]) continue;
          box.write(rows[name]);
          setText(lateLines[name], lateText(rows[name]));
          lateLines[name].hidden = !rows[name].is_late;
        }
      }
      fresh.judge(freshness(rows, store));
      if (rows.operations) boxes.operations.judge(rows.operations, store.sampledMs);
      if (changed.has("site_latency")) line.set(series(store.rows("site_latency")));
    },
    resize() { line.draw(); },
  };
}
