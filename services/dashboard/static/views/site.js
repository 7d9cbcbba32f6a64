// What the site does with its own events, as they come: for visitors, so words before numbers.

import { h, setAttribute, setText, STATES, tag, WAITING } from "../dom.js";
import { clock, duration, isNumber, whole } from "../format.js";
import { Chart, series } from "../chart.js";
import { List } from "../list.js";
import { operations } from "./operations.js";

const GOAL_MS = 3000;
const KINDS = [[/^\/in\/(\d+)$/, "Profile"], [/^\/jobs\/view\/(\d+)$/, "Job"], [/^\/company\/(\d+)$/, "Company"], [/^job-(\d+)$/, "Job"]];

// A path in words; any other path as it is.
export function itemName(item) {
  for (const [pattern, kind] of KINDS) { const found = pattern.exec(item); if (found) return `${kind} ${whole(Number(found[1]))}`; }
  return item;
}
const percent = (part, of) => (of && isNumber(part / of) ? `${((100 * part) / of).toFixed(part / of < 0.0995 ? 1 : 0)} %` : "–");
const money = (micros) => (micros / 1e6).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const initials = (name) => name.split(" ").map((word) => word[0]).join("").slice(0, 2).toUpperCase();
const plural = (number, one, many = `${one}s`) => `${whole(number)} ${number === 1 ? one : many}`;

