// Brokers, topics and partitions; one topic with its partitions and the groups that read it.

import { h, stateTag, tag, VERDICTS } from "../dom.js";
import { behind, bytes, isNumber, lag, perSecond, rate, whole } from "../format.js";
import { behindWord, bySet, inSyncWord, roleKind, setFigures, setSaid, setTag } from "../sets.js";
import { Table } from "../table.js";

const topicLink = (row) => h("a", { href: `#/topics?dc=${encodeURIComponent(row.dc)}&topic=${encodeURIComponent(row.topic)}` }, row.topic);
// The brokers' retention settings; several values when they differ.
const kept = (row) => {
  const times = (row.retention_s || []).map((seconds) => (seconds % 86400 ? `${whole(seconds / 3600)} h` : seconds === 86400 ? "1 day" : `${whole(seconds / 86400)} days`));
  const sizes = (row.retention_bytes || []).filter((size) => size >= 0).map((size) => `${bytes(size)} a partition`);
  return [...times, ...sizes].join(" or ") || "–";
};
// Two groups by name, more by their number: the names are on the topic's page. Null: the end of a log is not known.
const size = (bytesLeft) => (bytesLeft === null ? "?" : bytes(bytesLeft));
const readers = (row) => {
  const groups = Object.entries(row.groups), lags = groups.map(([, bytesLeft]) => bytesLeft);
  if (groups.length > 2) return `${groups.length} groups (${lags.includes(null) ? "?" : `up to ${bytes(Math.max(...lags))}`})`;
  return groups.map(([group, bytesLeft]) => `${group} (${size(bytesLeft)})`).join(", ") || "–";
};
const sizeOf = (row) => (isNumber(row.end) && isNumber(row.start) ? row.end - row.start : null);
const messagesLink = (row) => h("a", { href: `#/messages?${new URLSearchParams({ dc: row.dc, topic: row.topic, partition: row.partition })}`, "aria-label": `Messages of ${row.topic} ${row.partition}` }, "messages");

// The partitions of one topic, one broker or all: a card, and `update`, which fills it.
function partitionCard(store, { topic, dc, broker }) {
  const table = new Table({
    caption: "Partitions", sortBy: "topic",
    columns: [
      { name: "topic", label: "Topic", text: (row) => row.topic, make: topicLink, sort: (row) => `${row.topic} ${row.dc} ${row.partition}` },
      { name: "dc", label: "Datacenter", text: (row) => row.dc },
      { name: "partition", label: "Partition", text: (row) => row.partition },
      { name: "broker", label: "Broker", text: (row) => row.broker },
      { name: "state", label: "State", text: (row) => row.state, make: (row) => tag(row.state, { online: "good", "not measured": "idle" }[row.state] || "bad") },
      { name: "rate", label: "In", num: true, text: (row) => rate(row.bytes_s), sort: (row) => row.bytes_s },
      { name: "start", label: "First offset", num: true, text: (row) => whole(row.start), sort: (row) => row.start },
      { name: "watermark", label: "High watermark", num: true, text: (row) => whole(row.watermark), sort: (row) => row.watermark },
      { name: "end", label: "Log end", num: true, text: (row) => whole(row.end), sort: (row) => row.end },
      { name: "size", label: "Size", num: true, text: (row) => bytes(sizeOf(row)), sort: sizeOf },
      { name: "segments", label: "Segments", num: true, text: (row) => whole(row.segments), sort: (row) => row.segments },
      { name: "content", label: "Content", text: () => "", make: messagesLink, key: (row) => row.key },
    ],
  });
  const mine = (row) => (!topic || (row.topic === topic && row.dc === dc)) && (!broker || row.broker === broker);
  return {
    element: h("section", { class: "card" }, h("h2", {}, broker && !topic ? `Partitions of ${broker}` : "Partitions"), h("p", { class: "lead" }, "An offset is a byte position. Consumers read up to the high watermark; data below it is on disk."), table.element),
    update() { table.set(store.list("partitions").filter(([, row]) => mine(row)).map(([key, row]) => ({ key, ...row }))); },
  };
}

