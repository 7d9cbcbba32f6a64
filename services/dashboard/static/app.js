// The application: views by the address behind #, the headline, the banner, the detail panel.

import { focusAgain, h, setAttribute, setText, STATES } from "./dom.js";
import { clock, duration, perSecond, whole } from "./format.js";
import { Store } from "./store.js";
import { audit } from "./views/audit.js";
import { breakIt } from "./views/break.js";
import { groups } from "./views/groups.js";
import { jobs } from "./views/jobs.js";
import { latency } from "./views/latency.js";
import { messages } from "./views/messages.js";
import { site } from "./views/site.js";
import { topics } from "./views/topics.js";
import { topology } from "./views/topology.js";

const VIEWS = {
  topology: ["Topology", topology], site: ["Site", site], audit: ["Audit", audit], topics: ["Brokers & topics", topics], groups: ["Groups", groups],
  latency: ["Latency", latency], messages: ["Messages", messages], jobs: ["Jobs", jobs], break: ["Break it", breakIt],
};
const store = new Store();
const main = document.getElementById("main");
const detail = document.getElementById("detail");
let view = null;

const page = {
  store,
  // Shows a panel at the side; Escape or the button closes it and gives the focus back.
  show(title, ...children) {
    if (detail.hidden) page.before = document.activeElement;
    detail.replaceChildren(h("button", { class: "close", type: "button", onclick: page.hide, "aria-label": "Close the detail" }, "✕"), h("h2", { tabindex: -1 }, title), ...children);
    detail.hidden = false;
    detail.querySelector("h2").focus();
  },
  hide() {
    if (detail.hidden) return;
    detail.hidden = true;
    detail.replaceChildren();
    if (page.onhide) page.onhide();
    page.onhide = null;
    if (page.before && page.before !== document.body) focusAgain(main, page.before);
  },
};
document.addEventListener("keydown", (event) => { if (event.key === "Escape") page.hide(); });

const links = Object.entries(VIEWS).map(([name, [label]]) => [name, h("a", { href: `#/${name}` }, label)]);
document.getElementById("nav").append(...links.map(([, link]) => link));

// What an address shows that has no view.
function nothing(root) {
  const there = Object.entries(VIEWS).filter(([name]) => name !== "break" || store.meta.chaos);
  root.append(h("section", { class: "card" }, h("h2", {}, "No such page"), h("p", { class: "lead" }, `There is no page ${location.hash}. The pages are:`),
    h("ul", {}, there.map(([name, [label]]) => h("li", {}, h("a", { href: `#/${name}` }, label))))));
  return { update() {} };
}

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const name = path ? path.replace(/\/$/, "") : "topology";
  const [label, make] = Object.hasOwn(VIEWS, name) ? VIEWS[name] : ["No such page", nothing];
  page.hide();
  if (view && view.close) view.close();
  for (const [other, link] of links) setAttribute(link, "aria-current", other === name ? "page" : null);
  const here = links.find(([other]) => other === name);
  const nav = document.getElementById("nav"); // on a phone the names are one line that scrolls sideways
  if (here && nav.scrollWidth > nav.clientWidth) nav.scrollLeft = here[1].offsetLeft - nav.offsetLeft - 40;
  document.title = `${label} · kafka2011`;
  main.replaceChildren();
  view = make(main, page, new URLSearchParams(query || ""));
  store.want(view.sections || []);
  banner();
  view.update(new Set(["link", ...[...store.wanted].filter((name) => store.id >= 0 || store.sections[name])]));
  if (route.isLater) main.focus({ preventScroll: true });
  route.isLater = true;
  scrollTo(0, 0);
}
addEventListener("hashchange", route);
// The banner lies over the content: as much room below it as the banner takes.
new ResizeObserver(([{ target }]) => document.documentElement.style.setProperty("--banner", `${target.offsetHeight}px`)).observe(document.getElementById("banner"));
addEventListener("resize", () => { if (view && view.resize) view.resize(); });

// --- the headline: everything that matters in one line -----------------------------------------

function tile(css) {
  const parts = { name: h("div", { class: "name" }), big: h("div", { class: "big" }), sub: h("div", { class: "sub" }) };
  parts.element = h("div", { class: `tile ${css}` }, parts.name, parts.big, parts.sub);
  return parts;
}
const TILES = { verdict: tile("verdict"), produced: tile("produced"), live: tile("live"), offline: tile("offline"), warehouse: tile("warehouse") };
TILES.verdict.big.setAttribute("aria-live", "polite");
document.getElementById("headline").append(...Object.values(TILES).map((parts) => parts.element));
const LABELS = { produced: "Produced", live: "Live brokers", offline: "Offline brokers", warehouse: "Warehouse" };

