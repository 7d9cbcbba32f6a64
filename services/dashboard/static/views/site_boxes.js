// The boxes of the page Site but the newsfeed: each an element and `write`, which shows what the
// service found for it.

import { card, h, setAttribute, setText } from "../dom.js";
import { clock, duration, isNumber, plural, whole } from "../format.js";
import { List } from "../list.js";
import { bars, fact, factList, itemName, percent, ranked } from "./site_parts.js";

const VERDICTS = { "on pace": "good", ahead: "warn", behind: "info", spent: "bad", starting: "idle", "not known": "idle", "no budget": "idle" };
const money = (micros) => (micros / 1e6).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

// What members view and share most, and what is viewed together.
export function trendingBox() {
  const viewed = bars("Most viewed", "No page views in the last five minutes."), shared = bars("Most shared", "Nothing was shared in the last five minutes.");
  const since = h("p", { class: "also" });
  const related = bars("Viewed together, counted by Spark", "No pair of items was viewed by two members in that minute."), relatedSince = h("p", { class: "also" });
  const relatedBox = h("div", { hidden: true }, h("h3", {}, "Viewed together, counted by Spark"), related.element, relatedSince);
  return {
    element: card("Trending", "What members view and pass on most in the last five minutes, and what the same members view with it.", h("div", { class: "pair" }, h("div", {}, h("h3", {}, "Most viewed"), viewed.element), h("div", {}, h("h3", {}, "Most shared"), shared.element)), since, relatedBox),
    write(found) {
      viewed.set(ranked(found.viewed));
      shared.set(ranked(found.shared));
      relatedBox.hidden = !found.related.to_ms;
      if (found.related.to_ms) {
        const pairs = Object.entries(found.related.pairs).sort(([a], [b]) => a - b).map(([, pair]) => pair);
        related.set(pairs.map(([item, other, members]) => ({ item: `${item} ${other}`, count: members, name: `${itemName(item)} and ${itemName(other)}`, value: plural(members, "member"), part: members / pairs[0][2] })));
        setText(relatedSince, `By a Spark job over the live brokers: views from ${clock(found.related.from_ms)} to ${clock(found.related.to_ms)}, known ${duration(found.related.known_ms - found.related.to_ms)} later`);
      }
      setText(since, `${plural(found.views, "view")} and ${plural(found.shares, "share")} of items (what is not /, /home or /search) since ${clock(found.from_ms)}${found.is_exact ? "" : ", of which items that came late are not counted one by one"}`);
    },
  };
}

// Queries, results chosen, and click-through by position.
export function searchBox() {
  const facts = { searches: fact("Searches"), without: fact("Without a click"), empty: fact("Found nothing") };
  const queries = bars("Queries", "No search in the last five minutes."), results = bars("Results clicked", "No result was clicked.");
  const positions = bars("Click-through by position", "No result was shown.");
  const cutOff = h("p", { class: "also" });
  return {
    element: card("Search", "What members look for, which results they choose, and how much the place in the list decides.", factList(facts),
      h("div", { class: "thirds" }, h("div", {}, h("h3", {}, "Queries"), queries.element), h("div", {}, h("h3", {}, "Results clicked"), results.element), h("div", {}, h("h3", {}, "Clicked, by position"), positions.element)), cutOff),
    write(found) {
      setText(cutOff, found.is_exact ? "" : "There were more different queries or results than are counted one by one: those that came last are in the totals only.");
      facts.searches.set(whole(found.searches), "in the last five minutes");
      // Of topics that are not read equally far: a part of one in the other is none.
      const part = found.is_late ? () => "–" : percent;
      facts.without.set(part(found.without, found.searches), found.is_late ? "not known yet" : `${whole(found.without)} searches`);
      facts.empty.set(percent(found.empty, found.searches), `${whole(found.empty)} searches`);
      queries.set(found.queries.map((row) => ({ item: row.query, count: row.searches, name: row.query, value: whole(row.searches), part: row.searches / found.queries[0].searches, sub: `${plural(row.clicks, "click")}${found.is_late ? "" : `, ${percent(row.without, row.searches)} without one`}` })));
      results.set(ranked(found.results));
      const share = (row) => (row.shown && !found.is_late ? row.clicked / row.shown : 0);
      const top = Math.max(...found.positions.map(share), 1e-9);
      positions.set(found.positions.map((row) => ({ item: String(row.position), count: row.clicked, name: `Place ${row.position + 1}`, value: part(row.clicked, row.shown), part: share(row) / top, sub: found.is_late ? `${whole(row.clicked)} clicked, ${whole(row.shown)} shown` : `${whole(row.clicked)} of ${whole(row.shown)}` })));
    },
  };
}