function brokerTable() {
  return new Table({
    caption: "Brokers", sortBy: "name", filter: false,
    columns: [
      { name: "name", label: "Broker", text: (row) => row.name, make: (row) => h("a", { href: `#/topics?broker=${encodeURIComponent(row.name)}` }, row.name) },
      { name: "dc", label: "Datacenter", text: (row) => row.dc },
      { name: "state", label: "State", text: (row) => row.state, make: (row) => stateTag(row.state) },
      { name: "messages", label: "Messages in", num: true, text: (row) => perSecond((row.facts || {}).messages_s), sort: (row) => (row.facts || {}).messages_s },
      { name: "in", label: "In", num: true, text: (row) => rate(row.in_s), sort: (row) => row.in_s },
      { name: "out", label: "Out", num: true, text: (row) => rate(row.out_s), sort: (row) => row.out_s },
      { name: "flush", label: "Flush", num: true, text: (row) => (row.facts && row.facts.flush_ms && isNumber(row.facts.flush_ms) ? `${row.facts.flush_ms.toFixed(1)} ms` : "–"), sort: (row) => (row.facts || {}).flush_ms },
      { name: "connections", label: "Connections", num: true, text: (row) => whole((row.facts || {}).connections), sort: (row) => (row.facts || {}).connections },
      { name: "address", label: "Address", text: (row) => row.address },
    ],
  });
}

function topicTable() {
  return new Table({
    caption: "Topics", sortBy: "topic",
    columns: [
      { name: "topic", label: "Topic", text: (row) => row.topic, make: topicLink, sort: (row) => `${row.topic} ${row.dc}` },
      { name: "dc", label: "Datacenter", text: (row) => row.dc },
      { name: "partitions", label: "Partitions", num: true, text: (row) => whole(row.partitions) + (row.away ? ` (${row.away} away)` : ""), sort: (row) => row.partitions },
      { name: "messages", label: "Messages", num: true, text: (row) => perSecond(row.messages_s), sort: (row) => row.messages_s },
      { name: "in", label: "In", num: true, text: (row) => rate(row.bytes_s), sort: (row) => row.bytes_s },
      { name: "out", label: "Out", num: true, text: (row) => rate(row.out_s), sort: (row) => row.out_s },
      { name: "size", label: "Size", num: true, text: (row) => bytes(row.size), sort: (row) => row.size },
      { name: "segments", label: "Segments", num: true, text: (row) => whole(row.segments), sort: (row) => row.segments },
      { name: "kept", label: "Kept for", text: kept, sort: (row) => Math.max(-1, ...(row.retention_s || [])) },
      { name: "groups", label: "Groups (lag)", text: readers, wrap: true },
    ],
  });
}

// The replica sets, where there are any: a card, and `update`, which fills it.
function setCard(store) {
  const members = new Table({
    caption: "Members of replica sets", sortBy: "set", filter: false,
    columns: [
      { name: "set", label: "Broker", text: (row) => `${row.set.broker_id}`, sort: (row) => `${row.set.dc} ${row.set.broker_id} ${row.name}` },
      { name: "dc", label: "Datacenter", text: (row) => row.set.dc },
      { name: "name", label: "Member", text: (row) => row.name },
      { name: "role", label: "Role", text: (row) => row.role, make: (row) => tag(row.role, roleKind(row)), key: roleKind },
      { name: "sync", label: "In sync", text: inSyncWord, make: (row) => tag(inSyncWord(row), roleKind(row)), key: roleKind },
      { name: "behind", label: "Behind the leader", num: true, text: behindWord, sort: (row) => row.behind_bytes },
      { name: "epoch", label: "Epoch", num: true, text: (row) => whole(row.set.epoch), sort: (row) => row.set.epoch },
      { name: "min", label: "min_insync", num: true, text: (row) => whole(row.set.min_insync), sort: (row) => row.set.min_insync },
      { name: "state", label: "Set", text: (row) => row.set.state, make: (row) => setTag(row.set), key: (row) => row.set.is_old },
      { name: "process", label: "Process", text: (row) => row.process || "not registered" },
    ],
  });
  const setLines = h("ul", { class: "plain-list" });
  const element = h("section", { class: "card", hidden: true }, h("h2", {}, "Replica sets"), h("p", { class: "lead" }, "A broker that is several processes: one leads and is what clients see, the others copy it. A message is confirmed when every member that is in sync has it on disk, and at least min_insync have."), setLines, members.element);
  return {
    element,
    update() {
      const sets = Object.values(store.rows("sets")).sort(bySet);
      element.hidden = !sets.length;
      setLines.replaceChildren(...sets.map((set) => h("li", {}, h("strong", {}, `Broker ${set.broker_id} `), setTag(set), ` ${setSaid(set)} · ${setFigures(set)}`)));
      members.set(sets.flatMap((set) => set.members.map((member) => ({ ...member, set }))));
    },
  };
}