function inTiers(found, word, audit) {
  const counts = new Set(found.map(([, count]) => count));
  if (counts.size === 1 && found.length === Object.keys(audit.tiers).length) return `${whole(found[0][1])} ${word} in every tier`;
  return found.map(([tier, count]) => `${whole(count)} ${word} in ${tier}`).join(", ");
}

// Whether any window, one that is counted in the sums alone too, is more than pending.
function isJudged(audit) {
  const topics = Object.values(audit.topics || {}).filter((topic) => topic.is_audited);
  return !topics.length || topics.some((topic) => Object.values(topic.tiers).some((found) => found.pending_cells < topic.cells));
}

// What the audit has not read to its end, in the command's words. What is in flight for a moment is no news.
const IN_FLIGHT_MS = 10_000;
function unreadOf(audit) {
  const isOld = (readToMs) => !(audit.now_ms - readToMs < IN_FLIGHT_MS);
  const unread = Object.entries(audit.tiers).filter(([, found]) => found.caught_up === false && !found.away && isOld(found.read_to_ms)).map(([tier]) => `the newest messages of ${tier} are not counted yet`);
  if (audit.reports_caught_up === false && isOld(audit.reports_read_to_ms)) unread.push("the newest reports of the producers are not counted yet");
  return unread;
}

function verdictOf(audit) {
  if (!audit) return ["", "Waiting for the audit", ""];
  if (store.isOld && store.meta.state !== "stopped") return ["warn", "No new values", `Counts are as of ${clock(audit.unheard_since_ms || store.sampledMs)}`];
  const missing = Object.entries(audit.tiers).map(([tier, found]) => [tier, found.missing]).filter(([, count]) => count);
  const extra = Object.entries(audit.tiers).map(([tier, found]) => [tier, found.extra]).filter(([, count]) => count);
  const pending = audit.verdicts.pending || 0;
  // One verdict for each cell (topic, window, server) and tier.
  const done = Object.values(audit.verdicts).reduce((sum, count) => sum + count, 0) - pending;
  if (audit.unheard_since_ms && store.meta.state !== "stopped") return ["warn", "The audit does not answer", `Counts are as of ${clock(audit.unheard_since_ms)}`];
  // What is not complete is named, so that the numbers add up.
  const others = ["missing", "unknown", "extra", "redelivered", "behind", "not audited"].filter((word) => audit.verdicts[word]).map((word) => `, ${whole(audit.verdicts[word])} ${word}`).join("");
  const sub = `${whole(audit.verdicts.complete || 0)} of ${whole(done)} verdicts complete${others}${pending ? `, ${whole(pending)} not judged yet` : ""}`;
  if (missing.length) return ["bad", inTiers(missing, "missing", audit), sub];
  const gaps = audit.unknown || [];
  if (gaps.length || audit.verdicts.unknown) return ["bad", "Unknown whether all arrived", gaps.length ? gaps[0].what : sub];
  if (extra.length) return ["warn", inTiers(extra, "extra", audit), sub];
  const silent = audit.silent || [];
  const late = Object.entries(audit.tiers).filter(([, found]) => found.behind).map(([tier, found]) => `${tier} is ${duration(found.behind_by.ms)} behind`).join(", ");
  if (silent.length) return ["warn", `Silent: ${silent.map((sender) => sender.server).join(", ")}`, late ? `${late}; ${sub}` : sub];
  // As the command says it: what a broker has that does not answer is not judged.
  const away = [...new Set(Object.values(audit.tiers).map((found) => found.away).filter(Boolean))];
  // The audit waits a few seconds for a broker before it calls it away.
  const hanging = store.list("processes").filter(([, row]) => row.kind === "broker" && ["silent", "down"].includes(row.state)).map(([, row]) => row.name);
  const unanswered = store.meta.state === "stopped" ? "" : away.length ? away.join("; ") : hanging.length ? `No answer: ${hanging.join(", ")}` : "";
  if (late) return ["info", late, unanswered ? `${unanswered}; ${sub}` : sub];
  const awaited = audit.awaited || [];
  if (awaited.length) return ["info", "Not all is judged yet", awaited[0].what];
  if (!audit.produced) return ["", "Nothing produced yet", sub];
  // What a log has lost of what was counted lacks in no cell.
  const losses = (audit.losses || []).map((loss) => loss.what);
  const known = losses.length ? `${losses.join("; ")} (see the notes of Audit); ${sub}` : sub;
  if (unanswered) return ["info", "Nothing is missing so far", `${unanswered}; ${known}`];
  const unread = unreadOf(audit);
  if (unread.length) return ["info", "Nothing is missing so far", `${unread.join("; ")}; ${known}`];
  if (losses.length) return ["warn", "Nothing is missing so far", known];
  if (!isJudged(audit)) return ["", "Not judged yet", sub];
  // As the command says it: what retention had deleted before the audit began is not judged.
  const tiers = Object.values(audit.tiers);
  if (tiers.length && tiers.every((found) => found.verdict === "not audited")) return ["", "Nothing of what was produced can be audited", sub];
  if ((audit.retained_from || []).length) return ["info", "Nothing is missing of what can be audited", sub];
  return ["good", "✓ Nothing is lost", sub];
}