// Each campaign's budget of the hour and its pace.
export function adsBox() {
  const campaigns = new List({
    tag: "ul", css: "campaigns", label: "Campaigns", empty: "No advertisement was shown yet.",
    make() {
      const name = h("strong"), state = h("span", { class: "tag" }), spent = h("span", { class: "value" }), fill = h("span", { class: "fill" }), sub = h("span", { class: "also" });
      const gauge = h("span", { class: "gauge", role: "img" }, fill);
      const element = h("li", {}, h("span", { class: "line" }, name, state, spent), gauge, sub);
      return {
        element,
        write(row) {
          setAttribute(element, "data-campaign", row.campaign);
          setAttribute(element, "data-spent", row.spent);
          setText(name, row.campaign);
          setText(state, row.verdict);
          setAttribute(state, "class", `tag ${VERDICTS[row.verdict]}`);
          setText(spent, row.budget ? `${money(row.spent)} of ${money(row.budget)}` : money(row.spent));
          fill.style.width = `${row.budget ? Math.min(100, (100 * row.spent) / row.budget) : 0}%`;
          setAttribute(gauge, "aria-label", row.budget ? `${percent(row.spent, row.budget)} of the hour's budget is spent` : "no budget");
          const pace = !isNumber(row.pace) ? "" : ` · spends ${row.pace.toFixed(2)} times what the budget allows${row.serve < 1 ? `: serve ${percent(row.serve, 1)} of its impressions` : ""}`;
          setText(sub, `${plural(row.impressions, "impression")}, ${plural(row.clicks, "click")}${row.isLate ? "" : ` (${percent(row.clicks, row.impressions)})`}${pace}`);
        },
      };
    },
  });
  const leftOut = h("p", { class: "also" });
  return {
    element: card("Ads", "Each campaign's budget for this hour, and whether the last minute keeps to it.", campaigns.element, leftOut),
    write(found) {
      campaigns.set(found.campaigns.map((row) => ({ ...row, isLate: found.is_late })));
      setText(leftOut, found.is_exact ? "" : "There are more campaigns than are counted here.");
    },
  };
}

// Members and hosts that abuse the site, with the evidence.
export function abuseBox() {
  const facts = { found: fact("Found"), planted: fact("Planted abusers found"), false: fact("False alarms") };
  const findings = new List({
    tag: "ul", css: "findings", label: "Findings", empty: "No member or host abuses the site at present.",
    make() {
      const kind = h("span", { class: "tag bad" }), who = h("strong"), when = h("time"), why = h("span", { class: "also" }), examples = h("span", { class: "also mono" });
      const element = h("li", {}, h("span", { class: "line" }, kind, who, when), why, examples);
      return {
        element,
        write(row) {
          setAttribute(element, "data-subject", row.subject);
          setText(kind, row.rule);
          setText(who, row.subject.replace(/^member/, "Member").replace(/^host/, "Host"));
          setText(when, `found at ${clock(row.found_ms)}, ${duration(row.after_ms)} after it began`);
          setText(why, `${row.evidence}; ${whole(row.events)} since${row.agent ? `; ${row.agent}` : ""}`);
          setText(examples, row.examples.slice(-3).join("  "));
        },
      };
    },
  });
  return {
    element: card("Abuse", "Members and hosts that read profile after profile, guess passwords or write the same comment everywhere, with the evidence.", factList(facts), findings.element),
    write(found) {
      facts.found.set(whole(found.findings.length), `of ${plural(found.watched, "subject")} watched`);
      facts.planted.element.hidden = facts.false.element.hidden = found.false_alarms === null;
      facts.planted.set(`${found.planted_found} of ${found.planted}`, "the synthetic activity has them");
      facts.false.set(percent(found.false_alarms, found.findings.length), plural(found.false_alarms || 0, "finding"));
      findings.set(found.findings);
    },
  };
}