// One topic: its facts, its partitions, and the groups that read it.
function onTopic(root, store, chosen) {
  const { topic, dc } = chosen;
  const partitions = partitionCard(store, chosen);
  const facts = h("dl", { class: "legend" });
  const groups = new Table({
    caption: `Groups that read ${topic}`, sortBy: "lag", descending: true, filter: false, empty: "No group reads this topic.",
    columns: [
      { name: "group", label: "Group", text: (row) => row.group, make: (row) => h("a", { href: `#/groups?group=${encodeURIComponent(`${row.dc}/${row.group}`)}` }, row.group) },
      { name: "partition", label: "Partition", text: (row) => row.partition },
      { name: "state", label: "Verdict", text: (row) => row.state, make: (row) => tag(row.state, VERDICTS[row.state]) },
      { name: "lag", label: "Lag", num: true, text: lag, sort: (row) => row.lag_bytes },
      { name: "time", label: "Behind", num: true, text: (row) => behind(row), sort: (row) => row.lag_ms },
      { name: "owner", label: "Owner", text: (row) => row.owner || "none", wide: true },
    ],
  });
  root.append(h("p", {}, h("a", { href: "#/topics" }, "← All topics")), h("section", { class: "card" }, h("h2", {}, `Topic ${topic}`), facts), partitions.element, h("section", { class: "card" }, h("h2", {}, "Groups"), groups.element));
  return {
    sections: ["topics", "partitions", "group_partitions"],
    update(changed) {
      const row = store.rows("topics")[`${dc}/${topic}`];
      if (changed.has("topics") && row) facts.replaceChildren(...[["Datacenter", row.dc], ["Partitions", whole(row.partitions)], ["Messages", perSecond(row.messages_s)], ["In", rate(row.bytes_s)], ["Out", rate(row.out_s)], ["Size", bytes(row.size)], ["Segments", whole(row.segments)], ["Kept for", kept(row)]].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
      if (changed.has("partitions")) partitions.update();
      if (changed.has("group_partitions")) groups.set(Object.values(store.rows("group_partitions")).filter((found) => found.topic === topic && found.dc === dc));
    },
  };
}

// All brokers and topics, or the partitions of one broker.
function onAll(root, store, chosen) {
  const partitions = partitionCard(store, chosen);
  const brokers = brokerTable(), all = topicTable(), sets = setCard(store);
  if (chosen.broker) root.append(h("p", {}, h("a", { href: "#/topics" }, "← All brokers and topics")), partitions.element);
  else root.append(h("section", { class: "card" }, h("h2", {}, "Brokers"), brokers.element), sets.element, h("section", { class: "card" }, h("h2", {}, "Topics"), all.element), partitions.element);
  return {
    sections: ["topics", "partitions", "sets"],
    update(changed) {
      if (changed.has("processes")) brokers.set(Object.values(store.rows("processes")).filter((row) => row.kind === "broker"));
      if (changed.has("sets")) sets.update();
      if (changed.has("topics")) all.set(Object.values(store.rows("topics")));
      if (changed.has("partitions")) partitions.update();
    },
  };
}

export function topics(root, page, query) {
  const chosen = { topic: query.get("topic"), dc: query.get("dc"), broker: query.get("broker") };
  return (chosen.topic ? onTopic : onAll)(root, page.store, chosen);
}
