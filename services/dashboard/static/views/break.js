// Break it, where enabled: every button applies a fault to a real process. Below, guided exercises:
// the action, the view to watch, the expected result.

import { card, h, keepFocus, setOptions, setText, stateTag, tag } from "../dom.js";
import { bySet, setSaid, setTag } from "../sets.js";
import { Table } from "../table.js";

// A proxy before the brokers can drop messages; its name differs by deployment.
const ANY_BALANCER = "";
// Topics of which there are many messages that go through the balancer, as those with a key do not: offered first.
const DROPPED = ["impression", "access-log"];
// {title, act: [[label, action, name, more]], view: [view, words], expect}
const EXERCISES = [
  { title: "Kill a live broker", act: [["Kill broker-1", "kill", "broker-1"], ["Start it again", "start", "broker-1"]], view: ["topology", "Topology"],
    expect: "Within 3 s the box is red and its partitions are away. When its ZooKeeper session has ended, 6 s later, the frontends continue through the other brokers. Started again it is green within seconds, every cell becomes complete, and nothing is missing; some cells may show ↻ redelivered: messages that no barrier had confirmed were sent again." },
  { title: "Pause an online consumer", act: [["Pause online-2", "pause", "online-2"], ["Continue it", "continue", "online-2"]], view: ["groups", "Groups"],
    expect: "Within 3 s there is “no answer” of it. When its ZooKeeper session ends, 6 s later, it is down, its lane on the time line ends and online-1 owns all partitions. Continued, it gets half of them back. While partitions have no owner the verdict is STOP." },
  { title: "Cut the link between the datacenters", act: [["Cut wan-link", "cut", "wan-link"], ["Mend it", "mend", "wan-link"]], view: ["audit", "Audit"],
    expect: "The offline count stops, the live count rises. The two lower stripes of new cells stay pending, then show how many messages are behind; the upper one becomes complete. Mended, the mirror catches up and every cell becomes complete, or ↻ redelivered where the cut fell: late is not lost." },
  { title: "Kill the mirror while it copies", act: [["Kill mirror-1", "kill", "mirror-1"], ["Start it again", "start", "mirror-1"]], view: ["audit", "Audit"],
    expect: "Started again, it continues from its last committed offset. Nothing is missing. Messages that were copied but not yet committed are copied twice: those cells show ↻ redelivered, in the offline tier and behind it." },
  { title: "Lose exactly seven messages", act: [["Drop 7 of impression", "drop", ANY_BALANCER, { topic: DROPPED[0], count: 7 }]], view: ["audit", "Audit"],
    expect: "The producer does not notice. When the window and its lateness are over, one cell of impression shows −7 in every tier (two neighbours together when the drop lay across the end of a window). It stays: these messages are lost, and the audit shows how many." },
];
const PAUSED = "paused"; // as a state, which the dashboard sees where it may kill local processes
const ALIVE = new Set(["up", "slow", "silent", "lagging"]);

// A button that applies `action` to the process `name`.
function actionButton(act, text, action, name, css, isOff) {
  return h("button", { type: "button", class: css, disabled: isOff, onclick: () => act(action, name), "aria-label": `${text} ${name}` }, text);
}

// Every process with its state and what can be done to it; `areKnown()`: whether it is known which are paused.
function processTable(act, areKnown) {
  return new Table({
    caption: "Processes to break", sortBy: "name", filter: false,
    columns: [
      { name: "name", label: "Process", text: (row) => row.name },
      { name: "state", label: "State", text: (row) => row.state, make: (row) => (row.state === PAUSED ? tag("‖ paused", "warn") : stateTag(row.state)) },
      { name: "do", label: "Action", wide: true, text: (row) => row.kind, key: (row) => `${row.name} ${row.state}`,
        make: (row) => {
          const isPaused = row.state === PAUSED, isAlive = ALIVE.has(row.state);
          // Where it is not known what is paused, what does not answer may be.
          const mayContinue = isPaused || (!areKnown() && (!isAlive || row.state === "silent"));
          return h("span", { class: "buttons" }, actionButton(act, "Kill", "kill", row.name, "danger", !isAlive && !isPaused), actionButton(act, "Pause", "pause", row.name, "", !isAlive), actionButton(act, "Continue", "continue", row.name, "", !mayContinue), actionButton(act, "Start again", "start", row.name, "", isAlive || isPaused));
        } },
    ],
  });
}

