// Break it, where that is enabled: every button does what it says to a real process.

import { h, setText, stateTag } from "../dom.js";
import { Table } from "../table.js";

export function breakIt(root, page) {
  const { store } = page;
  const said = h("p", { role: "status", class: "lead" }, "Watch the topology and the audit wall after each.");
  async function act(action, name, more = {}) {
    setText(said, `${action} ${name} …`);
    try {
      const answer = await fetch("/api/chaos", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ action, name, ...more }) });
      const told = await answer.json();
      setText(said, answer.ok ? told.said : `Refused: ${told.error}`);
    } catch (error) {
      setText(said, `Not done: ${error.message}`);
    }
  }
  const button = (text, action, row, css) => h("button", { type: "button", class: css, onclick: () => act(action, row.name), "aria-label": `${text} ${row.name}` }, text);
  const table = new Table({
    caption: "Processes to break", sortBy: "name", filter: false,
    columns: [
      { name: "name", label: "Process", text: (row) => row.name },
      { name: "state", label: "State", text: (row) => row.state, make: (row) => stateTag(row.state) },
      { name: "do", label: "Do", text: (row) => row.kind, make: (row) => h("span", {}, button("Kill", "kill", row, "danger"), " ", button("Pause", "pause", row), " ", button("Continue", "continue", row), " ", button("Start again", "start", row), row.kind === "proxy" ? h("span", {}, " ", button("Cut the link", "cut", row, "danger"), " ", button("Delay 400 ms", "delay", row), " ", button("Mend", "mend", row)) : ""), key: (row) => row.name },
    ],
  });
  const topic = h("select"), proxy = h("select"), count = h("input", { type: "number", min: 1, max: 1000, value: 3 });
  root.append(
    h("section", { class: "card" }, h("h2", {}, "Break it"), said, table.element),
    h("section", { class: "card" }, h("h2", {}, "Lose messages on purpose"), h("p", { class: "lead" }, "The proxy removes exactly so many messages of a topic from what frontends send. The producer cannot know; the audit wall must say “missing” with this number."),
      h("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); act("drop", proxy.value, { topic: topic.value, count: Number(count.value) }); } }, h("label", {}, "Messages", count), h("label", {}, "Topic", topic), h("label", {}, "At", proxy), h("button", { class: "danger", type: "submit" }, "Drop them"))),
  );
  const fill = (select, names) => {
    if (select.dataset.names === JSON.stringify(names)) return;
    const before = select.value;
    select.dataset.names = JSON.stringify(names);
    select.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
    if (names.includes(before)) select.value = before;
  };
  return {
    sections: ["topics"],
    update() {
      const rows = Object.values(store.rows("processes"));
      table.set(rows.filter((row) => row.kind !== "dashboard"));
      fill(proxy, rows.filter((row) => row.kind === "proxy").map((row) => row.name));
      fill(topic, [...new Set(Object.values(store.rows("topics")).map((row) => row.topic))].filter((name) => name !== "audit").sort());
    },
  };
}