// A row with a bar behind it: {name, value, part (0 to 1), sub, item}.
function bars(label, empty) {
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
const ranked = (rows, text = (row) => whole(row.count)) => rows.map((row) => ({ item: row.item, count: row.count, name: itemName(row.item), value: text(row), part: row.count / rows[0].count, sub: (row.also || []).length ? `viewed with ${row.also.map((other) => itemName(other.item)).join(", ")}` : "" }));

function fact(name) {
  const big = h("strong"), sub = h("span", { class: "sub" });
  return { element: h("div", {}, h("dt", {}, name), h("dd", {}, big, sub)), set(value, more = "") { setText(big, value); setText(sub, more); } };
}

export function site(root, page) {
  const { store } = page;
  const card = (title, lead, ...children) => h("section", { class: "card" }, h("h2", {}, title), h("p", { class: "lead" }, lead), ...children);

  // --- how fresh it is
  const fresh = { now: fact("From a click to this page"), most: fact("99 of 100 within"), events: fact("Events read for these figures") };
  const verdict = h("p", { class: "verdict-line", role: "status" });
  const line = new Chart({ title: "From the event to this page, over the last minutes", format: duration, lines: [{ name: "p50_ms", label: "half of all events within", css: "p50" }, { name: "p99_ms", label: "99 of 100 within", css: "p99" }] });
  const freshCard = card("What the site knows right now", "Members click; seconds later the site itself uses it. Everything on this page is computed from the live brokers, by one consumer group for each box below, and written back as topics (site-…) that others can read.",
    verdict, h("dl", { class: "facts" }, fresh.now.element, fresh.most.element, fresh.events.element));

  // --- trending
  const viewed = bars("Most viewed", "No page views in the last five minutes."), shared = bars("Most shared", "Nothing was shared in the last five minutes.");
  const since = h("p", { class: "also" });
  const related = bars("Viewed together, counted by Spark", "No pair of items was viewed by two members in that minute."), relatedSince = h("p", { class: "also" });
  const relatedBox = h("div", { hidden: true }, h("h3", {}, "Viewed together, counted by Spark"), related.element, relatedSince);
  const trending = card("Trending", "What members view and pass on most in the last five minutes, and what the same members view with it.", h("div", { class: "pair" }, h("div", {}, h("h3", {}, "Most viewed"), viewed.element), h("div", {}, h("h3", {}, "Most shared"), shared.element)), since, relatedBox);

  // --- search
  const searchFacts = { searches: fact("Searches"), without: fact("Without a click"), empty: fact("Found nothing") };
  const queries = bars("Queries", "No search in the last five minutes."), results = bars("Results clicked", "No result was clicked.");
  const positions = bars("Click-through by position", "No result was shown.");
  const cutOff = h("p", { class: "also" });
  const search = card("Search", "What members look for, which results they choose, and how much the place in the list decides.", h("dl", { class: "facts" }, Object.values(searchFacts).map((each) => each.element)),
    h("div", { class: "thirds" }, h("div", {}, h("h3", {}, "Queries"), queries.element), h("div", {}, h("h3", {}, "Results clicked"), results.element), h("div", {}, h("h3", {}, "Clicked, by position"), positions.element)), cutOff);

  // --- ads
  const VERDICTS = { "on pace": "good", ahead: "warn", behind: "info", spent: "bad", starting: "idle", "no budget": "idle" };
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
          setText(sub, `${plural(row.impressions, "impression")}, ${plural(row.clicks, "click")} (${percent(row.clicks, row.impressions)})${pace}`);
        },
      };
    },
  });
  const leftOut = h("p", { class: "also" });
  const ads = card("Ads", "Each campaign's budget for this hour, and whether the last minute keeps to it.", campaigns.element, leftOut);

  // --- abuse
  const abuseFacts = { found: fact("Found"), planted: fact("Planted abusers found"), false: fact("False alarms") };
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
  const abuse = card("Abuse", "Members and hosts that read profile after profile, guess passwords or write the same comment everywhere, with the evidence.", h("dl", { class: "facts" }, Object.values(abuseFacts).map((each) => each.element)), findings.element);

  // --- newsfeed
  const whose = h("h3"), chosen = h("span", { class: "lead" });
  const stories = new List({
    css: "feed", label: "Stories, newest first", empty: "Nothing from this member's connections yet.",
    make() {
      const face = h("span", { class: "face", "aria-hidden": "true" }), author = h("strong"), did = h("span"), when = h("time"), text = h("p", { class: "text" }), likes = h("span", { class: "also" }), comment = h("p", { class: "comment" });
      const element = h("li", {}, face, h("div", {}, h("span", { class: "line" }, author, did, when), text, likes, comment));
      return {
        element,
        write(row) {
          setAttribute(element, "data-post", row.post);
          setText(face, initials(row.author));
          setAttribute(face, "class", `face hue-${[...row.author].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) % 5}`);
          setText(author, row.author);
          setText(did, row.kind);
          setText(when, clock(row.at_ms));
          setText(text, row.kind === "shared" ? itemName(row.text.split("?")[0]) : row.text);
          setText(likes, [row.likes && `${row.liked_by} like${row.likes === 1 ? "s" : ""} this`, row.comments && plural(row.comments, "comment")].filter(Boolean).join(" · "));
          likes.hidden = !row.likes && !row.comments;
          comment.hidden = !row.comment;
          setText(comment, row.comment ? `${row.comment.name}: ${row.comment.text}` : "");
        },
      };
    },
  });
  const wanted = h("input", { type: "number", min: 1, step: 1, placeholder: "member's number", "aria-label": "Number of the member whose newsfeed to show" });
  const say = h("p", { class: "said", role: "status" });
  const form = h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); look(); } }, h("label", {}, "Show another member", wanted), h("button", { type: "submit" }, "Show"));
  const newsfeed = card("Newsfeed", "What a member's connections write, share, like and comment on; the newest first.", form, say, h("div", { class: "line" }, whose, chosen), stories.element);
  let member = 0, asked = 0; // 0: the one that the service shows

  async function look() {
    member = Number(wanted.value) || 0;
    setText(say, "");
    if (!member) { showFeed(store.rows("site").newsfeed); return; }
    const mine = (asked += 1);
    try {
      const answer = await fetch(`/api/feed?${new URLSearchParams({ member })}`);
      const found = await answer.json();
      if (!answer.ok) throw new Error(found.error);
      if (mine === asked) showFeed(found);
    } catch (error) { setText(say, `The newsfeed did not answer: ${error.message}`); }
  }
  function showFeed(found) {
    if (!found) return;
    setText(whose, found.member ? `For ${found.name}` : "No members are connected yet");
    setText(chosen, found.member ? `member ${whole(found.member)}, ${plural(found.connections, "connection")}` : "");
    stories.set(found.stories);
  }

  const running = operations(card, bars);

  root.append(freshCard, trending, h("div", { class: "pair" }, ads, abuse), search, h("div", { class: "pair" }, newsfeed, line.element), running.element);

  const usesOf = (rows) => Object.entries(rows).filter(([name]) => name !== "latency");

  // Said with every message: what is old and which processes are away changes while the rows of the site do not.
  function judge(rows) {
    const latency = rows.latency || {};
    const uses = usesOf(rows);
    const missed = uses.filter(([, row]) => row.missed_bytes).map(([name]) => name);
    const anew = uses.filter(([, row]) => row.begun_anew).map(([name]) => name);
    const newest = Math.max(...uses.map(([, row]) => row.at_ms));
    const old = uses.length && store.sampledMs - newest > 10000;
    // What has not come is not in the latency of what came.
    const broken = Object.values(store.rows("processes")).filter((row) => ["down", "silent", "lagging"].includes(row.state) && (row.kind === "site" || (row.kind === "broker" && row.dc !== "offline" && row.broker_id !== null))).map((row) => `${row.name} (${STATES[row.state][2]})`);
    let text = store.id < 0 ? WAITING : "Waiting for the process “site”", css = "idle";
    if (old) [text, css] = [`The process “site” does not answer; these figures are of ${clock(newest)}`, "bad"];
    else if (missed.length) [text, css] = [`Not complete: the logs no longer had some events of ${missed.join(", ")}`, "warn"];
    else if (anew.length) [text, css] = [`Not exact: a log of ${anew.join(", ")} was lost or cut and is read from its start; events may count twice`, "warn"];
    else if (broken.length) [text, css] = [`Not known how fresh: ${broken.join(", ")}`, "warn"];
    else if (latency.is_after_pause && !isNumber(latency.p99_ms)) text = "Not known yet how fresh: these figures are the first after a pause";
    else if (!isNumber(latency.p99_ms)) text = uses.length ? "No new events at present" : text;
    else if (latency.p99_ms <= GOAL_MS) [text, css] = [`✓ Fresh: a click is here within ${duration(latency.p99_ms)}`, "good"];
    else [text, css] = [`Late: clicks take up to ${duration(latency.p99_ms)} to be here`, "warn"];
    setText(verdict, text);
    setAttribute(verdict, "class", `verdict-line ${css}`);
    if (rows.operations) running.judge(rows.operations, store.sampledMs);
  }

  function write(rows) {
    const latency = rows.latency || {};
    const uses = usesOf(rows);
    fresh.now.set(duration(latency.p50_ms), "half of what came in the last minute");
    fresh.most.set(duration(latency.p99_ms), `goal: ${duration(GOAL_MS)}`);
    if (uses.length) fresh.events.set(whole(uses.reduce((sum, [, row]) => sum + row.events, 0)), `by ${plural(uses.length, "consumer group")}, each of which reads all that it needs`);
    if (rows.trending) {
      const found = rows.trending;
      viewed.set(ranked(found.viewed));
      shared.set(ranked(found.shared));
      relatedBox.hidden = !found.related.to_ms;
      if (found.related.to_ms) {
        const pairs = Object.entries(found.related.pairs).sort(([a], [b]) => a - b).map(([, pair]) => pair);
        related.set(pairs.map(([item, other, members]) => ({ item: `${item} ${other}`, count: members, name: `${itemName(item)} and ${itemName(other)}`, value: plural(members, "member"), part: members / pairs[0][2] })));
        setText(relatedSince, `By a Spark job over the live brokers: views from ${clock(found.related.from_ms)} to ${clock(found.related.to_ms)}, known ${duration(found.related.known_ms - found.related.to_ms)} later`);
      }
      setText(since, `${plural(found.views, "view")} and ${plural(found.shares, "share")} of items (what is not /, /home or /search) since ${clock(found.from_ms)}${found.is_exact ? "" : ", of which items that came late are not counted one by one"}`);
    }
    if (rows.search) {
      const found = rows.search;
      setText(cutOff, found.is_exact ? "" : "There were more different queries or results than are counted one by one: those that came last are in the totals only.");
      searchFacts.searches.set(whole(found.searches), "in the last five minutes");
      searchFacts.without.set(percent(found.without, found.searches), `${whole(found.without)} searches`);
      searchFacts.empty.set(percent(found.empty, found.searches), `${whole(found.empty)} searches`);
      queries.set(found.queries.map((row) => ({ item: row.query, count: row.searches, name: row.query, value: whole(row.searches), part: row.searches / found.queries[0].searches, sub: `${plural(row.clicks, "click")}, ${percent(row.without, row.searches)} without one` })));
      results.set(ranked(found.results));
      const top = Math.max(...found.positions.map((row) => row.clicked / row.shown), 1e-9);
      positions.set(found.positions.map((row) => ({ item: String(row.position), count: row.clicked, name: `Place ${row.position + 1}`, value: percent(row.clicked, row.shown), part: row.clicked / row.shown / top, sub: `${whole(row.clicked)} of ${whole(row.shown)}` })));
    }
    if (rows.ads) {
      campaigns.set(rows.ads.campaigns);
      setText(leftOut, rows.ads.is_exact ? "" : "There are more campaigns than are counted here.");
    }
    if (rows.abuse) {
      const found = rows.abuse;
      abuseFacts.found.set(whole(found.findings.length), `of ${plural(found.watched, "subject")} watched`);
      abuseFacts.planted.element.hidden = abuseFacts.false.element.hidden = found.false_alarms === null;
      abuseFacts.planted.set(`${found.planted_found} of ${found.planted}`, "the synthetic activity has them");
      abuseFacts.false.set(percent(found.false_alarms, found.findings.length), plural(found.false_alarms || 0, "finding"));
      findings.set(found.findings);
    }
    if (rows.operations) running.write(rows.operations);
    if (rows.newsfeed && !member) showFeed(rows.newsfeed);
  }

  return {
    sections: ["site", "site_latency"],
    update(changed) {
      const rows = store.rows("site");
      if (changed.has("site")) write(rows);
      judge(rows);
      if (changed.has("site_latency")) line.set(series(store.rows("site_latency")));
    },
    resize() { line.draw(); },
  };
}