// Every proxy with its faults.
function linkTable(act) {
  return new Table({
    caption: "Links to break", sortBy: "name", filter: false, empty: "No proxy is registered.",
    columns: [
      { name: "name", label: "Link", text: (row) => row.name },
      { name: "now", label: "Faults", text: (row) => (row.faults || []).join(", ") || "no faults", make: (row) => ((row.faults || []).length ? tag(row.faults.join(", "), "warn") : tag("no faults", "good")) },
      { name: "do", label: "Action", wide: true, text: (row) => row.kind, key: (row) => row.name,
        make: (row) => h("span", { class: "buttons" }, actionButton(act, "Cut", "cut", row.name, "danger"), actionButton(act, "400 ms late", "delay", row.name), actionButton(act, "20 KB/s at most", "narrow", row.name), actionButton(act, "Mend", "mend", row.name)) },
    ],
  });
}

// The replica sets, of which each can lose its leader's disk; `isPaused(name)`: whether a process is stopped where it is.
function setCard(act, isPaused) {
  const table = new Table({
    caption: "Replica sets to break", sortBy: "broker", filter: false,
    columns: [
      { name: "broker", label: "Broker", text: (row) => `${row.broker_id}`, sort: (row) => `${row.dc} ${row.broker_id}` },
      { name: "state", label: "State", text: (row) => row.state, make: setTag, key: (row) => row.is_old },
      { name: "leader", label: "Leader", text: (row) => row.leader || "none" },
      { name: "do", label: "Action", wide: true, text: (row) => row.leader || "", key: (row) => `${row.state} ${row.is_old} ${row.down} ${row.down.filter(isPaused)}`,
        make: (row) => h("span", { class: "buttons" },
          row.leader && actionButton(act, "Kill the leader with its disk", "lose-disk", row.leader, "danger", row.state !== "in sync" || row.is_old),
          row.down.map((name) => (isPaused(name) ? actionButton(act, `Continue ${name}`, "continue", name) : actionButton(act, `Start ${name} again`, "start", name)))) },
      { name: "text", label: "Now", wide: true, text: setSaid },
    ],
  });
  const element = h("section", { class: "card", hidden: true }, h("h2", {}, "Replica sets"),
    h("p", { class: "lead" }, "Ends the process that leads a broker (SIGKILL) and deletes its disk: everything that it has stored. Only while every member is in sync: another disk could be the last with a confirmed message."),
    h("p", { class: "lead" }, h("b", {}, "Expected: "), "within 10 s another member leads, in an epoch larger by one, and the set is under-replicated. Started again, the killed one has an empty disk: it is a follower, and in sync when it has copied everything. On Audit nothing is missing; some cells may show ↻ redelivered."), table.element);
  return { element, set(rows) { element.hidden = !rows.length; table.set(rows); } };
}

// The exercises that fit the processes `names`, of which `balancer` is the proxy before the live brokers.
function exerciseList(act) {
  const element = h("ol", { class: "exercises" });
  function write(names, balancer) {
    const named = EXERCISES.map((exercise) => ({ ...exercise, act: exercise.act.map(([label, action, name, more]) => [label, action, name === ANY_BALANCER ? balancer : name, more]) }));
    const fitting = named.filter((exercise) => exercise.act.every(([, , name]) => names.has(name)));
    const key = JSON.stringify(fitting.map((exercise) => [exercise.title, exercise.act]));
    if (element.dataset.key === key) return;
    element.dataset.key = key;
    keepFocus(element, () => element.replaceChildren(...fitting.map((exercise) => h("li", {}, h("strong", {}, exercise.title),
      h("p", { class: "buttons" }, exercise.act.map(([label, action, name, more]) => h("button", { type: "button", "data-focus": `${exercise.title} ${label}`, class: action === "kill" || action === "cut" || action === "drop" ? "danger" : "", onclick: () => act(action, name, more) }, label)), h("a", { href: `#/${exercise.view[0]}` }, `Open ${exercise.view[1]}`)),
      h("p", { class: "lead" }, h("b", {}, "Expected: "), exercise.expect)))));
  }
  return { element, write };
}

