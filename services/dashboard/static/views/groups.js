// Consumer groups: verdict with its reason, lag in bytes and seconds, members, history, rebalances.

import { h, setAttribute, setText, tag, VERDICTS } from "../dom.js";
import { behind, bytes, clock, duration, lag, validated, whole } from "../format.js";
import { Chart, largest } from "../chart.js";
import { Table } from "../table.js";
import { memberName, Timeline } from "../timeline.js";

const rank = (state) => ["OK", "UNKNOWN", "WARN", "STALL", "STOP", "REWIND"].indexOf(state);

const DRAWN_MAX = 20; // groups in the time line
const OLD_MS = 15000; // a look that is this old is not of now
const asOf = (row, now) => (row.looked_ms && now - row.looked_ms > OLD_MS ? ` (as of ${clock(row.looked_ms)})` : "");

// The group of a row of rebalances or lag_series: its key ends in a bar and a time, and names may have bars.
const groupOf = (key) => key.slice(0, key.lastIndexOf("|"));

// The time lines of these groups' members: a card, and `draw`, which fills it.
function rebalanceCard(store) {
  const lines = new Timeline("Rebalances");
  const notDrawn = h("p", { class: "lead", hidden: true });
  const element = h("section", { class: "card" }, h("h2", {}, "Rebalances"), h("p", { class: "lead" }, "A lane is a member, the number on it the partitions that it owns, a vertical line a rebalance, a dotted piece of a lane a time that was not looked at, since no page was open or the look came late. When a member stops reading, its lane ends and the others get its partitions."), lines.element, notDrawn);
  return {
    element,
    draw(wanted) {
      const looks = Object.values(store.rows("groups")).map((row) => row.looked_ms), moved = Object.values(store.rows("rebalances")).map((row) => row.at_ms);
      const now = largest([...looks, ...moved], 0);
      setAttribute(notDrawn, "hidden", wanted.length > DRAWN_MAX ? null : "");
      setText(notDrawn, `The first ${DRAWN_MAX} of ${whole(wanted.length)} groups by name. Select another in the table for its own.`);
      lines.set(wanted.slice(0, DRAWN_MAX).map((key) => ({ name: key.slice(key.indexOf("/") + 1), moves: store.list("rebalances").filter(([at]) => groupOf(at) === key).map(([, row]) => row).sort((a, b) => a.at_ms - b.at_ms) })), now);
    },
    resize() { lines.draw(); },
  };
}

function groupTable(store) {
  return new Table({
    caption: "Consumer groups", sortBy: "state", descending: true, empty: "No group has registered.",
    columns: [
      { name: "group", label: "Group", text: (row) => row.group, make: (row) => h("a", { href: `#/groups?group=${encodeURIComponent(row.key)}` }, row.group), key: (row) => row.key },
      { name: "dc", label: "Datacenter", text: (row) => row.dc },
      { name: "state", label: "Verdict", text: (row) => row.state, sort: (row) => rank(row.state), make: (row) => tag(row.state, VERDICTS[row.state]) },
      { name: "lag", label: "Lag", num: true, text: lag, sort: (row) => row.lag_bytes },
      { name: "time", label: "Behind", num: true, text: (row) => behind(row), sort: (row) => row.lag_ms },
      { name: "members", label: "Members", num: true, text: (row) => whole(Object.keys(row.members).length), sort: (row) => Object.keys(row.members).length },
      { name: "partitions", label: "Partitions", num: true, text: (row) => whole(row.partitions) + (row.unowned ? ` (${row.unowned} unowned)` : ""), sort: (row) => row.partitions },
      { name: "read", label: "Validated", text: (row) => validated(row.validated), wrap: true },
      { name: "why", label: "Reason", text: (row) => row.reason + asOf(row, store.sampledMs), wide: true },
    ],
  });
}

const memberTable = (group) => new Table({ caption: "Members", filter: false, columns: [{ name: "name", label: "Member", text: (row) => memberName(row.id, group) }, { name: "id", label: "Consumer id", text: (row) => row.id }, { name: "owned", label: "Partitions owned", num: true, text: (row) => whole(row.owned), sort: (row) => row.owned }, { name: "subscription", label: "Subscription", text: (row) => row.subscription, wide: true }] });

function partitionTable() {
  return new Table({
    caption: "Partitions of the group", sortBy: "lag", descending: true,
    columns: [
      { name: "topic", label: "Topic", text: (row) => row.topic },
      { name: "partition", label: "Partition", text: (row) => row.partition },
      { name: "state", label: "Verdict", text: (row) => row.state, sort: (row) => rank(row.state), make: (row) => tag(row.state, VERDICTS[row.state]) },
      { name: "lag", label: "Lag", num: true, text: lag, sort: (row) => row.lag_bytes },
      { name: "time", label: "Behind", num: true, text: (row) => behind(row), sort: (row) => row.lag_ms },
      { name: "offset", label: "Offset", num: true, text: (row) => whole(row.offset), sort: (row) => row.offset },
      { name: "end", label: "High watermark", num: true, text: (row) => whole(row.end), sort: (row) => row.end },
      { name: "owner", label: "Owner", text: (row) => row.owner || "none" },
      { name: "why", label: "Reason", text: (row) => row.reason + (row.complete < 1 ? ` (${Math.round(row.complete * 100)} % of the window seen)` : ""), wide: true },
    ],
  });
}