function headline() {
  const audit = store.audit;
  const [css, text, sub] = verdictOf(audit);
  setAttribute(TILES.verdict.element, "class", `tile verdict ${css}`);
  setText(TILES.verdict.name, "Every message, counted in every tier");
  setText(TILES.verdict.big, text);
  setText(TILES.verdict.sub, sub);
  for (const tier of ["produced", "live", "offline", "warehouse"]) {
    setAttribute(TILES[tier].element, "title", tier === "produced" ? "What producers have reported so far: messages arrive before they are reported" : "What the audit has counted here so far. It reads each tier by itself: one may be a moment ahead of the one before it");
    const found = audit && audit.tiers[tier];
    setText(TILES[tier].name, LABELS[tier]);
    setText(TILES[tier].big, audit ? whole(tier === "produced" ? audit.produced : found ? found.count : null) : "–");
    const rate = audit && audit.rates ? perSecond(audit.rates[tier]) : "";
    const delay = found && !found.behind && found.recent && found.recent.p50_ms !== null && found.recent.p50_ms !== undefined ? ` · after ${duration(found.recent.p50_ms)}` : "";
    setText(TILES[tier].sub, tier === "produced" ? (audit ? `${rate} · reported by producers` : "") : rate + delay);
  }
}

function banner() {
  const meta = store.meta;
  const box = document.getElementById("banner");
  const named = (state) => store.list("processes").filter(([, row]) => row.state === state).map(([, row]) => row.name);
  const down = named("down"), silent = named("silent");
  let text = "", css = "banner";
  if (!store.isConnected && meta.counts) text = "The dashboard does not answer: the deployment was stopped or is restarting. Its last known state is shown.";
  else if (store.isOld) text = `No new values come from the dashboard. These values are of ${clock(store.sampledMs)}.`;
  else if (meta.state === "stopped") text = "This deployment is stopped. Its last known state is shown.";
  else if (meta.state === "not found") text = "No deployment answers: its ZooKeepers cannot be reached. Start it with “make live”.";
  else if (meta.state === "starting") { text = "The deployment is starting …"; css += " wait"; }
  else if (meta.state === "empty") { text = "No process is registered. Only those with a process.name and a metrics.port are shown here."; css += " wait"; }
  else if (down.length) text = `Down: ${down.join(", ")}`;
  else if (silent.length) { text = `No answer in time: ${silent.join(", ")}`; css += " wait"; }
  setText(box, text);
  setAttribute(box, "class", css);
  setAttribute(box, "hidden", !text);
  setAttribute(main, "aria-busy", store.id < 0 ? "true" : null); // tables are empty before the first snapshot
  const pill = document.getElementById("link");
  const counts = meta.counts || {};
  const up = (counts.up || 0) + (counts.slow || 0);
  const parts = [`${up} up`];
  if (counts.lagging) parts.push(`${counts.lagging} lagging`);
  if (counts.silent) parts.push(`${counts.silent} without an answer`);
  if (counts.down) parts.push(`${counts.down} down`);
  if (counts.stopped) parts.push(`${counts.stopped} stopped`);
  setText(pill, store.isConnected && store.isOld ? `as of ${clock(store.sampledMs)}` : store.isConnected && meta.counts ? parts.map((part, index) => (index ? part : `${STATES[counts.down ? "down" : counts.lagging || counts.silent ? "lagging" : "up"][0]} ${part}`)).join(" · ") : "connecting …");
  setAttribute(pill, "class", `pill tag ${!store.isConnected || store.isOld ? "idle" : counts.down ? "bad" : counts.lagging || counts.silent ? "warn" : up ? "good" : "idle"}`);
  const link = links.find(([name]) => name === "break")[1];
  setAttribute(link, "hidden", meta.chaos ? null : "");
}

store.listeners.add((changed) => {
  headline();
  banner();
  if (view) view.update(changed);
});
banner();
headline();
route();