// Removes a number of messages of a topic on their way.
function dropCard(act) {
  const topic = h("select"), proxy = h("select"), count = h("input", { type: "number", min: 1, max: 1000, value: 7 });
  const element = h("section", { class: "card" }, h("h2", {}, "Lose messages on purpose"), h("p", { class: "lead" }, "A proxy before the brokers removes exactly this number of a topic's messages. The producer cannot notice; the audit must show the same number as missing. Events with a key (page-view and other topics of a member's) go straight to their broker, past the proxy: nothing of these is dropped."),
    h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); act("drop", proxy.value, { topic: topic.value, count: Number(count.value) }); } }, h("label", {}, "Messages", count), h("label", {}, "Topic", topic), h("label", {}, "Proxy", proxy), h("button", { class: "danger", type: "submit" }, "Drop")));
  function write(balancers, topics) {
    element.hidden = !balancers.length;
    setOptions(proxy, balancers);
    setOptions(topic, [...DROPPED.filter((name) => topics.includes(name)), ...topics.filter((name) => !DROPPED.includes(name))]);
  }
  return { element, write };
}

// The replica sets of `store`, each with `down`: its members that have ended or hang.
function setRows(store) {
  const states = store.rows("processes");
  const isDown = (one) => one.key && states[one.key] && !ALIVE.has(states[one.key].state) && states[one.key].state !== "starting";
  return Object.values(store.rows("sets")).sort(bySet).map((set) => ({ ...set, down: set.members.filter(isDown).map((one) => one.process) }));
}

export function breakIt(root, page) {
  const { store } = page;
  const said = h("p", { role: "status", class: "said" }, "Nothing was broken from this page yet.");
  async function act(action, name, more = {}) {
    setText(said, `${action} ${name} …`);
    try {
      const answer = await fetch("/api/chaos", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ action, name, ...more }) });
      const result = await answer.json();
      setText(said, answer.ok ? result.said : `Refused: ${result.error}`);
    } catch (error) {
      setText(said, `Not done: ${error.message}`);
    }
  }
  const isPaused = (name) => (store.meta.paused || []).includes(name);
  const table = processTable(act, () => Boolean(store.meta.paused)), links = linkTable(act), sets = setCard(act, isPaused), exercises = exerciseList(act), drops = dropCard(act);
  const processes = h("section", { class: "card" }, h("h2", {}, "Processes"), h("p", { class: "lead" }, "Kill ends a process at once (SIGKILL). Pause stops it where it is (SIGSTOP): it hangs, until Continue (SIGCONT). Start again starts what has ended."), table.element);
  const noKills = h("p", { class: "lead", hidden: true }, "This dashboard can break links only: neither dashboard.chaos.dir nor dashboard.chaos.engine is set. Kill containers with “docker kill NAME”, pause them with “docker pause NAME”.");
  const isOff = h("section", { class: "card", hidden: true }, h("h2", {}, "Break it"),
    h("p", { class: "lead" }, "This dashboard only shows. To break the deployment from here, stop it and start it again with “make live CHAOS=on”, or in containers with “make up CHAOS=on”. From a terminal “kafka2011 embedded kill NAME” works at any time."));
  const all = h("div", { class: "sections" },
    h("section", { class: "card sticky" }, h("h2", {}, "Break it"), said),
    card("Exercises", "Each takes a minute or two: act, watch the view, compare with the expected result.", exercises.element),
    sets.element, noKills, processes, card("Links", null, links.element), drops.element);
  root.append(isOff, all);
  return {
    sections: ["topics", "sets"],
    update() {
      const rows = Object.values(store.rows("processes"));
      const kills = Boolean(store.meta.kills);
      all.hidden = !store.meta.chaos;
      isOff.hidden = !store.meta.counts || Boolean(store.meta.chaos);
      processes.hidden = !kills;
      noKills.hidden = kills || !store.meta.chaos;
      table.set(rows.filter((row) => row.kind !== "dashboard").map((row) => (isPaused(row.name) ? { ...row, state: PAUSED } : row)));
      sets.set(store.meta.disks ? setRows(store) : []);
      const proxies = rows.filter((row) => row.kind === "proxy");
      links.set(proxies);
      const balancers = proxies.filter((row) => row.role !== "link").map((row) => row.name);
      drops.write(balancers, [...new Set(Object.values(store.rows("topics")).filter((row) => row.dc !== "offline").map((row) => row.topic))].filter((name) => name !== "audit").sort());
      exercises.write(new Set(rows.filter((row) => kills || row.kind === "proxy").map((row) => row.name)), balancers[0]);
    },
  };
}