function onAll(root, store) {
  const table = groupTable(store), rebalances = rebalanceCard(store);
  const about = h("p", { class: "lead" }, "The verdict follows Burrow's rules: from recent commits, never from a threshold. Lag is from the last committed offset to the present end of the log: what was read and is not committed yet counts, so it is larger than what a member says of itself on Topology. Validated: the group has counted what it read, and compares it with what the producers reported. Select a group for its partitions and its lag over time.");
  root.append(h("section", { class: "card" }, h("h2", {}, "Consumer groups"), about, table.element), rebalances.element);
  let ages = "";
  return {
    sections: ["groups", "rebalances", "validated"],
    update(changed) {
      const before = ages;
      ages = store.list("groups").map(([, row]) => asOf(row, store.sampledMs)).join("|"); // grow old without a change
      if (changed.has("groups") || changed.has("validated") || ages !== before) table.set(store.list("groups").map(([key, row]) => ({ key, ...row, validated: store.rows("validated")[key] })));
      if (changed.has("rebalances") || changed.has("groups")) rebalances.draw(Object.keys(store.rows("groups")).sort());
    },
    resize() { rebalances.resize(); },
  };
}

// One group: its verdict, its lag over time, its members and partitions.
function onGroup(root, store, selected) {
  const group = selected.slice(selected.indexOf("/") + 1);
  const verdict = h("p", { class: "verdict-line", role: "status" });
  const sizes = new Chart({ title: "Lag, bytes", lines: [{ name: "bytes", label: "lag", css: "live" }], format: bytes });
  const times = new Chart({ title: "Lag, time: the age of the first message not read", lines: [{ name: "ms", label: "behind", css: "offline" }], format: duration });
  const rebalances = rebalanceCard(store), members = memberTable(group), parts = partitionTable();
  const moves = h("ol", { class: "events", "aria-label": "Rebalances and verdicts" });
  root.append(h("p", {}, h("a", { href: "#/groups" }, "← All groups")), h("section", { class: "card" }, h("h2", {}, `Group ${group}`), verdict), h("div", { class: "charts" }, sizes.element, times.element), rebalances.element, h("div", { class: "two" }, h("section", { class: "card" }, h("h2", {}, "Members"), members.element), h("section", { class: "card" }, h("h2", {}, "Events"), moves)), h("section", { class: "card" }, h("h2", {}, "Partitions"), parts.element));

  function writeVerdict(row, read) {
    if (!row) { setText(verdict, "This group is not registered."); return; }
    const text = `${row.dc} datacenter · ${lag(row)} not committed · ${behind(row)} behind · ${row.reason}${read ? ` · what it read: ${validated(read)}` : ""}`;
    if (verdict.dataset.text === row.state + text) return;
    verdict.dataset.text = row.state + text;
    verdict.replaceChildren(tag(row.state, VERDICTS[row.state]), ` ${text}`);
  }

  return {
    sections: ["groups", "rebalances", "validated", "group_partitions", "lag_series"],
    update(changed) {
      if (changed.has("rebalances") || changed.has("groups")) rebalances.draw([selected]);
      if (changed.has("group_partitions") || changed.has("groups") || changed.has("validated")) {
        const mine = Object.values(store.rows("group_partitions")).filter((row) => `${row.dc}/${row.group}` === selected);
        const row = store.rows("groups")[selected];
        parts.set(mine);
        // A thread's id is the consumer's id and a number.
        if (row) members.set(Object.entries(row.members).map(([id, subscription]) => ({ id, subscription, owned: mine.filter((found) => found.owner.startsWith(`${id}-`)).length })));
        writeVerdict(row, store.rows("validated")[selected]);
      }
      if (changed.has("lag_series")) {
        const points = store.list("lag_series").filter(([key]) => groupOf(key) === selected).map(([key, row]) => [Number(key.slice(selected.length + 1)), row]).sort((a, b) => a[0] - b[0]);
        sizes.set(points);
        times.set(points);
      }
      if (changed.has("events")) {
        const mine = store.list("events").filter(([, event]) => event.subject === selected).sort(([a], [b]) => b.localeCompare(a));
        moves.replaceChildren(...mine.map(([, event]) => h("li", {}, h("time", {}, clock(event.at_ms)), h("span", { class: event.kind }, event.text))));
        if (!mine.length) moves.append(h("li", { class: "idle" }, "None since the dashboard started."));
      }
    },
    resize() { rebalances.resize(); sizes.draw(); times.draw(); },
  };
}

export function groups(root, page, query) {
  const selected = query.get("group");
  return selected ? onGroup(root, page.store, selected) : onAll(root, page.store);
}
